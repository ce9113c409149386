package acceptance

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// runCommand runs the command line against a node and returns what it prints.
func (n *schedulerNode) runCommand(input []byte, args ...string) []byte {
	n.t.Helper()
	cmd := exec.CommandContext(callContext(n.t), commandPath(n.t, "fermata"), append([]string{"--address", n.grpc}, args...)...)
	cmd.Stdin = bytes.NewReader(input)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("fermata %s: %v\n%s", strings.Join(args, " "), err, errs.Bytes())
	}
	return out
}

// parseBackup parses an export by job. How an overdue run is paced does not count, nor
// how often the job was edited by being put back.
func parseBackup(t *testing.T, export []byte) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for line := range bytes.Lines(export) {
		var b struct {
			Job        map[string]any
			Checkpoint map[string]any
		}
		if err := json.Unmarshal(line, &b); err != nil {
			t.Fatal(err)
		}
		delete(b.Checkpoint, "revision")
		if run, ok := b.Checkpoint["run"].(map[string]any); ok {
			delete(run, "recovery")
		}
		name := b.Job["name"].(string)
		out[name[strings.LastIndexByte(name, '/')+1:]] = map[string]any{"job": b.Job, "checkpoint": b.Checkpoint}
	}
	return out
}

func sameBackups(t *testing.T, got, want map[string]map[string]any) {
	t.Helper()
	for id := range want {
		a, _ := json.Marshal(got[id])
		b, _ := json.Marshal(want[id])
		if !bytes.Equal(a, b) {
			t.Errorf("%s is\n%s\nwas\n%s", id, a, b)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d jobs, want %d", len(got), len(want))
	}
}

// TestRestoredJobsContinue takes a backup of jobs in every kind of trouble while a worker
// is at work on them, loses everything, and restores it: what is known of each job
// is the same, and each goes on at its time.
func TestRestoredJobsContinue(t *testing.T) {
	runBesideOthers(t)
	first := newCluster(t, newRedis(t).URL())
	a := first.startNode("a")
	first.awaitSettled()
	first.startWorker("w1", 20, a.grpc)

	backing := newJob(behaviour{Fail: true})
	backing.Schedule = everyInterval(time.Second, time.Now())
	backing.BackoffPolicy = &fermatav1.BackoffPolicy{Multiplier: 20, MaxExponent: new(int32(1)), Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE}}
	a.createJob("backing", backing)
	retrying := newJob(behaviour{FailAttempts: 1})
	retrying.Schedule = onceAt(time.Now())
	retrying.RetryPolicy = &fermatav1.RetryPolicy{BaseDelay: durationpb.New(14 * time.Second), MaxAttempts: 3, Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE}}
	a.createJob("retrying", retrying)
	dead := newJob(behaviour{Fail: true})
	dead.Schedule = onceAt(time.Now())
	dead.RetryPolicy = &fermatav1.RetryPolicy{MaxAttempts: 1}
	a.createJob("dead", dead)
	selfPaused := newJob(behaviour{Fail: true})
	selfPaused.Schedule, selfPaused.BackoffPolicy, selfPaused.PauseAfterFailures = everyInterval(time.Second, time.Now()), noBackoff(), 3
	a.createJob("paused-itself", selfPaused)
	paused := newJob(behaviour{})
	paused.Schedule = everyInterval(time.Second, time.Now())
	a.createJob("paused", paused)
	if _, err := a.jobs.PauseJob(callContext(t), &fermatav1.PauseJobRequest{Name: jobName("paused"), Note: "until the audit is over"}); err != nil {
		t.Fatal(err)
	}
	held := filepath.Join(t.TempDir(), "held")
	if err := os.WriteFile(held, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	live := newJob(behaviour{While: held})
	live.Schedule = onceAt(time.Now().Add(3 * time.Second))
	a.createJob("live", live)

	wait := func(id string, fits func(*fermatav1.JobStatus) bool) {
		t.Helper()
		redistest.Eventually(t, patience, id+" is in its trouble", func() error { return wantStatus(a.getJob(id), fits) })
	}
	wait("backing", func(s *fermatav1.JobStatus) bool { return s.GetConsecutiveFailures() == 1 })
	wait("retrying", func(s *fermatav1.JobStatus) bool { return s.GetCurrentAttempt() == 2 })
	wait("dead", func(s *fermatav1.JobStatus) bool { return s.GetState() == fermatav1.JobStatus_STATE_DEAD })
	wait("paused-itself", func(s *fermatav1.JobStatus) bool { return s.GetState() == fermatav1.JobStatus_STATE_PAUSED })
	wait("live", func(s *fermatav1.JobStatus) bool { return s.GetState() == fermatav1.JobStatus_STATE_RUNNING })
	export := a.runCommand(nil, "export", "--states")
	want := parseBackup(t, export)
	if len(want) != 6 {
		t.Fatalf("exported\n%s", export)
	}
	first.startOver()
	if err := os.Remove(held); err != nil {
		t.Fatal(err)
	}

	second := newCluster(t, newRedis(t).URL())
	b := second.startNode("b")
	second.awaitSettled()
	if out := b.runCommand(export, "import", "--states"); string(out) != "registered 6 jobs\n" {
		t.Errorf("%s", out)
	}
	sameBackups(t, parseBackup(t, b.runCommand(nil, "export", "--states")), want)
	if letters := b.listDeadLetters(); len(letters) != 1+3+1 {
		t.Errorf("dead letters: %v", letters)
	}
	due := map[string]time.Time{}
	for _, id := range []string{"backing", "retrying"} {
		due[id] = b.getJob(id).GetStatus().GetNextDueTime().AsTime()
	}

	second.startWorker("w2", 20, b.grpc)
	ready := time.Now() // after what is due, perhaps, on a slow machine
	second.awaitEvent(patience, "the run that was live runs again", func(e historycheck.Event) bool { return e.Job == "live" && e.Kind == historycheck.Start })
	for id, at := range due {
		e := second.awaitEvent(patience, id+" goes on", func(e historycheck.Event) bool { return e.Job == id && e.Kind == historycheck.Start })
		lag := time.Unix(0, e.AtNS).Sub(at)
		if ready.After(at) {
			at = ready
		}
		if most := calmLag + second.pulse.Since(at) + busyAllowance(); lag < 0 || time.Unix(0, e.AtNS).Sub(at) > most {
			t.Errorf("%s went on %v after it was due", id, lag)
		}
	}
	status := func(id string, fits func(*fermatav1.JobStatus) bool) {
		t.Helper()
		redistest.Eventually(t, patience, id+" has gone on", func() error { return wantStatus(b.getJob(id), fits) })
	}
	status("backing", func(s *fermatav1.JobStatus) bool { return s.GetConsecutiveFailures() == 2 && s.GetDeadTotal() == 2 })
	status("retrying", func(s *fermatav1.JobStatus) bool { return s.GetSucceededTotal() == 1 && s.GetRunsTotal() == 1 })
	status("live", func(s *fermatav1.JobStatus) bool { return s.GetSucceededTotal() == 1 && s.GetLostTotal() == 0 })
	for _, id := range []string{"paused", "paused-itself", "dead"} {
		if got := second.matchingEvents(func(e historycheck.Event) bool { return e.Job == id }); len(got) != 0 {
			t.Errorf("%s ran: %v", id, got)
		}
	}

	// In place, jobs go back to what they were.
	b.runCommand(nil, "jobs", "resume", "paused")
	status("paused", func(s *fermatav1.JobStatus) bool { return s.GetSucceededTotal() >= 1 })
	b.runCommand(nil, "jobs", "pause", "--note", "in the way of a restore", "paused", "backing")
	status("paused", func(s *fermatav1.JobStatus) bool { return s.GetState() == fermatav1.JobStatus_STATE_PAUSED })
	status("backing", func(s *fermatav1.JobStatus) bool { return s.GetState() == fermatav1.JobStatus_STATE_PAUSED })
	only := slices.DeleteFunc(bytes.SplitAfter(export, []byte("\n")), func(line []byte) bool { return !bytes.Contains(line, []byte(`jobs/paused"`)) })
	if out := b.runCommand(bytes.Join(only, nil), "import", "--states", "--existing", "replace"); string(out) != "registered 0 jobs, replaced 1\n" {
		t.Errorf("%s", out)
	}
	got := parseBackup(t, b.runCommand(nil, "export", "--states", "--prefix", "paused"))
	sameBackups(t, map[string]map[string]any{"paused": got["paused"]}, map[string]map[string]any{"paused": want["paused"]})
	b.runCommand(nil, "jobs", "resume", "paused")
	status("paused", func(s *fermatav1.JobStatus) bool { return s.GetSucceededTotal() >= 1 })
}

// startOver ends all nodes at once: everything is lost.
func (c *cluster) startOver() {
	for len(c.nodes) > 0 {
		c.killNode(c.nodes[0])
	}
}
