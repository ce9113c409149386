package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// fill occupies all places of a funnel until the function that it returns is called.
func fill(f *funnel) (release func()) {
	held := make(chan struct{})
	var all sync.WaitGroup
	for range funnelWidth {
		all.Go(func() {
			f.send(context.Background(), []*op{{}}, 0, func(context.Context, []*op) { <-held })
		})
	}
	return func() { close(held); all.Wait() }
}

// TestFunnelGathers: calls go out at once while there are places, and together when
// there are none.
func TestFunnelGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(funnel)
		release := fill(f)
		synctest.Wait()
		var sent []int
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				f.send(context.Background(), []*op{{}, {}}, time.Hour, func(_ context.Context, ops []*op) { sent = append(sent, len(ops)) })
			})
			synctest.Wait()
		}
		release()
		all.Wait()
		if len(sent) != 1 || sent[0] != 20 {
			t.Fatalf("pipelines of %v calls, want one of 20", sent)
		}
		if f.under != 0 || len(f.waiting) != 0 {
			t.Fatalf("%d under way and %d waiting when all is done", f.under, len(f.waiting))
		}
	})
}

// TestFunnelLargeCallsAlone: a pipeline is no longer than funnelArgs allows, but for
// one call that is.
func TestFunnelLargeCallsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(funnel)
		release := fill(f)
		synctest.Wait()
		var mu sync.Mutex
		most, pipelines := 0, 0
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				f.send(context.Background(), []*op{{argv: make([]any, funnelArgs/2)}}, 0, func(_ context.Context, ops []*op) {
					mu.Lock()
					defer mu.Unlock()
					most, pipelines = max(most, len(ops)), pipelines+1
				})
			})
		}
		synctest.Wait()
		release()
		all.Wait()
		if most != 2 || pipelines != 3 {
			t.Fatalf("%d pipelines, the longest of %d; want 3 of 2", pipelines, most)
		}
	})
}

// TestFunnelWithdraws: who goes away before his turn has sent nothing.
func TestFunnelWithdraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(funnel)
		release := fill(f)
		synctest.Wait()
		never := func(context.Context, []*op) { t.Error("it was sent") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		gone, tired := &op{}, &op{}
		var all sync.WaitGroup
		all.Go(func() { f.send(ctx, []*op{gone}, 0, never) })
		all.Go(func() { f.send(t.Context(), []*op{tired}, 250*time.Millisecond, never) })
		all.Wait()
		if !errors.Is(gone.err, context.DeadlineExceeded) || !errors.Is(tired.err, redis.ErrPoolTimeout) {
			t.Errorf("errors %v and %v", gone.err, tired.err)
		}
		release()
	})
}

// TestFunnelContextOfOthers: the end of a caller's context does not end what it sends
// for others.
func TestFunnelContextOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := new(funnel)
		release := fill(f)
		synctest.Wait()
		first, cancel := context.WithCancel(t.Context())
		under := make(chan struct{})
		proceed := make(chan struct{})
		pipeline := func(ctx context.Context, ops []*op) {
			close(under)
			<-proceed
			for _, o := range ops {
				o.err = ctx.Err()
			}
		}
		mine, theirs := &op{}, &op{}
		var all sync.WaitGroup
		all.Go(func() { f.send(first, []*op{mine}, 0, pipeline) })
		synctest.Wait()
		all.Go(func() { f.send(t.Context(), []*op{theirs}, 0, pipeline) })
		synctest.Wait()
		release()
		<-under
		cancel()
		close(proceed)
		all.Wait()
		if mine.err != nil || theirs.err != nil {
			t.Errorf("errors %v and %v", mine.err, theirs.err)
		}
	})
}

// TestFunnelSendsAllOnce: under many callers, some of which give up, every call is
// sent once or not at all, and says which.
func TestFunnelSendsAllOnce(t *testing.T) {
	f := new(funnel)
	var under, most atomic.Int32
	pipeline := func(_ context.Context, ops []*op) {
		if n := under.Add(1); n > most.Load() {
			most.Store(n)
		}
		for _, o := range ops {
			o.reply = append(o.reply, nil)
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
				o := &op{}
				f.send(ctx, []*op{o}, 0, pipeline)
				if sent := len(o.reply); sent > 1 || (sent == 1) != (o.err == nil) {
					t.Errorf("sent %d times, error %v", sent, o.err)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if most.Load() > funnelWidth || f.under != 0 || len(f.waiting) != 0 {
		t.Errorf("%d pipelines at once; left: %d under way, %d waiting", most.Load(), f.under, len(f.waiting))
	}
}
