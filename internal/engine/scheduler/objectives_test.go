package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// waiting is the record of a run that was to start so long ago, and may be a second late.
func waiting(region job.Region, ago time.Duration) *job.Record {
	due := unixtime.MilliOf(time.Now().Add(-ago))
	return &job.Record{
		Definition: &job.Definition{MaxLag: time.Second},
		State:      job.State{Region: region, Nominal: due, Due: due, Revision: 1, Token: 1},
	}
}

// index puts entries into the index of objectives of shard 0, all of whose time has come.
func (b *bed) index(records map[job.RecordID]*job.Record) {
	b.store.set(func() {
		if b.store.objectives == nil {
			b.store.objectives = map[int]map[string]job.Objective{0: {}}
		}
		for id, r := range records {
			b.store.objectives[0][string(id)] = job.Objective{Record: id, Known: r, AtMS: unixtime.MilliOf(time.Now())}
		}
	})
	b.ledger.set(func() {
		b.ledger.record = func(c job.Change) job.Record {
			r := *c.Known
			r.State.LateNominal = r.State.Nominal
			return r
		}
	})
}

// found lists the records that were asked about, and how often.
func (b *bed) found() map[job.RecordID]int {
	b.ledger.mu.Lock()
	defer b.ledger.mu.Unlock()
	asked := make(map[job.RecordID]int)
	for _, c := range b.ledger.changes {
		if c.Input == (job.CheckLateness{}) && c.Known != nil {
			asked[c.Record]++
		}
	}
	return asked
}

func (b *bed) entries() map[string]unixtime.Milli {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	left := make(map[string]unixtime.Milli)
	for id, o := range b.store.objectives[0] {
		left[id] = o.AtMS
	}
	return left
}

func TestRunsThatWaitForTooLongAreFound(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), 0, 1) // no worker has a slot for it
		held := waiting(job.RegionDue, time.Minute)
		held.State.Source, held.State.Due = job.DelayHeld, unixtime.MilliOf(time.Now().Add(time.Minute))
		held.State.Held = job.Hold{Reason: job.HeldLock, DueMS: held.State.Nominal}
		ready := waiting(job.RegionDue, 0)
		b.index(map[job.RecordID]*job.Record{
			"ns/late": waiting(job.RegionDue, 5*time.Second), "ns/held": held, "ns/in-time": ready,
			"ns/leased": waiting(job.RegionLeased, 5*time.Second), "ns/gone": nil, "ns/paused": waiting(job.RegionPaused, time.Hour),
		})
		after(1100 * time.Millisecond)
		if got := fmt.Sprint(b.found()); got != "map[ns/held:1 ns/late:1]" {
			t.Errorf("asked about %s", got)
		}
		if got, want := fmt.Sprint(b.entries()), fmt.Sprint(map[string]int64{"ns/in-time": int64(ready.State.Due + 1001)}); got != want {
			t.Errorf("the index has %s, want %s", got, want)
		}
		after(time.Second)
		if n := b.found()["ns/in-time"]; n != 1 || len(b.entries()) != 0 {
			t.Errorf("the run that broke its objective since is found %d times; left %v", n, b.entries())
		}
	})
}

// TestABacklogOfLateRunsIsFoundInTurns: all of them, in batches, and none again once it is counted.
func TestABacklogOfLateRunsIsFoundInTurns(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), 0, 1)
		many := make(map[job.RecordID]*job.Record)
		for i := range 5*objectiveBatch + 7 {
			many[job.RecordID(fmt.Sprintf("ns/j%d", i))] = waiting(job.RegionDue, time.Minute)
		}
		b.index(many)
		after(2 * time.Second)
		found := b.found()
		for id := range many {
			if found[id] != 1 {
				t.Fatalf("%s is found %d times", id, found[id])
			}
		}
		for _, n := range b.store.objectiveMoves {
			if n > objectiveBatch {
				t.Errorf("%d entries in one call", n)
			}
		}
	})
}

// TestFailuresLeaveEntriesForTheNextPeriod: one look a period, however many entries there are.
func TestFailuresLeaveEntriesForTheNextPeriod(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), 0, 1)
		many := make(map[job.RecordID]*job.Record)
		for i := range objectiveBatch {
			many[job.RecordID(fmt.Sprintf("ns/j%d", i))] = waiting(job.RegionDue, time.Minute)
		}
		b.index(many)
		b.ledger.set(func() { b.ledger.answer = func(job.Change) error { return job.ErrUnavailable } })
		after(3100 * time.Millisecond)
		if n := b.found()["ns/j0"]; n != 3 || len(b.entries()) != objectiveBatch {
			t.Errorf("asked %d times in 3 periods, %d entries left", n, len(b.entries()))
		}
		b.ledger.set(func() { b.ledger.answer = nil })
		after(time.Second)
		if left := len(b.entries()); left != 0 {
			t.Errorf("%d entries left", left)
		}
	})
}

// TestObjectivesOfIdleShardsAreNotRead: the index is read once a shard is acquired, then
// when something is due or leased, or the time of its first entry has come.
func TestObjectivesOfIdleShardsAreNotRead(t *testing.T) {
	run(t, func(b *bed) {
		b.create(0, laneOf(1), time.Hour, 1)
		b.store.set(func() { b.store.leaseless = true })
		after(2 * leasableFor)
		looks := func(d time.Duration) int {
			b.store.set(func() { b.store.objectiveLooks = 0 })
			after(d)
			return b.store.objectiveLooks
		}
		if n := looks(20 * time.Second); n > 1 {
			t.Errorf("%d looks at a shard where nothing waits", n)
		}
		b.create(0, laneOf(1), 0, 1)
		if n := looks(10 * time.Second); n < 9 || n > 11 {
			t.Errorf("%d looks in 10 periods at a shard where a run waits", n)
		}
	})
}
