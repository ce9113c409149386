package acceptance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestLostWorkersCostNoAttempts: runs of a killed worker start elsewhere within
// the lease and two seconds; losses count apart; the third in a row quarantines.
func TestLostWorkersCostNoAttempts(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	n := c.startNode("a")
	other := c.startNode("b")
	c.awaitSettled()
	var faults []historycheck.Fault

	j := newJob(behaviour{Sleep: time.Minute})
	j.Schedule = onceAt(time.Now())
	n.createJob("poison", j)
	var lastToken int64
	w := c.startWorker("w0", 1, n.grpc)
	var killedAt time.Time
	for loss := range 3 {
		id := fmt.Sprintf("w%d", loss)
		started := c.awaitEvent(patience, "the run starts on "+id, isStartOf("poison", id))
		if loss > 0 {
			bound := lossBound(loss)
			if after := time.Unix(0, started.AtNS).Sub(killedAt); after > bound+c.pulse.Since(killedAt)+busyAllowance() {
				t.Errorf("started elsewhere %v after loss %d, want at most %v", after, loss, bound)
			}
		}
		if started.Attempt != 1 || started.Token <= lastToken {
			t.Errorf("attempt %d with token %d after loss %d, want attempt 1 and a token above %d", started.Attempt, started.Token, loss, lastToken)
		}
		lastToken = started.Token
		redistest.Eventually(t, patience, "the run is shown as running", func() error {
			return wantStatus(n.getJob("poison"), func(s *fermatav1.JobStatus) bool {
				return s.GetState() == fermatav1.JobStatus_STATE_RUNNING && s.GetCurrentAttempt() == 1 && int(s.GetCurrentLostAttempts()) == loss &&
					int(s.GetLostTotal()) == loss && s.GetConsecutiveFailures() == 0
			})
		})
		var next *process
		if loss < 2 {
			next = c.startWorker(fmt.Sprintf("w%d", loss+1), 1, []string{n.grpc, other.grpc}[(loss+1)%2])
		}
		killed := beginFault("worker killed", id)
		killedAt = time.Now()
		w.killProcess()
		faults = append(faults, killed.endFault(lossBound(loss+1)))
		w = next
	}
	redistest.Eventually(t, patience, "the run is quarantined", func() error {
		return wantStatus(n.getJob("poison"), func(s *fermatav1.JobStatus) bool {
			return s.GetState() == fermatav1.JobStatus_STATE_DEAD && s.GetLostTotal() == 3
		})
	})
	runs := n.listRuns("poison")
	if len(runs) != 1 || runs[0].GetOutcome() != fermatav1.Outcome_OUTCOME_QUARANTINED || runs[0].GetLostAttempts() != 3 || runs[0].GetAttempts() != 0 {
		t.Errorf("runs: %v, want one, quarantined after three losses and no attempt", runs)
	}
	if s := n.getJob("poison").GetStatus(); s.GetLastOutcome() != fermatav1.Outcome_OUTCOME_LOST && s.GetLastOutcome() != fermatav1.Outcome_OUTCOME_QUARANTINED || s.GetTimeoutTotal() != 0 {
		t.Errorf("status: %v", s)
	}
	// The workers that follow get other jobs, and leave this one alone.
	c.startWorker("w9", 1, n.grpc)
	n.createJob("after", scheduledJob(onceAt(time.Now())))
	c.awaitEvent(patience, "other jobs run", isStartOf("after", "w9"))
	bounds := calmBounds()
	bounds.Longest = 2 * time.Minute
	r := c.judgeHistory(historycheck.History{ExpectedSchedules: []historycheck.ExpectedSchedule{{Job: "poison"}, {Job: "after"}}, Faults: faults, Bounds: bounds})
	if r.Repeats != 2 {
		t.Errorf("%d repeats, want 2", r.Repeats)
	}
}

// standsApart is the most that the last start of a run waits that loses its workers.
const standsApart = lease.RestartSpread

// lossBound is how long a run may take to start on another worker after so many of its
// workers were killed: its last start stands apart.
func lossBound(losses int) time.Duration {
	bound := sessionTTL(leaseTTL) + 2*time.Second
	if losses == lease.PoisonLosses-1 {
		bound += standsApart
	}
	return bound
}

func wantStatus(j *fermatav1.Job, fits func(*fermatav1.JobStatus) bool) error {
	if !fits(j.GetStatus()) {
		return fmt.Errorf("status is %v", j.GetStatus())
	}
	return nil
}

// rawStream speaks the workers' protocol without the worker package.
type rawStream struct {
	t      *testing.T
	stream fermatav1.WorkerService_WorkClient
	cancel context.CancelFunc
}

func openRaw(t *testing.T, n *schedulerNode, hello *fermatav1.Hello) *rawStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	stream, err := n.workers.Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	s := &rawStream{t, stream, cancel}
	s.sendRequest(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: hello}})
	if ttl := s.receiveResponse().GetWelcome().GetLeaseTtl().AsDuration(); ttl != leaseTTL && ttl != longLease {
		t.Fatal("no welcome with the lease's life")
	}
	return s
}

func (s *rawStream) sendRequest(r *fermatav1.WorkRequest) {
	s.t.Helper()
	if err := s.stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
		s.t.Fatal(err)
	}
}

func (s *rawStream) receiveResponse() *fermatav1.WorkResponse {
	s.t.Helper()
	r, err := s.stream.Recv()
	if err != nil {
		s.t.Fatalf("stream: %v", err)
	}
	return r
}

// receiveUntil receives messages up to the first that fits.
func (s *rawStream) receiveUntil(fits func(*fermatav1.WorkResponse) bool) *fermatav1.WorkResponse {
	s.t.Helper()
	for {
		if r := s.receiveResponse(); fits(r) {
			return r
		}
	}
}

func (s *rawStream) sendResult(lease string, outcome fermatav1.Result_Outcome) {
	s.t.Helper()
	s.sendRequest(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{Results: &fermatav1.Results{
		Results: []*fermatav1.Result{{LeaseId: lease, Outcome: outcome, Error: "too late"}},
	}}})
}

// receiveAck waits for the answer to a result.
func (s *rawStream) receiveAck(lease string) fermatav1.ResultAck_Status {
	s.t.Helper()
	r := s.receiveUntil(func(r *fermatav1.WorkResponse) bool { return r.GetResultAcks() != nil })
	for _, a := range r.GetResultAcks().GetAcks() {
		if a.GetLeaseId() == lease {
			return a.GetStatus()
		}
	}
	s.t.Fatalf("acks do not name %s: %v", lease, r)
	return 0
}

// TestLateResultIsRefused: a result under a token that was superseded is
// answered STALE, and changes nothing: not while the run is live elsewhere, and
// not when it is over. The worker's own result, sent twice, is a duplicate.
func TestLateResultIsRefused(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	n, other := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	held := filepath.Join(t.TempDir(), "held")
	if err := os.WriteFile(held, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := newJob(behaviour{While: held})
	j.Schedule = onceAt(time.Now())
	n.createJob("late", j)

	hello := &fermatav1.Hello{WorkerId: "raw", Queues: []string{"default"}, Slots: 1, SessionEpoch: 1}
	first := openRaw(t, n, hello)
	lease := first.receiveUntil(func(r *fermatav1.WorkResponse) bool { return r.GetLeases() != nil }).GetLeases().GetLeases()[0]
	first.sendRequest(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Started{Started: &fermatav1.Started{LeaseIds: []string{lease.GetLeaseId()}}}})
	if lease.GetAttempt() != 1 || lease.GetToken() == 0 || lease.GetHandler() != handlerName || lease.GetRun() != n.getJob("late").GetStatus().GetCurrentRun() {
		t.Errorf("lease: %v", lease)
	}
	first.cancel()

	c.startWorker("w1", 1, other.grpc)
	cut := time.Now()
	started := c.awaitEvent(patience, "the run starts elsewhere", isStartOf("late", "w1"))
	if after := time.Unix(0, started.AtNS).Sub(cut); after > leaseTTL+2*time.Second+c.pulse.Since(cut)+busyAllowance() {
		t.Errorf("started elsewhere after %v", after)
	}
	if started.Token <= lease.GetToken() || started.Attempt != 1 {
		t.Errorf("attempt %d, token %d; want attempt 1 and a token above %d", started.Attempt, started.Token, lease.GetToken())
	}

	// The first worker comes back, to the same node and to the other.
	for i, node := range []*schedulerNode{n, other} {
		before := n.getJob("late")
		hello = proto.CloneOf(hello)
		hello.SessionEpoch, hello.LiveLeaseIds = int32(2+i), []string{lease.GetLeaseId()}
		again := openRaw(t, node, hello)
		again.sendResult(lease.GetLeaseId(), fermatav1.Result_OUTCOME_FAILED_PERMANENTLY)
		if got := again.receiveAck(lease.GetLeaseId()); got != fermatav1.ResultAck_STATUS_STALE {
			t.Errorf("late result: %v, want STALE", got)
		}
		after := n.getJob("late")
		if !proto.Equal(before, after) {
			t.Errorf("a refused result changed the job:\nbefore %v\nafter  %v", before, after)
		}
		if s := after.GetStatus(); s.GetState() != fermatav1.JobStatus_STATE_RUNNING || s.GetLostTotal() != 1 {
			t.Errorf("status: %v", s)
		}
		again.cancel()
	}
	if err := os.Remove(held); err != nil {
		t.Fatal(err)
	}
	c.awaitEvent(patience, "the run ends", func(e historycheck.Event) bool { return e.Kind == historycheck.End && e.Outcome == historycheck.OK })
	redistest.Eventually(t, patience, "its result counts", func() error {
		return wantStatus(n.getJob("late"), func(s *fermatav1.JobStatus) bool {
			return s.GetState() == fermatav1.JobStatus_STATE_DONE && s.GetSucceededTotal() == 1 && s.GetRunsTotal() == 1 && s.GetConsecutiveFailures() == 0
		})
	})
	hello.SessionEpoch = 9
	last := openRaw(t, n, hello)
	last.sendResult(lease.GetLeaseId(), fermatav1.Result_OUTCOME_FAILED)
	if got := last.receiveAck(lease.GetLeaseId()); got != fermatav1.ResultAck_STATUS_STALE {
		t.Errorf("result after the end: %v, want STALE", got)
	}
	if s := n.getJob("late").GetStatus(); s.GetSucceededTotal() != 1 || s.GetConsecutiveFailures() != 0 || s.GetDeadTotal() != 0 {
		t.Errorf("status: %v", s)
	}
}

// TestRepeatedResultCountsOnce: the same result over one stream and the next.
func TestRepeatedResultCountsOnce(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL(), "--lease-ttl", longLease.String())
	n, other := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	j := newJob(behaviour{})
	j.Schedule, j.BackoffPolicy = everyInterval(2*time.Second, time.Now().Add(time.Second)), noBackoff()
	n.createJob("again", j)
	hello := &fermatav1.Hello{WorkerId: "raw", Queues: []string{"default"}, Slots: 1, SessionEpoch: 1}
	s := openRaw(t, n, hello)
	lease := s.receiveUntil(func(r *fermatav1.WorkResponse) bool { return r.GetLeases() != nil }).GetLeases().GetLeases()[0].GetLeaseId()
	s.sendRequest(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Started{Started: &fermatav1.Started{LeaseIds: []string{lease}}}})
	s.sendResult(lease, fermatav1.Result_OUTCOME_FAILED)
	if got := s.receiveAck(lease); got != fermatav1.ResultAck_STATUS_ACCEPTED {
		t.Errorf("result: %v, want ACCEPTED", got)
	}
	s.sendResult(lease, fermatav1.Result_OUTCOME_FAILED)
	if got := s.receiveAck(lease); got != fermatav1.ResultAck_STATUS_DUPLICATE {
		t.Errorf("repeated result: %v, want DUPLICATE", got)
	}
	s.cancel()
	hello.SessionEpoch, hello.LiveLeaseIds, hello.Queues = 2, []string{lease}, []string{"elsewhere"}
	s = openRaw(t, other, hello)
	s.sendResult(lease, fermatav1.Result_OUTCOME_FAILED)
	if got := s.receiveAck(lease); got != fermatav1.ResultAck_STATUS_DUPLICATE {
		t.Errorf("repeated result at another node: %v, want DUPLICATE", got)
	}
	if s := n.getJob("again").GetStatus(); s.GetConsecutiveFailures() != 1 || s.GetRunsTotal() != 1 || s.GetDeadTotal() != 1 {
		t.Errorf("one failure was counted as %v", s)
	}
}
