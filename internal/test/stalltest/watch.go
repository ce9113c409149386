package stalltest

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// Beat is how often a watch looks by itself.
	Beat = 25 * time.Millisecond
	// Tolerance is how much longer than its period a turn may take without being a span.
	Tolerance = 50 * time.Millisecond
)

// Span is a time in which the machine stood still.
type Span struct{ From, To time.Time }

// Length of the span.
func (s Span) Length() time.Duration { return s.To.Sub(s.From) }

// Watch looks for spans from its start to the end of its test.
type Watch struct {
	ctx   context.Context
	looks sync.WaitGroup
	turns atomic.Int64 // of its own beat

	mu    sync.Mutex
	spans []Span
}

// Start begins to watch. It ends with the test.
func Start(t testing.TB) *Watch {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{ctx: ctx}
	t.Cleanup(func() {
		cancel()
		w.looks.Wait()
	})
	w.Ask(Beat, func(context.Context) error {
		w.turns.Add(1)
		return nil
	})
	return w
}

// Ask has the watch do something too, with pauses of every in between. While that fails
// it records nothing; the gap shows at its next success.
func (w *Watch) Ask(every time.Duration, do func(context.Context) error) {
	w.looks.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-w.ctx.Done():
				return
			case <-ticker.C:
			}
			if do(w.ctx) != nil {
				continue
			}
			now := time.Now()
			if now.Sub(last) > every+Tolerance {
				w.mu.Lock()
				w.spans = append(w.spans, Span{last.Add(every), now}) // from when its turn came
				w.mu.Unlock()
			}
			last = now
		}
	})
}

// Seen are the spans so far, by their beginnings.
func (w *Watch) Seen() []Span {
	ticker := time.NewTicker(Beat)
	defer ticker.Stop()
	for turn := w.turns.Load(); w.turns.Load() < turn+2 && w.ctx.Err() == nil; { // what has just ended is noted
		<-ticker.C
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	byStart := func(a, b Span) int { return cmp.Compare(a.From.UnixNano(), b.From.UnixNano()) }
	return slices.SortedFunc(slices.Values(w.spans), byStart)
}

// Since is how long the machine has stood still since then, in all.
func (w *Watch) Since(from time.Time) (sum time.Duration) {
	for _, s := range w.Seen() {
		if s.From.Before(from) {
			s.From = from
		}
		if s.To.After(s.From) { // what several saw counts once
			sum += s.Length()
			from = s.To
		}
	}
	return sum
}

// Longest is the longest span that was not over then.
func (w *Watch) Longest(from time.Time) (longest time.Duration) {
	for _, s := range w.Seen() {
		if s.To.After(from) {
			longest = max(longest, s.Length())
		}
	}
	return longest
}
