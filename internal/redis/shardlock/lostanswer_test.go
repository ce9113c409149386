package shardlock

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

var errCut = errors.New("connection cut after the command was carried out")

// cutter is a network that carries commands to Redis but loses the answers of commands with a certain argument.
type cutter struct {
	word string
	left atomic.Int64 // answers still to lose
	seen atomic.Int64 // answers lost
}

func (c *cutter) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *cutter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *cutter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.Contains(cmd.String(), c.word) && c.left.Add(-1) >= 0 {
			c.seen.Add(1)
			cmd.SetErr(errCut)
			return errCut
		}
		return err
	}
}

func cutClient(t *testing.T, s *redistest.Server, word string, n int64) (*redis.Client, *cutter) {
	t.Helper()
	o := *s.Granted().Options()
	client := redis.NewClient(&o)
	t.Cleanup(func() { _ = client.Close() })
	c := &cutter{word: word}
	c.left.Store(n)
	client.AddHook(c)
	return client, c
}

func TestObtainWhoseAnswerWasLostIsRepeatedWithItsToken(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, cut := cutClient(t, server, "a:7000", 3)
	f := newFleet(t, client, 1)
	f.observer = server.Client()
	start := time.Now()
	a := f.start("a", func(o *Options) { o.TTL = time.Minute })
	f.see("a")
	lock := f.holds(a, 0)
	if cut.seen.Load() != 3 {
		t.Fatalf("%d answers lost, want 3", cut.seen.Load())
	}
	if lock.Value != f.value(0) {
		t.Errorf("lock %q, Redis %q", lock.Value, f.value(0))
	}
	if d := time.Since(start); d >= time.Minute {
		t.Errorf("took %v: it waited for its own orphan to expire", d)
	}
}

func TestOrphanOfAnUnwantedShardIsTakenBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, cut := cutClient(t, server, "a:7000", 1<<30)
	f := newFleet(t, client, 1)
	f.observer = server.Client()
	a := f.start("a", func(o *Options) { o.TTL = time.Minute })
	f.see("a")
	redistest.Eventually(f.t, patience, "an orphan", func() error {
		if f.value(0) == "" {
			return errors.New("no key")
		}
		return nil
	})
	a.SetView(view("a")) // the ring names no owner
	// A call that was under way may still be one to obtain, and would be granted:
	// the one after it knows the view.
	seen := cut.seen.Load()
	redistest.Eventually(f.t, patience, "a call made under the new view", func() error {
		if cut.seen.Load() < seen+2 {
			return errors.New("none yet")
		}
		return nil
	})
	cut.left.Store(0)
	redistest.Eventually(f.t, patience, "the orphan's end", func() error {
		if v := f.value(0); v != "" {
			return errors.New("still there: " + v)
		}
		return nil
	})
	if _, held := a.ValidLock(0); held || f.lossCount() != 0 {
		t.Errorf("held %t, losses %v: it was never held", held, f.losses)
	}
}

func TestDrainTakesOrphansBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, cut := cutClient(t, server, "a:7000", 1<<30)
	f := newFleet(t, client, 1)
	f.observer = server.Client()
	a := f.start("a", func(o *Options) { o.TTL = time.Minute })
	f.see("a")
	redistest.Eventually(f.t, patience, "an orphan", func() error {
		if f.value(0) == "" {
			return errors.New("no key")
		}
		return nil
	})
	cut.left.Store(0)
	a.Drain(t.Context())
	if v := f.value(0); v != "" {
		t.Errorf("Drain left %q behind", v)
	}
}

func TestBreakWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, cut := cutClient(t, server, "dead|x:1", 2) // only breaking names the old value
	f := newFleet(t, client, 1)
	f.observer = server.Client()
	// Stale by the life that locks have, and far from its end.
	if err := server.Client().Set(t.Context(), testKey(0), newToken()+"dead|x:1", 15*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	a := f.start("a", func(o *Options) { o.TTL = time.Minute })
	f.see("a")
	lock := f.holds(a, 0)
	if cut.seen.Load() == 0 {
		t.Fatal("no answer was lost")
	}
	if lock.Value != f.value(0) {
		t.Errorf("lock %q, Redis %q", lock.Value, f.value(0))
	}
}

func TestReleaseWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, cut := cutClient(t, server, "a:7000", 0)
	f := newFleet(t, client, 1)
	f.observer = server.Client()
	a := f.start("a")
	f.see("a")
	f.holds(a, 0)
	cut.left.Store(2)
	if got := a.Drain(t.Context()); len(got) != 1 {
		t.Errorf("Drain returned %v, want the shard: its key is gone", got)
	}
	if v := f.value(0); v != "" {
		t.Errorf("key still has %q", v)
	}
}

func TestDrainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newFleet(t, server.Granted(), 2)
	a := f.start("a")
	f.see("a")
	f.converged("a")
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if got := a.Drain(ctx); len(got) != 0 {
		t.Errorf("Drain returned %v though Redis does not answer", got)
	}
	if _, held := a.ValidLock(0); held {
		t.Error("held while draining")
	}
	server.Resume()
	if got := a.Drain(t.Context()); f.value(0)+f.value(1) != "" {
		t.Errorf("released %v, but Redis has %q and %q", got, f.value(0), f.value(1))
	}
}

func TestBreakScript(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client()
	const old, mine = "old", "mine"
	cases := map[string]struct {
		value string
		ttl   time.Duration
		want  bool
	}{
		"stale":           {old, 29 * time.Second, true},
		"no TTL":          {old, 0, true},
		"refreshed":       {old, time.Minute, false},
		"another value":   {"newer", 29 * time.Second, false},
		"mine already":    {mine, time.Minute, true},
		"nothing to read": {"", 0, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			key := "{" + name + "}"
			if c.value != "" {
				if err := client.Set(t.Context(), key, c.value, c.ttl).Err(); err != nil {
					t.Fatal(err)
				}
			}
			got, err := breakScript.Run(t.Context(), client, []string{key}, old, mine, 60_000, 30_000).Bool()
			if err != nil || got != c.want {
				t.Fatalf("answer %t, %v; want %t", got, err, c.want)
			}
			value := client.Get(t.Context(), key).Val()
			if c.want && value != mine || !c.want && value != c.value {
				t.Errorf("value is now %q", value)
			}
			if ttl := client.PTTL(t.Context(), key).Val(); c.want && ttl < 31*time.Second {
				t.Errorf("TTL is now %v", ttl)
			}
		})
	}
}
