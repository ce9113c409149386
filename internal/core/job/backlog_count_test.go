package job

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// backlogs are schedules whose backlogs are counted time by time.
func backlogs() []schedule.Spec {
	cron := func(seconds bool, expressions []string, excluded ...string) schedule.Spec {
		return schedule.Spec{Kind: schedule.KindCron, Seconds: seconds, TimeZone: "Europe/Berlin", Cron: expressions,
			Exclude: schedule.Exclusions{Cron: excluded}}
	}
	return []schedule.Spec{
		cron(false, []string{"* * * * *", "*/7 3 1 * *"}),
		cron(true, []string{"*/5 * * * * *", "3 * * * * *"}),
		cron(false, []string{"* * * * *"}, "*/3 1-23 * * *", "1-50 4 * * *"),
		cron(false, []string{"* * * * *"}, "1-59 * * * *", "0 1-23/2 * * *"),
		cron(false, []string{"*/2 * * * *"}, "2-56/4 * * * *"),
		{Kind: schedule.KindInterval, Every: 61 * time.Second, Exclude: schedule.Exclusions{Windows: []string{"10:00-11:00", "12:00-12:05"}}},
	}
}

// TestARememberedCountChangesNothing compares a backlog that is counted run by run with one that is counted anew each
// time, also where exclusions end the count.
func TestARememberedCountChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := def()
		d.Schedule = rapid.SampledFrom(backlogs()).Draw(t, "schedule")
		compiled := func() *Compiled {
			c, err := Compile(&d)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		c, fresh := compiled().Remembering(), compiled()
		n := rapid.SampledFrom([]int64{1, 120, 400, 1000}).Draw(t, "n")
		upTo := t0 + unixtime.Milli(rapid.Int64Range(0, 400*24*3600*1000).Draw(t, "up to"))
		hours := rapid.SampledFrom([]int{1, 2, 6, 20, 70, 500, 2000}).Draw(t, "hours")
		floor, _ := c.nominalUpTo(upTo.Add(-time.Duration(hours) * time.Hour))
		for range 12 {
			got, want := c.nthLatestNominal(upTo, n, floor), fresh.nthLatestNominal(upTo, n, floor)
			if got != want {
				t.Fatalf("up to %d, %d times from %d on: %d, want %d", upTo, n, floor, got, want)
			}
			if rapid.Bool().Draw(t, "run") {
				floor, _ = c.nominalAfter(got)
			}
			upTo += unixtime.Milli(rapid.SampledFrom([]int64{0, 500, 7_000, 180_000, 3_600_000, -30_000}).Draw(t, "later"))
			n += rapid.SampledFrom([]int64{0, 0, 0, -1, 3}).Draw(t, "more")
			n = max(n, 1)
			if floor > upTo {
				break
			}
		}
	})
}

// TestABacklogIsCountedOnce checks that the runs of a backlog that is longer than its limit, or than exclusions let it be
// counted, use what the first one has counted.
func TestABacklogIsCountedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		spec schedule.Spec
		days int
		step time.Duration
	}{
		"limit":      {backlogs()[2], 2, 2 * time.Minute},
		"exclusions": {backlogs()[3], 400, 2 * time.Hour},
	} {
		d := def()
		d.Schedule = test.spec
		c := compile(t, d).Remembering()
		const limit = 1000
		upTo := t0.Add(time.Duration(test.days) * 24 * time.Hour)
		floor, _ := c.nominalAfter(t0)
		for run := range 200 {
			if before := *c.backlog; run > 0 {
				b, newer := schedule.NewBudget(1), int64(0)
				for at, _ := c.Within(b).nominalUpTo(upTo); at > before.last; newer++ {
					at, _ = c.Within(b).nominalUpTo(at - 1)
				}
				if _, ok := c.cutBacklog(before, floor, limit-newer, b); !ok {
					t.Fatalf("%s: run %d counts anew", name, run)
				}
			}
			floor = c.nthLatestNominal(upTo, limit, floor)
			if now := c.backlog; now.n < limit/2 || now.first != floor {
				t.Fatalf("%s: run %d remembers %+v, and begins at %d", name, run, now, floor)
			}
			floor, _ = c.nominalAfter(floor)
			upTo = upTo.Add(test.step)
		}
	}
}

// BenchmarkBacklogBeyondLimit runs what is left of a backlog that grows faster than it is worked off, with as many
// expressions as a schedule may have.
func BenchmarkBacklogBeyondLimit(b *testing.B) {
	d := def()
	never := "* * * " + strings.Repeat("31W,", 57) + "31W * *"
	d.Schedule = schedule.Spec{Kind: schedule.KindCron, Seconds: true, TimeZone: "America/New_York",
		Cron:    slices.Repeat([]string{"*/5 * * 1-31" + strings.Repeat(",15W", 50) + " * *"}, 16),
		Exclude: schedule.Exclusions{Cron: slices.Repeat([]string{never}, 16)}}
	d.Misfire = Misfire{Policy: MisfireRunAll, MaxCatchUp: 10_000}
	w := walk(b, d)
	w.c = w.c.Remembering()
	w.now += unixtime.Milli(15 * time.Hour.Milliseconds())
	for b.Loop() {
		w.lease().after(10 * time.Second).succeed()
	}
}
