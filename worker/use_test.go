package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// TestUse has two functions around two handlers: the first is outermost, sees panics,
// and decides what the attempt ends with.
func TestUse(t *testing.T) {
	n := newNode(t)
	type key struct{}
	rescue := func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, task *worker.Task) (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = worker.Permanent(fmt.Errorf("rescued %v", v))
				}
			}()
			err = next(context.WithValue(ctx, key{}, "told"), task)
			if err != nil && !worker.IsPermanent(err) {
				err = worker.Permanent(err)
			}
			return err
		}
	}
	told := func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, task *worker.Task) error {
			task.SetOutput(fmt.Append(nil, ctx.Value(key{}), " ", task.Handler))
			return next(ctx, task)
		}
	}
	runAs(t, worker.Options{Addresses: []string{n.addr}, Slots: 2}, map[string]worker.Handler{
		"ok":     func(context.Context, *worker.Task) error { return nil },
		"fails":  func(context.Context, *worker.Task) error { return errors.New("no") },
		"panics": func(context.Context, *worker.Task) error { panic("oh") },
	}, func(w *worker.Worker) {
		w.KeepWaiting(time.Hour)
		w.Use(rescue)
		w.Use(told)
	})
	s := n.accept(ttl)
	for _, x := range []struct {
		handler, output, text string
		outcome               fermatav1.Result_Outcome
	}{
		{"ok", "told ok", "", succeededOutcome},
		{"fails", "told fails", "no", permanent},
		{"panics", "told panics", "rescued oh", permanent},
	} {
		s.lease(leaseOf(x.handler, x.handler))
		s.started(x.handler)
		if r := s.result(x.handler); r.Outcome != x.outcome || string(r.Output) != x.output || r.Error != x.text {
			t.Errorf("%s: %v", x.handler, r)
		}
		s.ack(accepted, x.handler)
	}
}

func TestUseAfterHandle(t *testing.T) {
	w, err := worker.New(worker.Options{Addresses: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("h", func(context.Context, *worker.Task) error { return nil })
	defer func() {
		if recover() == nil {
			t.Error("a handler is left out")
		}
	}()
	w.Use(func(next worker.Handler) worker.Handler { return next })
}
