package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// files writes files below a new directory, which is not part of what is compared.
func files(t *testing.T, contents map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range contents {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const someJobs = `
queues:
  mail: {max_concurrency: 20, rate: 100}
jobs:
  ping:
    http: {url: "https://example.com/health", headers: {accept: "*/*"}}
    schedule: {interval: {every: 30s}}
    labels: {team: ops}
  report:
    handler: report
    payload_text: all of them
    schedule: {cron: {expressions: ["30 2 * * *"], time_zone: Europe/Berlin}}
    retry_policy: {max_attempts: 3}
    overlap_policy: buffer_one
    paused: true
`

func TestApplyAsItIsShown(t *testing.T) {
	c := startCluster(t)
	dir := files(t, map[string]string{
		"a.yaml": someJobs, "below/b.json": `[{"id": "old", "handler": "h"}, {"id": "stays", "handler": "h"}]`, "notes.txt": "no job", ".hidden/c.yaml": "also: none",
	})
	got := c.script("apply -f "+dir+" --owner shop --dry-run", "apply -f "+dir+" --owner shop", "diff -f "+dir+" --owner shop --prune --exit-code")
	// The next edition: fields differ, one job goes, one comes, one goes on.
	changed := strings.NewReplacer("30s", "1m", "/health", "/ready", "team: ops", "team: web, tier: '1'", "max_attempts: 3", "max_attempts: 5, base_delay: 10s",
		"overlap_policy: buffer_one\n    paused: true", "timeout: 5m\n    paused: false", "rate: 100", "rate: 50",
		"cron: {expressions: [\"30 2 * * *\"], time_zone: Europe/Berlin}", "interval: {every: 24h}").Replace(someJobs)
	later := files(t, map[string]string{"a.yaml": changed, "b.jsonl": "{\"id\": \"stays\", \"handler\": \"h\"}\n{\"id\": \"new\", \"handler\": \"h\"}\n"})
	got += c.script("diff -f "+later+" --owner shop --prune --exit-code", "apply -f "+later+" --owner shop --prune --hide-payloads", "apply -f "+later+" --owner shop --prune",
		"diff -f "+later+" --owner shop --prune -o json --exit-code", "jobs list", "queues get mail")
	golden(t, "apply", strings.NewReplacer(dir, "DIR", later, "LATER").Replace(got))
}

func TestApplyColours(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "gone", "--handler", "h", "--label", client.OwnerLabel+"=o")
	out := c.must("diff", "--color", "always", "--owner", "o", "--prune", "-f", "-", "<{id: a, handler: h}")
	if !strings.Contains(out, "\x1b[32m+ a\x1b[0m") || !strings.Contains(out, "\x1b[31m- gone\x1b[0m") {
		t.Errorf("%q", out)
	}
	if out := c.must("diff", "-f", "-", "<{id: a, handler: h}"); strings.Contains(out, "\x1b") {
		t.Errorf("colours where there is no terminal: %q", out)
	}
}

// TestApplyRefusals: all errors are reported with their lines before anything is done.
func TestApplyRefusals(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "theirs", "--handler", "h", "--label", client.OwnerLabel+"=them")
	dir := files(t, map[string]string{
		"syntax.yaml": "id: good\nhandler: h\n---\nid: bad\nhandler: 5\ntimout: 3s\nschedule:\n  interval: {every: soon}\n  cron: {expressions: \"* * * * *\"}\noverlap_policy: both\nlabels: {tier: 1}\nretry_policy:\n  max_attempts: many\n",
		"values.yaml": "id: good\nhandler: h\n---\nid: \"no id\"\nhandler: h\n---\nid: bad\nschedule:\n  cron:\n    expressions:\n      - '@daily'\n      - '61 * * * *'\n    time_zone: Mars/Base\ntimeout: 90h\nlocks: [{key: ''}]\nlabels:\n  team: \"a\\u0007b\"\n",
		"twice.yaml":  "- {id: good, handler: h}\n- {id: other, handler: h}\n- {id: good, handler: h}\n- {handler: nameless}\n- {id: labelled, handler: h, labels: {fermata.io/owner: them}}\n",
		"theirs.yaml": "- {id: good, handler: h}\n-\n  id: theirs\n  handler: h\n",
		"empty.yaml":  "# nothing\n",
	})
	var lines []string
	for _, name := range []string{"syntax", "values", "twice", "theirs", "empty"} {
		lines = append(lines, "apply --owner us --prune -f "+filepath.Join(dir, name+".yaml"))
	}
	lines = append(lines, "apply", "apply -f x --prune", "apply -f /does/not/exist", "apply -f - -f -", "apply -f x --color blue", "jobs list",
		"apply --owner us --force -f "+dir+"/theirs.yaml", "apply --owner us --prune -f "+dir+"/empty.yaml --allow-empty", "jobs list")
	golden(t, "apply-refusals", strings.ReplaceAll(c.script(lines...), dir, "DIR"))
}

// TestApplyReportsConflictsToRepeat: a deleted job that still runs is gone some day, another
// owner's job is not.
func TestApplyReportsConflictsToRepeat(t *testing.T) {
	c := startCluster(t)
	c.must("jobs", "create", "theirs", "--handler", "h", "--label", client.OwnerLabel+"=them")
	c.must("jobs", "create", "busy", "--every", "1m", "--handler", "h")
	c.attempt("busy", job.OutcomeNone, "")
	c.must("jobs", "delete", "busy")
	for file, want := range map[string]int{
		"[{id: busy, handler: h}]":                           exitConflict,
		"[{id: theirs, handler: h}]":                         exitUsage,
		"[{id: busy, handler: h}, {id: theirs, handler: h}]": exitUsage,
		"[{id: busy, handler: h}, {id: x, handler: ''}]":     exitUsage,
	} {
		if code, out, errs := c.run("apply", "--owner", "us", "-f", "-", "<"+file); code != want {
			t.Errorf("%s: exit code %d, want %d\n%s%s", file, code, want, out, errs)
		}
	}
}

// TestApplyIsIdempotent: what is known of jobs stays, whatever form the files have.
func TestApplyIsIdempotent(t *testing.T) {
	c := startCluster(t)
	dir := files(t, map[string]string{"a.yaml": someJobs})
	c.must("apply", "-f", dir, "--owner", "shop")
	c.must("jobs", "resume", "report")
	c.attempt("ping", job.OutcomeFailed, "no route")
	before := c.must("jobs", "list", "-o", "yaml")
	report := strings.Replace(someJobs, "    paused: true\n", "", 1)
	for _, args := range [][]string{
		{"-f", "-", "--owner", "shop", "--prune", "<" + report},
		{"-f", "-", "--owner", "shop", "--prune", "<" + before},                               // what jobs list shows
		{"-f", "-", "--owner", "shop", "--prune", "<" + c.must("export")},                     // what export writes
		{"-f", "-", "--prune", "--owner", "shop", "<" + c.must("jobs", "list", "-o", "json")}, // an array
	} {
		if out := c.must(append([]string{"apply"}, args...)...); out != "applied: nothing to do, 2 unchanged\n" {
			t.Errorf("%v:\n%s", args[:len(args)-1], out)
		}
	}
	if after := c.must("jobs", "list", "-o", "yaml"); after != before {
		t.Errorf("was\n%s\nis\n%s", before, after)
	}
}

// TestApplyHundreds: many jobs take few calls, and a plan of them is right.
func TestApplyHundreds(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	var b strings.Builder
	for i := range 600 {
		line, err := json.Marshal(map[string]any{"id": "j" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + "-" + strings.Repeat("0", i%3) + strconv.Itoa(i), "handler": "h", "payload_text": strings.Repeat("p", i%100)})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	text := b.String()
	if out := c.must("apply", "-f", "-", "--owner", "o", "--prune", "--hide-payloads", "<"+text); !strings.HasSuffix(out, "applied: 600 created\n") {
		t.Fatal(out[max(0, len(out)-200):])
	}
	half := strings.Join(strings.SplitAfter(text, "\n")[:300], "")
	if out := c.must("apply", "-f", "-", "--owner", "o", "--prune", "<"+half); !strings.HasSuffix(out, "applied: 300 deleted, 300 unchanged\n") {
		t.Fatal(out[max(0, len(out)-200):])
	}
}

// TestApplyKeepsAPause: files that say nothing of it neither show nor end it.
func TestApplyKeepsAPause(t *testing.T) {
	c := startCluster(t)
	c.must("queues", "pause", "mail")
	c.must("apply", "-f", "-", "<queues: {mail: {rate: 5}}")
	if got := c.must("queues", "get", "mail"); !strings.Contains(got, "Paused:") || !strings.Contains(got, "at most 5 a second") {
		t.Errorf("%s", got)
	}
	c.must("queues", "pause", "mail", "--for", "2h")
	c.must("apply", "-f", "-", "<queues: {mail: {rate: 4, paused: true}}")
	if got := c.must("queues", "get", "mail"); !strings.Contains(got, "starts until 2026-03-01T14:00:00Z") {
		t.Errorf("the end of the pause is lost: %s", got)
	}
	if code, _, errs := c.run("apply", "-f", "-", "<queues: {mail: {pause_until_time: 2026-03-01T14:00:00Z}}"); code != 2 ||
		!strings.Contains(errs, "pause_until_time") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	c.must("apply", "-f", "-", "<queues: {mail: {rate: 5}}")
	if code, out, errs := c.run("diff", "--exit-code", "-f", "-", "<queues: {mail: {rate: 5}}"); code != 0 {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	out := c.must("apply", "-f", "-", "<queues: {mail: {rate: 5, paused: false}, news: {paused: true}}")
	if !strings.Contains(out, "paused") {
		t.Errorf("%s", out)
	}
	if got := c.must("queues", "get", "mail") + c.must("queues", "get", "news"); strings.Count(got, "Paused:") != 1 {
		t.Errorf("%s", got)
	}
}

// TestApplyKeepsConcurrentChanges: what changes between plan and deed is not
// overwritten, and does not keep the rest from being done.
func TestApplyKeepsConcurrentChanges(t *testing.T) {
	c := startCluster(t)
	c.must("apply", "-f", "-", "--owner", "o", "<"+`[{id: edited, handler: h}, {id: deleted, handler: h}, {id: surplus, handler: h}, {id: plain, handler: h}]`)
	c.must("queues", "set", "mail", "--rate", "5")
	var out, errs bytes.Buffer
	a := &app{namespace: "default", output: "table", timeout: time.Minute, addresses: []string{c.address}, now: time.Now}
	a.in, a.out, a.err = strings.NewReader(`
queues: {mail: {rate: 7}}
jobs:
  edited: {handler: h2}
  deleted: {handler: h2}
  plain: {handler: h2}
  made: {handler: h2}
`), &out, &errs
	flags := &applyFlags{files: []string{"-"}, owner: "o", prune: true, color: "never"}
	set, err := a.readFiles(flags)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.Dial(a.addresses, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	p := applyPlanner{app: a, client: cl, flags: flags, set: set}
	if err := p.planChanges(t.Context()); err != nil || !p.hasChanges() {
		t.Fatal(err, p.hasChanges())
	}
	c.must("jobs", "update", "edited", "--priority", "9")
	c.must("jobs", "update", "surplus", "--priority", "9")
	c.must("jobs", "delete", "deleted")
	c.must("jobs", "create", "made", "--handler", "theirs")
	c.must("queues", "set", "mail", "--rate", "6")
	err = p.applyChanges(t.Context())
	if code, _ := classifyError(err); code != exitConflict {
		t.Errorf("exit code %d: %v", code, err)
	}
	for _, id := range []string{"edited", "deleted", "surplus", "made", "queue mail"} {
		if !strings.Contains(errs.String(), id+": ") {
			t.Errorf("nothing is said of %s:\n%s", id, errs.String())
		}
	}
	if out.String() != "applied: 1 updated\n" {
		t.Errorf("%s", out.String())
	}
	for id, want := range map[string]string{"edited": "h", "surplus": "h", "made": "theirs", "plain": "h2"} {
		if got := c.stored(id).GetHandler(); got != want {
			t.Errorf("%s has handler %s, want %s", id, got, want)
		}
	}
	if got := c.must("queues", "get", "mail"); !strings.Contains(got, "at most 6 a second") {
		t.Errorf("%s", got)
	}
}

// TestApplyLargePayloads: what is too much for one call is done by several.
func TestApplyLargePayloads(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	edition := func(payload string) string {
		var b strings.Builder
		for i := range 34 {
			fmt.Fprintf(&b, "{\"id\":\"j%d\",\"handler\":\"h\",\"payload_text\":%q}\n", i, payload)
		}
		return b.String()
	}
	large := edition(strings.Repeat("x", 190<<10))
	for _, step := range []struct{ text, want string }{
		{large, "applied: 34 created\n"}, {edition("small"), "applied: 34 updated\n"}, {edition("small"), "applied: nothing to do, 34 unchanged\n"},
	} {
		if out := c.must("apply", "-f", "-", "--hide-payloads", "--request-timeout", "60s", "<"+step.text); !strings.HasSuffix(out, step.want) {
			t.Errorf("%s", out[max(0, len(out)-200):])
		}
	}
}

// TestDeniedJobsAreNamed: who may edit some queues hears which jobs of a file are of others.
func TestDeniedJobsAreNamed(t *testing.T) {
	a := &app{namespace: "default", output: "table", now: time.Now}
	a.in = strings.NewReader("jobs:\n  mine: {handler: h, schedule: {interval: {every: 30s}}}\n  theirs: {handler: h, schedule: {interval: {every: 30s}}}\n")
	set, err := a.readFiles(&applyFlags{files: []string{"-"}})
	if err != nil {
		t.Fatal(err)
	}
	p := applyPlanner{app: a, set: set, changes: []*fermatav1.JobChange{{}, {Code: int32(codes.PermissionDenied), Message: "the permission is missing"}}}
	err = p.findFaults()
	code, hint := classifyError(err)
	if code != exitFailed || !strings.Contains(hint, "ask for a role") || !strings.Contains(err.Error(), "theirs") || !strings.Contains(err.Error(), ":3") || strings.Contains(err.Error(), "mine") {
		t.Errorf("exit code %d, hint %q, %v", code, hint, err)
	}
}
