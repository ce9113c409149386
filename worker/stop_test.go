package worker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/fermata-io/fermata/worker"
)

// Stop drains like the end of Run's context: the running handler ends by itself, and its result is acknowledged.
func TestStopDrains(t *testing.T) {
	n := newNode(t)
	g := newGates("a")
	w := run(t, worker.Options{Addresses: []string{n.addr}}, g.handlers())
	s := n.accept(ttl)
	s.lease(leaseOf("a", "gate"))
	s.started("a")
	stopped := make(chan error, 1)
	go func() { stopped <- w.Stop(context.Background()) }()
	if s.next().GetDraining() == nil {
		t.Error("no Draining")
	}
	g.open["a"] <- nil
	s.result("a")
	s.ack(accepted, "a")
	s.closed()
	if err := receive(t, stopped, "end of Stop"); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if err := w.returned(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Errorf("Stop after Run: %v", err)
	}
}

// The end of Stop's own context ends only the wait. Abort then cuts the handler off, and Stop returns the error of
// Run.
func TestStopIsBoundedByItsContext(t *testing.T) {
	n := newNode(t)
	g := newGates("a")
	w := run(t, worker.Options{Addresses: []string{n.addr}}, g.handlers())
	s := n.accept(ttl)
	s.lease(leaseOf("a", "gate"))
	s.started("a")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Stop(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop: %v", err)
	}
	if s.next().GetDraining() == nil {
		t.Error("no Draining")
	}
	select {
	case cause := <-g.causes:
		t.Errorf("Stop ended the handler: %v", cause)
	default:
	}
	w.Abort()
	if cause := receive(t, g.causes, "cause"); !errors.Is(cause, worker.ErrStopped) {
		t.Errorf("cause is %v", cause)
	}
	s.lost("a")
	s.closed()
	err := w.returned()
	if err == nil {
		t.Error("Run returned nil, although an attempt was cut off")
	}
	if again := w.Stop(t.Context()); again == nil || again.Error() != err.Error() {
		t.Errorf("Stop: %v, want the error of Run, %v", again, err)
	}
}

func TestHandleJSON(t *testing.T) {
	n := newNode(t)
	got := make(chan Invoice, 1)
	failed := errors.New("no such customer")
	w, err := worker.New(worker.Options{Addresses: []string{n.addr}})
	if err != nil {
		t.Fatal(err)
	}
	var seen worker.Handler
	w.Use(func(next worker.Handler) worker.Handler { seen = next; return next })
	worker.HandleJSON(w, "send-invoice", func(_ context.Context, task *worker.Task, i Invoice) error {
		task.SetOutput([]byte("sent"))
		got <- i
		return failed
	})
	task := &worker.Task{Payload: []byte(`{"customer":"ada","cents":1200,"unknown":true}`)}
	if err := seen(t.Context(), task); !errors.Is(err, failed) || worker.IsPermanent(err) || string(task.Output()) != "sent" {
		t.Errorf("%v, output %q", err, task.Output())
	}
	if i := <-got; i != (Invoice{"ada", 1200}) {
		t.Errorf("got %+v", i)
	}
	for _, payload := range []string{"", "{", `{"cents":"many"}`, "[]"} {
		if err := seen(t.Context(), &worker.Task{Payload: []byte(payload)}); !worker.IsPermanent(err) {
			t.Errorf("payload %q: %v, want a permanent error", payload, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic without a handler")
		}
	}()
	worker.HandleJSON[Invoice](w, "other", nil)
}
