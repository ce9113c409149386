package importer_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/cli/importer"
)

const (
	tooLarge = "its command, input and variables have more than 262144 bytes"
	spent    = "the jobs and notes up to this line have more than 64 MiB"
)

// allocated returns how many bytes a function allocates, those that it frees again included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// nestedVariables returns variables that each refer ten times to the previous one.
func nestedVariables(levels int) string {
	env := "{name: V0, value: xxxxxxxxxx}"
	for i := 1; i <= levels; i++ {
		env += fmt.Sprintf(", {name: V%d, value: '%s'}", i, strings.Repeat(fmt.Sprintf("$(V%d)", i-1), 10))
	}
	return "env: [" + env + "]"
}

// TestExpansionsAreBounded: values that are made of one another are not built beyond what a payload can hold.
func TestExpansionsAreBounded(t *testing.T) {
	large := "env: [{name: A, value: " + strings.Repeat("x", 100_000) + "}"
	for name, container := range map[string]string{
		"levels":         "command: [/bin/a], " + nestedVariables(6),
		"more levels":    "command: [/bin/a], " + nestedVariables(20),
		"one value":      "command: [/bin/a], " + large + ", {name: B, value: '" + strings.Repeat("$(A)", 1000) + "'}]",
		"many values":    "command: [/bin/a], " + large + strings.Repeat(", {name: B, value: $(A)}", 1000) + "]",
		"one argument":   "command: [/bin/a, '" + strings.Repeat("$(A)", 1000) + "'], " + large + "]",
		"many arguments": "command: [/bin/a" + strings.Repeat(", $(A)", 1000) + "], " + large + "]",
		"a script":       "command: [/bin/sh, -c, '" + strings.Repeat("$(A)", 1000) + "'], " + large + "]",
		"no command":     "args: ['" + strings.Repeat("$(A)", 1000) + "'], " + large + "]",
	} {
		t.Run(name, func(t *testing.T) {
			file := []byte(cronJobText("", "command: [/bin/b]") + "---\n" + cronJobText("", container))
			var out string
			bytes := allocated(func() {
				entries := readCronJobs(t, "f", file, importer.CronJobOptions{Zone: "UTC"})
				if len(entries) != 2 || !entries[0].HasJob() || entries[1].HasJob() {
					t.Errorf("%d entries", len(entries))
				}
				out, _ = show(t, entries)
			})
			if !strings.Contains(out, tooLarge) || len(out) > 4096 || bytes > 16<<20 {
				t.Errorf("%d bytes allocated, %d written: %.4096s", bytes, len(out), out)
			}
		})
	}
}

// TestPayloadsBeyondTheLimitAreSkipped: other jobs of the file are imported, and so are large ones within the limit.
func TestPayloadsBeyondTheLimitAreSkipped(t *testing.T) {
	word := strings.Repeat("x", 250_000)
	for name, c := range map[string]struct{ crontab, container string }{
		"variable":  {"@daily /bin/b\nA=" + word + "\n%s@daily /bin/a\n", "command: [/bin/a], env: [{name: A, value: %s" + word + "}]"},
		"argument":  {"@daily /bin/b\n@daily /bin/a " + word + "%s\n", "command: [/bin/a, " + word + "%s]"},
		"script":    {"@daily /bin/b\n@daily a " + word + "%s\n", "command: [/bin/sh, -c, a " + word + "%s]"},
		"input":     {"@daily /bin/b\n@daily /bin/a%%" + word + "%s\n", "args: [" + word + "%s]"},
		"shell":     {"@daily /bin/b\nSHELL=/bin/" + word + "%s\n@daily a b\n", "command: [/bin/a], args: [" + word + "%s]"},
		"directory": {"@daily /bin/b\n@daily cd /" + word + "%s\n", "command: [/bin/a], workingDir: /" + word + "%s"},
	} {
		for more, jobs := range map[string]int{"": 2, word[:20_000]: 1} {
			if name == "variable" && more != "" {
				more = "B=" + more + "\n"
			}
			entries := readCrontab(t, "f", fmt.Appendf(nil, c.crontab, more), options(false))
			container := fmt.Sprintf(c.container, strings.Trim(more, "B=\n"))
			manifest := cronJobText("", "command: [/bin/b]") + "---\n" + strings.Replace(cronJobText("", container), "name: x", "name: y", 1)
			for of, entries := range map[string][]importer.Entry{
				"crontab": entries,
				"cronjob": readCronJobs(t, "f", []byte(manifest), importer.CronJobOptions{Zone: "UTC"}),
			} {
				out, read := show(t, entries)
				if len(read) != jobs || strings.Contains(out, tooLarge) != (jobs == 1) {
					t.Errorf("%s of a %s, %d bytes more: %d jobs", name, of, len(more), len(read))
				}
			}
		}
	}
}

// TestAnImportHasABudget: what each job has a copy of, and the notes, are bounded together.
func TestAnImportHasABudget(t *testing.T) {
	value, entries := strings.Repeat("x", 200_000), strings.Repeat("@daily /bin/a b\n", 3000)
	var names strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&names, "A%d=1\n", i)
	}
	crontab := func(text string) func(b *importer.Budget) ([]importer.Entry, error) {
		return func(b *importer.Budget) ([]importer.Entry, error) {
			o := options(false)
			o.Budget = b
			return importer.Crontab("f", []byte(text), o)
		}
	}
	cronJobs := func(text string) func(b *importer.Budget) ([]importer.Entry, error) {
		return func(b *importer.Budget) ([]importer.Entry, error) {
			return importer.CronJobs("f", []byte(text), importer.CronJobOptions{Zone: "UTC", Budget: b})
		}
	}
	script := "command: [/bin/sh, -c, '" + strings.Repeat("$(A)", 50_000) + "'], envFrom: [{secretRef: {name: s}}]"
	job := "{metadata: {name: x}, " + strings.TrimSpace(cronJobText("", script)[len("kind: CronJob\nmetadata: {name: x}\n"):]) + "}"
	for name, c := range map[string]struct {
		read func(b *importer.Budget) ([]importer.Entry, error)
		line string
	}{
		"variable":       {crontab("A=" + value + "\n" + entries), "f:337: "},
		"export":         {crontab("PATH=" + value + "\n" + strings.ReplaceAll(entries, "/bin/a", "a")), "f:336: "},
		"quotes":         {crontab("PATH=" + strings.Repeat("'", 200_000) + "\n" + strings.ReplaceAll(entries, "/bin/a", "a")), "f:85: "},
		"shell":          {crontab("SHELL=/" + value + "\n" + entries), "f:"},
		"many variables": {crontab(names.String() + entries), "f:200"},
		"notes":          {cronJobs("kind: CronJobList\nitems: [&a " + job + strings.Repeat(", *a", 50) + "]"), "f:2: "},
		"kinds":          {cronJobs("kind: List\nitems: [" + strings.Repeat("1,", 900_000) + "]"), "f:2: "},
	} {
		t.Run(name, func(t *testing.T) {
			var made []importer.Entry
			var err error
			bytes := allocated(func() { made, err = c.read(nil) })
			if made != nil || err == nil || !strings.HasPrefix(err.Error(), c.line) || !strings.Contains(err.Error(), spent) || bytes > 1<<30 {
				t.Errorf("%d bytes allocated, %d entries: %v", bytes, len(made), err)
			}
		})
	}
	b := &importer.Budget{}
	half := crontab("A=" + value + "\n" + entries[:len(entries)/15])
	if made, err := half(b); len(made) != 200 || err != nil {
		t.Errorf("%d entries, %v", len(made), err)
	}
	if _, err := half(b); err == nil || !strings.Contains(err.Error(), spent) {
		t.Errorf("a second file: %v", err)
	}
}

// TestAFileOfJobsIsBounded: texts may have several times their size as YAML.
func TestAFileOfJobsIsBounded(t *testing.T) {
	text := "A=" + strings.Repeat("\x01", 200_000) + "\n" + strings.Repeat("@daily /bin/a b\n", 200)
	_, err := importer.Write("", readCrontab(t, "f", []byte(text), options(false)))
	if err == nil || !strings.HasPrefix(err.Error(), "f:") || !strings.Contains(err.Error(), "have more than 64 MiB as YAML") {
		t.Error(err)
	}
}

// TestFilesShareWhatTheirAliasesStandFor: several files are bounded like the documents of one.
func TestFilesShareWhatTheirAliasesStandFor(t *testing.T) {
	text := "kind: ConfigMap\na: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.Repeat("*a, ", 28) + "]\n"
	b := &importer.Budget{}
	for i, want := range []string{"no CronJob", "no CronJob", "all files together stand for more than 64 MiB"} {
		entries := readCronJobs(t, "f", []byte(text), importer.CronJobOptions{Zone: "UTC", Budget: b})
		if len(entries) != 1 || !strings.Contains(entries[0].Notes[0].Text, want) {
			t.Errorf("file %d: no %q in %+v", i, want, entries)
		}
	}
}
