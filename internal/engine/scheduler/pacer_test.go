package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func TestPacer(t *testing.T) {
	now := time.Unix(1000, 0)
	// rate makes calls at a rate for a while and returns the gap that results.
	rate := func(p *pacer, perSecond, slots int) time.Duration {
		for range perSecond / 5 {
			now = now.Add(time.Second / time.Duration(perSecond))
			p.noteCall(now, slots)
		}
		return p.minGap
	}
	for _, c := range []struct {
		name        string
		rates       []int
		slots       int
		want        time.Duration
		readyAtOnce bool
	}{
		{"rare", []int{100}, 1, 0, true},
		{"some", []int{900}, 1, 0, true},
		{"many", []int{2000}, 1, time.Millisecond, false},
		{"very many", []int{5000}, 1, 3 * time.Millisecond, false},
		{"many, slowed down by the gap", []int{5000, 333}, 1, 3 * time.Millisecond, false},
		{"rare again", []int{5000, 200}, 1, 0, true},
		{"many full ones", []int{5000}, fullCallSlots, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &pacer{windowStart: now}
			var gap time.Duration
			for _, r := range c.rates {
				gap = rate(p, r, c.slots)
			}
			if gap != c.want || !p.nextCallAt().After(now) != c.readyAtOnce {
				t.Errorf("gap %v, ready at once %v", gap, !p.nextCallAt().After(now))
			}
		})
	}
}

// At 10,000 jobs a second over 64 shards calls wait for company, and jobs do not
// wait for long.
func TestManyLoneJobsAreCoalesced(t *testing.T) {
	run(t, func(b *bed) {
		for shard := 1; shard < 64; shard++ {
			b.acquire(shard)
		}
		after(10 * time.Millisecond)
		b.trips(300 * time.Microsecond)
		// Milliseconds begin at another moment in each shard.
		b.store.set(func() {
			b.store.clock = func(shard int) unixtime.Micro { return unixtime.Micro(time.Now().UnixMicro() + 157*int64(shard)) }
		})
		b.slots.done("q", 20000)
		const jobs = 10000
		for i := range jobs {
			b.create(i%64, laneOf(4), 100*time.Millisecond+time.Duration(i)*time.Second/jobs, 1)
		}
		after(1200 * time.Millisecond)
		b.wantServed(jobs)
		var lags []time.Duration
		for _, r := range b.store.records {
			lags = append(lags, r.lag)
		}
		slices.Sort(lags)
		if p99 := lags[jobs*99/100]; p99 > 10*time.Millisecond {
			t.Errorf("p99 of the lag is %v", p99)
		}
		if calls := len(b.store.leasing()); calls > 1100 {
			t.Errorf("%d pipelines", calls)
		}
		t.Logf("lag p50 %v, p99 %v, max %v; %d pipelines", lags[jobs/2], lags[jobs*99/100], lags[jobs-1], len(b.store.leasing()))
	})
}
