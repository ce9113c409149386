package worker_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

func TestDrainWaitsForAcknowledgements(t *testing.T) {
	n := newNode(t)
	g := newGates("j")
	w := run(t, worker.Options{Addresses: []string{n.addr}}, g.handlers())
	s := n.accept(ttl)
	s.lease(leaseOf("j", "gate"))
	s.started("j")
	w.stop()
	if s.next().GetDraining() == nil {
		t.Error("no Draining")
	}
	g.open["j"] <- nil
	s.result("j")
	// A stream that breaks now is opened again for the result's sake.
	s.end <- errors.New("broken")
	s = n.accept(ttl)
	if s.next().GetDraining() == nil {
		t.Error("no Draining on the new stream")
	}
	s.result("j")
	select {
	case err := <-w.done:
		t.Fatalf("Run returned %v before the acknowledgement", err)
	case <-time.After(20 * time.Millisecond):
	}
	s.ack(accepted, "j")
	s.closed()
	if err := w.returned(); err != nil {
		t.Error(err)
	}
}

func TestDrainTimeoutCutsOff(t *testing.T) {
	for name, end := range map[string]func(*phaseRunning){
		"timeout": func(r *phaseRunning) { r.stop() },
		"abort":   func(r *phaseRunning) { r.Abort() },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			g := newGates("fails", "succeeds")
			w := run(t, worker.Options{Addresses: []string{n.addr}, DrainTimeout: 50 * time.Millisecond}, g.handlers())
			s := n.accept(ttl)
			s.lease(leaseOf("fails", "gate"), leaseOf("succeeds", "outlast"))
			s.started("fails", "succeeds")
			end(w)
			for range 2 {
				if cause := receive(t, g.causes, "cause"); !errors.Is(cause, worker.ErrStopped) {
					t.Errorf("cause is %v", cause)
				}
			}
			if s.next().GetDraining() == nil {
				t.Error("no Draining")
			}
			// Being stopped is not a failure, and starts elsewhere at once.
			s.lost("fails")
			g.open["succeeds"] <- nil
			s.result("succeeds")
			s.ack(accepted, "succeeds")
			s.closed()
			if err := w.returned(); err == nil {
				t.Error("Run does not tell what it cut off")
			}
		})
	}
}

func TestDrainWithoutANode(t *testing.T) {
	w := run(t, worker.Options{Addresses: []string{"127.0.0.1:1"}}, newGates().handlers())
	redistest.Eventually(t, patience, "a refused connection", func() bool {
		err := w.Ready()
		return err != nil && err.Error() != "not connected yet"
	})
	w.stop()
	if err := w.returned(); err != nil {
		t.Error(err)
	}
}

// TestStoppingWorkerReturnsLeasesToANode: the stream is cut after the worker has said its
// last, and before the node has read it. The runs need not wait for the end of their leases.
func TestStoppingWorkerReturnsLeasesToANode(t *testing.T) {
	a, b := newNode(t), newNode(t)
	proxy := faultproxy.New(t, a.addr)
	w := run(t, worker.Options{Addresses: []string{proxy.Addr()}, Slots: 2}, newGates().handlers())
	s := a.accept(ttl, b.addr)
	s.lease(leaseOf("early", "gate", dueIn(time.Hour)))
	s.cancel(leaseLost, "marker")
	s.returned("marker") // so it has the lease
	proxy.Blackhole(faultproxy.ToServer)
	w.stop()
	redistest.Eventually(t, patience, "the last words of the worker", func() bool { return proxy.Counters().Stalled > 0 })
	proxy.Refuse(true)
	proxy.CloseAll()
	s = b.accept(ttl)
	if len(s.hello.LiveLeaseIds) > 0 {
		t.Errorf("live are %v", s.hello.LiveLeaseIds)
	}
	if s.next().GetDraining() == nil {
		t.Error("no Draining")
	}
	s.returned("early")
	if err := w.returned(); err != nil {
		t.Error(err)
	}
}

// TestStoppingWorkerReturnsLeasesOfTheNodeBefore: a node sends a lease before it reads that the worker has moved, and
// the worker stops then. It returns the lease on its new stream: the old one takes nothing any more.
func TestStoppingWorkerReturnsLeasesOfTheNodeBefore(t *testing.T) {
	a, b := newNode(t), newNode(t)
	a.lingers = make(chan struct{})
	w := run(t, worker.Options{Addresses: []string{a.addr}}, newGates().handlers())
	before := a.accept(ttl)
	before.relocate(b.addr)
	s := b.accept(ttl)
	before.closed()
	before.lease(leaseOf("late", "gate"))
	w.stop()
	if s.next().GetDraining() == nil {
		t.Error("no Draining")
	}
	close(a.lingers)
	s.returned("late")
	s.closed()
	if err := w.returned(); err != nil {
		t.Error(err)
	}
}

// TestStopWhileAnotherNodeIsAsked: a node returns what has not started when a worker that stops has left. So a worker
// that has named its leases to another node does not tell the node before that it stops, unless the other one refuses.
func TestStopWhileAnotherNodeIsAsked(t *testing.T) {
	for name, isRefused := range map[string]bool{"welcomed": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			a, b := newNode(t), newNode(t)
			g := newGates("j")
			w := run(t, worker.Options{Addresses: []string{a.addr}}, g.handlers())
			before := a.accept(ttl)
			before.lease(leaseOf("j", "gate"))
			before.started("j")
			before.relocate(b.addr)
			s := b.greeted()
			w.stop()
			redistest.Eventually(t, patience, "the begin of the drain", func() bool {
				err := w.Ready()
				return err != nil && err.Error() == "draining"
			})
			before.cancel(leaseLost, "marker")
			before.returned("marker")
			if isRefused {
				s.end <- status.Error(codes.Unavailable, "it takes no workers")
				if before.next().GetDraining() == nil {
					t.Error("the node that serves the worker on is not notified that it stops")
				}
				s = b.greeted()
			}
			s.welcome(ttl)
			before.closed()
			if s.next().GetDraining() == nil {
				t.Error("no Draining")
			}
			g.open["j"] <- nil
			s.result("j")
			s.ack(accepted, "j")
			s.closed()
			if err := w.returned(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a worker returned before its stream was cut is returned once more: nobody has
// acknowledged it.
func TestReturnsBeforeACutAreRepeated(t *testing.T) {
	for _, cut := range []error{errors.New("broken"), nil} { // nil: the node stops
		n := newNode(t)
		run(t, worker.Options{Addresses: []string{n.addr}}, newGates().handlers())
		s := n.accept(ttl)
		s.lease(leaseOf("early", "gate", dueIn(time.Hour)))
		s.cancel(fermatav1.Cancel_REASON_REQUESTED, "early")
		s.returned("early")
		s.end <- cut
		s = n.accept(ttl)
		s.returned("early")
	}
}
