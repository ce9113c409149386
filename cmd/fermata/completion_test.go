package main

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fermata-io/fermata/internal/core/job"
)

// complete returns what the shell is offered for the last word.
func (c *cluster) complete(words ...string) []string {
	c.t.Helper()
	code, out, errs := runWithoutAddress(c.t, append([]string{"__completeNoDesc", "--address", c.address}, words...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != exitOK || !strings.HasPrefix(lines[len(lines)-1], ":") {
		c.t.Errorf("%q: exit %d\n%s%s", words, code, out, errs)
	}
	if strings.Contains(errs, "warning") || strings.Contains(errs, "error") {
		c.t.Errorf("%q: %s", words, errs)
	}
	return slices.Sorted(slices.Values(lines[:len(lines)-1]))
}

func TestCompletions(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--handler", "h", "--max-attempts", "1")
	c.must("jobs", "create", "pong", "--handler", "h")
	c.must("jobs", "create", "other", "--handler", "h")
	c.must("jobs", "create", "elsewhere", "--handler", "h", "--namespace", "team")
	c.attempt("ping", job.OutcomeFailed, "boom")
	c.must("config", "set-context", "production", "--namespace", "x")
	runs := strings.Fields(c.must("jobs", "runs", "ping", "-o", "name"))
	slices.Sort(runs)
	for line, want := range map[string][]string{
		"jobs get p":                       {"ping", "pong"},
		"jobs get ":                        {"other", "ping", "pong"},
		"--namespace team jobs get ":       {"elsewhere"},
		"jobs get ping ":                   {},
		"jobs delete ping p":               {"pong"},
		"jobs pause pi":                    {"ping"},
		"jobs resume --all pi":             {"ping"},
		"jobs explain po":                  {"pong"},
		"jobs create p":                    {},
		"jobs runs ping ":                  runs,
		"jobs cancel ping none":            {},
		"dead-letters redrive p":           {"ping/0"},
		"queues get ":                      {"mail"},
		"queues pause m":                   {"mail"},
		"jobs list --queue ":               {"mail"},
		"jobs list --state p":              {"paused"},
		"jobs list --columns name,qu":      {"name,queue"},
		"jobs list --columns names":        {},
		"jobs create x --preset mon":       {"monitor"},
		"jobs create x --tz Europe/Ber":    {"Europe/Berlin"},
		"jobs create x --overlap buffer":   {"buffer-all", "buffer-one"},
		"jobs create x --misfire run-":     {"run-all", "run-once"},
		"jobs create x --retry-strategy f": {"fixed"},
		"jobs create x --label a":          {},
		"jobs run ping --backoff k":        {"keep"},
		"events --kind run.d":              {"run.dead"},
		"events --kind run.dead,job.dele":  {"run.dead,job.deleted"},
		"top --sort ba":                    {"backlog"},
		"import --existing s":              {"skip"},
		"-o y":                             {"yaml"},
		"--namespace team-":                {"team-b"},
		"--context p":                      {"production"},
		"config use-context ":              {"production"},
		"config set-context ":              {},
		"log-level d":                      {"debug"},
		"jobs lis":                         {"list"},
		"jobs get --name":                  {"--namespace"},
	} {
		if got := c.complete(strings.Split(line, " ")...); !slices.Equal(got, want) && len(got)+len(want) > 0 {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	// A node that never answers, and one that is not there: static values are offered all the same.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, address := range []string{silent.Addr().String(), "127.0.0.1:1"} {
		c.address = address
		if got := c.complete("jobs", "get", "p"); len(got) != 0 {
			t.Errorf("without a node: %q", got)
		}
		if got := c.complete("jobs", "create", "x", "--preset", "moni"); !slices.Equal(got, []string{"monitor"}) {
			t.Errorf("without a node: presets %q", got)
		}
	}
}

// TestArgumentsHaveCompletions: each argument of a command has one, or is known to have none, so that a shell does not
// offer files for it.
func TestArgumentsHaveCompletions(t *testing.T) {
	a := &app{}
	root := a.rootCommand()
	a.registerCompletions(root)
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		files := strings.Contains(cmd.Use, "FILE")
		if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && !files {
			t.Errorf("%s: a shell offers files for %q", cmd.CommandPath(), cmd.Use)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	for use, want := range map[string]string{
		"get ID": "ID", "run ID...": "ID...", "runs ID [RUN]": "ID RUN", "pause (ID... | --all [--queue Q])": "ID...",
		"redrive (JOB[/SLOT]... | --all)": "SLOT...", "list": "", "hint ID (--in 5m | --at TIME)": "ID", "set QUEUE [flags]": "QUEUE",
		"import [-f FILE]": "", "refresh-defaults [ID...] [flags]": "ID...", "log-level [debug|info]": "",
	} {
		names, repeated := argumentNames(use)
		got := strings.Join(names, " ")
		if repeated {
			got += "..."
		}
		if got != want {
			t.Errorf("%s: %q, want %q", use, got, want)
		}
	}
}

// TestCompletionsArePlainWords: what a cluster answers is inserted into a command line, so that nothing is offered that
// a shell would run.
func TestCompletionsArePlainWords(t *testing.T) {
	for value, want := range map[string]bool{
		"report-1": true, "a.b_c:d~e": true, "job/r1": true, "r-2026-01-01T00:00:00Z": true, "": false, "$(id)": false,
		"`id`": false, "a;id": false, "a b": false, "a\nb": false, "a\tb": false, "a\x1b[2J": false, "-f": false, "~root": false,
		"a\u202eb": false, "a&b": false, "a>b": false, "#a": false,
	} {
		if got := isPlainWord(value); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
