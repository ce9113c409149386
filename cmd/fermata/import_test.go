package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestImportedFilesApply: what importers write is applied as it is, and the second time
// there is nothing to do.
func TestImportedFilesApply(t *testing.T) {
	c := startCluster(t)
	for file, args := range map[string][]string{
		"user.crontab":   {"import", "crontab", "--tz", "Europe/Berlin", "--prefix", "u."},
		"system.crontab": {"import", "crontab", "--tz", "UTC", "--user-column", "yes", "--queue", "cron-{user}"},
		"cronjobs.yaml":  {"import", "cronjob", "--queue", "batch"},
	} {
		jobs := c.must(append(args, filepath.Join("..", "..", "internal", "importer", "testdata", file))...)
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
