package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/cli/workercheck"
)

// runWorkerCheck executes a command line without a cluster.
func runWorkerCheck(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	var out, errs bytes.Buffer
	code = runCommand(t.Context(), append([]string{"worker", "check"}, args...), standardStreams{strings.NewReader(""),
		&out, &errs},
		time.Now)
	return code, out.String(), errs.String()
}

// TestWorkerCheckOfNoWorker: the report has the rule, its place, and what the program wrote, and the exit code is 1.
func TestWorkerCheckOfNoWorker(t *testing.T) {
	program := []string{"--", "/bin/sh", "-c", "echo cannot work >&2; exit 3"}
	code, stdout, stderr := runWorkerCheck(t, program...)
	for _, text := range []string{
		"failed    hello", "P1 docs/worker-protocol.md#the-check-program", "exit status 3", "| cannot work",
		"0 passed, 1 failed",
		fmt.Sprintf("%d cases not run", len(workercheck.Cases())-1),
	} {
		if !strings.Contains(stdout, text) {
			t.Errorf("output lacks %q:\n%s", text, stdout)
		}
	}
	if code != exitFailed || !strings.Contains(stderr, "the worker failed 1 case") || strings.Contains(stdout,
		"conformant") {
		t.Errorf("exit code %d: %s", code, stderr)
	}

	code, stdout, _ = runWorkerCheck(t, append([]string{"-o", "json"}, program...)...)
	var report checkReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if code != exitFailed || report.Failed != 1 || report.NotRun != len(workercheck.Cases())-1 ||
		report.Badge != "" || len(report.Cases) != 1 ||
		report.Cases[0].Faults[0].ID != "P1" || report.Cases[0].Output[0] != "cannot work" {
		t.Errorf("exit code %d: %+v", code, report)
	}
}

func TestWorkerCheckList(t *testing.T) {
	code, stdout, stderr := runWorkerCheck(t, "--list")
	if code != exitOK || !strings.HasPrefix(stdout, "CASE") || strings.Count(stdout, "\n") != 1+len(workercheck.Cases()) {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	code, stdout, _ = runWorkerCheck(t, "--list", "-o", "json")
	var report checkReport
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitOK ||
		len(report.Cases) != len(workercheck.Cases()) {
		t.Errorf("exit code %d, %v: %s", code, err, stdout)
	}
}

func TestWorkerCheckUsage(t *testing.T) {
	for args, text := range map[string]string{
		"":                              "name the command",
		"--list -- /bin/true":           "takes no command",
		"--case nothing -- /bin/true":   "no case nothing",
		"--profile some -- /bin/true":   `profile "some"`,
		"--parallel 0 -- /bin/true":     "--parallel 0",
		"--time-scale 0.1 -- /bin/true": "--time-scale 0.1",
	} {
		code, _, stderr := runWorkerCheck(t, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(stderr, text) {
			t.Errorf("%q: exit code %d: %s", args, code, stderr)
		}
	}
}
