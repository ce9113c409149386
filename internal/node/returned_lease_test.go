package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// A worker whose stream was cut says at another node what it has not begun, and the run is
// leased anew at once, not when its lease has ended.
func TestALeaseComesBackAtAnotherNode(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	lasting := func(c *node.Config) { c.LeaseTTL = time.Hour }
	a := startWith(t, redis.URL(), "a", lasting)
	b := startWith(t, redis.URL(), "b", lasting, a.GossipAddr())
	shared(t, a)
	j := intervalJob(time.Second, "h")
	j.Locks = []*fermatav1.Lock{{Key: "k"}} // which comes back with it
	create(t, jobs(t, a), "j", j)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hello := &fermatav1.Hello{WorkerId: "w", Queues: []string{job.DefaultQueue}, Slots: 1, SessionEpoch: 1}
	cut, cutOff := context.WithCancel(ctx)
	first := leased(t, welcomed(cut, t, a, hello))
	cutOff()

	hello.SessionEpoch = 2
	s := welcomed(ctx, t, b, hello)
	returned := &fermatav1.Returned{LeaseIds: []string{first.GetLeaseId()}}
	if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Returned{Returned: returned}}); err != nil {
		t.Fatal(err)
	}
	if again := leased(t, s); again.GetRun() != first.GetRun() || again.GetAttempt() != first.GetAttempt() ||
		again.GetLeaseId() == first.GetLeaseId() {
		t.Errorf("after %v came %v", first, again)
	}
}

// leased waits for a lease.
func leased(t *testing.T, s fermatav1.WorkerService_WorkClient) *fermatav1.Lease {
	t.Helper()
	for {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if l := m.GetLeases().GetLeases(); len(l) > 0 {
			return l[0]
		}
	}
}
