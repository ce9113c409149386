package scheduler

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
)

func TestSleepsUntilDueAndLeasesOnce(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 5)
		due := 10*time.Second + 300*time.Millisecond // not together with a rescan
		b.create(0, laneOf(3), due, 1)
		after(due - time.Millisecond)
		b.wantCalls(0)
		after(2 * time.Millisecond)
		b.wantServed(1)
		after(10 * time.Second)
		b.wantCalls(1)
		if lag := b.store.records["ns/j0"].lag; lag < 0 || lag > time.Millisecond {
			t.Errorf("lag %v", lag)
		}
	})
}

func TestNudgeWakesASleeper(t *testing.T) {
	for _, trip := range []time.Duration{0, 300 * time.Microsecond, 2 * time.Millisecond} {
		t.Run(trip.String(), func(t *testing.T) {
			run(t, func(b *bed) {
				b.trips(trip)
				b.slots.done("q", 5)
				b.create(0, laneOf(3), time.Hour, 1)
				after(1300 * time.Millisecond)
				b.create(0, laneOf(3), 200*time.Millisecond, 1)
				b.create(0, laneOf(4), 0, 1)
				after(5 * time.Millisecond)
				b.wantServed(1)
				after(200 * time.Millisecond)
				b.wantServed(2)
				for _, id := range []job.RecordID{"ns/j1", "ns/j2"} {
					if lag := b.store.records[id].lag; lag < 0 || lag > trip+time.Millisecond {
						t.Errorf("%s: lag %v", id, lag)
					}
				}
			})
		})
	}
}

func TestNoSlotNoLease(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(0), 0, 3)
		after(10 * time.Second)
		b.wantCalls(0)
		b.slots.done("q", 2)
		synctest.Wait()
		b.wantServed(2)
		b.slots.done("q", 1)
		synctest.Wait()
		b.wantServed(3)
	})
}

func TestQueueWithoutSlotsHoldsUpNoOther(t *testing.T) {
	run(t, func(b *bed) {
		for i := range 30 {
			b.create(0, laneOf(9, fmt.Sprintf("dry%d", i)), 0, 2)
		}
		b.slots.done("q", 9)
		b.create(0, laneOf(0), 0, 9)
		after(10 * time.Millisecond)
		b.wantServed(9)
	})
}

// A nudge that comes after the script ran, but before its answer is back, is
// newer than the answer.
func TestNudgeDuringACallIsKept(t *testing.T) {
	run(t, func(b *bed) {
		b.trips(20 * time.Millisecond)
		b.slots.done("q", 5)
		b.create(0, laneOf(1), 0, 1)
		after(11 * time.Millisecond) // the script has run
		b.create(0, laneOf(1), 0, 1)
		after(40 * time.Millisecond)
		b.wantServed(2)
	})
}

func TestBacklogDrainsWithFewCalls(t *testing.T) {
	run(t, func(b *bed) {
		b.trips(time.Millisecond)
		b.create(0, laneOf(1), 0, 2000)
		b.slots.done("q", 5000)
		after(40 * time.Millisecond)
		b.wantServed(2000)
		// 1, 16 and 200 each time; the last one comes back short.
		if calls := b.store.leasing(); len(calls) > 12 {
			t.Errorf("%d calls", len(calls))
		}
	})
}

// TestLeasesOfAnotherLane: what was found under a lane that is not its own goes to workers of
// its own queue, or back, and to no worker that does not serve it.
func TestLeasesOfAnotherLane(t *testing.T) {
	stray := job.Leased{Record: "stray", Known: &job.Record{State: job.State{Lane: laneOf(3, "other")}}}
	own := job.Leased{Record: "own", Known: &job.Record{State: job.State{Lane: laneOf(1)}}}
	for _, tt := range []struct {
		name  string
		asked []job.Lane
		free  int // of the stray's queue
	}{
		{"one lane asked", []job.Lane{laneOf(1)}, 1}, {"two lanes asked", []job.Lane{laneOf(1), laneOf(2)}, 1},
		{"nobody serves it", []job.Lane{laneOf(1), laneOf(2)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t, "a", newFakeStore())
			b.slots.pool = func(q queueKey) string { return q.name }
			b.slots.free = map[string]int{"q": 4, "other": tt.free}
			b.slots.handler = func() time.Duration { return -1 }
			var quotas []job.LaneQuota
			var slots []slots.Reservation
			for _, l := range tt.asked {
				quotas, slots = append(quotas, job.LaneQuota{Lane: l, N: 2}), append(slots, b.slots.Reserve(l.Namespace, l.Queue, 2))
			}
			if got := b.s.deliverLeases(quotas, slots, []job.Leased{stray, own}); got[0] != 1 {
				t.Errorf("got %v of the lanes asked, want 1 of the first", got)
			}
			if b.slots.free["q"] != 3 || b.slots.free["other"] != 0 || len(b.slots.served) != 1+tt.free || len(b.slots.returned) != 1-tt.free {
				t.Errorf("free %v, served %v, returned %v", b.slots.free, b.slots.served, b.slots.returned)
			}
			b.slots.check(t)
		})
	}
}

func TestManyShardsShareAPipeline(t *testing.T) {
	run(t, func(b *bed) {
		b.trips(time.Millisecond)
		for shard := 1; shard < 48; shard++ {
			b.acquire(shard)
		}
		synctest.Wait()
		b.slots.done("q", 100)
		after(10 * time.Millisecond)
		due := 100 * time.Millisecond
		for shard := range 48 {
			b.create(shard, laneOf(1), due, 1)
		}
		after(due + 5*time.Millisecond)
		b.wantServed(48)
		if calls := b.store.leasing(); len(calls) > 4 {
			t.Errorf("%d pipelines", len(calls))
		}
	})
}

// What does not fit into one pipeline is not left until that one is back.
func TestAnotherLeaserTakesTheRest(t *testing.T) {
	run(t, func(b *bed) {
		for shard := 1; shard < 3*maxRoundShards; shard++ {
			b.acquire(shard)
		}
		after(10 * time.Millisecond)
		b.trips(20 * time.Millisecond)
		for shard := range 3 * maxRoundShards {
			b.create(shard, laneOf(1), 100*time.Millisecond, 1)
		}
		b.slots.done("q", 1000)
		after(125 * time.Millisecond)
		b.wantServed(3 * maxRoundShards)
	})
}

// Nor is what becomes due while a call is in flight.
func TestTimerRunsWhileACallIsInFlight(t *testing.T) {
	run(t, func(b *bed) {
		b.acquire(1)
		after(10 * time.Millisecond)
		b.create(1, laneOf(1), 20*time.Millisecond, 1)
		b.create(0, laneOf(1), 10*time.Millisecond, 1)
		b.slots.done("q", 2)
		b.trips(100 * time.Millisecond)
		after(25 * time.Millisecond)
		b.wantServed(0)
		after(100 * time.Millisecond)
		b.wantServed(2)
	})
}

func TestCallsStayWithinTheScriptsBounds(t *testing.T) {
	run(t, func(b *bed) {
		n := 0
		for i := range 40 {
			for p := range uint8(3) {
				b.create(0, laneOf(p, fmt.Sprintf("q%d", i)), 0, 20)
				n += 20
			}
		}
		b.slots.set(func() { b.slots.pool = func(queueKey) string { return "all" } })
		b.slots.done("all", 10000)
		after(500 * time.Millisecond)
		b.wantServed(n)
		for _, c := range b.store.leasing() {
			for _, r := range c.requests {
				total := 0
				for _, q := range r.Quotas {
					total += q.N
				}
				if len(r.Quotas) > job.MaxLanesPerCall || total > job.MaxLeasesPerCall {
					t.Fatalf("a call of %d lanes, %d leases", len(r.Quotas), total)
				}
			}
		}
	})
}

func TestErrorsRestTheShard(t *testing.T) {
	for err, rest := range map[error]time.Duration{
		job.ErrUnavailable: errorPause, job.ErrNotHolder: longErrorPause, job.ErrClockJump: longErrorPause,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			run(t, func(b *bed) {
				b.acquire(1)
				synctest.Wait()
				failing := true
				b.store.set(func() {
					b.store.fail = func(shard int) error {
						if failing && shard == 0 {
							return fmt.Errorf("lease: %w", err)
						}
						return nil
					}
				})
				b.slots.done("q", 5)
				b.create(0, laneOf(1), 0, 1)
				synctest.Wait()
				b.create(0, laneOf(2), 0, 1)
				after(rest - time.Millisecond)
				b.wantCalls(1)
				b.create(1, laneOf(1), 0, 1) // another shard goes on
				after(0)
				b.wantServed(1)
				after(time.Millisecond)
				b.wantCalls(3)
				b.store.set(func() { failing = false })
				after(rest + time.Millisecond)
				b.wantServed(3)
			})
		})
	}
}

func TestRunEndsWhenTheLastCallHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "a", newFakeStore())
		b.acquire(0, 1)
		b.start()
		synctest.Wait()
		b.trips(30 * time.Millisecond)
		b.slots.done("q", 50)
		b.create(0, laneOf(1), 0, 5)
		after(time.Millisecond)
		begun := time.Now()
		b.stop()
		if took := time.Since(begun); took != 29*time.Millisecond {
			t.Errorf("Run took %v to end", took)
		}
		b.wantServed(1)
	})
}

func TestIdleSchedulerEndsAtOnce(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), time.Hour, 1)
		after(10 * time.Second)
		begun := time.Now()
		b.stop()
		if took := time.Since(begun); took != 0 {
			t.Errorf("Run took %v to end", took)
		}
		if b.store.scans < 10 {
			t.Errorf("%d rescans", b.store.scans)
		}
	})
}

func TestOptions(t *testing.T) {
	store, slots := newFakeStore(), newFakeSlots(nil)
	good := Options{
		Node: "a", Store: store, Ledger: &fakeLedger{}, Slots: slots, Peers: &fakePeers{},
		Held: func(int) (string, bool) { return "", false },
	}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Options){
		"node": func(o *Options) { o.Node = "" }, "store": func(o *Options) { o.Store = nil },
		"ledger": func(o *Options) { o.Ledger = nil }, "slots": func(o *Options) { o.Slots = nil },
		"peers": func(o *Options) { o.Peers = nil }, "held": func(o *Options) { o.Held = nil },
		"ttl": func(o *Options) { o.LeaseTTL = time.Millisecond },
	} {
		bad := good
		spoil(&bad)
		if _, err := New(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
