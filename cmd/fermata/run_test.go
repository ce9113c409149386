package main

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/job"
)

var waitingManual = regexp.MustCompile(`waiting +manual`)

// startManual begins a `jobs run` that waits, and returns when its run is there.
func (c *cluster) startManual(args ...string) (ended func() (code int, out, errs string)) {
	c.t.Helper()
	done := make(chan func() (int, string, string), 1)
	go func() {
		code, out, errs := c.run(append([]string{"jobs", "run", "ping"}, args...)...)
		done <- func() (int, string, string) { return code, out, errs }
	}()
	for !waitingManual.MatchString(c.must("jobs", "runs", "ping")) {
		if c.t.Context().Err() != nil {
			c.t.Fatal("no manual run came")
		}
	}
	return func() (int, string, string) { return (<-done)() }
}

func TestRunWaitsForItsEnd(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1h", "--handler", "h", "--jitter", "none", "--max-attempts", "2", "--retry-base", "10s")
	for _, x := range []struct {
		outcomes []job.Outcome
		code     int
		out, err string
	}{
		{[]job.Outcome{job.OutcomeSucceeded}, 0, "Outcome:       succeeded", ""},
		{[]job.Outcome{job.OutcomeFailed, job.OutcomeSucceeded}, 0, "Attempts:      2, 0 workers lost", ""},
		{[]job.Outcome{job.OutcomeFailed, job.OutcomeFailed}, 1, "Error:         status 500", "is dead"},
	} {
		ended := c.startManual("--wait")
		for _, o := range x.outcomes {
			c.attempt("ping", o, "status 500")
		}
		code, out, errs := ended()
		if code != x.code || !strings.Contains(out, x.out) || !strings.Contains(errs, x.err) {
			t.Errorf("%v: exit code %d\n%s%s", x.outcomes, code, out, errs)
		}
	}
	ended := c.startManual("--wait", "--wait-timeout", "1s")
	if code, out, errs := ended(); code != 1 || out != "" || !strings.Contains(errs, "has not ended in time and continues") {
		t.Errorf("in time: exit code %d\n%s%s", code, out, errs)
	}
	for _, args := range [][]string{{"--wait-timeout", "1s"}, {"--wait", "--wait-timeout", "-1s"}} {
		if code, _, errs := c.run(append([]string{"jobs", "run", "ping"}, args...)...); code != 2 || !strings.Contains(errs, "--wait-timeout") {
			t.Errorf("%v: exit code %d %s", args, code, errs)
		}
	}
	if code, _, errs := c.run("jobs", "run", "nothing", "--wait"); code != 3 || !strings.Contains(errs, "nothing") {
		t.Errorf("no such job: exit code %d %s", code, errs)
	}
}

// TestRunsAreAwaitedTogether: one that takes long leaves the others their time.
func TestRunsAreAwaitedTogether(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for _, id := range []string{"slow", "ping"} {
		c.must("jobs", "create", id, "--every", "1h", "--handler", "h", "--jitter", "none")
	}
	done := make(chan string, 2)
	go func() {
		code, out, errs := c.run("jobs", "run", "slow", "ping", "--wait", "--wait-timeout", "5s")
		if code != 1 {
			t.Errorf("exit code %d", code)
		}
		done <- out
		done <- errs
	}()
	for !waitingManual.MatchString(c.must("jobs", "runs", "ping")) {
		if c.t.Context().Err() != nil {
			t.Fatal("no manual run came")
		}
	}
	c.attempt("ping", job.OutcomeSucceeded, "")
	out, errs := <-done, <-done
	if !strings.Contains(out, "succeeded") || strings.Contains(errs, "ping") || strings.Count(errs, "has not ended in time") != 1 {
		t.Errorf("%s%s", out, errs)
	}
}

// TestSeveralResultsAreOneDocument, and of one it is itself.
func TestSeveralResultsAreOneDocument(t *testing.T) {
	c := startCluster(t)
	for _, id := range []string{"a", "b"} {
		c.must("jobs", "create", id, "--every", "1h", "--handler", "h")
	}
	code, out, errs := c.run("jobs", "pause", "a", "none", "b", "-o", "json")
	var list []map[string]any
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 2 || code != 3 || !strings.Contains(errs, "none") {
		t.Errorf("exit code %d, %v:\n%s%s", code, err, out, errs)
	}
	documents := 0
	for d := yaml.NewDecoder(strings.NewReader(c.must("jobs", "resume", "a", "b", "-o", "yaml"))); ; documents++ {
		var one map[string]any
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil || one["name"] == nil {
			t.Fatalf("%v: %v", one, err)
		}
	}
	if documents != 2 {
		t.Errorf("%d documents", documents)
	}
	var one map[string]any
	if err := json.Unmarshal([]byte(c.must("jobs", "pause", "a", "-o", "json")), &one); err != nil || one["name"] == nil {
		t.Errorf("%v, %v", one, err)
	}
}

// A job without a history forgets its runs with their end.
func TestRunThatIsNotKept(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "ping", "--every", "1h", "--handler", "h", "--jitter", "none", "--history", "0")
	ended := c.startManual("--wait")
	c.attempt("ping", job.OutcomeSucceeded, "")
	if code, out, errs := ended(); code != 1 || !strings.Contains(errs, "keeps no history") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	c.must("jobs", "update", "ping", "--history", "1")
	ctx := t.Context()
	cl, err := client.Dial([]string{c.address}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := missingRunError(ctx, cl, "ping", "r1"); !strings.Contains(err.Error(), "1 other have since") {
		t.Error(err)
	}
	c.must("jobs", "delete", "ping")
	if err := missingRunError(ctx, cl, "ping", "r1"); !strings.Contains(err.Error(), "was deleted") {
		t.Error(err)
	}
}

// TestResultsAreObjects: commands whose calls answer nothing tell programs what they
// have done all the same.
func TestResultsAreObjects(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		c.must("jobs", "create", id, "--every", "1h", "--handler", "h")
	}
	exported := c.must("export")
	is := func(got, want string) {
		t.Helper()
		var a, b any
		if err := json.Unmarshal([]byte(got), &a); err != nil {
			t.Errorf("%q: %v", got, err)
		}
		if err := json.Unmarshal([]byte(want), &b); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("got %s want %s", got, want)
		}
	}
	is(c.must("jobs", "pause", "--all", "-o", "json"), `{"paused": 4}`)
	is(c.must("jobs", "resume", "--all", "-o", "json"), `{"resumed": 4}`)
	is(c.must("jobs", "delete", "a", "-o", "json"), `{"job": "a", "deleted": true}`)
	is(c.must("jobs", "delete", "--if-exists", "a", "b", "-o", "json"), `[{"job": "a", "deleted": false}, {"job": "b", "deleted": true}]`)
	is(c.must("dead-letters", "redrive", "--all", "--dry-run", "-o", "json"), `{"would_redrive": 0, "first": []}`)
	is(c.must("dead-letters", "redrive", "--all", "-o", "json"), `{"redriven": 0, "refused": 0}`)
	if got := c.must("jobs", "delete", "c", "-o", "yaml"); got != "job: c\ndeleted: true\n" {
		t.Errorf("yaml: %q", got)
	}
	is(c.must("import", "--existing", "skip", "-o", "json", "<"+exported),
		`{"registered": 4, "replaced": 0, "skipped": 0, "unchanged": 0, "not_imported_lines": []}`)
	code, out, errs := c.run("jobs", "pause", "none", "nobody", "-o", "json")
	if is(out, "[]"); code != 3 || strings.Count(errs, "no such job") != 2 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if out := c.must("jobs", "pause", "--all"); out != "paused 4 jobs\n" {
		t.Errorf("for people: %q", out)
	}
}
