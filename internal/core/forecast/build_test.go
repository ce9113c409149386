package forecast

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

var noon = time.Date(2026, 6, 10, 12, 0, 30, 0, time.UTC)

// bed has jobs that were created a while before noon, in shards.
type bed struct {
	t      testing.TB
	table  *Table
	shards []*Shard
	due    []map[job.QueueKey][]unixtime.Milli
	apart  time.Duration // between the reads of due indexes
	n      int
}

func newBed(t testing.TB, shards int) *bed {
	b := &bed{t: t, table: NewTable(shards)}
	for range shards {
		s := b.table.NewShard(unixtime.MilliOf(noon))
		b.shards, b.due = append(b.shards, s), append(b.due, map[job.QueueKey][]unixtime.Milli{})
	}
	return b
}

// add adds jobs, in turn to the shards.
func (b *bed) add(queue string, jobs int, spec schedule.Spec, change func(*job.State)) {
	for range jobs {
		b.n++
		d := definition(queue, fmt.Sprintf("job-%06d", b.n), spec, noon.Add(-time.Duration(b.n%3600)*time.Second))
		p := newPlanner(b.t, d)
		p.runUpTo(unixtime.MilliOf(noon))
		if change != nil {
			change(&p.state)
		}
		k := b.n % len(b.shards)
		b.shards[k].AddJob(&d, &p.state)
		if p.state.Region == job.RegionDue && !p.state.Paused {
			key := job.QueueKey{Namespace: "ns", Queue: queue}
			b.due[k][key] = append(b.due[k][key], p.state.Due)
		}
	}
}

func (b *bed) build(change func(*Query)) *Load {
	for k, s := range b.shards {
		s.Due = b.table.NewDueIndex(unixtime.MilliOf(noon.Add(time.Duration(k) * b.apart)))
		for key, due := range b.due[k] {
			slices.Sort(due)
			s.Due.Add(key, due)
		}
		s.Due.Trim()
	}
	q := Query{NowMS: unixtime.MilliOf(noon), StartMS: unixtime.MilliOf(noon.Truncate(time.Minute)),
		ResolutionMS: time.Hour.Milliseconds(), Buckets: 24, HerdJobs: 100}
	if change != nil {
		change(&q)
	}
	return b.table.Build(q, b.shards, nil)
}

func total(load *Load) (planned, computed, estimated int64) {
	for _, s := range load.Queues {
		for i := range s.Planned {
			planned, computed, estimated = planned+s.Planned[i], computed+s.Computed[i], estimated+s.Estimated[i]
		}
	}
	return planned, computed, estimated
}

func leftOut(load *Load) (n int64) {
	for _, s := range load.Queues {
		n += s.LeftOut
	}
	return n
}

func TestShardsAddUp(t *testing.T) {
	b := newBed(t, 4)
	b.add("a", 1000, cron("0 * * * *"), nil)
	b.add("b", 10, every(10*time.Minute), nil)
	load := b.build(nil)
	planned, computed, estimated := total(load)
	if planned != 1010 || computed != 1000*22+10*143 || estimated != 0 {
		t.Errorf("%d planned, %d computed, %d estimated", planned, computed, estimated)
	}
	load = b.build(func(q *Query) { q.Queue = "b" })
	if len(load.Queues) != 1 || load.Queues[job.QueueKey{Namespace: "ns", Queue: "b"}] == nil {
		t.Errorf("queues %v", load.Queues)
	}
	load = b.build(func(q *Query) { q.Namespace = "other" })
	if len(load.Queues) != 0 || len(load.Herds) != 0 {
		t.Errorf("another namespace has %v, %v", load.Queues, load.Herds)
	}
}

func TestHerdOfASchedule(t *testing.T) {
	b := newBed(t, 4)
	b.add("q", 6200, cron("0 2 * * *"), nil)
	b.add("q", 300, cron("0 2 * * MON-FRI"), nil)
	b.add("q", 50, cron("0 2 * * SUN,WED,THU", "30 14 * * *"), nil)
	b.add("q", 3000, cron("H 2 * * *"), nil)
	b.add("other", 99, cron("0 2 * * *"), nil)
	herds := b.build(nil).Herds
	if len(herds) != 1 {
		t.Fatalf("%d herds: %+v", len(herds), herds)
	}
	h := herds[0]
	at := time.Date(2026, 6, 11, 0, 0, 0, 0, time.UTC)
	if h.TimeMS != unixtime.MilliOf(at) || h.Times != 1 || h.WholeMinute || h.Schedule != "0 2 * * *" ||
		len(h.IDs) != SampledJobs || h.Fix == "" {
		t.Errorf("%+v", h)
	}
	// 3,000 jobs spread their minutes by H; those that have 0 are spread already.
	if h.Jobs < 6550 || h.Jobs > 6550+200 || h.Movable != 6550 {
		t.Errorf("%d jobs, %d movable", h.Jobs, h.Movable)
	}
}

// TestHerdNamesEachJobOnce, although the due indexes of its shards were read at different times.
func TestHerdNamesEachJobOnce(t *testing.T) {
	b := newBed(t, 4)
	b.apart = 10 * time.Millisecond
	b.add("q", 12, cron("30 * * * *"), nil)
	herds := b.build(func(q *Query) { q.HerdJobs = 2 }).Herds
	if len(herds) != 1 || herds[0].Jobs != 12 || len(herds[0].IDs) != 12 ||
		len(slices.Compact(slices.Clone(herds[0].IDs))) != 12 {
		t.Errorf("%+v", herds)
	}
}

func TestHerdsThatRepeatAreOne(t *testing.T) {
	b := newBed(t, 2)
	b.add("q", 500, cron("*/15 * * * *"), nil)
	b.add("q", 200, cron("0 * * * *"), nil)
	herds := b.build(nil).Herds
	if len(herds) != 2 || herds[0].Jobs != 700 || herds[0].Times != 23 || herds[1].Jobs != 500 || herds[1].Times != 72 {
		t.Errorf("%+v", herds)
	}
}

func TestHerdOfJobsThatRunOnce(t *testing.T) {
	b := newBed(t, 2)
	once := schedule.Spec{Kind: schedule.KindOnce, At: time.Date(2026, 6, 10, 18, 0, 0, 0, time.UTC)}
	b.add("q", 400, once, nil)
	b.add("q", 600, every(time.Hour), nil)
	herds := b.build(nil).Herds
	if len(herds) != 1 || !herds[0].WholeMinute || herds[0].Jobs < 400 || herds[0].Movable != 0 ||
		herds[0].TimeMS != unixtime.MilliOf(once.At) {
		t.Errorf("%+v", herds)
	}
}

func TestNoHerds(t *testing.T) {
	b := newBed(t, 2)
	jittered := cron("0 * * * *")
	jittered.Jitter = 30 * time.Minute
	b.add("jittered", 1000, jittered, nil)
	b.add("spread", 6000, every(time.Hour), nil)
	b.add("hashed", 3000, cron("H * * * *"), nil)
	b.add("few", 99, cron("0 * * * *"), nil)
	if herds := b.build(nil).Herds; len(herds) != 0 {
		t.Errorf("%+v", herds)
	}
}

func TestJobsThatDoNotRun(t *testing.T) {
	b := newBed(t, 1)
	b.add("paused", 10, cron("0 * * * *"), func(s *job.State) { s.Region, s.Paused = job.RegionPaused, true })
	b.add("deleting", 10, cron("0 * * * *"), func(s *job.State) { s.Region, s.Deleting = job.RegionLeased, true })
	b.add("done", 10, cron("0 * * * *"), func(s *job.State) { s.Region = job.RegionDone })
	b.add("yearly", 10, cron("0 0 1 1 *"), nil)
	b.add("rare", 10, every(30*24*time.Hour), nil)
	load := b.build(nil)
	if _, computed, estimated := total(load); computed != 0 || estimated != 0 || leftOut(load) != 0 {
		t.Errorf("%d computed, %d estimated, %d left out", computed, estimated, leftOut(load))
	}
}

// The run that follows a live run, a retry or a hint is not planned yet.
func TestRunsThatFollowOthers(t *testing.T) {
	in := func(d time.Duration) unixtime.Milli { return unixtime.MilliOf(noon.Add(d)) }
	cases := map[string]struct {
		change        func(*job.State)
		planned, runs int64
	}{
		"planned": {nil, 1, 23},
		"live":    {func(s *job.State) { s.Region, s.Token = job.RegionLeased, 1 }, 0, 23},
		"retry":   {func(s *job.State) { s.Source, s.Attempt, s.Due = job.DelayRetry, 1, in(time.Minute) }, 1, 24},
		"hint":    {func(s *job.State) { s.Source, s.Due = job.DelayHint, in(6*time.Hour) }, 1, 18},
		"manual":  {func(s *job.State) { s.Source, s.Trigger, s.Due = job.DelayManual, job.TriggerManual, in(0) }, 1, 24},
		"overdue": {func(s *job.State) { s.Source, s.Due = job.DelayCatchUp, in(-time.Hour) }, 1, 24},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, 1)
			b.add("q", 1, cron("0 * * * *"), c.change)
			planned, computed, _ := total(b.build(nil))
			if planned != c.planned || planned+computed != c.runs {
				t.Errorf("%d planned, %d computed, want %d of %d", planned, computed, c.planned, c.runs)
			}
		})
	}
}

// Jobs beyond the bounds of a table are estimated.
func TestManyPatterns(t *testing.T) {
	b := newBed(t, 2)
	b.table.maxPatterns, b.table.maxGroups = 50, 40
	for i := range 1440 {
		b.add("q", 1, cron(fmt.Sprintf("%d %d * * *", i%60, i/60)), nil)
	}
	b.add("hourly", 100, cron("0 * * * *"), nil)
	load := b.build(nil)
	planned, computed, estimated := total(load)
	if planned != 1539 || leftOut(load) != 0 {
		t.Errorf("%d planned, %d left out", planned, leftOut(load))
	}
	if runs := computed + estimated; runs < 2200*95/100 || runs > 2200*105/100 {
		t.Errorf("%d computed and %d estimated", computed, estimated)
	}
	b = newBed(t, 2)
	b.table.maxGroups, b.table.maxQueues = 0, 0
	b.add("q", 7, cron("0 * * * *"), nil)
	b.add("other", 1, every(30*24*time.Hour), nil)
	if load := b.build(func(q *Query) { q.Queue = "q" }); leftOut(load) != 7 {
		t.Errorf("%d of 7 left out", leftOut(load))
	}
	if load := b.build(func(q *Query) { q.Queue = "other" }); leftOut(load) != 0 {
		t.Errorf("%d left out of another queue", leftOut(load))
	}
}

func TestSweepForgetsWhatIsNotUsed(t *testing.T) {
	b := newBed(t, 1)
	b.add("old", 10, cron("0 1 * * *"), nil)
	before := b.shards[0]
	b.shards[0] = b.table.NewShard(unixtime.MilliOf(noon))
	clear(b.due[0])
	b.add("new", 10, cron("0 3 * * *"), nil)
	b.table.Sweep(b.shards)
	if len(b.table.index) != 1 || len(b.table.queues) != 1 || len(b.table.free) != 1 || len(before.groups) != 1 {
		t.Errorf("%d patterns, %d queues", len(b.table.index), len(b.table.queues))
	}
	b.add("third", 10, cron("0 4 * * *"), nil)
	if len(b.table.patterns) != 2 || len(b.table.names) != 2 {
		t.Errorf("numbers are not used again: %d, %d", len(b.table.patterns), len(b.table.names))
	}
	if _, computed, _ := total(b.build(nil)); computed != 0 {
		t.Errorf("%d later runs of daily jobs", computed)
	}
}

func TestHerdsOfNodesAddUp(t *testing.T) {
	q := job.QueueKey{Namespace: "ns", Queue: "q"}
	a := Herd{Queue: q, TimeMS: 60_000, Jobs: 60, Movable: 60, Times: 2, Schedule: "a", IDs: []string{"x"}, Fix: "f"}
	o := Herd{Queue: q, TimeMS: 60_000, Jobs: 70, Movable: 1, Times: 3, Schedule: "o", IDs: []string{"y"}}
	small := Herd{Queue: q, TimeMS: 120_000, Jobs: 99, Times: 1}
	got := MergeHerds([]Herd{a, small, o}, 100)
	if len(got) != 1 || got[0].Jobs != 130 || got[0].Movable != 61 || got[0].Times != 3 || got[0].Schedule != "o" ||
		len(got[0].IDs) != 2 || got[0].Fix != "f" {
		t.Errorf("%+v", got)
	}
}
