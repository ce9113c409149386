package shardlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestLockOfEndedProcess: gossip still shows the holder, but its process is known to
// have ended. Its lock, which would live for a minute, is broken when three signs of
// life are missing, not before.
func TestLockOfEndedProcess(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 8)
	slow := func(o *Options) { o.TTL = 2 * patience }
	a, b := f.start("a", slow), f.start("b", slow)
	f.see("a", "b")
	f.converged("a", "b")
	var ofA []int
	for shard := range 8 {
		if _, held := a.ValidLock(shard); held {
			ofA = append(ofA, shard)
		}
	}
	// A process that ends before its first heartbeat is never known to have ended.
	redistest.Eventually(t, patience, "a writes heartbeats", func(ctx context.Context) error {
		if left, err := f.observer.PTTL(ctx, testLifeKey(a.calls.process)).Result(); err != nil || left <= 0 {
			return fmt.Errorf("none (%v)", err)
		}
		return nil
	})
	a.crash()
	last := time.Now()
	left := f.observer.PTTL(t.Context(), testLifeKey(a.calls.process)).Val()
	last = last.Add(left - 2*patience) // when its last heartbeat was read
	b.ProcessEnded("a")
	for _, shard := range ofA {
		f.holds(b, shard)
		if since := time.Since(last); since < missedBeats*beatEvery {
			t.Errorf("shard %d was taken %v after the last heartbeat", shard, since)
		}
	}
	if _, broken := b.taken(); broken != len(ofA) || broken == 0 {
		t.Errorf("broke %d locks, a had %d", broken, len(ofA))
	}
	f.noDoubleHolding()
}

// TestProcessWithHeartbeatsKeepsItsLocks, although one node reported it gone and gossip considers it dead.
func TestProcessWithHeartbeatsKeepsItsLocks(t *testing.T) {
	t.Parallel()
	settledScene(t, func(f *fleet) (wrong []string) {
		a, b := f.start("a"), f.start("b")
		f.see("a", "b")
		f.converged("a", "b")
		var locks []ValidLock
		for shard := range 8 {
			if lock, held := a.ValidLock(shard); held {
				locks = append(locks, lock)
			}
		}
		before, _ := b.taken()
		lost := f.lossCount()
		b.ProcessEnded("a")
		b.SetView(view("b", "b"))
		redistest.Eventually(f.t, patience, "two lives of a lock", func() error {
			if lock, ok := a.ValidLock(locks[0].Shard); f.lossCount() == lost && (!ok || lock.ValidUntil.Before(locks[0].ValidUntil.Add(2*testTTL))) {
				return errors.New("not yet")
			}
			return nil
		})
		for _, lock := range locks {
			if f.value(lock.Shard) != lock.Value {
				wrong = append(wrong, fmt.Sprintf("shard %d: the value changed", lock.Shard))
			}
		}
		if free, broken := b.taken(); free != before || broken+f.lossCount()-lost != 0 {
			wrong = append(wrong, fmt.Sprintf("b took %d more, broke %d; %d losses", free-before, broken, f.lossCount()-lost))
		}
		return wrong
	})
}

// TestSilentProcessOfThisName: a node that has crashed and is back breaks the locks of
// its former process when three heartbeats are missing, though they would live for
// a minute.
func TestSilentProcessOfThisName(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 1)
	slow := func(o *Options) { o.TTL = 2 * patience }
	v, _ := ownedBy(t, true)
	old := f.start("a", slow)
	old.SetView(v)
	f.holds(old, 0)
	redistest.Eventually(f.t, patience, "a heartbeat", func() error { return f.observer.Get(t.Context(), testLifeKey(old.calls.process)).Err() })
	old.crash()
	again := f.start("a", slow)
	again.SetView(v)
	f.holds(again, 0)
	if free, broken := again.taken(); free != 0 || broken != 1 {
		t.Errorf("took %d free locks, broke %d; want the orphan broken", free, broken)
	}
}

// TestSecondProcessOfANameBreaksNothing: the first writes heartbeats.
func TestSecondProcessOfANameBreaksNothing(t *testing.T) {
	t.Parallel()
	settledScene(t, func(f *fleet) (wrong []string) {
		f.shards = 1
		v, _ := ownedBy(t, true)
		first := f.start("a")
		first.SetView(v)
		lock := f.holds(first, 0)
		second := f.start("a")
		second.SetView(v)
		redistest.Eventually(f.t, patience, "two lives of a lock", func() error {
			if now, ok := first.ValidLock(0); f.lossCount() == 0 && (!ok || now.ValidUntil.Before(lock.ValidUntil.Add(2*testTTL))) {
				return errors.New("not yet")
			}
			return nil
		})
		if free, broken := second.taken(); free+broken+f.lossCount() != 0 {
			wrong = append(wrong, fmt.Sprintf("the second took %d, broke %d; %d losses", free, broken, f.lossCount()))
		}
		first.crash() // the fleet no longer knows it by its name
		return wrong
	})
}

// A process with a new heartbeat between the look and the breaking keeps its lock, and so does one that has
// refreshed it meanwhile.
func TestSeizeChecksTheHolderAgain(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Granted()
	o := validOptions(t)
	o.Client = client
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	process := newToken()
	value := newToken() + "a|a:1|" + process
	for name, c := range map[string]struct {
		beat   time.Duration // what is left of the last one, 0 for none
		pttl   time.Duration
		broken bool
	}{
		"silent":                  {5 * time.Second, 8 * time.Second, true},
		"no sign is left":         {0, 8 * time.Second, false},
		"heard again":             {9500 * time.Millisecond, 8 * time.Second, false},
		"refreshed after looking": {5 * time.Second, 9900 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := client.Set(t.Context(), testKey(0), value, c.pttl).Err(); err != nil {
				t.Fatal(err)
			}
			client.Del(t.Context(), testLifeKey(process))
			if c.beat > 0 {
				client.Set(t.Context(), testLifeKey(process), "400 10000", c.beat)
			}
			out := m.calls.doCall(t.Context(), call{
				kind: seizeCall, token: newToken(), replaceValue: value, holderEnded: true, maxPTTL: 8*time.Second + time.Millisecond,
			})
			if out.err != nil || (out.obtained != nil) != c.broken {
				t.Errorf("got %v, %v; want it broken: %t", out.obtained, out.err, c.broken)
			}
			if kept := client.Get(t.Context(), testKey(0)).Val() == value; kept == c.broken {
				t.Errorf("the lock is as before: %t", kept)
			}
		})
	}
}

func TestParseHeartbeat(t *testing.T) {
	for _, c := range []struct {
		text string
		left time.Duration
		wait time.Duration
		ok   bool
	}{
		{"400 10000", 10 * time.Second, 1200 * time.Millisecond, true},
		{"400 10000", 9 * time.Second, 200 * time.Millisecond, true},
		{"400 10000", 8800 * time.Millisecond, 0, true},
		{"400 10000", time.Second, 0, true},
		{"1000 60000", 59 * time.Second, 2 * time.Second, true}, // a node with other settings
		{"400 10000", -1, 0, false},                             // its expiry was removed
		{"400", time.Second, 0, false},
		{"0 10000", time.Second, 0, false},
		{"-1 10000", time.Second, 0, false},
		{"later version", time.Second, 0, false},
		{"", -2, 0, false},
	} {
		if wait, ok := parseHeartbeat(c.text, c.left).untilSilent(); wait != c.wait && c.ok || ok != c.ok {
			t.Errorf("%q with %v left: %v, %t; want %v, %t", c.text, c.left, wait, ok, c.wait, c.ok)
		}
	}
	if l := parseHeartbeat("400 10000 node-a", time.Second); l.node != "node-a" || !l.known {
		t.Errorf("a heartbeat with a name: %+v", l)
	}
	if l := parseHeartbeat("400 10000\tnode-a.example:7070 node-a", time.Second); l.node != "node-a" || l.address != "node-a.example:7070" || l.ttl != 10*time.Second {
		t.Errorf("a heartbeat with an address: %+v", l)
	}
	if l := parseHeartbeat("400 10000\tunix:///run/evil node-a", time.Second); !l.known || l.node != "node-a" || l.address != "" {
		t.Errorf("a heartbeat with what is no address: %+v", l)
	}
	if (heartbeat{}).isSilent() {
		t.Error("one that gives no signs is not known to be silent")
	}
}

// TestEndedHolder: what the loop makes of a lock whose holder's process has ended.
func TestEndedHolder(t *testing.T) {
	now := time.Now()
	v, other := ownedBy(t, true)
	value := newToken() + other + "|x:1|" + newToken()
	fresh := heartbeat{known: true, age: 100 * time.Millisecond, period: 400 * time.Millisecond}
	silent := heartbeat{known: true, age: 2 * time.Second, period: 400 * time.Millisecond}
	for name, c := range map[string]struct {
		value string
		life  heartbeat
		gone  bool
		wait  time.Duration // until it is looked at again; 0 is: broken at once
	}{
		"gone and silent":             {value, silent, true, 0},
		"restarted and silent":        {value, silent, false, 0},
		"restarted, heard":            {value, fresh, false, 1101 * time.Millisecond},
		"forged as restarted, silent": {value, silent, false, defaultPollEvery},
		"present process":             {newToken() + other + "|x:1|now", silent, false, defaultPollEvery},
		"gone, heard just now":        {value, fresh, true, 1101 * time.Millisecond},
		"gone, signs cannot be read":  {value, heartbeat{}, true, defaultPollEvery},
		"silent, not gone":            {value, silent, false, defaultPollEvery},
		"of another version":          {newToken() + other + "|x:1", silent, true, defaultPollEvery},
		"former process":              {newToken() + "a|x:1|" + newToken(), silent, false, 0},
		"former process, heard":       {newToken() + "a|x:1|" + newToken(), fresh, false, 1101 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			l := idleLoop(t)
			shown := sharding.NewView(1, "a", v.Members)
			if strings.HasPrefix(name, "restarted") {
				l.m.seen.Store(&map[string]string{other: "now"})
			}
			if name == "present process" || strings.Contains(name, "restarted") {
				for i := range shown.Members { // gossip has the name of its current process
					shown.Members[i].Process = "now"
				}
			}
			l.applyView(shown, now)
			if c.gone {
				l.applyStatus(nodeStatus{other, true}, now)
			}
			l.advanceShards(now)
			l.applyOutcome(callOutcome{call: issued(l), holderValue: c.value, pttl: 9 * time.Second, heartbeat: c.life}, now)
			s := l.shards[0]
			wait := s.nextAt.Sub(now)
			if c.wait == 0 {
				if s.replaceValue != c.value || !s.holderEnded || wait != 0 || s.maxPTTL != 9*time.Second+time.Millisecond {
					t.Errorf("%+v, want it broken at once", s)
				}
			} else if s.replaceValue != "" || wait < min(c.wait, defaultPollEvery*3/4) || wait > max(c.wait, defaultPollEvery*5/4) {
				t.Errorf("again after %v, want %v; to break: %q", wait, c.wait, s.replaceValue)
			}
		})
	}
}

// TestShardsOfAnEndedNodeMove at once, come back when it is back, and are its own again
// when gossip has shown it for half a minute.
func TestShardsOfAnEndedNodeMove(t *testing.T) {
	now := time.Now()
	v, other := ownedBy(t, false)
	for name, back := range map[string]func(l *managerLoop) time.Time{
		"it is back": func(l *managerLoop) time.Time {
			l.applyStatus(nodeStatus{other, false}, now)
			return now
		},
		"its time is over": func(l *managerLoop) time.Time {
			if at := l.advanceShards(now.Add(goneRetention - 1)); !at.Equal(now.Add(goneRetention)) {
				t.Errorf("wakes %v after the word", at.Sub(now))
			}
			l.advanceShards(now.Add(goneRetention))
			return now.Add(goneRetention)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := idleLoop(t)
			l.applyView(v, now)
			l.applyStatus(nodeStatus{"a", true}, now) // nonsense
			l.advanceShards(now)
			if c := issued(l); c.kind != noCall {
				t.Fatalf("call %+v for another's shard", c)
			}
			l.applyStatus(nodeStatus{other, true}, now)
			l.advanceShards(now)
			c := issued(l)
			if c.kind != obtainCall || !l.isAlone() {
				t.Fatalf("call %+v, want an obtain", c)
			}
			l.applyOutcome(callOutcome{call: c, holderValue: newToken() + other + "|x:1", pttl: DefaultTTL}, now)
			l.applyView(sharding.NewView(2, "a", v.Members), now) // gossip goes on about it
			if l.shards[0].owner != "a" {
				t.Error("gossip outweighs proof")
			}
			at := back(l)
			if l.shards[0].owner != other || l.isAlone() || len(l.endedUntil) != 0 {
				t.Errorf("the owner is %q, gone are %v", l.shards[0].owner, l.endedUntil)
			}
			l.advanceShards(at.Add(time.Minute))
		})
	}
}

// TestBurialsAreBounded: half of the shards in any second.
func TestBurialsAreBounded(t *testing.T) {
	now := time.Now()
	silent := heartbeat{known: true, age: 2 * time.Second, period: 400 * time.Millisecond}
	l := idleLoop(t, func(o *Options) { o.Shards = 64 })
	l.applyView(view("a", "a"), now)
	l.applyStatus(nodeStatus{"b", true}, now)
	l.advanceShards(now)
	for c := issued(l); c.kind != noCall; c = issued(l) {
		l.applyOutcome(callOutcome{call: c, holderValue: newToken() + "b|x:1|" + newToken(), pttl: time.Second, heartbeat: silent}, now)
	}
	count := func(at time.Time) (n int) {
		l.advanceShards(at)
		for c := issued(l); c.kind != noCall; c = issued(l) {
			if c.kind != seizeCall || !c.holderEnded {
				t.Errorf("call %+v", c)
			}
			n++
		}
		return n
	}
	if n := count(now); n != 32 {
		t.Errorf("%d are broken at once, want 32", n)
	}
	if n := count(now.Add(time.Second - 1)); n != 0 {
		t.Errorf("%d more within a second", n)
	}
	if n := count(now.Add(time.Second)); n != 32 {
		t.Errorf("%d after a second, want 32", n)
	}
}

// TestHeartbeatsAreWrittenWhileNotAlone, under the process name in the locks' values. Alone, a process writes
// none: no other node could read them.
func TestHeartbeatsAreWrittenWhileNotAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, redistest.Start(t).Granted(), 1)
	const ttl = time.Minute
	a := f.start("a", func(o *Options) { o.TTL = ttl })
	f.see("a")
	h := parseHolder(f.holds(a, 0).Value)
	if h.process != a.calls.process || len(h.process) != tokenLen {
		t.Errorf("the value names process %q, want %q", h.process, a.calls.process)
	}
	key := testLifeKey(h.process)
	if n := f.observer.Exists(t.Context(), key).Val(); n != 0 {
		t.Error("a heartbeat while alone")
	}
	v, _ := ownedBy(t, true)
	a.SetView(v)
	redistest.Eventually(f.t, patience, "a heartbeat", func() error { return f.observer.Get(t.Context(), key).Err() })
	if got, want := f.observer.Get(t.Context(), key).Val(), fmt.Sprintf("%d %d a", beatEvery.Milliseconds(), ttl.Milliseconds()); got != want {
		t.Errorf("heartbeat %q, want %q", got, want)
	}
	// A Redis without memory still extends it.
	f.observer.ConfigSet(t.Context(), "maxmemory", "1")
	if err := f.observer.Set(t.Context(), "new", "1", 0).Err(); err == nil {
		t.Fatal("there is room")
	}
	f.observer.PExpire(t.Context(), key, ttl/2)
	if _, _, err := a.calls.writeHeartbeat(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if left := f.observer.PTTL(t.Context(), key).Val(); left < ttl*3/4 {
		t.Errorf("%v are left of its last sign", left)
	}
	f.observer.ConfigSet(t.Context(), "maxmemory", "0")
	if err := a.calls.deleteHeartbeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(f.t, patience, "another one", func() error { return f.observer.Get(t.Context(), key).Err() })
}

// TestLastHeartbeatIsDeleted: a process that has been alone for long takes its last sign
// back, trying until that has come through, and gives new ones when others come.
func TestLastHeartbeatIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var said []string
		fails, there := 0, false
		client := clientThat(t, true)
		client.AddHook(sayer(func(cmd redis.Cmder) error {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, cmd.Name())
			switch cmd := cmd.(type) {
			case *redis.BoolCmd: // prolongs
				cmd.SetVal(there)
			case *redis.StatusCmd: // sets
				there = true
			case *redis.IntCmd: // deletes
				if fails < 2 {
					fails++
					return errCut
				}
				there = false
			}
			return nil
		}))
		o := validOptions(t)
		o.Client = client
		m, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.heartbeatLoop(ctx); close(done) }()
		spell := func(d time.Duration, want ...string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := slices.Compact(said); !slices.Equal(got, want) {
				t.Errorf("said %q, want %q", got, want)
			}
			said = nil
		}
		spell(time.Minute)
		m.hasPeers.Store(true)
		m.peersJoined <- struct{}{}
		spell(10*time.Minute, "pexpire", "set", "pexpire")
		m.hasPeers.Store(false)
		spell(aloneAfter-time.Second, "pexpire")
		spell(time.Minute, "pexpire", "del")
		if fails != 2 {
			t.Errorf("tried %d times in vain, want 2", fails)
		}
		spell(time.Hour)
		m.hasPeers.Store(true)
		m.peersJoined <- struct{}{}
		spell(time.Second, "pexpire", "set", "pexpire")
		cancel()
		<-done
	})
}

// sayer answers all commands in place of a server.
type sayer func(cmd redis.Cmder) error

func (s sayer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s sayer) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) (err error) {
		for _, cmd := range cmds {
			fault := s(cmd)
			cmd.SetErr(fault)
			err = errors.Join(err, fault)
		}
		return err
	}
}

func (s sayer) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		err := s(cmd)
		cmd.SetErr(err)
		return err
	}
}
