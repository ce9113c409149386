package quota

import (
	"context"
	"maps"
	"sync"
	"time"
)

// bank is a store in memory that keeps counts as Redis's scripts do, beside what is
// really there.
type bank struct {
	mu     sync.Mutex
	counts map[string]int
	fresh  map[string]int // taken since the census began
	there  map[string]int // jobs that exist
	began  []time.Time    // of all censuses
	span   time.Duration  // of a census
	err    error          // of every call
	calls  int
}

func newBank() *bank {
	return &bank{counts: map[string]int{}, fresh: map[string]int{}, there: map[string]int{}}
}

// enter counts a call; the bank is locked until leave.
func (b *bank) enter() error {
	b.mu.Lock()
	b.calls++
	return b.err
}

func (b *bank) Reserve(_ context.Context, namespace string, n, limit int) (granted, jobs int, err error) {
	defer b.mu.Unlock()
	if err := b.enter(); err != nil {
		return 0, 0, err
	}
	granted = max(0, min(n, limit-b.counts[namespace]))
	b.counts[namespace] += granted
	b.fresh[namespace] += granted
	return granted, b.counts[namespace], nil
}

func (b *bank) Return(_ context.Context, namespace string, n int) error {
	defer b.mu.Unlock()
	if err := b.enter(); err != nil {
		return err
	}
	b.counts[namespace] = max(0, b.counts[namespace]-n)
	return nil
}

func (b *bank) Counts(context.Context) (map[string]int, bool, error) {
	defer b.mu.Unlock()
	err := b.enter()
	return maps.Clone(b.counts), len(b.began) > 0, err
}

func (b *bank) Census(ctx context.Context, every time.Duration, want func(string) bool) (bool, error) {
	err := b.enter()
	if n := len(b.began); err != nil || n > 0 && time.Since(b.began[n-1]) < every {
		b.mu.Unlock()
		return false, err
	}
	b.began, b.fresh = append(b.began, time.Now()), map[string]int{}
	mine, span := len(b.began), b.span
	b.mu.Unlock()
	select {
	case <-time.After(span):
	case <-ctx.Done():
		return true, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.began) != mine {
		return true, nil // a later one counts
	}
	counts := map[string]int{}
	for _, found := range []map[string]int{b.there, b.fresh} {
		for namespace, n := range found {
			if want(namespace) {
				counts[namespace] = max(0, counts[namespace]+n)
			}
		}
	}
	b.counts = counts
	return true, nil
}

// set changes the bank.
func (b *bank) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// times are when censuses began.
func (b *bank) times() []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]time.Time{}, b.began...)
}
