package worker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// gates are handlers that the test opens one by one; each reports the cause of
// the end of its context.
type gates struct {
	open   map[string]chan error
	causes chan error
}

func newGates(jobs ...string) *gates {
	g := &gates{open: map[string]chan error{}, causes: make(chan error, len(jobs))}
	for _, j := range jobs {
		g.open[j] = make(chan error, 1)
	}
	return g
}

// handle ends when its gate opens, or with its context.
func (g *gates) handle(ctx context.Context, task *worker.Task) error {
	select {
	case err := <-g.open[task.Job]:
		return err
	case <-ctx.Done():
		g.causes <- context.Cause(ctx)
		return context.Cause(ctx)
	}
}

// outlast ends when its gate opens, whatever its context says.
func (g *gates) outlast(ctx context.Context, task *worker.Task) error {
	<-ctx.Done()
	g.causes <- context.Cause(ctx)
	return <-g.open[task.Job]
}

func (g *gates) handlers() map[string]worker.Handler {
	return map[string]worker.Handler{"gate": g.handle, "outlast": g.outlast}
}

func live(s *stream) []string { return slices.Sorted(slices.Values(s.hello.LiveLeaseIds)) }

func TestReconnectKeepsRunningAttempts(t *testing.T) {
	a, b := newNode(t), newNode(t)
	g := newGates("runs", "ended")
	run(t, worker.Options{Addresses: []string{a.addr}}, g.handlers())

	s := a.accept(ttl, b.addr)
	s.lease(leaseOf("runs", "gate"), leaseOf("ended", "gate"))
	s.started("runs", "ended")
	g.open["ended"] <- nil
	s.result("ended")
	a.kill()

	s = b.accept(ttl)
	if s.hello.SessionEpoch != 2 || !slices.Equal(live(s), []string{"ended", "runs"}) {
		t.Errorf("hello is %v", s.hello)
	}
	s.result("ended")
	// Not acknowledged yet: it comes again on the next stream too.
	s.end <- status.Error(codes.Unavailable, "bye")
	s = b.accept(ttl)
	if s.hello.SessionEpoch != 3 || !slices.Equal(live(s), []string{"ended", "runs"}) {
		t.Errorf("hello is %v", s.hello)
	}
	s.result("ended")
	s.ack(accepted, "ended")
	g.open["runs"] <- nil
	if r := s.result("runs"); r.Outcome != succeededOutcome {
		t.Errorf("got %v", r)
	}
	s.end <- nil
	s = b.accept(ttl)
	if !slices.Equal(live(s), []string{"runs"}) {
		t.Errorf("hello is %v", s.hello)
	}
	s.result("runs")
	s.ack(stale, "runs")
}

// TestWaitingAttemptsRunWithoutANode: in the time that it takes to find another node, what waited for a slot has had
// one. No lease of it is left to its end.
func TestWaitingAttemptsRunWithoutANode(t *testing.T) {
	a, b := newNode(t), newNode(t)
	g := newGates("first", "second", "third")
	run(t, worker.Options{Addresses: []string{a.addr}, Slots: 1}, g.handlers())
	s := a.accept(ttl, b.addr)
	g.open["second"] <- nil
	g.open["third"] <- nil
	s.lease(leaseOf("first", "gate"))
	s.started("first")
	s.lease(leaseOf("second", "gate"), leaseOf("third", "gate"))
	s.cancel(leaseLost, "unknown")
	s.returned("unknown") // so the others are there
	a.kill()
	g.open["first"] <- nil

	s = b.accept(ttl)
	if !slices.Equal(live(s), []string{"first", "second", "third"}) {
		t.Errorf("hello is %v", s.hello)
	}
	for n := 0; n < 3; {
		for _, r := range s.next().GetResults().GetResults() {
			n++
			if r.Outcome != succeededOutcome {
				t.Errorf("got %v", r)
			}
		}
	}
	s.ack(accepted, "first", "second", "third")
}

// TestWaitingLeasesOfADeadNodeAreReturnedToAnother: nobody needs to wait for the end of
// its lease.
func TestWaitingLeasesOfADeadNodeAreReturnedToAnother(t *testing.T) {
	a, b := newNode(t), newNode(t)
	g := newGates("runs")
	runAs(t, worker.Options{Addresses: []string{a.addr}, Slots: 1}, g.handlers(),
		func(w *worker.Worker) { w.KeepWaiting(time.Hour) })
	s := a.accept(ttl, b.addr)
	s.lease(leaseOf("runs", "gate"))
	s.started("runs")
	s.lease(leaseOf("waits", "gate"), leaseOf("too", "gate"))
	s.cancel(leaseLost, "unknown")
	s.returned("unknown") // so the others are there
	a.kill()

	refusing := b.greeted()
	refusing.end <- status.Error(codes.Unavailable, "starting")
	s = b.accept(ttl)
	if !slices.Equal(live(s), []string{"runs"}) {
		t.Errorf("hello is %v", s.hello)
	}
	s.returned("waits", "too")
	g.open["runs"] <- nil
	s.result("runs")
	s.ack(accepted, "runs")
	s.end <- status.Error(codes.Unavailable, "bye")
	s = b.accept(ttl)
	s.returned("waits", "too") // nobody has acknowledged that
	s.lease(leaseOf("runs", "gate"))
	s.started("runs")
}

// TestMetricsOfUnregisteredHandlers, which gRPC does not do.
func TestMetricsOfUnregisteredHandlers(t *testing.T) {
	w := run(t, worker.Options{Addresses: []string{"no..host:7070"}}, newGates().handlers())
	redistest.Eventually(t, patience, "the reason", func() bool {
		return strings.HasSuffix(w.Ready().Error(), "no..host: no such host")
	})
}

func TestUnacknowledgedResultIsSentAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.node("10.0.0.1:1")
		g := newGates("j")
		b.worker(g, n.addr)
		s := n.accept(500 * time.Millisecond)
		s.lease(leaseOf("j", "gate"))
		s.started("j")
		g.open["j"] <- errors.New("failed")
		s.result("j")
		s.result("j")
		s.ack(accepted, "j")
	})
}

func TestLeasesAreLostByTheWorkersClock(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.node("10.0.0.1:1")
		g := newGates("obeys", "outlasts", "failed")
		b.worker(g, n.addr)
		const life = 3 * time.Second
		s := n.accept(life)
		s.lease(leaseOf("obeys", "gate"), leaseOf("outlasts", "outlast"), leaseOf("failed", "gate"))
		s.started("obeys", "outlasts", "failed")
		g.open["failed"] <- errors.New("before the loss")
		s.result("failed")

		n.kill()
		killed := time.Now()
		for range 2 {
			if cause := receive(b.t, g.causes, "cause"); !errors.Is(cause, worker.ErrLeaseLost) {
				t.Errorf("cause is %v", cause)
			}
		}
		// The node's last renewal may have been a third of the lease before its death.
		if took := time.Since(killed); took > life-life/3 {
			t.Errorf("handlers were told after %v, when their leases may have ended", took)
		}
		b.serve(n)
		s = n.accept(ttl)
		if got := live(s); !slices.Equal(got, []string{"failed"}) && time.Since(killed) < life {
			t.Errorf("a Hello names %q, want what has a result that nobody has acknowledged", got)
		}
		// A failure by loss is no failure of the handler, and is reported as a loss; an own result is sent once.
		s.lost("obeys")
		if r := s.result("failed"); r.Outcome != failed {
			t.Errorf("got %v", r)
		}
		g.open["outlasts"] <- nil
		if r := s.result("outlasts"); r.Outcome != succeededOutcome {
			t.Errorf("got %v", r)
		}
		s.ack(stale, "outlasts")
		s.lost("outlasts")
		s.end <- nil
		s = n.accept(ttl)
		s.lost("obeys", "outlasts", "failed") // until a node has acknowledged it
		s.ack(accepted, "outlasts", "failed", "obeys")
		s.cancel(leaseLost, "marker")
		s.returned("marker")
		s.end <- nil
		s = n.accept(ttl)
		s.cancel(leaseLost, "marker")
		s.returned("marker")
	})
}

// A handler that goes on after its lease has ended holds its slot, which the next node has
// to know: it would send what is due to a slot that is none.
func TestHelloNamesAHungHandler(t *testing.T) {
	n := newNode(t)
	g := newGates("outlasts")
	run(t, worker.Options{Addresses: []string{n.addr}, Slots: 1}, g.handlers())
	s := n.accept(ttl)
	s.lease(leaseOf("outlasts", "outlast"))
	s.started("outlasts")
	for range 3 {
		s.cancel(leaseLost, "outlasts")
		s.cancel(leaseLost, "marker")
		s.returned("marker")
		s.end <- nil
		s = n.accept(ttl)
		if !slices.Equal(s.hello.LiveLeaseIds, []string{"outlasts"}) {
			t.Fatalf("live are %v", s.hello.LiveLeaseIds)
		}
	}
	s.cancel(leaseLost, "outlasts")
	s.cancel(leaseLost, "marker")
	s.returned("marker")
	g.open["outlasts"] <- errors.New("at last")
	s.returned("outlasts") // the slot is free
	s.end <- nil
	s = n.accept(ttl)
	if len(s.hello.LiveLeaseIds) != 0 {
		t.Errorf("live are %v", s.hello.LiveLeaseIds)
	}
}

// So it is where the worker's own clock ended the leases, once it is certain that they have.
func TestHelloNamesAHungHandlerAfterALoss(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.node("10.0.0.1:1")
		g := newGates("outlasts")
		run(b.t, worker.Options{Addresses: []string{n.addr}, Slots: 1, Dialer: b.dial}, g.handlers())
		const life = time.Second
		s := n.accept(life)
		s.lease(leaseOf("outlasts", "outlast"))
		s.started("outlasts")
		n.kill()
		receive(b.t, g.causes, "cause")
		b.serve(n)
		named := false
		for end := time.Now().Add(patience); !named && time.Now().Before(end); {
			s = n.accept(life)
			named = slices.Equal(s.hello.LiveLeaseIds, []string{"outlasts"})
			s.end <- nil
		}
		if !named {
			t.Error("no node hears of the slot that hangs")
		}
		g.open["outlasts"] <- nil
	})
}

func TestNodeReportsALostLease(t *testing.T) {
	n := newNode(t)
	g := newGates("a")
	run(t, worker.Options{Addresses: []string{n.addr}}, g.handlers())
	s := n.accept(ttl)
	s.lease(leaseOf("a", "gate"))
	s.started("a")
	s.cancel(leaseLost, "a", "unknown")
	if cause := receive(t, g.causes, "cause"); !errors.Is(cause, worker.ErrLeaseLost) {
		t.Errorf("cause is %v", cause)
	}
	var back []string
	for len(back) < 2 {
		m := s.next()
		if m.GetReturned() == nil {
			t.Fatalf("got %v, want Returned", m)
		}
		back = append(back, m.GetReturned().LeaseIds...)
	}
	slices.Sort(back)
	if !slices.Equal(back, []string{"a", "unknown"}) {
		t.Errorf("returned %v", back)
	}
}

func TestHandOverLeavesNoGap(t *testing.T) {
	a, b := newNode(t), newNode(t)
	g := newGates("runs", "unacked", "late")
	run(t, worker.Options{Addresses: []string{a.addr}, Slots: 3}, g.handlers())
	old := a.accept(ttl)
	old.lease(leaseOf("runs", "gate"), leaseOf("unacked", "gate"), leaseOf("late", "gate"))
	old.started("runs", "unacked", "late")
	old.lease(leaseOf("waits", "gate"))
	g.open["unacked"] <- nil
	// The slot that is free now goes to the one that waits.
	var got []string
	for len(got) < 2 {
		m := old.next()
		for _, id := range m.GetStarted().GetLeaseIds() {
			got = append(got, "started "+id)
		}
		for _, r := range m.GetResults().GetResults() {
			got = append(got, "result "+r.LeaseId)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"result unacked", "started waits"}) {
		t.Fatalf("got %v", got)
	}
	old.drain(b.addr)

	next := b.greeted()
	if next.hello.SessionEpoch != 2 || !slices.Equal(live(next), []string{"late", "runs", "unacked", "waits"}) {
		t.Errorf("hello is %v", next.hello)
	}
	// The new node has been asked: from here on only its word counts.
	old.ack(stale, "unacked")
	old.cancel(leaseLost, "runs", "late")
	g.open["late"] <- nil
	select {
	case m, open := <-old.in:
		t.Fatalf("the old stream said %v (open %v) before the new one stood", m, open)
	case cause := <-g.causes:
		t.Fatalf("a handler was cancelled: %v", cause)
	case <-time.After(50 * time.Millisecond):
	}
	next.welcome(ttl)
	old.closed()
	var results []string
	for len(results) < 2 {
		for _, r := range next.next().GetResults().GetResults() {
			results = append(results, r.LeaseId)
		}
	}
	slices.Sort(results)
	if !slices.Equal(results, []string{"late", "unacked"}) {
		t.Errorf("results of %v", results)
	}
	next.ack(accepted, "late", "unacked")
	g.open["runs"] <- nil
	next.result("runs")
	next.ack(accepted, "runs")
}

func TestRefusedHandOverKeepsTheSession(t *testing.T) {
	a, b := newNode(t), newNode(t)
	g := newGates("j")
	run(t, worker.Options{Addresses: []string{a.addr}}, g.handlers())
	old := a.accept(ttl)
	old.lease(leaseOf("j", "gate"))
	old.started("j")
	old.drain(b.addr)
	refusing := b.greeted()
	// A draining node gives nothing out, and gets it back if it does.
	old.lease(leaseOf("k", "gate"))
	old.returned("k")
	g.open["j"] <- nil
	refusing.end <- status.Error(codes.Unavailable, "draining, too")
	if r := old.result("j"); r.Outcome != succeededOutcome {
		t.Errorf("got %v", r)
	}
	for {
		// Trying goes on; acknowledgements count between two tries.
		old.ack(accepted, "j")
		s := b.greeted()
		if len(s.hello.LiveLeaseIds) == 0 {
			s.welcome(ttl)
			break
		}
		s.end <- status.Error(codes.Unavailable, "still draining")
		old.result("j")
	}
	old.closed()
}

// TestCancelsCountAfterARefusedHandOver: of a lease that was named to a node which refused,
// the old one tells the end as before.
func TestCancelsCountAfterARefusedHandOver(t *testing.T) {
	a, b := newNode(t), newNode(t)
	g := newGates("j")
	run(t, worker.Options{Addresses: []string{a.addr}}, g.handlers())
	old := a.accept(ttl)
	old.lease(leaseOf("j", "gate"))
	old.started("j")
	old.drain(b.addr)
	refusing := b.greeted()
	refusing.end <- status.Error(codes.Unavailable, "draining, too")
	// Until it is told that the other one has refused, the worker does not believe it.
	redistest.Eventually(t, patience, "the end of the handler", func() bool {
		old.cancel(leaseLost, "j")
		select {
		case cause := <-g.causes:
			if !errors.Is(cause, worker.ErrLeaseLost) {
				t.Errorf("the handler ended with %v", cause)
			}
			return true
		case again := <-b.streams:
			again.end <- status.Error(codes.Unavailable, "still draining")
		default:
		}
		return false
	})
}

func TestFirstMessageMustBeWelcome(t *testing.T) {
	n := newNode(t)
	w := run(t, worker.Options{Addresses: []string{n.addr}}, newGates().handlers())
	s := n.greeted()
	s.send(&fermatav1.WorkResponse{Message: &fermatav1.WorkResponse_Leases{}})
	s = n.greeted()
	if s.hello.SessionEpoch != 2 {
		t.Errorf("epoch is %d", s.hello.SessionEpoch)
	}
	if w.Ready() == nil {
		t.Error("ready without a Welcome")
	}
	s.welcome(ttl)
	redistest.Eventually(t, patience, "ready", func() bool { return w.Ready() == nil })
}

// A node has a run that a Hello does not name started again at once (dispatch.replace): so a
// Hello has to wait until handlers that were told to stop have ended, or the margin is over
// that lossAfter leaves them.
func TestHelloWaitsForCancelledHandlers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.node("10.0.0.1:1")
		g := newGates("outlasts")
		run(b.t, worker.Options{Addresses: []string{n.addr}, Slots: 1, Dialer: b.dial}, g.handlers())
		const life = 6 * time.Second // lossAfter is 3 s, and the margin for handlers to end 1 s
		s := n.accept(life)
		s.lease(leaseOf("outlasts", "outlast"))
		s.started("outlasts")
		n.kill()
		receive(b.t, g.causes, "cause") // it is told to stop
		told := time.Now()
		b.serve(n)
		s = n.accept(life)
		if since := time.Since(told); len(s.hello.LiveLeaseIds) == 0 && since < life/6 {
			t.Errorf("%v after the handler was told to stop, and while it runs, a Hello says that it has ended", since)
		}
		s.end <- nil
		g.open["outlasts"] <- nil
	})
}

// A result that waits is worth a lease that may still live: a Hello names it, however long the
// stream was away. One that is not named a node takes for lost, and starts the run again.
func TestHelloNamesAWaitingSuccess(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.node("10.0.0.1:1")
		g := newGates("done", "runs")
		b.worker(g, n.addr)
		const life = 6 * time.Second
		s := n.accept(life)
		s.lease(leaseOf("done", "gate"), leaseOf("runs", "gate"))
		s.started("done", "runs")
		g.open["done"] <- nil
		s.result("done") // it is not acknowledged
		n.kill()
		receive(b.t, g.causes, "cause") // the time of all leases is up, as far as the worker can tell
		b.serve(n)
		s = n.accept(life)
		if got := live(s); len(got) == 0 || got[0] != "done" {
			t.Errorf("a Hello names %q, want the run that has succeeded", got)
		}
		s.end <- nil
	})
}
