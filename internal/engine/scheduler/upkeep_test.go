package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/ticks"
)

func overdue(n int) []job.Overdue {
	all := make([]job.Overdue, n)
	for i := range all {
		all[i] = job.Overdue{Record: job.RecordID(fmt.Sprintf("ns/r%d", i)), State: job.State{Token: uint64(i + 1)}}
	}
	return all
}

func TestReapSubmitsTheLossOfEndedLeases(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), time.Hour, 1)
		b.store.set(func() { b.store.expired = [][]job.Overdue{overdue(3)} })
		after(1100 * time.Millisecond)
		if len(b.ledger.changes) != 3 {
			t.Fatalf("%d changes", len(b.ledger.changes))
		}
		for i, c := range b.ledger.changes {
			if c.Record != job.RecordID(fmt.Sprintf("ns/r%d", i)) || c.Input != (job.LoseLease{Token: uint64(i + 1)}) || !c.IfExpired || c.Known != nil {
				t.Errorf("change %+v", c)
			}
		}
	})
}

func TestReapGoesOnWhileThereIsMore(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		want   int
	}{
		"settled":    {nil, 2*reapLimit + 7},
		"not stored": {job.ErrUnavailable, reapLimit},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				b.create(0, laneOf(1), time.Hour, 1)
				b.ledger.set(func() { b.ledger.answer = func(job.Change) error { return c.answer } })
				b.store.set(func() { b.store.expired = [][]job.Overdue{overdue(reapLimit), overdue(reapLimit), overdue(7)} })
				after(1100 * time.Millisecond)
				if len(b.ledger.changes) != c.want {
					t.Fatalf("%d changes, want %d", len(b.ledger.changes), c.want)
				}
			})
		})
	}
}

func TestSweepGoesOnWhileThereIsMore(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), time.Hour, 1)
		b.store.set(func() { b.store.swept = 2*sweepLimit + 5 })
		after(15*time.Second + time.Millisecond)
		if got := fmt.Sprint(b.store.sweeps); got != fmt.Sprint([]int{sweepLimit, sweepLimit, 5}) {
			t.Errorf("sweeps %s", got)
		}
	})
}

func TestSweepOfOneShardIsBounded(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), time.Hour, 1)
		b.store.set(func() { b.store.swept = 1 << 30 })
		after(15*time.Second + time.Millisecond)
		if got := len(b.store.sweeps); got != maxShardRounds {
			t.Errorf("%d looks", got)
		}
	})
}

// Lanes in which nothing is leased are looked at rarely, those in which something is, or
// may be soon, each time.
func TestLanesWithoutLeasesAreLookedAtInTurns(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), time.Hour, 1)
		b.create(0, laneOf(2), time.Hour, 1)
		b.store.set(func() { b.store.leaseless = true })
		looks := func(d time.Duration) int {
			t.Helper()
			b.store.set(func() { b.store.looks = 0 })
			after(d)
			return b.store.looks
		}
		if n := looks(1100 * time.Millisecond); n != 2 {
			t.Errorf("lanes that are new: %d looks at two", n)
		}
		if n := looks(4 * fullReapPeriods * time.Second); n != 8 {
			t.Errorf("lanes without leases: %d looks at two in 4 turns", n)
		}
		b.create(0, laneOf(1), 0, 1)
		b.slots.set(func() { b.slots.free["q"] = 1 })
		b.demandChanged()
		after(time.Second)
		if n := looks(10 * time.Second); n < 10 || n > 12 {
			t.Errorf("one lane was leased from: %d looks at two in 10 periods", n)
		}
		looks(leasableFor)
		if n := looks(4 * fullReapPeriods * time.Second); n != 8 {
			t.Errorf("lanes whose leases have ended: %d looks at two in 4 turns", n)
		}
		b.store.set(func() { b.store.leaseless = false })
		looks(fullReapPeriods * time.Second) // leases are found where they were not expected
		if n := looks(10 * time.Second); n != 20 {
			t.Errorf("lanes with leases: %d looks at two in 10 periods", n)
		}
	})
}

// What a look showed of a shard proves nothing after another node has held it.
func TestLookAtALostShardIsIgnored(t *testing.T) {
	run(t, func(b *bed) {
		heads := []job.LaneHead{{Lane: laneOf(1), DueMS: unixtime.MilliOf(time.Now().Add(time.Hour))}}
		for _, lost := range []bool{false, true} {
			b.s.LanesDueEarlier(0, heads)
			b.s.mu.Lock()
			b.s.shards[0].markMaybeLeased(b.s.shards[0].laneOf(laneOf(1)))
			b.s.mu.Unlock()
			looked := b.s.lanesToReap()
			if lost {
				b.s.ShardLost(0)
				b.s.ShardAcquired(0)
				b.s.LanesDueEarlier(0, heads)
			}
			b.s.noteLeased(looked, map[int][]job.LaneHead{0: nil}, time.Now())
			b.s.mu.Lock()
			if _, warm := b.s.shards[0].maybeLeased[b.s.shards[0].laneOf(laneOf(1))]; warm != lost {
				t.Errorf("lost meanwhile %v: the lane is looked at again %v", lost, warm)
			}
			b.s.mu.Unlock()
		}
	})
}

// Lanes in which nothing has ended are looked at rarely for what is to be deleted, others
// when the first record is, and after something was leased.
func TestLanesWithoutEndsAreSweptInTurns(t *testing.T) {
	run(t, func(b *bed) {
		period := b.s.o.Sweep
		b.create(0, laneOf(1), time.Hour, 1)
		b.create(0, laneOf(2), time.Hour, 1)
		b.store.set(func() { b.store.leaseless, b.store.firstEnd = true, job.NeverMS })
		looks := func(d time.Duration) int {
			t.Helper()
			b.store.set(func() { b.store.endLooks = 0 })
			after(d)
			return b.store.endLooks
		}
		after(time.Millisecond)
		if n := looks(2 * period); n < 2 || n > 4 {
			t.Errorf("lanes that are new: %d looks at two in 2 periods", n)
		}
		if n := looks(4 * fullReapPeriods * period); n != 8 {
			t.Errorf("lanes without ends: %d looks at two in 4 turns", n)
		}
		b.create(0, laneOf(1), 0, 1)
		b.slots.set(func() { b.slots.free["q"] = 1 })
		b.demandChanged()
		if n := looks(10 * period); n < 1 || n > 4 {
			t.Errorf("one lane was leased from for a moment: %d looks at two in 10 periods", n)
		}
		b.store.set(func() { b.store.unread = true })
		looks(2 * fullReapPeriods * period) // each had its turn meanwhile
		b.store.set(func() { b.store.unread = false })
		if n := looks(period); n != 2 {
			t.Errorf("lanes that could not be read: %d looks at two when they can be", n)
		}
		end := time.Now().Add(100 * period)
		b.store.set(func() { b.store.firstEnd = unixtime.MilliOf(end) })
		looks(fullReapPeriods * period) // the end is found where none was expected
		if n := looks(10 * period); n > 2 {
			t.Errorf("long before the end: %d looks at two in 10 periods", n)
		}
		looks(time.Until(end))
		if n := looks(10 * period); n != 20 {
			t.Errorf("lanes with an end that has come: %d looks at two in 10 periods", n)
		}
	})
}

// A time without answers proves nothing: what was leased before it is looked for at once
// when it is over.
func TestLanesThatCannotBeReadMayHaveLeases(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.set(func() { b.slots.free["q"] = 1 })
		b.store.set(func() { b.store.unread = true })
		b.create(0, laneOf(1), 0, 1)
		after(2 * leasableFor)
		b.wantServed(1)
		b.store.set(func() {
			b.store.unread = false
			b.store.expired = [][]job.Overdue{overdue(1)}
		})
		after(time.Second)
		if len(b.ledger.changes) != 1 {
			t.Errorf("%d changes", len(b.ledger.changes))
		}
	})
}

// However much has ended in one shard, it is gone before the next period.
func TestSweepKeepsUp(t *testing.T) {
	run(t, func(b *bed) {
		const ended = 5*maxShardRounds*sweepLimit + 7
		b.create(0, laneOf(1), time.Hour, 1)
		b.store.set(func() { b.store.swept = ended })
		after(15*time.Second + 10*minSweepPause)
		sum := 0
		for _, n := range b.store.sweeps {
			sum += n
		}
		if sum != ended {
			t.Errorf("%d were deleted, want %d", sum, ended)
		}
	})
}

func TestUpkeepNeedsTheLock(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), time.Hour, 1)
		b.mu.Lock()
		delete(b.held, 0)
		b.mu.Unlock()
		b.store.set(func() { b.store.expired = [][]job.Overdue{overdue(3)} })
		after(20 * time.Second)
		if len(b.ledger.changes) != 0 || len(b.store.sweeps) != 0 {
			t.Errorf("%d changes, %d sweeps", len(b.ledger.changes), len(b.store.sweeps))
		}
	})
}

func TestUpkeepThatFailsIsTriedAgain(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), time.Hour, 1)
		b.store.set(func() {
			b.store.upkeepErr = errors.New("no answer")
			b.store.expired = [][]job.Overdue{overdue(2)}
		})
		after(16 * time.Second)
		if len(b.store.sweeps) != 1 {
			t.Errorf("%d sweeps in one period", len(b.store.sweeps))
		}
		b.store.set(func() { b.store.upkeepErr = nil })
		after(time.Second)
		if len(b.ledger.changes) != 2 {
			t.Errorf("%d changes", len(b.ledger.changes))
		}
	})
}

// A ledger that does not answer does not hold up the end.
func TestRunEndsWhileReapingWaits(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), time.Hour, 1)
		b.ledger.set(func() { b.ledger.deaf = true })
		b.store.set(func() { b.store.expired = [][]job.Overdue{overdue(2)} })
		after(1100 * time.Millisecond)
		begun := time.Now()
		b.stop()
		if took := time.Since(begun); took != 0 {
			t.Errorf("Run took %v to end", took)
		}
	})
}

// What is done once a period is done at whole periods of the node's cadence.
func TestPeriodsCountFromTheCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "a", newFakeStore())
		b.s.o.Alignment = ticks.Since(time.Now())
		after(700 * time.Millisecond)
		b.acquire(0)
		b.start()
		defer b.stop()
		scans := func() (n int) {
			b.store.set(func() { n = b.store.scans })
			return n
		}
		after(299 * time.Millisecond)
		first := scans() // of the shard that was acquired
		for turn := 1; turn <= 3; turn++ {
			after(time.Millisecond)
			if n := scans(); n != first+turn {
				t.Errorf("%d rescans in turn %d", n-first, turn)
			}
			after(time.Second - time.Millisecond)
			if n := scans(); n != first+turn {
				t.Errorf("%d rescans before turn %d", n-first, turn+1)
			}
		}
	})
}

// Each shard has one turn in so many periods, and most periods have none.
func TestColdShardsHaveTheirTurnsTogether(t *testing.T) {
	for shard := range 64 {
		turns := 0
		for period := range uint64(fullReapPeriods) {
			if !isShardTurn(shard, period+7) {
				continue
			}
			turns++
			if (period+7)%fullReapStride != 0 {
				t.Errorf("shard %d has a turn in period %d", shard, period+7)
			}
		}
		if turns != 1 {
			t.Errorf("shard %d has %d turns in %d periods", shard, turns, fullReapPeriods)
		}
	}
}

// TestLostAttemptsAreReported: the scheduler reports the attempts whose loss this node has stored, with the
// definition that shows what they held.
func TestLostAttemptsAreReported(t *testing.T) {
	run(t, func(b *bed) {
		d := &job.Definition{Locks: []job.Lock{{Key: "k", Limit: 1}}}
		b.create(0, laneOf(1), time.Hour, 1)
		b.ledger.set(func() {
			b.ledger.answer = func(c job.Change) error {
				if c.Record == "ns/r1" {
					return job.ErrUnavailable
				}
				return nil
			}
			b.ledger.record = func(job.Change) job.Record { return job.Record{Definition: d} }
		})
		b.store.set(func() { b.store.expired = [][]job.Overdue{overdue(3)} })
		after(1100 * time.Millisecond)
		b.mu.Lock()
		defer b.mu.Unlock()
		slices.SortFunc(b.lost, func(a, b job.Ending) int { return cmp.Compare(a.Record, b.Record) })
		want := []job.Ending{{Record: "ns/r0", Token: 1, Over: true, Definition: d}, {Record: "ns/r2", Token: 3, Over: true, Definition: d}}
		if fmt.Sprint(b.lost) != fmt.Sprint(want) {
			t.Errorf("told of %v, want %v", b.lost, want)
		}
	})
}
