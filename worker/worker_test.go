package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

const ttl = 30 * time.Second

const (
	succeededOutcome = fermatav1.Result_OUTCOME_SUCCEEDED
	failed           = fermatav1.Result_OUTCOME_FAILED
	permanent        = fermatav1.Result_OUTCOME_FAILED_PERMANENTLY
	timedOut         = fermatav1.Result_OUTCOME_TIMED_OUT
	cancelled        = fermatav1.Result_OUTCOME_CANCELLED

	accepted = fermatav1.ResultAck_STATUS_ACCEPTED
	stale    = fermatav1.ResultAck_STATUS_STALE

	requested = fermatav1.Cancel_REASON_REQUESTED
	leaseLost = fermatav1.Cancel_REASON_LEASE_LOST
	nodeTimed = fermatav1.Cancel_REASON_TIMED_OUT
)

func TestOneAttempt(t *testing.T) {
	n := newNode(t)
	tasks := make(chan *worker.Task, 1)
	metrics := prometheus.NewRegistry()
	w := run(t, worker.Options{
		Addresses: []string{n.addr}, Namespace: "shop", Queues: []string{"mail", "slow"}, Slots: 7,
		Version: "v1", Labels: map[string]string{"zone": "a"}, Registerer: metrics,
	}, map[string]worker.Handler{"send": func(_ context.Context, task *worker.Task) error {
		var payload struct{ To string }
		if err := task.Decode(&payload); err != nil {
			return err
		}
		task.SetOutput([]byte("sent to " + payload.To))
		tasks <- task
		return nil
	}})
	if w.Ready() == nil {
		t.Error("ready before the first stream")
	}
	s := n.accept(ttl)
	h := s.hello
	if h.WorkerId != w.ID() || h.Namespace != "shop" || len(h.Queues) != 2 || h.Slots != 7 || h.SessionEpoch != 1 ||
		len(h.LiveLeaseIds) != 0 || h.Version != "v1" || h.Labels["zone"] != "a" {
		t.Errorf("hello is %v", h)
	}
	redistest.Eventually(t, patience, "ready", func() bool { return w.Ready() == nil })

	s.lease(leaseOf("a", "send", func(l *fermatav1.Lease) {
		l.Run, l.Payload, l.Labels = "namespaces/shop/jobs/j/runs/r", []byte(`{"to":"ann"}`), map[string]string{"k": "v"}
		l.Queue, l.Attempt, l.Token, l.CorrelationId = "mail", 3, 77, "cc"
	}))
	s.started("a")
	r := s.result("a")
	if r.Outcome != succeededOutcome || string(r.Output) != "sent to ann" || r.Error != "" || r.Duration == nil {
		t.Errorf("result is %v", r)
	}
	task := receive(t, tasks, "task")
	if task.Run != "namespaces/shop/jobs/j/runs/r" || task.Namespace != "shop" || task.Job != "j" ||
		task.Queue != "mail" ||
		task.Handler != "send" || !maps.Equal(task.Labels, map[string]string{"k": "v"}) || task.Attempt != 3 ||
		task.MaxAttempts != 3 || !task.LastAttempt() || task.Token != 77 || task.CorrelationID != "cc" ||
		task.Timeout != time.Minute || task.NominalTime.UnixMilli() != 1000 || task.DueTime.UnixMilli() != 2000 {
		t.Errorf("task is %+v", task)
	}
	s.ack(accepted, "a")

	w.stop()
	if s.next().GetDraining() == nil {
		t.Error("no Draining")
	}
	s.closed()
	if err := w.returned(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if w.Ready() == nil {
		t.Error("ready after the end")
	}
	want := `
# HELP fermata_worker_handled_total Attempts whose handler ended, by outcome.
# TYPE fermata_worker_handled_total counter
fermata_worker_handled_total{handler="send",outcome="succeeded"} 1
`
	if err := testutil.GatherAndCompare(metrics, strings.NewReader(want), "fermata_worker_handled_total"); err != nil {
		t.Error(err)
	}
}

type codeError int

func (c codeError) Error() string { return fmt.Sprintf("code %d", int(c)) }

// structError has a method that cannot do without the error, as that of many errors.
type structError struct{ text string }

func (e *structError) Error() string { return e.text }

type hintless struct{}

func (hintless) Error() string             { return "hintless" }
func (hintless) RetryAfter() time.Duration { panic("no hint") }

func TestOutcomes(t *testing.T) {
	untilDone := func(ctx context.Context, _ *worker.Task) error {
		<-ctx.Done()
		return fmt.Errorf("gave up: %w", context.Cause(ctx))
	}
	handlers := map[string]worker.Handler{
		"plain": func(context.Context, *worker.Task) error { return errors.New("no luck") },
		"permanent": func(context.Context, *worker.Task) error {
			return fmt.Errorf("x: %w",
				worker.Permanent(codeError(7)))
		},
		"later": func(context.Context, *worker.Task) error {
			return worker.RetryAfter(codeError(503), 90*time.Second)
		},
		"past": func(context.Context, *worker.Task) error {
			return worker.RetryAfter(codeError(503), -time.Second)
		},
		"panic":     func(context.Context, *worker.Task) error { panic("boom") },
		"nil":       func(context.Context, *worker.Task) error { var task *worker.Task; return task.Decode(nil) },
		"typed nil": func(context.Context, *worker.Task) error { var e *structError; return e },
		"hint":      func(context.Context, *worker.Task) error { return hintless{} },
		"exit":      func(context.Context, *worker.Task) error { runtime.Goexit(); return nil },
		"binary": func(context.Context, *worker.Task) error {
			return errors.New("\xff\xfe" + strings.Repeat("ä",
				600))
		},
		"empty": func(context.Context, *worker.Task) error { return errors.New("") },
		"output": func(_ context.Context, task *worker.Task) error {
			task.SetOutput(make([]byte, 2*worker.MaxOutput))
			return errors.New("with output")
		},
		"wait":     untilDone,
		"stubborn": func(ctx context.Context, _ *worker.Task) error { <-ctx.Done(); return nil },
		"refuses":  func(ctx context.Context, _ *worker.Task) error { <-ctx.Done(); return worker.Permanent(codeError(1)) },
	}
	short := func(l *fermatav1.Lease) { l.Timeout = durationpb.New(time.Millisecond) }
	never := func(l *fermatav1.Lease) { l.Timeout = nil }
	tests := map[string]struct {
		handler string
		edit    func(*fermatav1.Lease)
		cancel  fermatav1.Cancel_Reason
		outcome fermatav1.Result_Outcome
		text    string // in the error
		check   func(*fermatav1.Result) bool
	}{
		"failed":     {handler: "plain", outcome: failed, text: "no luck"},
		"no handler": {handler: "nobody", outcome: failed, text: `no handler "nobody" on this worker`},
		"permanent":  {handler: "permanent", outcome: permanent, text: "x: code 7"},
		"retry after": {handler: "later", outcome: failed, text: "code 503",
			check: func(r *fermatav1.Result) bool { return r.RetryAfter.AsDuration() == 90*time.Second }},
		"retry in the past": {handler: "past", outcome: failed,
			check: func(r *fermatav1.Result) bool { return r.RetryAfter == nil }},
		"panic": {handler: "panic", outcome: failed, text: "panic: boom at worker_test.TestOutcomes.func",
			check: func(r *fermatav1.Result) bool { return strings.Contains(r.Error, "worker_test.go:") }},
		"nil pointer": {handler: "nil", outcome: failed,
			text: "nil pointer dereference at worker.(*Task).Decode (json.go:"},
		"nil error": {handler: "typed nil", outcome: failed,
			text: "nil pointer dereference at worker_test.(*structError).Error (worker_test.go:"},
		"bad hint": {handler: "hint", outcome: failed, text: "panic: no hint at worker_test.hintless.RetryAfter"},
		"goexit":   {handler: "exit", outcome: failed, text: "without returning"},
		"not UTF-8": {handler: "binary", outcome: failed, text: "\uFFFD",
			check: func(r *fermatav1.Result) bool { return len(r.Error) <= 512 && len(r.Error) > 500 }},
		"empty error": {handler: "empty", outcome: failed, text: "*errors.errorString"},
		"big output": {handler: "output", outcome: failed, text: "with output",
			check: func(r *fermatav1.Result) bool { return len(r.Output) == worker.MaxOutput }},
		"timeout":                 {handler: "wait", edit: short, outcome: timedOut, text: "timeout has passed"},
		"success after timeout":   {handler: "stubborn", edit: short, outcome: succeededOutcome},
		"permanent after timeout": {handler: "refuses", edit: short, outcome: permanent},
		"cancelled": {handler: "wait", cancel: requested, outcome: cancelled,
			text: worker.ErrCancelled.Error()},
		"cancelled for no reason": {handler: "wait", cancel: fermatav1.Cancel_REASON_UNSPECIFIED, edit: never,
			outcome: cancelled},
		"timed out by the node":    {handler: "wait", cancel: nodeTimed, edit: never, outcome: timedOut},
		"success though cancelled": {handler: "stubborn", cancel: requested, outcome: succeededOutcome},
		"success though lost":      {handler: "stubborn", cancel: leaseLost, outcome: succeededOutcome},
	}
	n := newNode(t)
	run(t, worker.Options{Addresses: []string{n.addr}, Slots: 1}, handlers)
	s := n.accept(ttl)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s.t = t
			l := leaseOf(strings.ReplaceAll(name, " ", "-"), test.handler)
			if test.edit != nil {
				test.edit(l)
			}
			s.lease(l)
			s.started(l.LeaseId)
			if test.handler == "wait" && test.edit == nil || test.cancel != 0 || name == "cancelled for no reason" {
				s.cancel(test.cancel, l.LeaseId)
			}
			r := s.result(l.LeaseId)
			if r.Outcome != test.outcome || !strings.Contains(r.Error, test.text) ||
				(r.Outcome == succeededOutcome) != (r.Error == "") {
				t.Errorf("got %v, want %v with %q", r, test.outcome, test.text)
			}
			if test.check != nil && !test.check(r) {
				t.Errorf("result is %v", r)
			}
			s.ack(accepted, l.LeaseId)
		})
	}
}

func TestErrorsAreTransparent(t *testing.T) {
	for name, err := range map[string]error{
		"permanent":   worker.Permanent(codeError(7)),
		"retry after": worker.RetryAfter(codeError(7), time.Second),
		"both":        worker.Permanent(worker.RetryAfter(codeError(7), time.Second)),
	} {
		var code codeError
		if !errors.Is(err, codeError(7)) || !errors.As(err, &code) || err.Error() != "code 7" {
			t.Errorf("%s: %v hides its error", name, err)
		}
	}
	if worker.Permanent(nil) != nil || worker.RetryAfter(nil, time.Second) != nil {
		t.Error("nil became an error")
	}
}

func TestSlots(t *testing.T) {
	n := newNode(t)
	gate := map[string]chan struct{}{}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		gate[id] = make(chan struct{})
	}
	w := run(t, worker.Options{Addresses: []string{n.addr}, Slots: 2}, map[string]worker.Handler{
		"gate": func(ctx context.Context, task *worker.Task) error {
			select {
			case <-gate[task.Job]:
			case <-ctx.Done():
			}
			return ctx.Err()
		},
	})
	s := n.accept(ttl)
	s.lease(leaseOf("a", "gate"), leaseOf("b", "gate"), leaseOf("c", "gate"), leaseOf("d", "gate"),
		leaseOf("e", "gate"))
	s.started("a", "b")

	// What waits can be cancelled, and lost.
	s.cancel(requested, "c")
	s.returned("c")
	s.cancel(leaseLost, "d")
	s.returned("d")

	close(gate["b"])
	m := s.next()
	if ids := m.GetStarted().GetLeaseIds(); len(ids) != 1 || ids[0] != "e" {
		t.Fatalf("got %v, want e started", m)
	}
	if r := s.result("b"); r.Outcome != succeededOutcome {
		t.Errorf("got %v", r)
	}
	s.ack(accepted, "b", "c")

	// A lease that comes twice runs once.
	s.lease(leaseOf("a", "gate"))
	s.cancel(leaseLost, "unknown")
	s.returned("unknown")
	close(gate["a"])
	s.result("a")
	s.lease(leaseOf("a", "gate"))
	s.result("a")
	close(gate["e"])
	s.result("e")
	s.ack(accepted, "a", "e")

	w.stop()
	if s.next().GetDraining() == nil {
		t.Error("no Draining")
	}
	s.closed()
	if err := w.returned(); err != nil {
		t.Error(err)
	}
}

// What came ahead starts in order as slots become free, and is not told of before.
func TestPrefetchedLeasesRunInOrder(t *testing.T) {
	const slots, prefetch = 2, 8
	n := newNode(t)
	gate := make(chan struct{})
	run(t, worker.Options{Addresses: []string{n.addr}, Slots: slots, Prefetch: prefetch}, map[string]worker.Handler{
		"gate": func(context.Context, *worker.Task) error { <-gate; return nil },
	})
	s := n.accept(ttl)
	if s.hello.Prefetch != prefetch {
		t.Errorf("prefetch is %d, want %d", s.hello.Prefetch, prefetch)
	}
	var ids []string
	var leases []*fermatav1.Lease
	for i := range slots + prefetch {
		ids = append(ids, strconv.Itoa(i))
		leases = append(leases, leaseOf(ids[i], "gate"))
	}
	s.lease(leases...)
	s.started(ids[:slots]...)
	close(gate)
	var started, ended []string
	for len(ended) < len(ids) {
		m := s.next()
		started = append(started, m.GetStarted().GetLeaseIds()...)
		for _, r := range m.GetResults().GetResults() {
			ended = append(ended, r.GetLeaseId())
		}
	}
	if !slices.IsSorted(started) {
		t.Errorf("started %v", started)
	}
	s.ack(fermatav1.ResultAck_STATUS_ACCEPTED, ended...)
	slices.Sort(ended)
	if !slices.Equal(ended, ids) {
		t.Errorf("ended %v, want %v", ended, ids)
	}
}

func TestPrefetchOption(t *testing.T) {
	for prefetch, want := range map[int]int32{-1: 0, 0: worker.DefaultPrefetch, 5: 5, 3000: 3000} {
		n := newNode(t)
		run(t, worker.Options{Addresses: []string{n.addr}, Slots: 100, Prefetch: prefetch}, newGates().handlers())
		if got := n.accept(ttl).hello.Prefetch; got != want {
			t.Errorf("option %d: prefetch is %d, want %d", prefetch, got, want)
		}
	}
}

func TestWaitingLeasesAreReturned(t *testing.T) {
	n := newNode(t)
	w := runAs(t, worker.Options{Addresses: []string{n.addr}, Slots: 1}, map[string]worker.Handler{
		"wait": func(ctx context.Context, _ *worker.Task) error { <-ctx.Done(); return ctx.Err() },
	}, func(*worker.Worker) {})
	s := n.accept(ttl)
	came := time.Now()
	s.lease(leaseOf("a", "wait"), leaseOf("b", "wait"))
	s.started("a")
	s.returned("b")
	if waited := time.Since(came); waited < 50*time.Millisecond {
		t.Errorf("b went back after %v", waited)
	}

	// Another one waits when the worker drains.
	s.lease(leaseOf("c", "wait"))
	w.stop()
	for draining, back := false, false; !draining || !back; {
		m := s.next()
		draining = draining || m.GetDraining() != nil
		back = back || slices.Equal(m.GetReturned().GetLeaseIds(), []string{"c"})
	}
	// And one comes too late.
	s.lease(leaseOf("d", "wait"))
	s.returned("d")
}
