package shardlock

import (
	"testing"
	"time"

	"github.com/bsm/redislock"
)

// TestAbandonedShardIsKeptForAWhile: this node takes another one's shard, keeps it for ten minutes, and hands it over.
func TestAbandonedShardIsKeptForAWhile(t *testing.T) {
	now := time.Now()
	l := idleLoop(t)
	v, other := ownedBy(t, false)
	l.applyView(v, now)
	settled := now.Add(l.o.HandoverDelay)
	l.m.TakeAbandoned(map[int]string{0: other, 7: other, -1: other})
	l.drainInbox(settled)
	l.advanceShards(settled)
	c := issued(l)
	if c.kind != obtainCall {
		t.Fatalf("call %+v, want an obtain", c)
	}
	l.applyOutcome(callOutcome{call: c, obtained: &redislock.Lock{}, start: settled}, settled)
	if l.m.validLocks[0].Load() == nil {
		t.Fatal("the shard is not held")
	}
	if at := l.advanceShards(settled); at.After(settled.Add(substituteTime)) {
		t.Errorf("wakes %v after it took the shard", at.Sub(settled))
	}
	end := settled.Add(substituteTime)
	l.advanceShards(end.Add(-time.Millisecond))
	if c := issued(l); c.kind == releaseCall {
		t.Fatal("the shard was released early")
	}
	l.shards[0].busy = false // the refresh of that moment
	l.advanceShards(end)
	if c := issued(l); c.kind != releaseCall {
		t.Errorf("call %+v, want a release to the owner", c)
	}
}

// TestAbandonedShardsThatAreNotTaken lists when a node leaves an abandoned shard alone.
func TestAbandonedShardsThatAreNotTaken(t *testing.T) {
	now := time.Now()
	for name, prepare := range map[string]func(l *managerLoop, other string) (owner string){
		"another owner": func(*managerLoop, string) string { return "elsewhere" },
		"withdrawn": func(l *managerLoop, other string) string {
			l.withdrawn["a"] = true
			return other
		},
		"draining": func(l *managerLoop, other string) string {
			l.m.mu.draining = true
			return other
		},
		"the owner changes": func(l *managerLoop, other string) string {
			l.substituteFor(l.shards[0], other, now)
			l.applyView(view("a", "a", other, "changed-owner"), now)
			l.applyView(view("a"), now)
			return other
		},
	} {
		l := idleLoop(t)
		v, other := ownedBy(t, false)
		l.applyView(v, now)
		owner := prepare(l, other)
		l.m.TakeAbandoned(map[int]string{0: owner})
		l.drainInbox(now)
		l.advanceShards(now)
		if c := issued(l); c.kind != noCall {
			t.Errorf("%s: call %+v", name, c)
		}
	}
}

// TestLoserOfAnAbandonedShardLeavesIt: another node was faster.
func TestLoserOfAnAbandonedShardLeavesIt(t *testing.T) {
	now := time.Now()
	l := idleLoop(t)
	v, other := ownedBy(t, false)
	l.applyView(v, now)
	l.m.TakeAbandoned(map[int]string{0: other})
	l.drainInbox(now)
	l.advanceShards(now)
	c := issued(l)
	l.applyOutcome(callOutcome{call: c, holderValue: newToken() + other + "|x:1", pttl: DefaultTTL, start: now}, now)
	l.advanceShards(now.Add(time.Minute))
	if c := issued(l); c.kind != noCall {
		t.Errorf("call %+v for a shard that has a holder", c)
	}
}
