package worker_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// dueIn has a lease come so long before it is due.
func dueIn(d time.Duration) func(*fermatav1.Lease) {
	return func(l *fermatav1.Lease) { l.StartAfter = durationpb.New(d) }
}

func TestEarlyLeasesStartWhenTheyAreDue(t *testing.T) {
	n := newNode(t)
	starts := make(chan string, 8)
	at := make(map[string]time.Time)
	run(t, worker.Options{Addresses: []string{n.addr}, Slots: 8}, map[string]worker.Handler{
		"note": func(_ context.Context, task *worker.Task) error { starts <- task.Job; return nil },
	})
	s := n.accept(time.Minute)
	if !s.hello.SupportsStartAfter {
		t.Error("the worker does not say that it waits")
	}
	sent := time.Now()
	after := map[string]time.Duration{"late": 60 * time.Millisecond, "soon": 20 * time.Millisecond,
		"same": 20 * time.Millisecond, "now": 0}
	for _, id := range []string{"late", "soon", "same", "now"} {
		s.lease(leaseOf(id, "note", dueIn(after[id])))
	}
	var order []string
	for range after {
		id := receive(t, starts, "a start")
		order = append(order, id)
		at[id] = time.Now()
	}
	s.ack(fermatav1.ResultAck_STATUS_ACCEPTED, order...)
	for id, d := range after {
		if got := at[id].Sub(sent); got < d {
			t.Errorf("%s started after %v, want at least %v", id, got, d)
		}
	}
	if order[0] != "now" || order[3] != "late" {
		t.Errorf("they started as %v", order)
	}
}

// An early attempt has a slot from when it comes, and gives it up when it ends without
// having begun.
func TestEarlyLeasesTakeSlots(t *testing.T) {
	for _, reason := range []fermatav1.Cancel_Reason{fermatav1.Cancel_REASON_REQUESTED,
		fermatav1.Cancel_REASON_LEASE_LOST} {
		t.Run(reason.String(), func(t *testing.T) {
			n := newNode(t)
			run(t, worker.Options{Addresses: []string{n.addr}, Slots: 1}, newGates("early", "next", "third").handlers())
			s := n.accept(time.Minute)
			s.lease(leaseOf("early", "gate", dueIn(time.Hour)), leaseOf("next", "gate"), leaseOf("third", "gate"))
			// The worker has all of them, and none runs, when it answers this.
			s.cancel(fermatav1.Cancel_REASON_REQUESTED, "third")
			s.returned("third")
			s.cancel(reason, "early")
			for started, back := false, false; !started || !back; {
				m := s.next()
				started = started || slices.Contains(m.GetStarted().GetLeaseIds(), "next")
				back = back || slices.Contains(m.GetReturned().GetLeaseIds(), "early")
				if r := m.GetResults().GetResults(); len(r) > 0 {
					t.Fatalf("what never began has a result: %v", r)
				}
			}
		})
	}
}

// A worker that drains has nothing to wait for.
func TestDrainReturnsEarlyLeases(t *testing.T) {
	n := newNode(t)
	w := run(t, worker.Options{Addresses: []string{n.addr}, Slots: 4}, newGates("early", "third").handlers())
	s := n.accept(time.Minute)
	s.lease(leaseOf("early", "gate", dueIn(time.Hour)), leaseOf("third", "gate", dueIn(time.Hour)))
	s.cancel(fermatav1.Cancel_REASON_REQUESTED, "third")
	s.returned("third")
	w.stop()
	draining, back := false, []string(nil)
	for !draining || back == nil {
		m := s.next()
		draining = draining || m.GetDraining() != nil
		back = append(back, m.GetReturned().GetLeaseIds()...)
	}
	if !slices.Equal(back, []string{"early"}) {
		t.Errorf("%v came back", back)
	}
	if err := w.returned(); err != nil {
		t.Error(err)
	}
}

// What is early when a stream is cut is taken along like what runs, and begins when it is
// due.
func TestEarlyLeasesStartWithoutAStream(t *testing.T) {
	n := newNode(t)
	g := newGates("early", "third")
	run(t, worker.Options{Addresses: []string{n.addr}, Slots: 4}, g.handlers())
	s := n.accept(time.Minute)
	s.lease(leaseOf("early", "gate", dueIn(500*time.Millisecond)), leaseOf("third", "gate"))
	s.started("third")
	s.end <- nil
	next := n.accept(time.Minute)
	slices.Sort(next.hello.LiveLeaseIds)
	if !slices.Equal(next.hello.LiveLeaseIds, []string{"early", "third"}) {
		t.Errorf("live are %v", next.hello.LiveLeaseIds)
	}
	next.started("early")
}

// A node that was told of an early lease by a Hello takes it for started, and would count it
// as failed if it came back: a worker that stops then has it begin.
func TestDrainStartsEarlyLeasesNamedInAHello(t *testing.T) {
	for name, welcomed := range map[string]bool{"named and welcomed": true, "named": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				n := b.node("10.0.0.1:1")
				g := newGates("early")
				w := b.worker(g, n.addr)
				s := n.accept(time.Minute)
				s.lease(leaseOf("early", "gate", dueIn(2*time.Second)), leaseOf("mark", "gate", dueIn(time.Hour)))
				s.cancel(fermatav1.Cancel_REASON_REQUESTED, "mark")
				s.returned("mark")
				s.end <- nil
				next := n.greeted()
				if welcomed {
					next.welcome(time.Minute)
				}
				if live := next.hello.LiveLeaseIds; !slices.Contains(live, "early") {
					b.t.Fatalf("live are %v", live)
				}
				w.stop()
				if !welcomed {
					next.welcome(time.Minute)
				}
				for began := false; !began; {
					m := next.next()
					if back := m.GetReturned().GetLeaseIds(); slices.Contains(back, "early") {
						b.t.Fatalf("%v came back", back)
					}
					began = slices.Contains(m.GetStarted().GetLeaseIds(), "early")
				}
				g.open["early"] <- nil
				next.result("early")
				next.ack(fermatav1.ResultAck_STATUS_ACCEPTED, "early")
				if err := w.returned(); err != nil {
					b.t.Error(err)
				}
			})
		})
	}
}

// Without a stream for as long as leases live, what is early is lost like what runs. It has
// not begun, and goes back as that.
func TestEarlyLeasesAreLostWhenTrustEnds(t *testing.T) {
	n := newNode(t)
	g := newGates("early", "third")
	run(t, worker.Options{Addresses: []string{n.addr}, Slots: 4}, g.handlers())
	s := n.accept(300 * time.Millisecond)
	s.lease(leaseOf("early", "gate", dueIn(time.Hour)), leaseOf("third", "gate"))
	s.started("third")
	n.kill()
	if cause := receive(t, g.causes, "the end of what runs"); cause != worker.ErrLeaseLost {
		t.Errorf("the cause is %v", cause)
	}
	n.listen(n.addr)
	next := n.accept(time.Minute)
	if live := next.hello.LiveLeaseIds; len(live) > 0 {
		t.Errorf("live are %v", live)
	}
	next.returned("early")
	// Both leases may be live still, and the loss of either was none of its run.
	next.lost("early", "third")
	// Of an attempt that is still held this would be a repetition.
	next.lease(leaseOf("early", "gate"))
	next.started("early")
}
