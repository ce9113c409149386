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
	"github.com/fermata-io/fermata/internal/test/stalltest"
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
	begun := time.Now()
	for _, out := range refreshed() {
		if out.err == nil || errors.Is(out.err, redislock.ErrNotObtained) {
			t.Errorf("shard %d: %v from a server that does not answer", out.shard, out.err)
		}
	}
	if took := time.Since(begun); took > patience {
		t.Errorf("the calls ended after %v", took)
	}
	server.Resume()
}

// TestServersDoNotWaitForEachOther: of three masters one stands still; the locks of
// the others are refreshed meanwhile.
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
	machine, begun := stalltest.Start(t), time.Now()
	frozen := cluster.Master(0)
	frozen.Pause()
	defer frozen.Resume()
	var mu sync.Mutex
	failed, others := 0, []time.Duration{}
	m.calls.doAll(t.Context(), jobs, func(outs []callOutcome) {
		mu.Lock()
		defer mu.Unlock()
		for _, out := range outs {
			if out.err != nil {
				failed++
			} else {
				others = append(others, out.elapsed)
			}
		}
	})
	if failed == 0 || len(others) == 0 || failed+len(others) != o.Shards {
		t.Errorf("%d refreshes failed, %d did not, of %d", failed, len(others), o.Shards)
	}
	if most := m.o.callTimeout()/2 + machine.Since(begun); slices.Max(append(others, 0)) > most {
		t.Errorf("a refresh at a server that answers took %v, want at most %v", slices.Max(others), most)
	}
}
