package shardlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/sharding"
)

func validOptions(t *testing.T) Options {
	return Options{Client: clientThat(t, true), Key: testKey, HeartbeatKey: testLifeKey, Shards: 1, Node: "a", PeerAddr: "a:7000"}
}

// clientThat never dials.
func clientThat(t *testing.T, honoursDeadlines bool) *redis.Client {
	c := redis.NewClient(&redis.Options{
		ContextTimeoutEnabled:    honoursDeadlines,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func ringOwner(v sharding.View, shards int) string { return sharding.Assign(v, shards)[0] }

// idleLoop is a loop whose clock and whose calls' outcomes the test supplies.
func idleLoop(t *testing.T, change ...func(*Options)) *managerLoop {
	t.Helper()
	o := validOptions(t)
	for _, c := range change {
		c(&o)
	}
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return newManagerLoop(m)
}

// issued takes the one call that the loop has queued, or none.
func issued(l *managerLoop) call {
	select {
	case c := <-l.urgent:
		return c[0]
	case c := <-l.normal:
		return c
	default:
		return call{}
	}
}

func heldLoop(t *testing.T, now time.Time) *managerLoop {
	l := idleLoop(t)
	l.applyView(view("a", "a"), now)
	l.advanceShards(now)
	c := issued(l)
	if c.kind != obtainCall {
		t.Fatalf("first call %+v, want an obtain", c)
	}
	l.applyOutcome(callOutcome{call: c, obtained: &redislock.Lock{}, start: now}, now)
	return l
}

// ownedBy is a view of a and another member, and the member to which the ring gives shard 0.
func ownedBy(t *testing.T, wantSelf bool) (sharding.View, string) {
	for i := range 1000 {
		name := strings.Repeat("b", i%7+1) + string(rune('a'+i%26))
		v := view("a", "a", name)
		if (ringOwner(v, 1) == "a") == wantSelf {
			return v, name
		}
	}
	t.Fatal("no such name")
	return sharding.View{}, ""
}

func TestHandOverWaitsUntilTheViewHasSettled(t *testing.T) {
	now := time.Now()
	l := heldLoop(t, now)
	v, _ := ownedBy(t, false)
	l.applyView(v, now)
	if at := l.advanceShards(now.Add(DefaultHandoverDelay - 1)); !at.Equal(now.Add(DefaultHandoverDelay)) {
		t.Errorf("wakes %v after the change", at.Sub(now))
	}
	if c := issued(l); c.kind != noCall {
		t.Fatalf("early call %+v", c)
	}
	l.applyView(view("a", "a"), now.Add(time.Second)) // flaps: back, and away again
	l.applyView(v, now.Add(time.Second))
	l.advanceShards(now.Add(DefaultHandoverDelay))
	if c := issued(l); c.kind != noCall {
		t.Fatalf("the pause did not begin anew: %+v", c)
	}
	l.advanceShards(now.Add(time.Second + DefaultHandoverDelay))
	if c := issued(l); c.kind != releaseCall {
		t.Fatalf("call %+v, want a release", c)
	}
	if l.m.validLocks[0].Load() != nil {
		t.Error("still held while the release is on its way")
	}
}

func TestLockIsKeptIfTheRingNamesNoOwner(t *testing.T) {
	now := time.Now()
	l := heldLoop(t, now)
	l.applyView(view("a"), now)
	l.advanceShards(now.Add(time.Second * 3))
	if l.m.validLocks[0].Load() == nil || issued(l).kind == releaseCall {
		t.Error("the lock was given up to nobody")
	}
}

func TestRefreshErrorIsUnknownUntilValidityEnds(t *testing.T) {
	now := time.Now()
	var reasons []string
	l := heldLoop(t, now)
	l.o.OnLose = func(_ int, reason string) { reasons = append(reasons, reason) }
	end := now.Add(DefaultTTL - DefaultTTL/10)
	var pending call
	tries := 0
	for at := now; at.Before(end); {
		next := l.advanceShards(at)
		if c := issued(l); c.kind == refreshCall {
			pending = c
			tries++
			l.applyOutcome(callOutcome{call: c, start: at, err: errors.New("broken pipe")}, at)
			next = l.advanceShards(at)
		}
		if l.m.validLocks[0].Load() == nil {
			t.Fatalf("lost %v before the end", end.Sub(at))
		}
		at = next
	}
	if tries < 5 {
		t.Fatalf("%d refreshes tried", tries)
	}
	l.advanceShards(end)
	if len(reasons) != 1 || reasons[0] != LossExpired || l.m.validLocks[0].Load() != nil {
		t.Fatalf("at the end: %v", reasons)
	}
	// The next answer shows that it was ours all the time.
	at := end.Add(10 * time.Millisecond)
	l.applyOutcome(callOutcome{call: pending, start: at}, at)
	if l.m.validLocks[0].Load() == nil {
		t.Error("a confirmed refresh did not make the lock valid again")
	}
}

func TestAnswerThatTookTooLongDoesNotMakeValid(t *testing.T) {
	now := time.Now()
	l := idleLoop(t)
	l.applyView(view("a", "a"), now)
	l.advanceShards(now)
	late := now.Add(DefaultTTL)
	l.applyOutcome(callOutcome{call: issued(l), obtained: &redislock.Lock{}, start: now}, late)
	if l.m.validLocks[0].Load() != nil {
		t.Fatal("valid though its time was over when the answer came")
	}
	l.advanceShards(late)
	if c := issued(l); c.kind != refreshCall {
		t.Errorf("call %+v, want a refresh", c)
	}
}

func TestAfterALossToAnotherNodeItWaitsTTL(t *testing.T) {
	now := time.Now()
	l := heldLoop(t, now)
	v, _ := ownedBy(t, true)
	l.applyView(v, now)
	at := now.Add(4 * time.Second)
	l.advanceShards(at)
	l.applyOutcome(callOutcome{call: issued(l), err: redislock.ErrNotObtained}, at)
	l.advanceShards(at)
	c := issued(l)
	if c.kind != obtainCall {
		t.Fatalf("after the loss: %+v, want an obtain in case it is free", c)
	}
	// Its holder is dead according to gossip, and its lock looks stale.
	stale := callOutcome{call: c, holderValue: newToken() + "dead|x:1", pttl: time.Second}
	l.applyOutcome(stale, at)
	if next := l.advanceShards(at); !next.Equal(at.Add(DefaultTTL)) {
		t.Errorf("competes again after %v, want TTL", next.Sub(at))
	}
	l.advanceShards(at.Add(DefaultTTL))
	stale.call = issued(l)
	l.applyOutcome(stale, at.Add(DefaultTTL))
	l.advanceShards(at.Add(DefaultTTL))
	if c := issued(l); c.kind != seizeCall || c.replaceValue != stale.holderValue {
		t.Errorf("after TTL: %+v, want it to break %q", c, stale.holderValue)
	}
}

func TestBreakIsCalledOffWhenTheHolderIsBack(t *testing.T) {
	now := time.Now()
	l := idleLoop(t)
	l.applyView(view("a", "a"), now)
	l.advanceShards(now)
	v, other := ownedBy(t, true)
	l.lostHolderLimiter.reserveNext(now) // the next is a second away
	l.applyOutcome(callOutcome{call: issued(l), holderValue: newToken() + other + "|x:1", pttl: time.Second}, now)
	l.applyView(v, now)
	l.advanceShards(now.Add(time.Second))
	if c := issued(l); c.kind != obtainCall {
		t.Errorf("call %+v, want an obtain", c)
	}
}

func TestRefusedPlans(t *testing.T) {
	now := time.Now()
	v, live := ownedBy(t, true)
	cases := map[string]struct {
		seen     string
		pttl     time.Duration
		min, max time.Duration
	}{
		"gone by the look":   {"", 0, 0, 20 * time.Millisecond},
		"live and stale":     {live + "|x:1", time.Millisecond, defaultPollEvery * 3 / 4, defaultPollEvery * 5 / 4},
		"dead and fresh":     {"dead|x:1", DefaultTTL, defaultPollEvery * 3 / 4, defaultPollEvery * 5 / 4},
		"dead, nearly stale": {"dead|x:1", DefaultTTL/3 + 50*time.Millisecond, 50 * time.Millisecond, 52 * time.Millisecond},
		"dead and stale":     {"dead|x:1", DefaultTTL/3 - 1, 0, 0},
		"dead without TTL":   {"dead|x:1", -1, 0, 0},
		"not a lock value":   {"nonsense", DefaultTTL, defaultPollEvery * 3 / 4, defaultPollEvery * 5 / 4},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := idleLoop(t)
			l.applyView(v, now)
			l.advanceShards(now)
			seen := c.seen
			if strings.Contains(seen, "|") {
				seen = newToken() + seen
			}
			l.applyOutcome(callOutcome{call: issued(l), holderValue: seen, pttl: c.pttl}, now)
			wait := l.shards[0].nextAt.Sub(now)
			if wait < c.min || wait > c.max {
				t.Errorf("next attempt after %v, want %v to %v", wait, c.min, c.max)
			}
			if stale := c.max == 0; (l.shards[0].replaceValue != "") != stale {
				t.Errorf("to be broken: %q, want %t", l.shards[0].replaceValue, stale)
			}
		})
	}
}

func TestWakeDuringACallLeadsToAnother(t *testing.T) {
	now := time.Now()
	v, other := ownedBy(t, true)
	l := idleLoop(t)
	l.applyView(v, now)
	l.advanceShards(now)
	l.m.ShardsReleased(0, 99, -1)
	l.drainInbox(now)
	l.applyOutcome(callOutcome{call: issued(l), holderValue: newToken() + other + "|x:1", pttl: DefaultTTL}, now)
	if wait := l.shards[0].nextAt.Sub(now); wait > 20*time.Millisecond {
		t.Errorf("next attempt after %v", wait)
	}
}

func TestLimiterBoundsEverySecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "n")
		l := newTakeoverLimiter(n)
		now := time.Unix(1_700_000_000, 0)
		var got []time.Time
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "ms")) * time.Millisecond)
			at := l.reserveNext(now)
			if at.Before(now) {
				t.Fatalf("reserved %v in the past", now.Sub(at))
			}
			got = append(got, at)
			if i := len(got) - 1 - n; i >= 0 && at.Sub(got[i]) < time.Second {
				t.Fatalf("%d within %v", n+1, at.Sub(got[i]))
			}
		}
	})
}

func TestOptions(t *testing.T) {
	good := validOptions(t)
	o, err := good.withDefaults()
	if err != nil || o.TTL != DefaultTTL || o.Margin != time.Second || o.HandoverDelay != DefaultHandoverDelay {
		t.Fatalf("defaults: %+v, %v", o, err)
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{})
	defer cluster.Close()
	bad := map[string]func(*Options){
		"no client":       func(o *Options) { o.Client = nil },
		"ignores timeout": func(o *Options) { o.Client = clientThat(t, false) },
		"cluster too":     func(o *Options) { o.Client = cluster },
		"no key":          func(o *Options) { o.Key = nil },
		"no life key":     func(o *Options) { o.HeartbeatKey = nil },
		"no shards":       func(o *Options) { o.Shards = 0 },
		"no name":         func(o *Options) { o.Node = "" },
		"name with bar":   func(o *Options) { o.Node = "a|b" },
		"short TTL":       func(o *Options) { o.TTL = 999 * time.Millisecond },
		"odd TTL":         func(o *Options) { o.TTL = time.Second + time.Microsecond },
		"wide margin":     func(o *Options) { o.Margin = DefaultTTL/3 + 1 },
		"negative margin": func(o *Options) { o.Margin = -1 },
		"negative settle": func(o *Options) { o.HandoverDelay = -1 },
	}
	for name, change := range bad {
		t.Run(name, func(t *testing.T) {
			o := validOptions(t)
			change(&o)
			if _, err := New(o); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestParseHolder(t *testing.T) {
	token := newToken()
	if len(token) != tokenLen {
		t.Fatalf("token of %d characters", len(token))
	}
	cases := []struct {
		value, node, addr string
		ok                bool
	}{
		{token + "n1|10.0.0.1:7000", "n1", "10.0.0.1:7000", true},
		{token + "n1|", "n1", "", true},
		{token + "n1|10.0.0.1:7000|" + newToken(), "n1", "10.0.0.1:7000", true},
		{token + "n1|[::1]:7000", "n1", "[::1]:7000", true},
		{token + "n1", "", "", false},
		{token + "|x", "", "", false},
		{token, "", "", false},
		{"", "", "", false},
		{"n1|x", "", "", false},
	}
	for _, c := range cases {
		node, addr, ok := ParseHolder(c.value)
		if node != c.node || addr != c.addr || ok != c.ok {
			t.Errorf("ParseHolder(%q) = %q, %q, %t", c.value, node, addr, ok)
		}
	}
}

// viewAside is a view of a and another member; one of the two has withdrawn.
func viewAside(other, aside string) sharding.View {
	return sharding.NewView(1, "a", []sharding.Member{{Name: "a", Withdrawn: aside == "a"}, {Name: other, Withdrawn: aside == other}})
}

func TestShardsOfAWithdrawnMemberMove(t *testing.T) {
	now := time.Now()
	l := idleLoop(t)
	v, other := ownedBy(t, false)
	l.applyView(v, now)
	l.advanceShards(now)
	if c := issued(l); c.kind != noCall {
		t.Fatalf("call %+v for another's shard", c)
	}
	damping := l.o.withdrawalDelay()
	l.applyView(viewAside(other, other), now)
	if at := l.advanceShards(now.Add(damping - 1)); !at.Equal(now.Add(damping)) {
		t.Errorf("wakes %v after the change", at.Sub(now))
	}
	l.applyView(v, now.Add(damping-1)) // it is back
	l.advanceShards(now.Add(2 * damping))
	if c := issued(l); c.kind != noCall {
		t.Fatalf("call %+v though the owner came back", c)
	}
	now = now.Add(time.Minute)
	l.applyView(viewAside(other, other), now)
	l.advanceShards(now.Add(damping))
	c := issued(l)
	if c.kind != obtainCall {
		t.Fatalf("call %+v, want an obtain", c)
	}
	l.applyOutcome(callOutcome{call: c, obtained: &redislock.Lock{}, start: now.Add(damping)}, now.Add(damping))
	l.applyView(v, now.Add(time.Second))
	l.advanceShards(now.Add(time.Second + damping))
	if c := issued(l); c.kind != releaseCall {
		t.Errorf("call %+v, want a release to the owner that is back", c)
	}
}

func TestNoShardMovesWhenAllWithdraw(t *testing.T) {
	now := time.Now()
	l := heldLoop(t, now)
	v, other := ownedBy(t, true)
	l.applyView(v, now)
	l.applyView(viewAside(other, "a"), now)
	all := sharding.NewView(1, "a", []sharding.Member{{Name: "a", Withdrawn: true}, {Name: other, Withdrawn: true}})
	l.applyView(all, now.Add(l.o.withdrawalDelay()/2))
	l.advanceShards(now.Add(2 * l.o.withdrawalDelay()))
	if c := issued(l); c.kind == releaseCall || l.m.validLocks[0].Load() == nil {
		t.Errorf("the shard was given up: %+v", c)
	}
}

// A member that withdraws and returns again and again delays the withdrawal of another one, but does not prevent it.
func TestFlappingMemberDelaysNoWithdrawalForLong(t *testing.T) {
	now := time.Now()
	l := idleLoop(t)
	seen := func(flapping bool) sharding.View {
		return sharding.NewView(1, "a", []sharding.Member{{Name: "a"}, {Name: "b", Withdrawn: true},
			{Name: "c", Withdrawn: flapping}})
	}
	pause := l.o.withdrawalDelay() / 2
	for began, flapping := now, false; !l.withdrawn["b"]; now, flapping = now.Add(pause), !flapping {
		if now.Sub(began) > l.o.TTL*3/4 {
			t.Fatalf("after %v b owns shards", now.Sub(began))
		}
		l.applyView(seen(flapping), now)
		l.advanceShards(now)
	}
}
