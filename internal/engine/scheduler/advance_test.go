package scheduler

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Where slots are free in plenty, a job is with its worker when it falls due, and what falls
// due at about the same time comes with it.
func TestLeasesInAdvance(t *testing.T) {
	run(t, func(b *bed) {
		b.acquire(1, 2)
		b.trips(time.Millisecond)
		b.slots.set(func() { b.slots.advance = true })
		b.slots.done("q", 9)
		b.create(0, laneOf(1), 0, 1)
		after(100 * time.Millisecond) // which shows what slots there are
		start := time.Now()
		b.create(0, laneOf(1), 100*time.Millisecond, 1)
		b.create(0, laneOf(1), 104*time.Millisecond, 1)
		b.create(1, laneOf(1), 107*time.Millisecond, 1)
		b.create(2, laneOf(1), 130*time.Millisecond, 1)
		after(99 * time.Millisecond)
		b.wantServed(4)
		calls := b.wantCalls(2)
		if at := calls[1].at.Sub(start); at < 100*time.Millisecond-shortLead.horizon() || at >= 100*time.Millisecond {
			t.Errorf("the call was made after %v", at)
		}
		after(100 * time.Millisecond)
		b.wantServed(5)
		b.wantCalls(3)
		b.slots.set(func() {
			if b.slots.unheld > 0 {
				t.Errorf("%d leases were not delivered with the others of their pipeline", b.slots.unheld)
			}
		})
		for id, r := range b.store.records {
			if r.lag < 0 || id != "ns/j0" && r.lag > 2*time.Millisecond {
				t.Errorf("%s started %v after it was due", id, r.lag)
			}
		}
	})
}

// At a high rate and with many free slots what falls due within 20 ms is leased together; with fewer slots, at a
// lower rate, or where that makes calls for many shards, what falls due within 8 ms. Nothing starts early or late.
func TestLeadGrowsWithTheFreeSlots(t *testing.T) {
	for name, row := range map[string]struct {
		shards, slots int
		interval      time.Duration
		fewest, most  int // pipelines
	}{
		"many slots":          {16, 400, 2 * time.Millisecond, 20, 36},
		"a higher rate":       {16, 4000, 500 * time.Microsecond, 20, 36},
		"calls for 32 shards": {32, 4000, 500 * time.Microsecond, 42, 120},
		"few slots":           {16, 40, 2 * time.Millisecond, 42, 120},
		"a lower rate":        {16, 400, 10 * time.Millisecond, 42, 110},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				for shard := 1; shard < row.shards; shard++ {
					b.acquire(shard)
				}
				b.trips(time.Millisecond)
				b.slots.set(func() { b.slots.advance = true })
				b.handlers(time.Millisecond)
				b.slots.done("q", row.slots)
				put := func(from, till time.Duration) {
					i := 0
					for at := from; at < till; at += row.interval {
						b.create(i%row.shards, laneOf(1), at, 1)
						i++
					}
				}
				put(100*time.Millisecond, 1100*time.Millisecond)
				after(600 * time.Millisecond)
				before := b.pipelines()
				after(500 * time.Millisecond)
				if n := b.pipelines() - before; n < row.fewest || n > row.most {
					t.Errorf("%d pipelines in half a second, want %d to %d", n, row.fewest, row.most)
				}
				after(time.Second)
				for id, r := range b.store.records {
					if r.lag < 0 || r.lag > 2*time.Millisecond {
						t.Errorf("%s started %v after it was due", id, r.lag)
					}
				}
			})
		})
	}
}

// pipelines is the number of pipelines of leasing calls so far.
func (b *bed) pipelines() int {
	at := map[time.Time]bool{}
	for _, c := range b.store.leasing() {
		at[c.at] = true
	}
	return len(at)
}

// What is believed of a shard's clock may be ahead of it. It does not count where it is old,
// or the answer to the call proves it wrong.
func TestNothingStartsEarlyForLackOfAClock(t *testing.T) {
	for name, age := range map[string]time.Duration{"it is old": clockTrust, "the answer proves it wrong": clockTrust / 2} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				b.trips(time.Millisecond)
				b.slots.set(func() { b.slots.advance = true })
				b.slots.done("q", 9)
				b.create(0, laneOf(1), 0, 1)
				after(10 * time.Millisecond)
				// The clock falls behind what is believed of it: by less than a trip, which no
				// answer proves, or by more.
				behind := 400 * time.Microsecond
				if age < clockTrust {
					behind = 7 * time.Millisecond
				}
				b.store.set(func() {
					b.store.clock = func(int) unixtime.Micro { return unixtime.MicroOf(time.Now().Add(-behind)) }
				})
				b.create(0, laneOf(1), age, 1)
				after(age + 50*time.Millisecond)
				b.wantServed(2)
				if lag := b.store.records["ns/j1"].lag; lag < 0 || lag > 2*time.Millisecond {
					t.Errorf("lag %v", lag)
				}
			})
		})
	}
}

// Without slots to spare, or with limits, nothing is leased before it is due; and to have
// hoped for it costs one call.
func TestNotInAdvance(t *testing.T) {
	for name, prepare := range map[string]func(*bed){
		"narrow":                   func(b *bed) { b.slots.set(func() { b.slots.narrow = true }) },
		"no slots to spare":        func(b *bed) { b.slots.set(func() { b.slots.advance = false }) },
		"the clock catches up":     func(b *bed) { b.store.set(func() { b.store.punctual = true }) },
		"the queue has got limits": func(b *bed) { b.s.o.Limits = &fakeLimits{left: map[string]int{"q": 9}} },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				b.slots.set(func() { b.slots.advance = true })
				b.slots.done("q", 9)
				b.create(0, laneOf(1), 0, 1)
				after(100 * time.Millisecond)
				b.look(func() { prepare(b) })
				before := len(b.store.leasing())
				b.create(0, laneOf(1), 50*time.Millisecond, 1)
				after(49 * time.Millisecond)
				b.wantServed(1)
				after(10 * time.Millisecond)
				b.wantServed(2)
				if calls := len(b.store.leasing()) - before; calls > 2 {
					t.Errorf("%d calls", calls)
				}
				if lag := b.store.records["ns/j1"].lag; lag < 0 || lag > 2*time.Millisecond {
					t.Errorf("lag %v", lag)
				}
			})
		})
	}
}

// A call without answer is repeated after more time than it has leased in advance; what the
// repetition leases by itself is due.
func TestRepeatedCallLeasesWhatIsDue(t *testing.T) {
	for name, lose := range map[string]func(st *fakeStore, lost bool){
		"the answer is lost":  func(st *fakeStore, lost bool) { st.lose = func(int) bool { return lost } },
		"the request is lost": func(st *fakeStore, lost bool) { st.fail = failing(lost) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(b *bed) {
				b.slots.set(func() { b.slots.advance = true })
				b.slots.done("q", 9)
				b.create(0, laneOf(1), 0, 2)
				after(100 * time.Millisecond) // it asks for more than one by then
				before := len(b.store.leasing())
				b.store.set(func() { lose(b.store, true) })
				b.create(0, laneOf(1), 100*time.Millisecond, 1)
				b.create(0, laneOf(1), 100*time.Millisecond-shortLead.margin+errorPause+shortLead.horizon()-time.Millisecond, 1)
				after(100*time.Millisecond - shortLead.margin)
				if n := len(b.store.leasing()) - before; n != 1 {
					t.Errorf("%d calls", n)
				}
				b.store.set(func() { lose(b.store, false) })
				after(time.Second)
				b.wantServed(4)
				if lag := b.store.records["ns/j3"].lag; lag < 0 {
					t.Errorf("it started %v early", -lag)
				}
			})
		})
	}
}

func failing(fails bool) func(int) error {
	return func(int) error {
		if fails {
			return job.ErrUnavailable
		}
		return nil
	}
}
