package shardlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

func TestTwoNodesSplitTheShards(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 16)
	a := f.start("a")
	f.start("b")
	f.see("a", "b")
	f.converged("a", "b")
	f.noDoubleHolding()

	holders, err := a.Holders(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for shard, h := range holders {
		n := f.nodes[h.Node]
		if n == nil || h.Shard != shard || h.PeerAddr != h.Node+":7000" || h.TTL <= 0 || h.TTL > testTTL {
			t.Fatalf("holder of shard %d: %+v", shard, h)
		}
		if lock, held := n.ValidLock(shard); !held || lock.Value != f.value(shard) || lock.Shard != shard {
			t.Errorf("lock of %s on %d: %+v, held %t; Redis has %q", h.Node, shard, lock, held, f.value(shard))
		}
	}
	if n := testutil.ToFloat64(a.metrics.held) + testutil.ToFloat64(f.nodes["b"].metrics.held); n != 16 {
		t.Errorf("fermata_shards_held sums up to %v", n)
	}
}

func TestThirdNodeGetsItsShardsWithoutDoubleHolding(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 24)
	f.start("a")
	f.start("b")
	f.see("a", "b")
	f.converged("a", "b")
	c := f.start("c")
	f.see("a", "b", "c")
	f.converged("a", "b", "c")
	f.noDoubleHolding()
	if moved := f.lossesOf(LossHandover); moved == 0 || moved != f.lossCount() {
		t.Errorf("%d hand-overs, losses: %v", moved, f.losses)
	}
	if free, broken := c.taken(); broken != 0 || free != 8 {
		t.Errorf("c took %d free locks and broke %d, want its part of 24, 8", free, broken)
	}
}

func TestLockOfDeadNodeIsBrokenBeforeItExpires(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 1)
	long := func(o *Options) { o.TTL = longTTL }
	a := f.start("a", long)
	f.see("a")
	lock := f.holds(a, 0)
	a.crash()
	last := f.value(0)
	refreshed := lock.ValidUntil.Add(longTTL/10 - longTTL) // the last refresh that is known
	b := f.start("b", long)
	f.see("b")
	f.holds(b, 0)
	if since := time.Since(refreshed); since < longTTL*2/3 {
		t.Errorf("broken %v after the last refresh, two were not missed yet", since)
	}
	if f.value(0) == last {
		t.Error("the value did not change")
	}
	if free, broken := b.taken(); free != 0 || broken != 1 {
		t.Errorf("took %d free locks, broke %d; want the one broken", free, broken)
	}
	// What was broken is a lock like any other: it is refreshed and released.
	first, _ := b.ValidLock(0)
	redistest.Eventually(f.t, patience, "refresh", func() error {
		if lock, ok := b.ValidLock(0); !ok || !lock.ValidUntil.After(first.ValidUntil) {
			return errors.New("not refreshed")
		}
		return nil
	})
	if got := b.Release(t.Context(), 0); !slices.Equal(got, []int{0}) {
		t.Errorf("Release returned %v", got)
	}
}

func TestHealthyLockIsNotBrokenThoughGossipSaysDead(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 4)
	a := f.start("a")
	f.see("a")
	var first ValidLock
	for shard := range 4 {
		first = f.holds(a, shard)
	}
	b := f.start("b")
	f.see("b") // each believes that it is alone
	redistest.Eventually(f.t, patience, "two TTLs", func() error {
		if lock, ok := a.ValidLock(3); !ok || lock.ValidUntil.Before(first.ValidUntil.Add(2*testTTL)) {
			return errors.New("not yet")
		}
		return nil
	})
	if f.lossCount() != 0 {
		t.Errorf("losses: %v", f.losses)
	}
	if free, broken := b.taken(); free+broken != 0 {
		t.Errorf("b took %d, broke %d", free, broken)
	}
}

func TestLockOfSilentButLiveNodeExpiresByItself(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 1)
	a := f.start("a")
	f.see("a")
	f.holds(a, 0)
	a.crash()
	b := f.start("b")
	name := "a"
	v := view("b", "a", "b")
	for i := 0; ringOwner(v, 1) != "b"; i++ { // a is alive by gossip, but b's turn it is
		name = fmt.Sprint("a", i)
		v = view("b", name, "b")
	}
	if name != "a" { // make the stale lock belong to the member that lives
		value := newToken() + name + "|" + name + ":7000"
		if err := f.client.Set(t.Context(), testKey(0), value, testTTL).Err(); err != nil {
			t.Fatal(err)
		}
	}
	b.SetView(v)
	f.holds(b, 0)
	if free, broken := b.taken(); free != 1 || broken != 0 {
		t.Errorf("took %d free locks, broke %d; want the one freed", free, broken)
	}
}

func TestLockOfFormerProcessOfThisNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 1)
	long := func(o *Options) { o.TTL = longTTL }
	old := f.start("a", long)
	f.see("a")
	f.holds(old, 0)
	old.crash()
	again := f.start("a", long)
	f.see("a")
	f.holds(again, 0)
	if free, broken := again.taken(); free != 0 || broken != 1 {
		t.Errorf("took %d free locks, broke %d; want the orphan broken", free, broken)
	}
}

func TestValidityEndsWhileRedisStalls(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newFleet(t, server.Granted(), 3)
	a := f.start("a", func(o *Options) { o.TTL = MinTTL })
	f.see("a")
	f.converged("a")
	server.Pause()
	var last [3]ValidLock
	redistest.Eventually(f.t, patience, "end of validity", func() error {
		for shard := range last {
			if lock, ok := a.ValidLock(shard); ok {
				last[shard] = lock
				return errors.New("still held")
			}
		}
		return nil
	})
	for shard, lock := range last {
		if time.Now().Before(lock.ValidUntil) {
			t.Errorf("shard %d not held %v before its end", shard, time.Until(lock.ValidUntil))
		}
	}
	answered := a.LastAnswer()
	if answered.IsZero() || time.Since(answered) < MinTTL/3 {
		t.Errorf("the last answer came %v ago", time.Since(answered))
	}
	redistest.Eventually(f.t, patience, "reports", func() error {
		if n := f.lossesOf(LossExpired); n < 3 {
			return fmt.Errorf("%d of 3", n)
		}
		return nil
	})
	server.Resume()
	f.converged("a")
	f.noDoubleHolding()
	if !a.LastAnswer().After(answered) {
		t.Error("no answer since Redis goes on")
	}
}

// A node without shards knows by its heartbeats that it could keep locks.
func TestHeartbeatsOfANodeWithoutShardsAreAnswered(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 1)
	nodes := []*testNode{f.start("a"), f.start("b")}
	f.see("a", "b")
	f.converged("a", "b")
	for _, n := range nodes {
		before := n.LastAnswer()
		redistest.Eventually(t, patience, n.name+" gets another answer", func() bool { return n.LastAnswer().After(before) })
	}
}

func TestDeletedLockIsLostAndObtainedAnew(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 1)
	a := f.start("a")
	b := f.start("b")
	f.see("a", "b")
	f.converged("a", "b")
	n := a
	if _, ok := b.ValidLock(0); ok {
		n = b
	}
	before, _ := n.ValidLock(0)
	if err := f.client.Del(t.Context(), testKey(0)).Err(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	redistest.Eventually(f.t, patience, "a new value", func() error {
		if lock, ok := n.ValidLock(0); !ok || lock.Value == before.Value {
			return errors.New("old value or not held")
		}
		return nil
	})
	if f.lossesOf(LossTaken) != 1 || f.lossCount() != 1 {
		t.Errorf("losses: %v", f.losses)
	}
	t.Logf("a lock that was deleted is held again after %v", time.Since(start))
}

// lockCalls counts the calls about each lock that have ended.
type lockCalls struct {
	mu    sync.Mutex
	ended map[string]int
}

func (l *lockCalls) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.ended)
}

func (l *lockCalls) includeAll(shards []int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(shards, func(shard int) bool { return l.ended[testKey(shard)] == 0 })
}

func (l *lockCalls) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lockCalls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, arg := range cmd.Args() {
			if key, ok := arg.(string); ok {
				l.ended[key]++
			}
		}
		return err
	}
}

func (l *lockCalls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestDrainHandsOverAtOnce: the next owner of a shard takes it when it hears of the release. By itself it would look for
// the lock in an hour, and break it after more than a minute.
func TestDrainHandsOverAtOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 16)
	slow := func(o *Options) { o.TTL, o.pollEvery = 2*patience, time.Hour }
	a := f.start("a", slow, func(o *Options) { o.OnRelease = nil })
	asked := &lockCalls{ended: map[string]int{}}
	client := redis.NewClient(f.client.(*redis.Client).Options())
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(asked)
	b := f.start("b", slow, func(o *Options) { o.Client = client })
	f.see("a", "b")
	f.converged("a", "b")
	var had []int
	for shard := range f.shards {
		if _, ok := a.ValidLock(shard); ok {
			had = append(had, shard)
		}
	}
	asked.forget()
	f.see("b") // a has left gossip
	redistest.Eventually(t, patience, "b finds that a holds its locks", func() bool { return asked.includeAll(had) })
	released := a.Drain(t.Context())
	if !slices.Equal(released, had) {
		t.Fatalf("Drain released %v of %v", released, had)
	}
	b.ShardsReleased(released...)
	f.converged("b")
	f.noDoubleHolding()
	if again := a.Drain(t.Context()); len(again) != 0 {
		t.Errorf("second Drain released %v", again)
	}
}

func TestReleaseThenCompeteAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 2)
	a := f.start("a")
	f.see("a")
	f.converged("a")
	before, _ := a.ValidLock(1)
	if got := a.Release(t.Context(), 1, 7, -1); !slices.Equal(got, []int{1}) {
		t.Fatalf("Release returned %v", got)
	}
	if after := f.holds(a, 1); after.Value == before.Value {
		t.Error("a value came back after a release")
	}
	if f.lossesOf(LossReleased) != 1 || f.lossCount() != 1 {
		t.Errorf("losses: %v", f.losses)
	}
}

func TestEndOfRun(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 2)
	a := f.start("a")
	f.see("a")
	f.converged("a")
	if err := a.Run(t.Context()); err == nil {
		t.Error("a second Run was allowed")
	}
	a.crash()
	if f.lossesOf(LossStopped) != 2 {
		t.Errorf("losses: %v", f.losses)
	}
	if _, held := a.ValidLock(0); held {
		t.Error("held after Run has ended")
	}
	if f.value(0) == "" {
		t.Error("the end of Run released a lock")
	}
	if got := a.Drain(t.Context()); got != nil {
		t.Errorf("Drain after Run released %v", got)
	}
}

func TestDrainBeforeRun(t *testing.T) {
	m, err := New(validOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Drain(t.Context()); got != nil {
		t.Errorf("Drain before Run released %v", got)
	}
	l := newManagerLoop(m)
	m.SetView(view("a", "a"))
	l.drainInbox(time.Now())
	l.advanceShards(time.Now())
	if len(l.normal) != 0 {
		t.Error("a drained manager competes")
	}
}

func TestOnRedisCluster(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.StartCluster(t, 3, 0).Granted(), 12)
	a := f.start("a")
	f.start("b")
	f.see("a", "b")
	f.converged("a", "b")
	f.start("c")
	f.see("a", "b", "c")
	f.converged("a", "b", "c")
	f.noDoubleHolding()
	holders, err := a.Holders(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range holders {
		if _, held := f.nodes[h.Node].ValidLock(h.Shard); !held {
			t.Errorf("%+v is not what that node says", h)
		}
	}
	a.crash()
	f.see("b", "c")
	f.converged("b", "c")
}

func TestHoldersReportsErrorsAndFreeShards(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := newFleet(t, server.Granted(), 2)
	a := f.start("a")
	holders, err := a.Holders(t.Context())
	if err != nil || len(holders) != 2 || holders[0] != (Holder{}) || holders[1] != (Holder{Shard: 1}) {
		t.Errorf("free shards: %+v, %v", holders, err)
	}
	if err := f.client.Set(t.Context(), testKey(1), newToken()+"x|y:1", redis.KeepTTL).Err(); err != nil {
		t.Fatal(err)
	}
	holders, err = a.Holders(t.Context())
	if err != nil || holders[1].Node != "x" || holders[1].PeerAddr != "y:1" || holders[1].TTL >= 0 {
		t.Errorf("a lock without TTL: %+v, %v", holders, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	holders, err = a.Holders(ctx)
	if !errors.Is(err, context.Canceled) || len(holders) != 2 || !holders[0].Unknown || !holders[1].Unknown {
		t.Errorf("ended context: %+v, %v", holders, err)
	}
}
