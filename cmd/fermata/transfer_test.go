package main

import (
	"encoding/base64"
	"fmt"
	"sort"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/core/job"
)

// exported is what export writes, in a fixed order.
func (c *cluster) exported(args ...string) []string {
	c.t.Helper()
	lines := strings.Split(strings.TrimSpace(c.must(append([]string{"export"}, args...)...)), "\n")
	sort.Strings(lines)
	return lines
}

// What was exported and imported into an empty cluster is the same to the last
// field.
func TestExportAndImport(t *testing.T) {
	from, to := startCluster(t), startCluster(t)
	from.must("jobs", "create", "ping", "--every", "1m", "--http", "https://example.com", "--label", "team=ops", "--lock", "a=2", "--jitter", "none")
	from.must("jobs", "create", "report", "--cron", "H 2 * * *", "--tz", "Europe/Berlin", "--handler", "r", "--payload", "\x00\xffé", "--exclude-date", "12-25", "--priority", "0")
	from.must("jobs", "create", "later", "--at", "2030-01-01T00:00:00Z", "--handler", "r", "--queue", "mail", "--preset", "webhook")
	lines := from.exported()
	text := "<" + strings.Join(lines, "\n") + "\n"
	if out := to.must("import", text); out != "registered 3 jobs (those that were the same included)\n" {
		t.Errorf("%s", out)
	}
	if got := to.exported(); strings.Join(got, "\n") != strings.Join(lines, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
	}
	for _, id := range []string{"ping", "report", "later"} {
		a, b := from.stored(id), to.stored(id)
		a.Etag, b.Etag = "", ""
		if !proto.Equal(a, b) {
			t.Errorf("%s:\n%v\n%v", id, a, b)
		}
	}
	if got := from.exported("--queue", "mail"); len(got) != 1 || !strings.Contains(got[0], "later") {
		t.Errorf("%v", got)
	}
	// Once more changes nothing.
	if out := to.must("import", text); out != "registered 3 jobs (those that were the same included)\n" {
		t.Errorf("%s", out)
	}
	to.must("jobs", "update", "ping", "--every", "5m")
	code, out, errs := to.run("import", text)
	want := "registered 2 jobs (those that were the same included); not imported: 1 line: " + lineOf(lines, "ping") + "\n"
	if code != exitConflict || !strings.Contains(errs, "ping: ") || out != want {
		t.Errorf("%d %s%s", code, out, errs)
	}
	if out := to.must("import", "--existing", "skip", text); out != "registered 2 jobs (those that were the same included), left 1 as they are\n" || to.stored("ping").GetSchedule().GetInterval().GetEvery().GetSeconds() != 300 {
		t.Errorf("%s", out)
	}
	if out := to.must("import", "--existing", "replace", text); out != "registered 2 jobs (those that were the same included), replaced 1\n" || to.stored("ping").GetSchedule().GetInterval().GetEvery().GetSeconds() != 60 {
		t.Errorf("%s", out)
	}
	for args, want := range map[string]string{
		"<{}":                   "line 1: the job has no name",
		"<\n{\"name\":\"x\",":   "line 2",
		"--existing maybe":      "want fail, skip or replace",
		"-f /does/not/exist":    "/does/not/exist",
		`<{"name":"a","bad":1}`: `unknown field "bad"`,
	} {
		fields := []string{args}
		if !strings.HasPrefix(args, "<") {
			fields = strings.Fields(args)
		}
		if code, _, errs := to.run(append([]string{"import"}, fields...)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%q: %d %s", args, code, errs)
		}
	}
}

// lineOf is the number of the line that holds a job.
func lineOf(lines []string, id string) string {
	for i, line := range lines {
		if strings.Contains(line, "jobs/"+id+`"`) {
			return fmt.Sprint(i + 1)
		}
	}
	return "none"
}

// TestImportListsWhatItLeftOut: by the numbers of the lines; the lines beside them are imported.
func TestImportListsWhatItLeftOut(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "taken", "--every", "5m", "--handler", "h")
	job := func(id string) string {
		return `{"name":"namespaces/default/jobs/` + id + `","handler":"h","schedule":{"interval":{"every":"60s"}}}` + "\n"
	}
	code, out, errs := c.run("import", "<"+job("a")+"\nno json\n"+job("taken")+job("b")+"{}\n")
	want := "registered 2 jobs (those that were the same included); not imported: 3 lines: 3, 4, 6\n"
	if out != want || code != exitConflict {
		t.Errorf("exit %d: %s%s\nwant %s", code, out, errs, want)
	}
	if out := c.must("jobs", "list", "-o", "name"); out != "a\nb\ntaken\n" {
		t.Error(out)
	}
	for _, input := range []string{"<", "<\n\n"} {
		if code, _, errs := c.run("import", input); code != exitFailed || !strings.Contains(errs, "the input holds no jobs") {
			t.Errorf("%q: exit %d: %s", input, code, errs)
		}
	}
	if code, _, _ := c.run("import", "<no json\n"); code != exitUsage {
		t.Errorf("only garbage: exit %d", code)
	}
}

// TestImportOfOthersListsWhatItLeftOut is the same for crontabs.
func TestImportOfOthersListsWhatItLeftOut(t *testing.T) {
	c := startCluster(t)
	code, _, errs := c.run("import", "crontab", "--tz", "UTC", "--user-column", "no",
		"<1 2 3\n5 4 * * * /opt/tidy\n@reboot /opt/start\n")
	if code != exitOK || !strings.Contains(errs, "; not imported: 2 lines: -:1, -:3\n") ||
		!strings.Contains(errs, "1 job, ") {
		t.Errorf("exit %d: %s", code, errs)
	}
	for _, input := range []string{"<", "<# nothing\n", "<what is this\n"} {
		code, _, errs := c.run("import", "crontab", "--tz", "UTC", "--user-column", "no", input)
		if code != exitFailed || !strings.Contains(errs, "no job of the input could be imported") {
			t.Errorf("%q: exit %d: %s", input, code, errs)
		}
	}
}

func TestExportFromNowhere(t *testing.T) {
	c := startCluster(t)
	c.address = "127.0.0.1:1"
	for _, args := range [][]string{{"export"}, {"import", "<{\"name\":\"a\"}"}} {
		code, _, errs := c.run(append([]string{"--request-timeout", "3s"}, args...)...)
		if code != exitUnavailable || strings.Contains(errs, "rpc error") || !strings.Contains(errs, "is a node running") {
			t.Errorf("%v: %d %s", args, code, errs)
		}
	}
}

// TestLargestJobFitsIntoALine of an export, with all its payloads as base64.
func TestLargestJobFitsIntoALine(t *testing.T) {
	if least := base64.StdEncoding.EncodedLen(rpc.MaxPayload+job.MaxOwnPayloads) + 1<<20; maxLineBytes < least {
		t.Errorf("lines may have %d bytes, the largest job takes up to %d", maxLineBytes, least)
	}
}
