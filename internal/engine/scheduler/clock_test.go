package scheduler

import (
	"math"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func TestClockEstimate(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		us    unixtime.Micro // of a second reading, one second after the first showed 5 s
		after time.Duration
		doubt bool
		want  unixtime.Micro
	}{
		"a quicker answer":            {6_000_300, time.Second, false, 6_000_300},
		"a slower answer":             {5_900_000, time.Second, false, 6_000_000},
		"a slower one, but first old": {7_900_000, 3 * time.Second, false, 7_900_000},
		"a call that came too early":  {5_900_000, time.Second, true, 5_900_000},
		"an answer that has no clock": {0, time.Second, true, 6_000_000},
		"a clock that is far ahead":   {3_600_000_000, time.Second, false, 3_600_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			sh := &shard{}
			sh.noteClock(clockReading{us: 5_000_000, at: start}, false)
			at := start.Add(c.after)
			sh.noteClock(clockReading{us: c.us, at: at}, c.doubt)
			if got := sh.clock.estimateUS(at); got != c.want {
				t.Errorf("shows %d, want %d", got, c.want)
			}
			if ms := c.want.Milli() + 17; sh.clock.estimateUS(sh.clock.localTimeOf(ms)) != ms.Micro() {
				t.Errorf("at the instant of %d ms it shows %d us", ms, sh.clock.estimateUS(sh.clock.localTimeOf(ms)))
			}
		})
	}
}

// A shard clock at half speed makes every estimate run ahead. The calls that come
// too early are few.
func TestSlowShardClockIsNoBusyLoop(t *testing.T) {
	for _, trip := range []time.Duration{0, 200 * time.Microsecond} {
		run(t, func(b *bed) {
			b.trips(trip)
			start := time.Now()
			b.store.set(func() {
				b.store.clock = func(int) unixtime.Micro {
					return unixtime.Micro(start.UnixMicro() + time.Since(start).Microseconds()/2)
				}
			})
			after(2 * time.Second)
			b.slots.done("q", 1)
			b.store.put(0, laneOf(1), unixtime.MilliOf(start.Add(2*time.Second)))
			after(3 * time.Second)
			b.wantServed(1)
			if calls := b.store.leasing(); len(calls) > 20 {
				t.Errorf("trip %v: %d calls", trip, len(calls))
			}
			if lag := b.store.records["ns/j0"].lag; lag < 0 || lag > 2*time.Millisecond {
				t.Errorf("lag %v", lag)
			}
		})
	}
}

// A shard clock that catches up runs at twice the rate of passing time. Who sleeps until something is due would sleep
// too long.
func TestClockThatCatchesUpMakesNothingLate(t *testing.T) {
	const lag = 6 * time.Second
	run(t, func(b *bed) {
		start := time.Now()
		b.store.set(func() {
			b.store.clock = func(int) unixtime.Micro {
				passed := time.Since(start)
				return unixtime.MicroOf(start.Add(passed - lag + min(passed, lag)))
			}
			b.store.clockLag = func() time.Duration { return max(0, lag-time.Since(start)) }
		})
		b.slots.done("q", 1)
		after(time.Second)
		b.store.put(0, laneOf(1), unixtime.MilliOf(start.Add(4500*time.Millisecond)))
		after(4260 * time.Millisecond) // the clock shows 4.5 s after 5.25 s
		b.wantServed(1)
		if calls := b.store.leasing(); len(calls) > 20 {
			t.Errorf("%d calls", len(calls))
		}
	})
}

// The same holds where a peer leases: its answers do not contain the shard's clock.
func TestSlowShardClockIsNoBusyLoopOfPermits(t *testing.T) {
	run(t, func(b *bed) {
		due := unixtime.MilliOf(time.Now().Add(2 * time.Second))
		b.s.SetPeerDemand("b", demand(9))
		b.peers.onPermits = func(node string, permits []job.Permit) {
			results := []job.PermitResult{{ID: permits[0].ID, DueMS: due}}
			time.AfterFunc(200*time.Microsecond, func() { b.s.HandlePermitResults(node, results) })
		}
		b.store.put(0, laneOf(1), due)
		after(4 * time.Second)
		if n := len(b.peers.sent()); n < 10 || n > 200 {
			t.Errorf("%d permits within 2 s in which nothing is due by the shard's clock", n)
		}
	})
}

// An answer that took long shows a clock that is long past. It must not make the
// next job late.
func TestSlowAnswerDoesNotSetTheClockBack(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 9)
		slow := 80 * time.Millisecond
		b.store.set(func() { b.store.trip = func() time.Duration { return slow } })
		b.create(0, laneOf(1), 0, 1)
		after(10 * time.Millisecond)
		b.store.set(func() { slow = 0 })
		b.create(0, laneOf(2), 150*time.Millisecond, 1)
		after(200 * time.Millisecond)
		b.wantServed(2)
		if lag := b.store.records["ns/j1"].lag; lag < 0 || lag > time.Millisecond {
			t.Errorf("lag %v", lag)
		}
	})
}

// Nothing that a shard's clock does compared with this host's makes a job late.
func TestShardClocksDiffer(t *testing.T) {
	run(t, func(b *bed) {
		b.acquire(1)
		b.store.set(func() {
			b.store.clock = func(shard int) unixtime.Micro {
				return unixtime.MicroOf(time.Now().Add(time.Duration(2*shard-1) * time.Hour))
			}
		})
		after(5 * time.Second)
		b.slots.done("q", 9)
		for shard := range 2 {
			now, _ := b.store.Now(t.Context(), shard)
			due := now + 700
			b.s.LanesDueEarlier(shard, b.store.put(shard, laneOf(1), due))
		}
		after(699 * time.Millisecond)
		b.wantCalls(0)
		after(2 * time.Millisecond)
		b.wantServed(2)
	})
}

// An invalid score stalls nothing: its record is due, and so are those behind it.
func TestAScoreBeforeAllStallsNothing(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.set(func() { b.slots.advance = true })
		b.slots.done("q", 2)
		b.store.put(0, laneOf(1), unixtime.MilliOf(time.Now()))
		b.s.LanesDueEarlier(0, b.store.put(0, laneOf(1), math.MinInt64))
		after(2 * time.Second)
		b.wantServed(2)
	})
}
