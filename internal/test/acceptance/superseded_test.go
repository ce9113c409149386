package acceptance

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestManualRunKeepsLostRun: a worker is killed that has the runs of a one-time job,
// of a job that buffers each nominal time, and of a manual run; before their leases end,
// a client asks for a manual run of each. The runs that were lost start again, and the
// manual runs follow.
func TestManualRunKeepsLostRun(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	n := c.startNode("a")
	c.awaitSettled()
	first := c.startWorker("w0", 8, n.grpc)

	held := filepath.Join(t.TempDir(), "held")
	if err := os.WriteFile(held, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var promises []historycheck.ExpectedSchedule
	for _, mode := range []fermatav1.RunJobRequest_Backoff{fermatav1.RunJobRequest_BACKOFF_RESET, fermatav1.RunJobRequest_BACKOFF_KEEP} {
		one := newJob(behaviour{While: held})
		one.Schedule = onceAt(time.Now())
		n.createJob(fmt.Sprintf("once-%d", mode), one)
		buffers := newJob(behaviour{While: held})
		buffers.Schedule = everyInterval(time.Minute, time.Now().Add(time.Second))
		buffers.OverlapPolicy = fermatav1.OverlapPolicy_OVERLAP_POLICY_BUFFER_ALL
		buffers.MisfirePolicy = &fermatav1.MisfirePolicy{Policy: fermatav1.MisfirePolicy_POLICY_RUN_ALL}
		n.createJob(fmt.Sprintf("buffers-%d", mode), buffers)
		manual := newJob(behaviour{While: held})
		manual.Schedule = &fermatav1.Schedule{}
		n.createJob(fmt.Sprintf("manual-%d", mode), manual)
		for _, kind := range []string{"once", "buffers", "manual"} {
			promises = append(promises, historycheck.ExpectedSchedule{Job: fmt.Sprintf("%s-%d", kind, mode)})
		}
	}
	var asked []historycheck.ManualRun
	ask := func(job, request string, mode fermatav1.RunJobRequest_Backoff) {
		answer, err := n.jobs.RunJob(callContext(t), &fermatav1.RunJobRequest{Name: jobName(job), RequestId: request, Backoff: mode})
		if err != nil || answer.GetCoalesced() {
			t.Fatalf("run %s of %s: %v, %v", request, job, answer, err)
		}
		asked = append(asked, historycheck.ManualRun{Job: job, Run: path.Base(answer.GetRun().GetName()), AtNS: time.Now().UnixNano()})
	}
	modeOf := func(job string) fermatav1.RunJobRequest_Backoff {
		return fermatav1.RunJobRequest_Backoff(job[len(job)-1] - '0')
	}
	lost := map[string]historycheck.Event{}
	for _, p := range promises {
		if job := p.Job; job[0] == 'm' {
			ask(job, "first", modeOf(job))
		}
	}
	for _, p := range promises {
		lost[p.Job] = c.awaitEvent(patience, p.Job+" starts", isStartOf(p.Job, "w0"))
	}
	killed := beginFault("worker killed", "w0")
	first.killProcess()
	fault := killed.endFault(lossBound(1))
	for _, p := range promises {
		ask(p.Job, "second", modeOf(p.Job))
	}
	if err := os.Remove(held); err != nil {
		t.Fatal(err)
	}
	c.startWorker("w1", 8, n.grpc)
	ends := func(job, run string) func(historycheck.Event) bool {
		return func(e historycheck.Event) bool {
			return e.Kind == historycheck.End && e.Job == job && e.Outcome == historycheck.OK && path.Base(e.Run) == run
		}
	}
	for _, p := range promises {
		job, run := p.Job, path.Base(lost[p.Job].Run)
		again := c.awaitEvent(patience, run+" of "+job+" starts again", func(e historycheck.Event) bool { return isStartOf(job, "w1")(e) && path.Base(e.Run) == run })
		if again.Attempt != lost[job].Attempt {
			t.Errorf("%s of %s starts again as attempt %d, after %d", run, job, again.Attempt, lost[job].Attempt)
		}
		c.awaitEvent(patience, run+" of "+job+" succeeds", ends(job, run))
		c.awaitEvent(patience, "the manual run of "+job+" succeeds", ends(job, "m-second"))
		if i := slices.IndexFunc(n.listRuns(job), func(r *fermatav1.Run) bool { return r.GetOutcome() == fermatav1.Outcome_OUTCOME_CANCELLED }); i >= 0 {
			t.Errorf("a run of %s was cancelled: %v", job, n.listRuns(job)[i])
		}
	}
	bounds := calmBounds()
	bounds.Longest = 3 * time.Second
	h := historycheck.History{ExpectedSchedules: promises, ManualRuns: asked, Faults: []historycheck.Fault{fault}, Bounds: bounds}
	if r := c.judgeHistory(h); r.Repeats < len(promises) {
		t.Errorf("%d repeats, want %d", r.Repeats, len(promises))
	}
}
