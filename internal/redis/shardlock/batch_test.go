package shardlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestRefreshesGoTogether: locks that were obtained at different times are refreshed
// in one pipeline before long, and all of them stay valid.
func TestRefreshesGoTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := *server.Granted().Options()
	client := redis.NewClient(&o)
	t.Cleanup(func() { _ = client.Close() })
	pipes := &pipelines{}
	client.AddHook(pipes)
	f := newFleet(t, client, 12)
	f.observer = server.Client()
	a := f.start("a")
	for shard := range 6 { // which keep it from them for a while
		f.observer.Set(t.Context(), testKey(shard), newToken()+"b|x:1", testTTL/2)
	}
	f.see("a")
	f.converged("a")
	redistest.Eventually(f.t, patience, "twelve refreshes at once, twice", func() error {
		if n := pipes.count(12); n < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	if f.lossCount() != 0 {
		t.Errorf("losses: %v", f.losses)
	}
	for shard := range 12 {
		if lock, ok := a.ValidLock(shard); !ok || lock.Value != f.value(shard) {
			t.Errorf("shard %d is held: %t", shard, ok)
		}
	}
}

// pipelines notes how many scripts each pipeline carries.
type pipelines struct {
	mu    sync.Mutex
	sizes []int
}

func (p *pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n := 0
		for _, c := range cmds {
			if strings.EqualFold(c.Name(), "evalsha") {
				n++
			}
		}
		p.mu.Lock()
		p.sizes = append(p.sizes, n)
		p.mu.Unlock()
		return next(ctx, cmds)
	}
}

func (p *pipelines) count(size int) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sizes {
		if s == size {
			n++
		}
	}
	return n
}

// refreshTogether refreshes locks that a test has obtained: each has an outcome of its own.
func TestEachRefreshHasItsOwnOutcome(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	o := validOptions(t)
	o.Client, o.Shards = server.Granted(), 5
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	var jobs []call
	for shard := range 5 {
		lock, err := m.calls.locks.Obtain(t.Context(), testKey(shard), time.Minute, &redislock.Options{Token: newToken()})
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, call{kind: refreshCall, shard: shard, lock: lock})
	}
	refreshed := func() (outs []callOutcome) {
		m.calls.doAll(t.Context(), jobs, func(some []callOutcome) { outs = append(outs, some...) })
		if len(outs) != len(jobs) {
			t.Fatalf("%d outcomes of %d", len(outs), len(jobs))
		}
		return outs
	}
	client := server.Client()
	client.Del(t.Context(), testKey(1))
	client.Set(t.Context(), testKey(3), "another's", time.Minute)
	client.ScriptFlush(t.Context())
	outs := refreshed()
	unanswered := func(o callOutcome) bool { return o.err != nil && !errors.Is(o.err, redislock.ErrNotObtained) }
	for tries := 0; tries < 10 && slices.ContainsFunc(outs, unanswered); tries++ {
		outs = refreshed() // the machine stood still for longer than a call may take
	}
	for shard, out := range outs {
		lost := shard == 1 || shard == 3
		if out.shard != shard || errors.Is(out.err, redislock.ErrNotObtained) != lost || !lost && out.err != nil || out.start.IsZero() {
			t.Errorf("shard %d: %+v", shard, out)
		}
		if left := client.PTTL(t.Context(), testKey(shard)).Val(); !lost && left > DefaultTTL {
			t.Errorf("shard %d was not refreshed: %v left", shard, left)
		}
	}
	server.Pause()
	for _, out := range refreshed() { // which ends by itself
		if out.err == nil || errors.Is(out.err, redislock.ErrNotObtained) {
			t.Errorf("shard %d: %v from a server that does not answer", out.shard, out.err)
		}
	}
	server.Resume()
}

// TestServersDoNotWaitForEachOther: of three masters the first one stands still. The others have answered before its
// calls end.
func TestServersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	o := validOptions(t)
	o.Client, o.Shards = cluster.Granted(), 24
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	var jobs []call
	for shard := range o.Shards {
		lock, err := m.calls.locks.Obtain(t.Context(), testKey(shard), time.Minute, &redislock.Options{Token: newToken()})
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, call{kind: refreshCall, shard: shard, lock: lock})
	}
	groups := m.calls.groupByServer(t.Context(), jobs)
	if len(groups) != 3 || len(groups[0])+len(groups[1])+len(groups[2]) != o.Shards {
		t.Fatalf("%d groups", len(groups))
	}
	first, err := o.Client.(*redis.ClusterClient).MasterForKey(t.Context(), testKey(groups[0][0].shard))
	if err != nil {
		t.Fatal(err)
	}
	frozen := cluster.Node(first.Options().Addr)
	frozen.Pause()
	defer frozen.Resume()
	refreshed := func() (answered []bool) { // by server, in the order in which their calls ended
		var mu sync.Mutex
		m.calls.doAll(t.Context(), jobs, func(outs []callOutcome) {
			mu.Lock()
			defer mu.Unlock()
			answered = append(answered, !slices.ContainsFunc(outs, func(o callOutcome) bool { return o.err != nil }))
		})
		return answered
	}
	want, got := []bool{true, true, false}, refreshed()
	for tries := 0; tries < 10 && got[0] == got[1] && got[1] == got[2]; tries++ {
		got = refreshed() // the machine stood still for longer than a call may take
	}
	if !slices.Equal(got, want) {
		t.Errorf("servers have answered: %v, want %v", got, want)
	}
}
