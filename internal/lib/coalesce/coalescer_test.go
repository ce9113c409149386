package coalesce

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const width = 4

// full returns a funnel whose places are all taken until release is called.
func full(most int) (f *Coalescer[int], release func()) {
	f = New[int](width, most)
	held := make(chan struct{})
	var all sync.WaitGroup
	for range width {
		all.Go(func() { _ = f.Do(context.Background(), -1, 1, 0, func(context.Context, []int) { <-held }) })
	}
	synctest.Wait()
	return f, func() { close(held); all.Wait() }
}

func (f *Coalescer[T]) wantIdle(t *testing.T) {
	t.Helper()
	if f.inFlight != 0 || len(f.waiting) != 0 {
		t.Errorf("%d under way and %d waiting when all is done", f.inFlight, len(f.waiting))
	}
	for _, l := range f.waiting[:cap(f.waiting)] {
		if l != nil {
			t.Fatal("the queue keeps an item that has left it")
		}
	}
}

// TestGathers: what waits goes out together, in order.
func TestGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, release := full(100)
		var sent [][]int
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				_ = f.Do(t.Context(), i, 1, time.Hour,
					func(_ context.Context, items []int) { sent = append(sent, items) })
			})
			synctest.Wait()
		}
		release()
		all.Wait()
		if len(sent) != 1 || len(sent[0]) != 10 {
			t.Fatalf("sent %v, want all of them at once", sent)
		}
		for i, item := range sent[0] {
			if i != item {
				t.Fatalf("sent %v: out of order", sent)
			}
		}
		f.wantIdle(t)
	})
}

// TestWeight: a sending weighs no more than allowed, but for a single item.
func TestWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, release := full(10)
		var mu sync.Mutex
		var sizes []int
		var all sync.WaitGroup
		for _, weight := range []int{4, 4, 4, 50, 10, 1} {
			all.Go(func() {
				_ = f.Do(t.Context(), 0, weight, 0, func(_ context.Context, items []int) {
					mu.Lock()
					defer mu.Unlock()
					sizes = append(sizes, len(items))
				})
			})
			synctest.Wait()
		}
		release()
		all.Wait()
		most, total := 0, 0
		for _, n := range sizes {
			most, total = max(most, n), total+n
		}
		if len(sizes) != 5 || most != 2 || total != 6 {
			t.Fatalf("sendings of %v items, want one of 2 and four of 1", sizes)
		}
		f.wantIdle(t)
	})
}

// TestWithdraws: who goes away before his turn has sent nothing.
func TestWithdraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, release := full(100)
		never := func(context.Context, []int) { t.Error("it was sent") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if err := f.Do(ctx, 0, 1, 0, never); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		all.Go(func() {
			if err := f.Do(t.Context(), 0, 1, 250*time.Millisecond, never); !errors.Is(err, ErrTurnTimeout) {
				t.Error(err)
			}
		})
		all.Wait()
		release()
		f.wantIdle(t)
	})
}

// TestContextOfOthers: the end of a caller's context does not end what it sends for
// others, and it learns what became of its own item.
func TestContextOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, release := full(100)
		first, cancel := context.WithCancel(t.Context())
		under, proceed := make(chan struct{}), make(chan struct{})
		var seen error
		send := func(ctx context.Context, _ []int) {
			close(under)
			<-proceed
			seen = ctx.Err()
		}
		var all sync.WaitGroup
		for _, ctx := range []context.Context{first, t.Context()} {
			all.Go(func() {
				if err := f.Do(ctx, 0, 1, 0, send); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		release()
		<-under
		cancel()
		close(proceed)
		all.Wait()
		if seen != nil {
			t.Errorf("what was sent for others ended with %v", seen)
		}
	})
}

// TestPanicLosesNoPlace: a panic while sending is the sender's; the others go on.
func TestPanicLosesNoPlace(t *testing.T) {
	f := New[int](1, 1)
	func() {
		defer func() { _ = recover() }()
		_ = f.Do(context.Background(), 0, 1, 0, func(context.Context, []int) { panic("it") })
	}()
	sent := false
	if err := f.Do(context.Background(), 0, 1, 0, func(context.Context, []int) { sent = true }); err != nil || !sent {
		t.Errorf("sent %v, error %v", sent, err)
	}
	f.wantIdle(t)
}

// TestSendsAllOnce: with many callers, some of which give up, every item is sent once or not at all, and its
// caller knows which.
func TestSendsAllOnce(t *testing.T) {
	f := New[*int](width, 8)
	var under, most atomic.Int32
	send := func(_ context.Context, items []*int) {
		if n := under.Add(1); n > most.Load() {
			most.Store(n)
		}
		for _, sent := range items {
			*sent++
		}
		under.Add(-1)
	}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for k := range 200 {
				ctx, cancel := context.WithCancel(context.Background())
				if (i+k)%7 == 0 {
					cancel()
				}
				sent := new(int)
				if err := f.Do(ctx, sent, 1, 0, send); *sent > 1 || (*sent == 1) != (err == nil) {
					t.Errorf("sent %d times, error %v", *sent, err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if most.Load() > width {
		t.Errorf("%d sendings at once", most.Load())
	}
	f.wantIdle(t)
}
