package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func TestExcerptFitsInJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.OneOf(rapid.SliceOf(rapid.Byte()),
			rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) })).Draw(t, "b")
		n := rapid.IntRange(0, 64).Draw(t, "n")
		s := Excerpt(b, n)
		encoded, err := json.Marshal(s)
		if err != nil || len(encoded) > n+2 || !utf8.ValidString(s) {
			t.Fatalf("%q: %d bytes of JSON, want at most %d (%v)", s, len(encoded), n+2, err)
		}
		if clean := string(b); len(clean)*6 <= n && utf8.ValidString(clean) &&
			strings.IndexFunc(clean, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0 && s != clean {
			t.Fatalf("%q fits and became %q", clean, s)
		}
	})
}

func TestOutboxBoundsMessages(t *testing.T) {
	o := outbox{draining: true, returned: make([]string, 3)}
	for range 2*maxLeaseIDs + 1 {
		o.started = append(o.started, &attempt{phase: phaseRunning})
	}
	for range 5 {
		o.started = append(o.started, &attempt{phase: phaseEnded, sentOn: &session{}})
	}
	starts := 0
	const all, each = 12, maxResultBytes / 4
	for range all {
		o.results = append(o.results, &attempt{id: "x", result: result{output: make([]byte, each)}})
	}
	var kinds []string
	results := 0
	for _, message := range o.takeMessages() {
		if f, ok := message.(*resultFrame); ok {
			kinds = append(kinds, "results")
			results += len(f.attempts)
			if n := len(f.AppendFrame(nil)); n > maxResultBytes+each+resultOverhead || n > f.FrameSize() {
				t.Errorf("%d results take %d bytes", len(f.attempts), n)
			}
			continue
		}
		switch m := message.(*fermatav1.WorkRequest); {
		case m.GetDraining() != nil:
			kinds = append(kinds, "draining")
		case m.GetReturned() != nil:
			kinds = append(kinds, "returned")
		case m.GetStarted() != nil:
			kinds = append(kinds, "started")
			starts += len(m.GetStarted().LeaseIds)
			if len(m.GetStarted().LeaseIds) > maxLeaseIDs {
				t.Errorf("%d ids in one message", len(m.GetStarted().LeaseIds))
			}
		default:
			t.Errorf("a message of another kind: %v", m)
		}
	}
	want := []string{"draining", "returned", "started", "started", "started", "results", "results", "results"}
	if starts != 2*maxLeaseIDs+1 {
		t.Errorf("%d starts, want those without a result", starts)
	}
	if !slices.Equal(kinds, want) || results != all || !o.isEmpty() {
		t.Errorf("got %v with %d results, want %v with %d", kinds, results, want, all)
	}
}

func TestOptions(t *testing.T) {
	good := func() Options { return Options{Addresses: []string{"a:1"}} }
	for name, test := range map[string]struct {
		edit func(*Options)
		want string
	}{
		"no address":    {func(o *Options) { o.Addresses = nil }, "no Addresses"},
		"empty address": {func(o *Options) { o.Addresses = []string{""} }, `address "" is not host:port`},
		"no port": {func(o *Options) { o.Addresses = []string{"a:1", "localhost"} },
			`address "localhost" is not host:port`},
		"slots":          {func(o *Options) { o.Slots = -1 }, "slots is -1, want 1 to 100000"},
		"namespace":      {func(o *Options) { o.Namespace = "a b" }, "namespace"},
		"id":             {func(o *Options) { o.ID = "a/b" }, "worker_id"},
		"queue twice":    {func(o *Options) { o.Queues = []string{"q", "q"} }, "queues[1]"},
		"drain timeout":  {func(o *Options) { o.DrainTimeout = -1 }, "DrainTimeout is negative"},
		"all at once":    {func(o *Options) { o.Slots, o.ID = -1, "a/b" }, "worker_id"},
		"version length": {func(o *Options) { o.Version = strings.Repeat("v", 200) }, "version"},
	} {
		o := good()
		test.edit(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	a, errA := New(good())
	b, errB := New(good())
	if errA != nil || errB != nil || a.ID() == b.ID() {
		t.Errorf("defaults: %v, %v, ids %q and %q", errA, errB, a.ID(), b.ID())
	}
	if a.options.Slots != DefaultSlots || a.options.Namespace != "default" ||
		!slices.Equal(a.options.Queues, []string{"default"}) {
		t.Errorf("defaults are %+v", a.options)
	}
}

func TestMisuse(t *testing.T) {
	handler := func(context.Context, *Task) error { return nil }
	w, err := New(Options{Addresses: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context()); err == nil {
		t.Error("Run without a handler")
	}
	w.Handle("a", handler)
	panics := func(name string, f func()) {
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", name)
			}
		}()
		f()
	}
	panics("empty name", func() { w.Handle("", handler) })
	panics("no handler", func() { w.Handle("b", nil) })
	panics("twice", func() { w.Handle("a", handler) })
	for range 2 {
		if err := w.Stop(t.Context()); err != nil {
			t.Errorf("Stop before Run: %v", err)
		}
		w.Abort()
	}
	if err := w.Run(t.Context()); err != nil {
		t.Error(err)
	}
	panics("after Run", func() { w.Handle("c", handler) })
	if err := w.Run(t.Context()); err == nil {
		t.Error("Run ran twice")
	}
}

// What is held begins when it is due, or together with others where there are many.
func TestHeldAttemptsStartTogether(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		held      int
		due, want time.Duration
	}{
		{1, 0, 10 * time.Microsecond},
		{1, 10 * time.Microsecond, 10 * time.Microsecond},
		{1, time.Millisecond, time.Millisecond},
		{20, 10 * time.Microsecond, 200 * time.Microsecond},
		{20, 300 * time.Microsecond, 300 * time.Microsecond},
		{1000, 0, maxCoalesceDelay},
		{1000, maxCoalesceDelay + 1, maxCoalesceDelay + 1},
	} {
		if got := coalescedStart(now.Add(c.due), now, c.held).Sub(now); got != c.want {
			t.Errorf("of %d that are held one is due after %v and begins after %v, want %v", c.held, c.due, got, c.want)
		}
	}
}

// TestDrainAddressesAreUsedAfterTheStreamEnds: a node that has nothing to wait for ends the stream as soon as it
// has said where to go, and the link finds both.
func TestDrainAddressesAreUsedAfterTheStreamEnds(t *testing.T) {
	l := newLink(&Worker{options: Options{Logger: slog.New(slog.DiscardHandler)}, routes: newRoutes([]string{"old:1"})})
	s := &session{address: "old:1", drainAddresses: make(chan []string, 1)}
	if l.drainedBeforeEnd(s) {
		t.Error("it was sent away before anybody said so")
	}
	s.drainAddresses <- []string{"new:1"}
	if !l.drainedBeforeEnd(s) {
		t.Fatal("what the node said was not heard")
	}
	if r, _ := l.w.routes.claimNext(time.Now(), ""); r.address != "new:1" {
		t.Errorf("it goes to %s", r.address)
	}
}
