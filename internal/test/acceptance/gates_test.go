package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestLockIsHeldByOneRunAtATime: 40 jobs in all shards share a mutex, on three
// nodes of which one is killed; every run gets its turn, and no two at once.
func TestLockIsHeldByOneRunAtATime(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL(), "--lease-ttl", "8s")
	a, b, d := c.startNode("a"), c.startNode("b"), c.startNode("c")
	c.awaitSettled()
	c.startWorker("w1", 10, a.grpc, b.grpc)
	c.startWorker("w2", 10, b.grpc, a.grpc)
	c.startWorker("w3", 10, d.grpc, a.grpc)

	const jobs = 40
	at := time.Now().Add(500 * time.Millisecond)
	for i := range jobs {
		j := newJob(behaviour{Sleep: 60 * time.Millisecond})
		j.Schedule = onceAt(at)
		j.Locks = []*fermatav1.Lock{{Key: "ledger"}}
		a.createJob(fmt.Sprintf("lock-%02d", i), j)
	}
	done := func(n int) {
		redistest.Eventually(t, patience, fmt.Sprintf("%d runs have ended", n), func() error {
			if ended := len(c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.End && e.Outcome == historycheck.OK })); ended < n {
				return fmt.Errorf("%d runs", ended)
			}
			return nil
		})
	}
	done(10)
	c.killNode(d)
	done(jobs)
	if most := c.mostAtOnce("lock-"); most != 1 {
		t.Errorf("%d runs held the mutex at once", most)
	}
	workers := map[string]bool{}
	for _, e := range c.readEvents() {
		workers[e.Worker] = true
	}
	atLeast(t, "workers that ran under the mutex", len(workers), 2)
	for i := range jobs {
		id := fmt.Sprintf("lock-%02d", i)
		redistest.Eventually(t, patience, id+" is done", func() error {
			return wantStatus(a.getJob(id), func(s *fermatav1.JobStatus) bool {
				return s.GetSucceededTotal() == 1 && s.GetConsecutiveFailures() == 0
			})
		})
	}
}

// TestTargetLimitsHoldJobs: one 503 with a Retry-After quiets all jobs of the
// target; then one probe goes ahead of the others.
func TestTargetLimitsHoldJobs(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	c.startWorker("w1", 20, a.grpc)
	c.startWorker("w2", 20, b.grpc)
	down := filepath.Join(t.TempDir(), "down")
	if err := os.WriteFile(down, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(id string, at time.Time) {
		j := newJob(behaviour{FailWhile: down, RetryAfter: 3 * time.Second, Sleep: 20 * time.Millisecond})
		j.Schedule, j.Target = onceAt(at), "api.example.com"
		a.createJob(id, j)
	}
	create("first", time.Now())
	failed := c.awaitEvent(patience, "the first job fails", func(e historycheck.Event) bool { return e.Job == "first" && e.Kind == historycheck.End })
	redistest.Eventually(t, patience, "its failure is stored", func() error {
		return wantStatus(a.getJob("first"), func(s *fermatav1.JobStatus) bool { return s.GetLastOutcome() == fermatav1.Outcome_OUTCOME_FAILED })
	})
	const jobs = 20
	for i := range jobs {
		create(fmt.Sprintf("other-%02d", i), time.Now())
	}
	redistest.Eventually(t, patience, "the others are held", func() error {
		for i := range jobs {
			s := b.getJob(fmt.Sprintf("other-%02d", i)).GetStatus()
			if s.GetHold().GetReason() != fermatav1.Hold_REASON_TARGET || s.GetHold().GetKey() != "api.example.com" {
				return fmt.Errorf("job %d: %v", i, s)
			}
		}
		return nil
	})
	answer, err := b.jobs.ExplainJob(callContext(t), &fermatav1.ExplainJobRequest{Name: jobName("other-00")})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(answer.GetReasons(), func(r *fermatav1.Reason) bool { return r.GetKind() == fermatav1.Reason_KIND_TARGET }) {
		t.Errorf("explain does not name the target: %v", answer)
	}
	if err := os.Remove(down); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, "all have succeeded", func() error {
		if n := len(c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.End && e.Outcome == historycheck.OK })); n < jobs+1 {
			return fmt.Errorf("%d successes", n)
		}
		return nil
	})
	var begun []historycheck.Event
	for _, e := range c.readEvents() {
		if e.Kind == historycheck.Start && e.AtNS > failed.AtNS {
			begun = append(begun, e)
		}
	}
	slices.SortFunc(begun, func(x, y historycheck.Event) int { return int(x.AtNS - y.AtNS) })
	if wait := time.Duration(begun[0].AtNS - failed.AtNS); wait < 2900*time.Millisecond {
		t.Errorf("the probe started %v after the failure, Retry-After was 3s", wait)
	}
	probeEnd := c.matchingEvents(func(e historycheck.Event) bool {
		return e.Kind == historycheck.End && e.Token == begun[0].Token && e.Job == begun[0].Job
	})
	if begun[1].AtNS < probeEnd[0].AtNS {
		t.Errorf("%s started beside the probe %s", begun[1].Job, begun[0].Job)
	}
}

// TestQueueLimits: the concurrency and the rate of a queue hold over all nodes.
func TestQueueLimits(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	c.startWorkerOf("w1", 20, []string{"narrow", "slow"}, a.grpc)
	c.startWorkerOf("w2", 20, []string{"narrow", "slow"}, b.grpc)
	limit := func(queue string, s *fermatav1.QueueSettings) {
		s.Name = namespace + "/queues/" + queue
		if _, err := a.jobs.UpdateQueueSettings(callContext(t), &fermatav1.UpdateQueueSettingsRequest{Settings: s}); err != nil {
			t.Fatal(err)
		}
	}
	limit("narrow", &fermatav1.QueueSettings{MaxConcurrency: 3})
	limit("slow", &fermatav1.QueueSettings{Rate: 20, Burst: 1})
	const jobs = 30
	at := time.Now().Add(6 * time.Second) // by then every node knows
	for i := range jobs {
		for _, queue := range []string{"narrow", "slow"} {
			j := newJob(behaviour{Sleep: 100 * time.Millisecond})
			j.Queue, j.Schedule = queue, onceAt(at)
			b.createJob(fmt.Sprintf("%s-%02d", queue, i), j)
		}
	}
	redistest.Eventually(t, patience, "all have run", func() error {
		if n := len(c.matchingEvents(func(e historycheck.Event) bool { return e.Kind == historycheck.End })); n < 2*jobs {
			return fmt.Errorf("%d ends", n)
		}
		return nil
	})
	if most := c.mostAtOnce("narrow-"); most > 3 {
		t.Errorf("%d runs at once, the limit is 3", most)
	} else if most < 3 {
		t.Errorf("only %d runs at once: the limit is 3", most)
	}
	// By the clock of Redis, which tokens carry in microseconds: handlers may start late,
	// and then together.
	var leased []int64
	for _, e := range c.matchingEvents(func(e historycheck.Event) bool {
		return e.Kind == historycheck.Start && strings.HasPrefix(e.Job, "slow-")
	}) {
		leased = append(leased, e.Token)
	}
	slices.Sort(leased)
	span := time.Duration(leased[jobs-1]-leased[0]) * time.Microsecond
	if least := time.Duration(jobs-1)*50*time.Millisecond - 300*time.Millisecond - c.pulse.Since(at); span < least {
		t.Errorf("%d runs were leased within %v, the rate is 20 a second", jobs, span)
	}
}
