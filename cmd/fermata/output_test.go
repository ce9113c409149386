package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/job"
)

// TestListsForPipes: names are whole, whatever their length, and can be had alone.
func TestListsForPipes(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	long := strings.Repeat("a", 90)
	c.must("jobs", "create", long, "--every", "1m", "--handler", "h", "--queue", "mail")
	c.must("jobs", "create", "flaky", "--every", "1m", "--handler", "h")
	c.attempt("flaky", job.OutcomeFailed, "boom")
	if out := c.must("jobs", "list", "--no-headers"); !strings.HasPrefix(out, long+"   ") || strings.Contains(out, "NAME") {
		t.Errorf("without headings:\n%s", out)
	}
	for line, want := range map[string]string{
		"jobs list -o name":                       long + "\nflaky\n",
		"jobs list -o name --prefix none":         "",
		"jobs list --no-headers --prefix none":    "",
		"failing -o name -A":                      "flaky\n",
		"--namespace other failing -o name --all": "namespaces/default/jobs/flaky\n",
		"jobs get flaky -o name":                  "flaky\n",
		"version -o json":                         "{\n  \"version\": \"" + versionText() + "\"\n}\n",
		"version -o yaml":                         "version: " + versionText() + "\n",
	} {
		if out := c.must(strings.Fields(line)...); out != want {
			t.Errorf("%s: %q, want %q", line, out, want)
		}
	}
	if out := c.must("jobs", "create", "quiet", "--handler", "h", "-o", "name") + c.must("jobs", "pause", "quiet", "flaky", "-o", "name"); out != "quiet\nquiet\nflaky\n" {
		t.Errorf("changes: %q", out)
	}
	if code, _, errs := c.run("cluster", "check", "-o", "name"); code != exitUsage || !strings.Contains(errs, "has no names to print") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestTablesFitTheTerminal by leaving out the columns that matter least; the name stays.
func TestTablesFitTheTerminal(t *testing.T) {
	wide := outputTable{
		heading:        []string{"NAME", "AGE", "STATE", "LAST ERROR"},
		rows:           [][]string{{"job-one", "3d", "scheduled", strings.Repeat("no route to host ", 3)}, {"b", "1m", "paused", noValue}},
		leadingColumns: []string{"AGE", "LAST ERROR", "STATE"},
	}
	for _, tt := range []struct {
		width int
		want  string
	}{
		{0, "NAME AGE STATE LAST ERROR"}, {200, "NAME AGE STATE LAST ERROR"}, {60, "NAME AGE STATE LAST ERROR"},
		{56, "NAME AGE STATE LAST ERROR"}, {50, "NAME STATE LAST ERROR"}, {30, "NAME STATE"}, {10, "NAME"}, {1, "NAME"},
	} {
		var out bytes.Buffer
		a := &app{standardStreams: standardStreams{out: &out}, now: time.Now}
		if err := a.printTableWithin(wide, tt.width); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if got := strings.Join(strings.Fields(lines[0]), " "); got != tt.want || !strings.HasPrefix(lines[1], "job-one") {
			t.Errorf("%d columns:\n%s", tt.width, out.String())
		}
		for _, line := range lines {
			if tt.width > 10 && utf8.RuneCountInString(line) > tt.width {
				t.Errorf("%d columns: %q", tt.width, line)
			}
		}
	}
	if wide.rows[0][3] != strings.Repeat("no route to host ", 3) {
		t.Error("the rows of the caller have changed")
	}
}

// TestPayloadsWithoutHTMLEscapes: what the ready-made handlers read is shown as it was written.
func TestPayloadsWithoutHTMLEscapes(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "sh", "--exec", `["/bin/sh","-c","cd / && run >/dev/null 2>&1"]`)
	c.must("jobs", "create", "own", "--handler", "h", "--payload", `{"a":"\u0026"}`)
	for args, want := range map[string]string{
		"jobs get sh":          `cd / && run >/dev/null 2>&1`,
		"jobs get sh -o yaml":  `cd / && run >/dev/null 2>&1`,
		"jobs get own":         `{"a":"\u0026"}`,
		"jobs get own -o yaml": `{"a":"\u0026"}`,
	} {
		if out := c.must(strings.Fields(args)...); !strings.Contains(out, want) {
			t.Errorf("%s:\n%s", args, out)
		}
	}
	file := "<jobs: {x: {exec: {argv: [/bin/sh, -c, 'a && b > c']}}}"
	if out := c.must("diff", "-f", "-", file); !strings.Contains(out, "a && b > c") {
		t.Errorf("diff:\n%s", out)
	}
	for text, want := range map[string]string{
		`"\u0026\\u0026\\\u003c"`: `"&\\u0026\\<"`, `no \u0026 JSON`: `no \u0026 JSON`,
	} {
		if got := withoutHTMLEscapes(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestOutputsOfRunsAsText: scripts decode no base64, and bytes that are no text stay as they are.
func TestOutputsOfRunsAsText(t *testing.T) {
	for output, want := range map[string]any{"status \u2713\n": "status \u2713\n", `{"exit_code":0,"output":"a & b"}`: `{"exit_code":0,"output":"a & b"}`, "\xff": nil, "": nil} {
		var out bytes.Buffer
		a := &app{standardStreams: standardStreams{out: &out}, output: "json"}
		run := &client.Run{Name: "namespaces/default/jobs/x/runs/1", Output: []byte(output)}
		if err := printMessages(a, []*client.Run{run}, nil); err != nil {
			t.Fatal(err)
		}
		var list []map[string]any
		if err := json.Unmarshal(out.Bytes(), &list); err != nil || len(list) != 1 || list[0]["output_text"] != want {
			t.Errorf("%q: %v, %v", output, list, err)
		}
		if encoded, _ := list[0]["output"].(string); output != "" && encoded != base64.StdEncoding.EncodeToString([]byte(output)) {
			t.Errorf("%q: output is %q", output, encoded)
		}
		out.Reset()
		if err := printMessage(a, run, nil); err != nil || strings.Contains(out.String(), `"output_text"`) != (want != nil) {
			t.Errorf("%q alone: %s, %v", output, out.String(), err)
		}
	}
}

// TestChosenColumns are those of the table, in the order of the flag.
func TestChosenColumns(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--handler", "h", "--queue", "mail")
	if out := c.must("jobs", "list", "--columns", "queue, name,last-error"); out != "QUEUE   NAME   LAST ERROR\nmail    ping   -\n" {
		t.Errorf("got\n%s", out)
	}
	for line, want := range map[string]string{
		"jobs list --columns speed":               `--columns "speed": want some of name, queue, schedule, state,`,
		"jobs list --columns namespace":           "want some of name",
		"jobs list --prefix none --columns speed": `--columns "speed"`,
		"jobs list --columns name -o json":        "--columns is for tables",
		"jobs get ping --columns name":            "unknown flag: --columns",
	} {
		if code, _, errs := c.run(strings.Fields(line)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d: %s", line, code, errs)
		}
	}
}

// TestListsOfAllNamespaces name the namespace of what they list.
func TestListsOfAllNamespaces(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1m", "--handler", "h")
	c.must("--namespace", "other", "jobs", "create", "pong", "--every", "1m", "--handler", "h")
	c.must("--namespace", "unlisted", "jobs", "create", "x", "--handler", "h") // the view of this cluster does not know it
	c.attempt("ping", job.OutcomeFailed, "boom")
	for line, want := range map[string]string{
		"jobs list -A --columns namespace,name":                                   "NAMESPACE   NAME\ndefault     ping\nother       pong\n",
		"jobs list --all-namespaces -o name":                                      "ping\nnamespaces/other/jobs/pong\n",
		"jobs list -A --limit 1 -o name":                                          "ping\n",
		"--namespace other jobs list -A -o name":                                  "namespaces/default/jobs/ping\npong\n",
		"--namespace other jobs list -o name":                                     "pong\n",
		"dead-letters list -A --columns namespace,letter,error":                   "NAMESPACE   LETTER   ERROR\ndefault     ping/0   boom\n",
		"--namespace other dead list --all-namespaces --columns namespace,letter": "NAMESPACE   LETTER\ndefault     ping/0\n",
		"--namespace other dead list":                                             "no dead runs\n",
	} {
		if out := c.must(strings.Fields(line)...); out != want {
			t.Errorf("%s: %q, want %q", line, out, want)
		}
	}
}
