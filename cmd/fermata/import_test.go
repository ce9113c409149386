package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportedFilesApply: what importers write is applied as it is, and the second time
// there is nothing to do.
func TestImportedFilesApply(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for file, args := range map[string][]string{
		"user.crontab":   {"import", "crontab", "--tz", "Europe/Berlin", "--prefix", "u."},
		"system.crontab": {"import", "crontab", "--tz", "UTC", "--user-column", "yes", "--queue", "cron-{user}"},
		"cronjobs.yaml":  {"import", "cronjob", "--queue", "batch"},

		"found.crontab":        {"import", "crontab", "--user-column", "no", "--prefix", "f."},
		"found.system.crontab": {"import", "crontab", "--prefix", "s."},
		"openbsd.crontab":      {"import", "crontab", "--prefix", "o."},
		"found.cronjobs.yaml":  {"import", "cronjob", "--prefix", "k."},
		"more.cronjobs.yaml":   {"import", "cronjob", "--prefix", "m."},
	} {
		jobs := c.must(append(args, filepath.Join("..", "..", "internal", "cli", "importer", "testdata", file))...)
		out := c.must("apply", "-f", "-", "--owner", file, "--prune", "<"+jobs)
		if !strings.Contains(out, " created") {
			t.Errorf("%s:\n%s", file, out)
		}
		if out := c.must("diff", "-f", "-", "--owner", file, "--prune", "--exit-code", "<"+jobs); !strings.HasPrefix(out, "plan: nothing to do, ") {
			t.Errorf("%s once more:\n%s", file, out)
		}
	}
	if out := c.must("jobs", "list", "--queue", "cron-root"); strings.Count(out, "run-parts") != 1 {
		t.Errorf("%s", out)
	}
	if out := c.must("jobs", "list", "--state", "paused"); !strings.Contains(out, "ops.sweep") {
		t.Errorf("%s", out)
	}
}

func TestImportsAsTheyAreShown(t *testing.T) {
	c := startCluster(t)
	system := files(t, map[string]string{"cron.d/app": "# app\n5 4 * * * app /opt/app/tidy --all\n@reboot app /opt/app/start\n"})
	got := c.script("import crontab --tz UTC "+filepath.Join(system, "cron.d", "app"), "import crontab --tz UTC --strict "+filepath.Join(system, "cron.d", "app"),
		"import crontab --tz Mars/Base x", "import crontab --user-column maybe", "import crontab --overlap never", "import crontab --timeout 48h",
		"import crontab /does/not/exist", "import cronjob --prefix !", "import cronjob "+filepath.Join(system, "cron.d", "app"))
	golden(t, "imports", strings.ReplaceAll(got, system, "DIR"))
	if code, out, _ := c.run("import", "crontab", "<* * * * * /bin/a\n"); code != 0 || !strings.Contains(out, "/bin/a") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	t.Setenv("TZ", "Asia/Tokyo")
	if out := c.must("import", "crontab", "<* * * * * /bin/a\n"); !strings.Contains(out, "Asia/Tokyo") {
		t.Errorf("%s", out)
	}
	os.Unsetenv("TZ")
}

// TestUserColumnOfACrontabFromAPipe: the text tells, or the flag has to.
func TestUserColumnOfACrontabFromAPipe(t *testing.T) {
	c := startCluster(t)
	if out := c.must("import", "crontab", "<17 *\t* * *\troot\tcd / && run-parts /etc/cron.hourly\n"); !strings.Contains(out, "- cd / && run-parts") || !strings.Contains(out, "crontab.user: root") {
		t.Errorf("%s", out)
	}
	const unclear = "<0 1 * * * app /opt/app/tidy\n"
	if code, out, err := c.run("import", "crontab", unclear); code != 2 || out != "" || !strings.Contains(err, "-:1: app may be a user, or begin the command: set --user-column yes or no") {
		t.Errorf("exit code %d\n%s\n%s", code, out, err)
	}
	if out := c.must("import", "crontab", "--user-column", "yes", unclear); !strings.Contains(out, "crontab.user: app") {
		t.Errorf("%s", out)
	}
	if out := c.must("import", "crontab", "--user-column", "no", unclear); !strings.Contains(out, "- app /opt/app/tidy") {
		t.Errorf("%s", out)
	}
}

// TestImportsOfOthersDoNotFillTheMemory: small files whose jobs would be hundreds of times their size are refused for
// what the jobs would hold.
func TestImportsOfOthersDoNotFillTheMemory(t *testing.T) {
	variables := "{name: V0, value: xxxxxxxxxx}"
	for i := range 6 {
		variables += fmt.Sprintf(", {name: V%d, value: '%s'}", i+1, strings.Repeat(fmt.Sprintf("$(V%d)", i), 10))
	}
	dir := files(t, map[string]string{
		"cronjob.yaml": "kind: CronJob\nmetadata: {name: x}\nspec: {schedule: '@daily', jobTemplate: {spec: {template: {spec: " +
			"{containers: [{command: [/bin/a], env: [" + variables + "]}]}}}}}\n",
		"one":   "A=" + strings.Repeat("x", 200_000) + "\n" + strings.Repeat("@daily /bin/a\n", 200),
		"two":   "@daily /bin/b\n",
		"three": "A=" + strings.Repeat("x", 200_000) + "\n" + strings.Repeat("@daily /bin/a\n", 200),
	})
	for want, args := range map[string][]string{
		"cronjob.yaml:3: its command, input and variables have more than 262144 bytes": {"cronjob", "cronjob.yaml"},
		"three:137: the jobs and notes up to this line have more than 64 MiB":          {"crontab", "one", "two", "three"},
	} {
		for i := range args[1:] {
			args[i+1] = filepath.Join(dir, args[i+1])
		}
		code, said := command(t, nil, append([]string{"import"}, args...)...)
		if code != 1 || !strings.Contains(said, want) || len(said) > 4096 {
			t.Errorf("%v: exit %d, %d bytes, no %q in %.1000s", args, code, len(said), want, said)
		}
	}
}
