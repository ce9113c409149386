package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// fillShard puts due lanes of queues without workers into a shard, without a nudge, and has pages list ten lanes.
func (b *bed) fillShard(shard, lanes int) {
	b.store.set(func() { b.store.pageSize = 10 })
	for i := range lanes {
		b.store.put(shard, laneOf(0, fmt.Sprintf("idle%03d", i)), 1)
	}
}

// laneCount is the number of known lanes of a shard.
func (b *bed) laneCount(shard int) (n int) {
	b.look(func() { n = len(b.s.shards[shard].lanes) })
	return n
}

// A lane stays known, and is served on time, however many lanes of other queues are due before it.
func TestAKnownLaneOutlivesACutList(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), 10*time.Second, 1)
		b.fillShard(0, 95)
		b.slots.done("q", 1)
		after(10*time.Second + time.Millisecond)
		b.wantServed(1)
	})
}

// A lane whose queue has a worker is found at once in a shard that was acquired, and within a period after a lost
// nudge.
func TestLanesWithWorkersAreFoundInOversizedShards(t *testing.T) {
	run(t, func(b *bed) {
		b.fillShard(3, 95)
		b.store.put(3, laneOf(9), unixtime.MilliOf(time.Now()))
		b.slots.set(func() { b.slots.queues = []job.QueueKey{{Namespace: "ns", Queue: "q"}} })
		b.slots.done("q", 2)
		b.acquire(3)
		after(time.Millisecond)
		b.wantServed(1)
		b.store.put(3, laneOf(2), unixtime.MilliOf(time.Now()))
		after(1100 * time.Millisecond)
		b.wantServed(2)
	})
}

// The same for a queue that only a peer's workers serve, also if none of them has a free slot when it is looked up.
func TestLanesWithWorkersOfPeersAreFoundInOversizedShards(t *testing.T) {
	run(t, func(b *bed) {
		b.fillShard(3, 95)
		b.store.put(3, laneOf(9), unixtime.MilliOf(time.Now()))
		b.s.SetPeerDemand("b", []job.QueueDemand{{Namespace: "ns", Queue: "q"}})
		b.acquire(3)
		after(time.Millisecond)
		b.wantPermits(0)
		b.s.SetPeerDemand("b", []job.QueueDemand{{Namespace: "ns", Queue: "q", Free: 1}})
		after(time.Millisecond)
		b.wantPermits(1)
		b.s.SetPeerDemand("b", nil)
		b.look(func() {
			if n := len(b.s.peerQueues); n != 0 {
				t.Errorf("%d peers are left that serve queues", n)
			}
		})
	})
}

// A pass over the pages finds all lanes, one drops those that do not exist any more, and a shard with few lanes is
// read by one page again.
func TestAllLanesOfAnOversizedShardAreFound(t *testing.T) {
	run(t, func(b *bed) {
		b.fillShard(0, 95)
		after(12 * time.Second) // a page a second
		if n := b.laneCount(0); n != 95 {
			t.Errorf("%d lanes are known, want 95", n)
		}
		b.store.set(func() {
			for i := range 90 {
				delete(b.store.lanes[0], laneOf(0, fmt.Sprintf("idle%03d", i)))
			}
		})
		after(12 * time.Second)
		if n := b.laneCount(0); n != 5 {
			t.Errorf("%d lanes are known, want 5", n)
		}
		b.look(func() {
			if sh := b.s.shards[0]; sh.oversized || sh.nextPage != (job.LaneCursor{}) || len(sh.unlisted) > 0 {
				t.Errorf("a shard with five lanes is oversized")
			}
		})
	})
}

// A pass that does not list a lane proves nothing: the lane is looked up before it is dropped.
func TestALaneThatAPassDidNotListIsLookedUp(t *testing.T) {
	run(t, func(b *bed) {
		b.fillShard(0, 25)
		after(4 * time.Second)
		moved := laneOf(3, "moved")
		b.store.put(0, moved, unixtime.MilliOf(time.Now().Add(time.Hour)))
		b.look(func() {
			sh := b.s.shards[0]
			l := sh.laneOf(moved)
			l.listedInScan, l.touchedInScan = 1, 1
			sh.passBegan = b.s.scanCount
			b.s.endPage(b.s.scanCount, sh, job.LaneCursor{Ties: 20}, job.LanePage{}) // the last page, without it
			if len(sh.unlisted) == 0 {
				t.Fatal("nothing is to be looked up")
			}
		})
		after(1100 * time.Millisecond)
		b.look(func() {
			sh := b.s.shards[0]
			if l := sh.lanes[moved]; l == nil || l.due == job.NeverMS {
				t.Errorf("lane is %+v after the lookup", l)
			}
			if len(sh.unlisted) > 0 {
				t.Errorf("%d lanes are still to be looked up", len(sh.unlisted))
			}
		})
	})
}

// Lookups are bounded; queues take turns.
func TestLookupsTakeTurns(t *testing.T) {
	sh := newShard(0, 0)
	var queues []job.QueueKey
	for i := range 10 {
		queues = append(queues, job.QueueKey{Namespace: "ns", Queue: fmt.Sprint(i)})
	}
	var turns string
	for range 5 {
		for _, q := range sh.nextServed(queues, 4) {
			turns += q.Queue
		}
	}
	if turns != "01234567890123456789" {
		t.Errorf("queues were looked up in the order %s", turns)
	}
	if all := sh.nextServed(queues, 10); len(all) != 10 {
		t.Errorf("%d of 10 queues are looked up", len(all))
	}
}

// Without an oversized shard nothing is looked up.
func TestFewLanesAreNotLookedUp(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.set(func() { b.slots.queues = []job.QueueKey{{Namespace: "ns", Queue: "q"}} })
		b.create(0, laneOf(1), time.Hour, 3)
		after(5 * time.Second)
		b.store.set(func() {
			if len(b.store.lookups) > 0 {
				t.Errorf("lookups: %v", b.store.lookups)
			}
		})
	})
}
