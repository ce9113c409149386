package scheduler

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// shares counts what was served by priority.
func (b *bed) shares() (n [10]int) {
	b.slots.mu.Lock()
	defer b.slots.mu.Unlock()
	for _, l := range b.slots.served {
		n[l.Known.State.Lane.Priority]++
	}
	return n
}

func TestScarceSlotsAreSharedByWeight(t *testing.T) {
	for name, c := range map[string]struct {
		shards, slots int
		trip          time.Duration
		priorities    []uint8
	}{
		"one shard, one slot":     {1, 1, 200 * time.Microsecond, []uint8{9, 0}},
		"one shard, many slots":   {1, 20, time.Millisecond, []uint8{9, 0}},
		"many shards, few slots":  {16, 4, time.Millisecond, []uint8{9, 0}},
		"many shards, many slots": {16, 64, time.Millisecond, []uint8{9, 0}},
		"all priorities":          {8, 8, time.Millisecond, []uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		"neighbours":              {4, 3, time.Millisecond, []uint8{4, 5}},
		"nobody above priority 0": {4, 3, time.Millisecond, []uint8{0}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				for shard := 1; shard < c.shards; shard++ {
					b.acquire(shard)
				}
				b.trips(c.trip)
				b.handlers(5 * time.Millisecond)
				for shard := range c.shards {
					for _, p := range c.priorities {
						b.create(shard, laneOf(p), 0, 6000/c.shards)
					}
				}
				synctest.Wait()
				b.slots.done("q", c.slots)
				for b.slots.count() < 2200 {
					after(10 * time.Millisecond)
				}
				total, weights := b.slots.count(), 0
				for _, p := range c.priorities {
					weights += int(p) + 1
				}
				n := b.shares()
				for _, p := range c.priorities {
					want := total * (int(p) + 1) / weights
					if diff := max(n[p]-want, want-n[p]); diff > total/20+10 {
						t.Errorf("priority %d got %d of %d, want %d", p, n[p], total, want)
					}
				}
			})
		})
	}
}

// Slots that two queues share go to both, and the one that is served first is not
// the one that is served always.
func TestQueuesShareWorkers(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.set(func() { b.slots.pool = func(queueKey) string { return "all" } })
		b.handlers(time.Millisecond)
		names := []string{"x", "y", "z"}
		for _, name := range names {
			b.create(0, laneOf(5, name), 0, 600)
		}
		b.slots.done("all", 1)
		for b.slots.count() < 300 {
			after(time.Millisecond)
		}
		n := make(map[string]int)
		for _, l := range b.slots.served {
			n[l.Known.State.Lane.Queue]++
		}
		for _, name := range names {
			if n[name] < 90 {
				t.Errorf("queue %s got %d of %d", name, n[name], b.slots.count())
			}
		}
	})
}

// A lane of priority 0 is served soon however much of priority 9 keeps coming.
func TestPriorityZeroDoesNotStarve(t *testing.T) {
	run(t, func(b *bed) {
		b.handlers(2 * time.Millisecond)
		b.slots.done("q", 2)
		b.create(0, laneOf(9), 0, 2000)
		after(200 * time.Millisecond)
		b.create(0, laneOf(0), 0, 5)
		after(70 * time.Millisecond) // 70 slots: five of eleven each
		if n := b.shares(); n[0] != 5 {
			t.Errorf("shares %v", n)
		}
	})
}

// A lane that was idle does not make up for that at the expense of the others.
func TestIdleLaneDoesNotCatchUp(t *testing.T) {
	run(t, func(b *bed) {
		b.handlers(time.Millisecond)
		b.slots.done("q", 1)
		b.create(0, laneOf(9), 0, 5000)
		after(2 * time.Second)
		before := b.shares()[9]
		b.create(0, laneOf(0), 0, 1000)
		after(500 * time.Millisecond)
		n := b.shares()
		if high := n[9] - before; high < 8*n[0] {
			t.Errorf("priority 9 got %d while priority 0 got %d", high, n[0])
		}
	})
}

// A flow is charged for the slots it used, not for those it asked for.
func TestUnusedSlotsAreNotCharged(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 500)
		b.create(0, laneOf(1), 0, 100)
		synctest.Wait()
		b.wantServed(100)
		if start := b.startOf(laneOf(1)); start != 50 {
			t.Errorf("100 leases at weight 2 moved the flow to %v", start)
		}
		b.s.SetPeerDemand("b", []job.QueueDemand{{Namespace: "ns", Queue: "far", Free: 9}})
		far := laneOf(0, "far")
		b.create(0, far, 0, 1)
		synctest.Wait()
		before := b.startOf(far)
		b.answer(b.wantPermits(1)[0], 0, job.NeverMS)
		if start := b.startOf(far); start != before-1 {
			t.Errorf("an unused permit moved the flow from %v to %v", before, start)
		}
	})
}

// The backlog agrees with a plain model: whatever comes and goes, the next lane is
// that of the flow that is least far ahead among the queues that are not dry.
func TestBacklogModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBacklog()
		var lanes []*lane
		queues := []string{"x", "y", "z"}
		dry := make(map[string]bool)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1, 2:
				l := &lane{
					key: laneOf(uint8(rapid.IntRange(0, 9).Draw(t, "priority")), rapid.SampledFrom(queues).Draw(t, "queue")),
					due: unixtime.Milli(rapid.Int64Range(0, 50).Draw(t, "due")),
				}
				lanes = append(lanes, l)
				b.addLane(l)
			case 3:
				if l := b.nextLane(); l != nil {
					b.removeLane(l)
					b.chargeFlow(l.key, rapid.IntRange(1, 20).Draw(t, "n"))
					lanes = slices.DeleteFunc(lanes, func(o *lane) bool { return o == l })
				}
			case 4:
				if l := b.nextLane(); l != nil {
					b.markStarved(l)
					dry[l.key.Queue] = true
				}
			case 5:
				q := rapid.SampledFrom(queues).Draw(t, "queue")
				waits := slices.ContainsFunc(lanes, func(l *lane) bool { return l.key.Queue == q })
				if b.slotsAvailable(queueKey{"ns", q}) != (dry[q] && waits) {
					t.Fatalf("water(%s) is wrong about who waits", q)
				}
				delete(dry, q)
			case 6:
				b.pruneFlows()
				for q := range dry {
					if !slices.ContainsFunc(lanes, func(l *lane) bool { return l.key.Queue == q }) && b.queues[queueKey{"ns", q}] == nil {
						delete(dry, q)
					}
				}
			}
			got, best := b.nextLane(), (*lane)(nil)
			for _, l := range lanes {
				if dry[l.key.Queue] {
					continue
				}
				if best == nil || l.flow != best.flow && l.flow.Before(best.flow) || l.flow == best.flow && l.due < best.due {
					best = l
				}
			}
			if (got == nil) != (best == nil) || got != nil && (got.flow != best.flow || got.due != best.due) {
				t.Fatalf("next is %+v, want %+v", got, best)
			}
		}
	})
}

// Flows do not pile up in memory.
func TestFlowsAreForgotten(t *testing.T) {
	b := newBacklog()
	for i := range 100 {
		l := &lane{key: job.Lane{Namespace: "ns", Queue: string(rune('a' + i)), Priority: 3}}
		b.addLane(l)
		b.markStarved(l)
		b.removeLane(l)
		b.chargeFlow(l.key, 50)
	}
	b.pruneFlows()
	if len(b.flows) != 0 || len(b.queues) != 0 || len(b.starved) != 0 || len(b.served) != 0 {
		t.Errorf("%d flows, %d queues, %d dry, %d open", len(b.flows), len(b.queues), len(b.starved), len(b.served))
	}
}

// Slots that come free are tried for the queues that they serve, and for no other ones.
func TestFreeSlotsAreForTheirQueues(t *testing.T) {
	run(t, func(b *bed) {
		other := laneOf(4)
		other.Queue = "other"
		b.create(0, laneOf(4), 0, 1)
		b.create(0, other, 0, 1)
		synctest.Wait()
		b.slots.set(func() { b.slots.free["q"], b.slots.free["other"] = 1, 1 })
		for i, queues := range [][]string{{"else"}, {"else", "q"}, {"other", "q"}} {
			b.s.DemandChanged("ns", queues)
			synctest.Wait()
			if n := b.slots.count(); n != i {
				t.Errorf("after slots for %v: %d leases, want %d", queues, n, i)
			}
		}
	})
}
