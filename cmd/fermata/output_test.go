package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/job"
)

// TestListsForPipes: names are whole, whatever their length, and can be had alone.
func TestListsForPipes(t *testing.T) {
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
	wide := table{
		heading: []string{"NAME", "AGE", "STATE", "LAST ERROR"},
		rows:    [][]string{{"job-one", "3d", "scheduled", strings.Repeat("no route to host ", 3)}, {"b", "1m", "paused", none}},
		first:   []string{"AGE", "LAST ERROR", "STATE"},
	}
	for _, tt := range []struct {
		width int
		want  string
	}{
		{0, "NAME AGE STATE LAST ERROR"}, {200, "NAME AGE STATE LAST ERROR"}, {60, "NAME AGE STATE LAST ERROR"},
		{45, "NAME AGE STATE LAST ERROR"}, {40, "NAME STATE LAST ERROR"}, {30, "NAME STATE"}, {10, "NAME"}, {1, "NAME"},
	} {
		var out bytes.Buffer
		a := &app{streams: streams{out: &out}, now: time.Now}
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
