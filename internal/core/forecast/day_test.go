package forecast

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// planner runs one job by the real planner: each run starts when it is due.
type planner struct {
	t       testing.TB
	c       *job.Compiled
	state   job.State
	fails   bool
	takesMS int64
}

func newPlanner(t testing.TB, d job.Definition) *planner {
	t.Helper()
	c, err := job.Compile(&d)
	if err != nil {
		t.Fatalf("%+v: %v", d.Schedule, err)
	}
	return &planner{t: t, c: c, state: job.New(c, d.AnchorMS).State}
}

// runUpTo runs the job up to a time, and returns the due times.
func (p *planner) runUpTo(endMS unixtime.Milli) (due []unixtime.Milli) {
	for p.state.Region == job.RegionDue && p.state.Due <= endMS {
		at := p.state.Due
		due = append(due, at)
		token := p.state.Token + 1
		outcome := job.OutcomeSucceeded
		if p.fails {
			outcome = job.OutcomeFailed
		}
		p.state = job.Decide(p.c, p.state.Leased(token),
			job.FinishAttempt{Token: token, StartedMS: at, Outcome: outcome}, at+unixtime.Milli(p.takesMS)).State
	}
	return due
}

func definition(queue, id string, spec schedule.Spec, anchor time.Time) job.Definition {
	d := job.Definition{
		Key: job.Key{Namespace: "ns", ID: id}, Queue: queue, Handler: "h", Schedule: spec, Retry: backoff.DefaultRetry(),
		Backoff: backoff.DefaultRecurring(), Timeout: time.Minute, Generation: 1, Revision: 1,
		AnchorMS: unixtime.MilliOf(anchor), CreatedMS: unixtime.MilliOf(anchor),
	}
	d.Retry.MaxAttempts = 1
	return d
}

// kinds are the specs of the simulated day, by queue.
var kinds = map[string]func(r *rand.Rand, at time.Time) schedule.Spec{
	"hourly":       func(*rand.Rand, time.Time) schedule.Spec { return cron("0 * * * *") },
	"nightly":      func(*rand.Rand, time.Time) schedule.Spec { return cron("30 2 * * *") },
	"hashed":       func(*rand.Rand, time.Time) schedule.Spec { return cron("H * * * *") },
	"hashed daily": func(*rand.Rand, time.Time) schedule.Spec { return cron("H H * * *") },
	"union":        func(*rand.Rand, time.Time) schedule.Spec { return cron("*/20 8-18 * * *", "15 * * * *") },
	"both": func(*rand.Rand, time.Time) schedule.Spec {
		s := cron("*/5 2 * * *")
		s.Repeat = schedule.RepeatBoth
		return s
	},
	"seconds": func(*rand.Rand, time.Time) schedule.Spec { s := cron("*/30 * * * * *"); s.Seconds = true; return s },
	"daily": func(r *rand.Rand, _ time.Time) schedule.Spec {
		return schedule.Spec{Kind: schedule.KindCalendar, TimeZone: "Europe/Berlin",
			Calendar: schedule.Calendar{Times: []string{"02:15", "17:00"}}}
	},
	"intervals": func(r *rand.Rand, _ time.Time) schedule.Spec { return every(time.Duration(1+r.IntN(90)) * time.Minute) },
	"odd": func(r *rand.Rand, _ time.Time) schedule.Spec {
		return every(time.Duration(20_000+r.IntN(4_000_000)) * time.Millisecond)
	},
	"short": func(r *rand.Rand, _ time.Time) schedule.Spec {
		return every(time.Duration(10+r.IntN(20)) * time.Second)
	},
	"aligned": func(_ *rand.Rand, at time.Time) schedule.Spec {
		s := every(time.Hour)
		s.StartAt = at.Truncate(24 * time.Hour).Add(30 * time.Second)
		return s
	},
	"excluded": func(r *rand.Rand, _ time.Time) schedule.Spec {
		s := every(time.Duration(5+r.IntN(30)) * time.Minute)
		s.TimeZone, s.Exclude.Windows = "Europe/Berlin", []string{"22:00-06:00"}
		return s
	},
	"jittered": func(*rand.Rand, time.Time) schedule.Spec {
		s := cron("0 * * * *")
		s.Jitter = 40 * time.Minute
		return s
	},
	"ending": func(r *rand.Rand, at time.Time) schedule.Spec {
		s := every(10 * time.Minute)
		s.EndAt = at.Add(12 * time.Hour).Truncate(time.Hour)
		return s
	},
	"counted": func(r *rand.Rand, _ time.Time) schedule.Spec { s := cron("*/10 * * * *"); s.MaxRuns = 100; return s },
	"macro":   func(r *rand.Rand, _ time.Time) schedule.Spec { return cron("@every 7m") },
	"delay": func(r *rand.Rand, _ time.Time) schedule.Spec {
		s := every(9 * time.Minute)
		s.FixedDelay = true
		return s
	},
	"failing": func(r *rand.Rand,
		_ time.Time) schedule.Spec {
		return every(time.Duration(2+r.IntN(8)) * time.Minute)
	},
	"failing cron": func(r *rand.Rand, _ time.Time) schedule.Spec { return cron("*/15 * * * *") },
}

func cron(texts ...string) schedule.Spec {
	return schedule.Spec{Kind: schedule.KindCron, Cron: texts, TimeZone: "Europe/Berlin"}
}

func every(d time.Duration) schedule.Spec {
	return schedule.Spec{Kind: schedule.KindInterval, Every: d}
}

// simulatedDay is a day of the real planner, and the shard that was read at its begin.
type simulatedDay struct {
	readMS         unixtime.Milli
	shard          *Shard
	planned, later map[string][]int64 // runs by minute after the read
}

const dayMinutes = 24 * 60

// jobsOf returns how many jobs a queue has: more if chance has a part in its times.
func jobsOf(queue string, jobs int) int {
	if queue == "failing" || queue == "jittered" || queue == "excluded" {
		return 8 * jobs
	}
	return jobs
}

func simulateDay(t testing.TB, table *Table, begin time.Time, jobs int) *simulatedDay {
	r := rand.New(rand.NewPCG(1, uint64(begin.Unix())))
	day := &simulatedDay{readMS: unixtime.MilliOf(begin), planned: map[string][]int64{}, later: map[string][]int64{}}
	day.shard = table.NewShard(day.readMS)
	due := map[string][]unixtime.Milli{}
	for _, queue := range slices.Sorted(maps.Keys(kinds)) { // r gives the same day each time
		spec := kinds[queue]
		day.planned[queue], day.later[queue] = make([]int64, dayMinutes), make([]int64, dayMinutes)
		for i := range jobsOf(queue, jobs) {
			anchor := begin.Add(-time.Duration(r.Int64N(int64(12*time.Hour))) - time.Hour)
			p := newPlanner(t, definition(queue, fmt.Sprintf("%s-%d", queue, i), spec(r, begin), anchor))
			p.fails = queue == "failing" || queue == "failing cron"
			if queue == "delay" {
				p.takesMS = 70_000
			}
			p.runUpTo(day.readMS)
			day.shard.AddJob(p.c.Definition, &p.state)
			for k, ms := range p.runUpTo(day.readMS + dayMinutes*minuteMS - 1) {
				minute := int64(ms-day.readMS) / minuteMS
				if k == 0 {
					day.planned[queue][minute]++
					due[queue] = append(due[queue], ms)
				} else {
					day.later[queue][minute]++
				}
			}
		}
	}
	day.shard.Due = table.NewDueIndex(day.readMS)
	for queue, ms := range due {
		slices.Sort(ms)
		day.shard.Due.Add(job.QueueKey{Namespace: "ns", Queue: queue}, ms)
	}
	day.shard.Due.Trim()
	return day
}

// compareHours compares runs by hour from a minute on. later need be right within 5 %, or within the runs of one
// twentieth of the jobs.
func (day *simulatedDay) compareHours(t *testing.T, load *Load, queue string, from, jobs int) {
	t.Helper()
	series := load.Queues[job.QueueKey{Namespace: "ns", Queue: queue}]
	if series == nil {
		series = NewSeries(dayMinutes)
	}
	for hour := from / 60; hour < 24; hour++ {
		var want, got [2]int64
		for m := max(from, hour*60); m < hour*60+60; m++ {
			i := m - from
			want[0], want[1] = want[0]+day.planned[queue][m], want[1]+day.later[queue][m]
			got[0], got[1] = got[0]+series.Planned[i], got[1]+series.Computed[i]+series.Estimated[i]
		}
		if got[0] != want[0] {
			t.Errorf("hour %d: %d planned runs, want %d", hour, got[0], want[0])
		}
		diff := got[1] - want[1]
		if max(diff, -diff) > max(want[1]/20, int64(jobs)/20) {
			t.Errorf("hour %d: %d later runs, want %d", hour, got[1], want[1])
		}
	}
}

var days = map[string]string{
	"plain day":  "2026-06-09T22:00:00Z",
	"gap day":    "2026-03-28T23:00:00Z",
	"repeat day": "2026-10-24T22:00:00Z",
	"at noon":    "2026-06-09T12:34:00Z",
}

func TestForecastOfASimulatedDay(t *testing.T) {
	const jobs = 60
	for name, text := range days {
		begin, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		table := NewTable(1)
		day := simulateDay(t, table, begin, jobs)
		for _, age := range []int{0, 50} {
			now := day.readMS + unixtime.Milli(int64(age)*minuteMS)
			load := table.Build(Query{NowMS: now, StartMS: now, ResolutionMS: minuteMS, Buckets: dayMinutes, HerdJobs: 50},
				[]*Shard{day.shard}, nil)
			for queue := range kinds {
				t.Run(fmt.Sprintf("%s/%s/age %d", name, queue, age), func(t *testing.T) {
					day.compareHours(t, load, queue, age, jobsOf(queue, jobs))
				})
			}
		}
	}
}

// Of schedules that are not estimated, each minute is exact.
func TestComputedMinutesAreExact(t *testing.T) {
	for name, text := range days {
		begin, _ := time.Parse(time.RFC3339, text)
		table := NewTable(1)
		day := simulateDay(t, table, begin, 20)
		load := table.Build(Query{NowMS: day.readMS, StartMS: day.readMS, ResolutionMS: minuteMS, Buckets: dayMinutes,
			HerdJobs: 50},
			[]*Shard{day.shard}, nil)
		for _, queue := range []string{"hourly", "nightly", "hashed", "union", "both", "seconds", "daily", "aligned",
			"failing cron", "counted"} {
			series := load.Queues[job.QueueKey{Namespace: "ns", Queue: queue}]
			if series == nil {
				series = NewSeries(dayMinutes)
			}
			for m := range dayMinutes {
				if series.Planned[m] != day.planned[queue][m] || series.Computed[m] != day.later[queue][m] ||
					series.Estimated[m] != 0 {
					t.Errorf("%s, %s, minute %d: %d planned, %d computed, %d estimated, want %d and %d", name, queue, m,
						series.Planned[m], series.Computed[m], series.Estimated[m], day.planned[queue][m], day.later[queue][m])
					break
				}
			}
		}
	}
}
