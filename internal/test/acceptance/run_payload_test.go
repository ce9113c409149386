package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestRunWithPayloadSurvivesLosses: the node and the worker of a run with a payload of its own are killed while it
// runs; it starts again elsewhere with the same payload, dies, and has it once more when its dead letter is redriven.
// The next run has the payload of the job.
func TestRunWithPayloadSurvivesLosses(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	first := c.startWorker("w0", 8, a.grpc)
	dir := t.TempDir()
	held, broken := filepath.Join(dir, "held"), filepath.Join(dir, "broken")
	for _, file := range []string{held, broken} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j := newJob(behaviour{Fail: true})
	j.Schedule = &fermatav1.Schedule{}
	j.RetryPolicy = &fermatav1.RetryPolicy{MaxAttempts: 1}
	a.createJob("digest", j)

	own := behaviour{While: held, FailWhile: broken}
	run, err := a.jobs.RunJobWithPayload(callContext(t), &fermatav1.RunJobWithPayloadRequest{
		Name: jobName("digest"), RequestId: "once", Payload: own.encodePayload(),
	})
	if err != nil || run.GetOwnPayload().GetSize() != int64(len(own.encodePayload())) {
		t.Fatalf("%v, %v", run, err)
	}
	c.awaitEvent(patience, "the run starts", isStartOf("digest", "w0"))
	first.killProcess()
	c.killNode(a)
	c.startWorker("w1", 8, b.grpc)
	c.awaitEvent(patience, "the run starts again", isStartOf("digest", "w1"))
	if err := os.Remove(held); err != nil {
		t.Fatal(err)
	}
	awaitRun := func(name string, outcome fermatav1.Outcome) *fermatav1.Run {
		t.Helper()
		var got *fermatav1.Run
		redistest.Eventually(t, patience, name+" ends", func() (err error) {
			got, err = b.jobs.GetRun(callContext(t), &fermatav1.GetRunRequest{Name: name})
			if err == nil && got.GetOutcome() != outcome {
				err = fmt.Errorf("it is %v", got)
			}
			return err
		})
		return got
	}
	dead := awaitRun(run.GetName(), fermatav1.Outcome_OUTCOME_DEAD)
	if !dead.GetDeadLetter() || string(dead.GetOwnPayload().GetPayload()) != string(own.encodePayload()) {
		t.Errorf("the dead letter is %v", dead)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if n := b.redriveLetters("digest"); n != 1 {
		t.Errorf("%d redriven", n)
	}
	awaitRun(run.GetName(), fermatav1.Outcome_OUTCOME_SUCCEEDED)

	plain, err := b.jobs.RunJob(callContext(t), &fermatav1.RunJobRequest{Name: jobName("digest"), RequestId: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	if got := awaitRun(plain.GetRun().GetName(), fermatav1.Outcome_OUTCOME_DEAD); got.GetOwnPayload() != nil {
		t.Errorf("the job's own run is %v", got)
	}
	starts := c.matchingEvents(func(e historycheck.Event) bool {
		return strings.HasSuffix(e.Run, "/m-once") && e.Kind == historycheck.Start
	})
	if len(starts) < 3 {
		t.Errorf("%d attempts: want one lost, one dead, one redriven", len(starts))
	}
}
