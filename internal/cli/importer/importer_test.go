package importer_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/cli/importer"
	"github.com/fermata-io/fermata/internal/cli/manifest"
)

var rewrite = flag.Bool("update", false, "rewrite the golden files")

func readCrontab(t testing.TB, file string, text []byte, o importer.CrontabOptions) []importer.Entry {
	t.Helper()
	entries, err := importer.Crontab(file, text, o)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func readCronJobs(t testing.TB, file string, text []byte, o importer.CronJobOptions) []importer.Entry {
	t.Helper()
	entries, err := importer.CronJobs(file, text, o)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// show is what Write gives, after which manifest has to understand it.
func show(t testing.TB, entries []importer.Entry) (string, []manifest.Job) {
	t.Helper()
	text, err := importer.Write("head", entries)
	if err != nil {
		t.Fatal(err)
	}
	set, faults := manifest.Read("out", text, "default")
	if len(faults) > 0 {
		t.Fatalf("%v\n%s", faults, text)
	}
	jobs := 0
	for i := range entries {
		if entries[i].HasJob() {
			jobs++
		}
	}
	if again := set.Check(); len(again) > 0 || len(set.Jobs) != jobs {
		t.Fatalf("%d jobs of %d entries, %v\n%s", len(set.Jobs), jobs, again, text)
	}
	return string(text), set.Jobs
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs:\n%s", path, got)
	}
}

func options(system bool) importer.CrontabOptions {
	return importer.CrontabOptions{System: system, Zone: "Europe/Berlin", Overlap: "allow_all", Timeout: 24 * time.Hour}
}

func TestGoldenImports(t *testing.T) {
	for _, name := range []string{"user.crontab", "system.crontab", "cronjobs.yaml", "found.crontab", "found.system.crontab", "openbsd.crontab", "found.cronjobs.yaml", "more.cronjobs.yaml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		var entries []importer.Entry
		switch name {
		case "cronjobs.yaml", "found.cronjobs.yaml", "more.cronjobs.yaml":
			entries = readCronJobs(t, name, text, importer.CronJobOptions{Zone: "UTC"})
		default:
			entries = readCrontab(t, name, text, options(strings.HasSuffix(name, "system.crontab")))
		}
		got, _ := show(t, entries)
		golden(t, name+".golden", got)
	}
}

// TestHostileCrontabs: one line each, and what becomes of it.
func TestHostileCrontabs(t *testing.T) {
	for _, c := range []struct {
		line string
		want string // in the job as YAML, or in the note
	}{
		{`* * * * * /bin/a`, `argv: ["/bin/a"]`},
		{"\t 5\t4   * * *\t /bin/a  b ", `argv: ["/bin/a", "b"]`},
		{"0 0 * * * /bin/a\r", `argv: ["/bin/a"]`},
		{`-*/5 * * * * /bin/a`, `"*/5 * * * *"`},
		{`0 0 * * 7 /bin/a`, `"0 0 * * 7"`},
		{`0 0 * JAN-MAR sun,Tue /bin/a`, `"0 0 * JAN-MAR sun,Tue"`},
		{`0 22-2 * * * /bin/a`, `"0 22-2 * * *"`},
		{`0~30 3 * * * /bin/a`, `"H(0-30) 3 * * *"`},
		{`~ 3 * * * /bin/a`, `"H 3 * * *"`},
		{`@Daily /bin/a`, `"@daily"`},
		{`@annually /bin/a`, `"@annually"`},
		{`@every_minute /bin/a`, `"* * * * *"`},
		{`@600 /bin/a`, `every: "10m0s"`},
		{`@reboot /bin/a`, `machines that start`},
		{`@every_second /bin/a`, `shortest interval`},
		{`@1 /bin/a`, `5 s to a year`},
		{`@never /bin/a`, `not understood`},
		{`61 * * * * /bin/a`, `not understood`},
		{`0 0 31 2 * /bin/a`, `not understood`},
		{`@every 90s /bin/a`, `every: "1m30s"`},
		{`@every 1s /bin/a`, `5 s to a year`},
		{`@every day /bin/a`, `not understood`},
		{`@every 5m`, `there is no command`},
		{`OnCalendar=daily`, `timer of systemd`},
		{`OnUnitActiveSec=15min`, `timer of systemd`},
		{`0 0 12 ? * MON-FRI /bin/a`, `"MON-FRI" is a sixth field`},
		{`0 0 12 ? * MON,WED /bin/a`, `"MON,WED" is a sixth field`},
		{`0 0 12 * * 2-6 /bin/a`, `"2-6" is a sixth field`},
		{`0 0 12 1 * ? 2027 /bin/a`, `"?" is a sixth field`},
		{`0 0 12 1 1 2027 /bin/a`, `"2027" is a sixth field`},
		{`0 0 * * * Monitor /bin/a`, `"Monitor /bin/a"`},
		{`0 0 * * * /opt//a/./b x`, `argv: ["/opt/a/b", "x"]`},
		{`0 0 * * * /opt/a/../b x`, `["/bin/sh","-c","/opt/a/../b x"]`},
		{`Mon *-*-* 00:00:00 /bin/a`, `there is no command`},
		{`H H(1-5) * * * /bin/a`, `"H H(1-5) * * *"`},
		{`0 0 * * FRI-MON /bin/a`, `"0 0 * * FRI-MON"`},
		{`0 0 L * 5#2 /bin/a`, `"0 0 L * 5#2"`},
		{`0 0 15W * * /bin/a`, `"0 0 15W * *"`},
		{`0 0 */2 * 1 /bin/a`, `"0 0 */2 * 1"`},
		{`*/60 */24 * * * /bin/a`, `"*/60 */24 * * *"`},
		{`41-59/24 5 * * 5 /bin/a`, `"41-59/24 5 * * 5"`},
		{`0 0 * * * cat%${secret:X}`, `no such name follows`},
		{`* * * * *`, `there is no command`},
		{`* * * *`, `there is no command`},
		{`nonsense`, `there is no command`},
		{"* * * * * echo \xff", `is not UTF-8`},
		{"* * * * * echo \x00", `is not UTF-8`},
		{`0 0 * * * a=1 b`, `["/bin/sh","-c","a=1 b"]`},
		{`0 0 * * * cd /x && ./run.sh > /dev/null 2>&1`, `"cd /x \u0026\u0026 ./run.sh \u003e /dev/null 2\u003e\u00261"`},
		{`0 0 * * * cd /x && ./run.sh`, `id: run-`},
		{`0 0 * * * flock -n /tmp/l /opt/backup.sh`, `["/bin/sh","-c","flock -n /tmp/l /opt/backup.sh"]`},
		{`0 0 * * * date +\%F`, `"date +%F"`},
		{`0 0 * * * echo \\%x`, `"echo \\\\"`},
		{`0 0 * * * cat%one%two`, `"stdin":"one\ntwo\n"`},
		{`0 0 * * * cat%one\%two%`, `"stdin":"one%two\n"`},
		{`0 0 * * * cat%`, `"stdin":"\n"`},
		{`0 0 * * * cat%${secret:x}`, `means a secret`},
		{`CRON_TZ=Mars/Base`, `is not a time zone`},
		{`RANDOM_DELAY=lots`, `0 to 1439`},
		{`MAILTO=me@example.com`, `is not mailed`},
		{`TZ=UTC`, `given to the programs`},
	} {
		entries := readCrontab(t, "f", []byte(c.line+"\n"), options(false))
		if len(entries) != 1 {
			t.Errorf("%q: %d entries", c.line, len(entries))
			continue
		}
		text, jobs := show(t, entries)
		payload := ""
		if len(jobs) == 1 {
			payload = string(jobs[0].Job.GetPayload())
		}
		if !strings.Contains(flat(text), flat(c.want)) && !strings.Contains(payload, c.want) {
			t.Errorf("%q: no %s in\n%s", c.line, c.want, text)
		}
		if !entries[0].HasJob() && len(entries[0].Notes) == 0 {
			t.Errorf("%q went in silence", c.line)
		}
	}
}

// flat makes lists and texts comparable, however they are laid out.
func flat(s string) string {
	s = strings.NewReplacer("\n  ", " ", "\n", " ", "- ", "", `"`, "", "'", "", "[", "", "]", "", ",", " ").Replace(s)
	return strings.Join(strings.Fields(s), " ")
}

func TestAssignmentsApplyToLaterEntries(t *testing.T) {
	entries := readCrontab(t, "f", []byte(`* * * * * /bin/a
PATH = /opt/bin:/bin
'QUOTED'="two words"
SHELL=/usr/bin/fish
CRON_TZ=Asia/Tokyo
RANDOM_DELAY=3
* * * * * /bin/a
`), options(false))
	_, jobs := show(t, entries)
	if len(jobs) != 2 {
		t.Fatal(len(jobs))
	}
	first, second := jobs[0].Job, jobs[1].Job
	if string(first.GetPayload()) != `{"argv":["/bin/a"]}` || first.GetSchedule().GetCron().GetTimeZone() != "Europe/Berlin" {
		t.Errorf("%s", first)
	}
	if string(second.GetPayload()) != `{"argv":["/usr/bin/fish","-c","/bin/a"],"env":{"QUOTED":"two words"}}` ||
		second.GetSchedule().GetCron().GetTimeZone() != "Asia/Tokyo" || second.GetSchedule().GetJitter().AsDuration() != 3*time.Minute {
		t.Errorf("%s", second)
	}
	if jobs[0].ID == jobs[1].ID {
		t.Errorf("both are %s", jobs[0].ID)
	}
}

// TestIDsDependOnTheEntryOnly: an edit of one line leaves the ids of others alone.
func TestIDsDependOnTheEntryOnly(t *testing.T) {
	_, before := show(t, readCrontab(t, "f", []byte("0 1 * * * /bin/a\n0 2 * * * /bin/a\n"), options(false)))
	_, after := show(t, readCrontab(t, "f", []byte("# new\n5 5 * * * /bin/z\n0 2 * * * /bin/a\n"), options(false)))
	if after[1].ID != before[1].ID || after[0].ID == before[0].ID {
		t.Errorf("%s %s, then %s %s", before[0].ID, before[1].ID, after[0].ID, after[1].ID)
	}
}

func FuzzCrontab(f *testing.F) {
	for _, name := range []string{"user.crontab", "system.crontab"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), name == "system.crontab")
	}
	f.Add("* * * * * \u0085\ufeff\u2028'\"# a: b\n", false)
	f.Add("@1000000 x%\x01%\n=\n\"=\n", true)
	f.Fuzz(func(t *testing.T, text string, system bool) {
		o := options(system)
		o.Queue = "q-{user}"
		entries, err := importer.Crontab("f", []byte(text), o)
		if err == nil {
			show(t, entries)
		}
	})
}

// TestYAMLBombsAreRefused: a few hundred bytes that stand for ten billion values.
func TestYAMLBombsAreRefused(t *testing.T) {
	text := "kind: List\na0: &a0 [x]\n"
	for i := 1; i <= 10; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10))
	}
	entries := readCronJobs(t, "f", []byte(text), importer.CronJobOptions{Zone: "UTC"})
	if len(entries) != 1 || entries[0].HasJob() || !strings.Contains(entries[0].Notes[0].Text, "stands for more than 32 MiB") {
		t.Errorf("%+v", entries)
	}
}

func FuzzCronJobs(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "cronjobs.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		f.Add(document)
	}
	f.Add("kind: List\nitems: &a [*a, {kind: CronJob}]")
	f.Fuzz(func(t *testing.T, text string) {
		entries, err := importer.CronJobs("f", []byte(text), importer.CronJobOptions{Zone: "UTC"})
		if err == nil {
			show(t, entries)
		}
	})
}
