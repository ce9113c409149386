package forecast

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	// maxSteps bounds the work of one Build: a step is one occurrence of one expression, some 200 ns.
	maxSteps = 2_000_000
	// stepWeight is what an occurrence of a cron expression weighs; that of an interval weighs 1.
	stepWeight = 8
	// skipSearches is how many searches' worth of excluded times one Build may pass over.
	skipSearches = 1000
	// maxQueues is how many queues one Build has series for, and maxBuckets how many buckets these have together, which
	// takes 10 MB. The queues with the fewest runs are counted as others.
	maxQueues, maxBuckets = 1_000, 432_000
)

// Query selects what a forecast has.
type Query struct {
	// NowMS is the time of the query. The first bucket begins at StartMS: a whole minute, at most one bucket before
	// NowMS.
	NowMS, StartMS unixtime.Milli
	// ResolutionMS is the length of a bucket: whole minutes.
	ResolutionMS int64
	Buckets      int
	// Namespace and Queue select queues; "" is all.
	Namespace, Queue string
	// HerdJobs is how many jobs at one time are a herd.
	HerdJobs int64
}

// Matches reports whether the query selects a queue.
func (q *Query) Matches(key job.QueueKey) bool {
	return (q.Namespace == "" || q.Namespace == key.Namespace) && (q.Queue == "" || q.Queue == key.Queue)
}

// Load is a forecast: the runs of queues by bucket.
type Load struct {
	Queues map[job.QueueKey]*Series
	Herds  []Herd
	// Others is how many queues are in neither, because there are too many.
	Others int
}

// Series has numbers of runs by bucket: planned ones, computed ones, and those that are only estimated.
type Series struct {
	Planned, Computed, Estimated []int64
	// LeftOut is how many jobs recur but are not counted beyond their planned run.
	LeftOut int64
}

// NewSeries returns a series of zeros.
func NewSeries(buckets int) *Series {
	all := make([]int64, 3*buckets)
	return &Series{Planned: all[:buckets:buckets], Computed: all[buckets : 2*buckets : 2*buckets],
		Estimated: all[2*buckets:]}
}

// Add adds the runs of another series, as far as this one reaches.
func (s *Series) Add(o *Series) {
	s.LeftOut += o.LeftOut
	for _, pair := range [...][2][]int64{{s.Planned, o.Planned}, {s.Computed, o.Computed}, {s.Estimated, o.Estimated}} {
		for i := range min(len(pair[0]), len(pair[1])) {
			pair[0][i] += pair[1][i]
		}
	}
}

// Total returns the number of runs.
func (s *Series) Total() (n int64) {
	for _, list := range [...][]int64{s.Planned, s.Computed, s.Estimated} {
		for _, k := range list {
			n += k
		}
	}
	return n
}

// queueParts is what the shards have of a queue.
type queueParts struct {
	key    job.QueueKey
	jobs   uint64 // recurring ones, and planned runs
	groups map[readGroup]group
	ids    map[readGroup][]string // some of the jobs of each group
	due    []queueDue
	rows   []queueRow
	left   int64 // jobs that are counted nowhere
}

// queueDue are planned runs, and when they were read.
type queueDue struct {
	*dueRow
	readMS int64
}

// queueRow are runs in cells of ten minutes, from a time on.
type queueRow struct {
	cells   *[rowCells]uint32
	beginMS int64
}

// readGroup is the group of a pattern in the shards whose due index was read at one time.
type readGroup struct {
	pattern uint32
	dueMS   int64
}

// builder builds one load.
type builder struct {
	table   *Table
	q       Query
	stopped func() bool
	budget  *schedule.Budget
	steps   int64
	scratch *Series // of minutes
	list    []occurrence
	herds   herdSums
	load    *Load
}

// Build adds up shards. Each has a due index. It ends early, with a load that lacks runs, once stopped returns true;
// nil: it never does.
func (t *Table) Build(q Query, shards []*Shard, stopped func() bool) *Load {
	minutes := int64(q.Buckets) * q.ResolutionMS / minuteMS
	b := &builder{
		table: t, q: q, stopped: stopped, budget: schedule.NewBudget(skipSearches), scratch: NewSeries(int(minutes)),
		load: &Load{Queues: map[job.QueueKey]*Series{}},
	}
	queues := b.partition(shards)
	most := min(len(queues), maxQueues, maxBuckets/max(1, q.Buckets))
	for _, parts := range queues[:most] {
		if b.isStopped() {
			break
		}
		b.addQueue(parts)
	}
	b.load.Others = len(queues) - most
	return b.load
}

func (b *builder) isStopped() bool { return b.stopped != nil && b.stopped() }

// partition returns the parts of the queues that are wanted, those with the most jobs first: if there is too much to
// compute, queues with few jobs are left out.
func (b *builder) partition(shards []*Shard) []*queueParts {
	queues := map[uint32]*queueParts{}
	part := func(queue uint32) *queueParts {
		p := queues[queue]
		if p == nil && b.q.Matches(b.table.names[queue]) {
			p = &queueParts{key: b.table.names[queue], groups: map[readGroup]group{}, ids: map[readGroup][]string{}}
			queues[queue] = p
		}
		return p
	}
	for _, s := range shards {
		for key, g := range s.groups {
			if p := part(key.queue); p != nil {
				read := readGroup{key.pattern, int64(s.Due.ReadMS)}
				p.groups[read] = p.groups[read].add(g)
				p.jobs += uint64(g.jobs)
				if room := SampledJobs - len(p.ids[read]); room > 0 {
					ids := s.samples[key]
					p.ids[read] = append(p.ids[read], ids[:min(room, len(ids))]...)
				}
			}
		}
		for queue, row := range s.rows {
			if p := part(queue); p != nil {
				p.rows = append(p.rows, queueRow{row, int64(s.DefinitionsMS)})
			}
		}
		for queue, jobs := range s.leftOut {
			if p := part(queue); p != nil {
				p.left += jobs
			}
		}
		for i := range s.Due.rows {
			if p := part(s.Due.rows[i].queue); p != nil {
				p.due = append(p.due, queueDue{&s.Due.rows[i], int64(s.Due.ReadMS)})
				for _, n := range s.Due.rows[i].counts {
					p.jobs += uint64(n)
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(queues), func(a, o *queueParts) int {
		return cmp.Or(cmp.Compare(o.jobs, a.jobs), cmp.Compare(a.key.Namespace, o.key.Namespace),
			cmp.Compare(a.key.Queue, o.key.Queue))
	})
}

// addQueue adds one queue to the load.
func (b *builder) addQueue(parts *queueParts) {
	clear(b.scratch.Planned)
	clear(b.scratch.Computed)
	clear(b.scratch.Estimated)
	b.scratch.LeftOut = parts.left
	b.herds.reset(b.q.HerdJobs)
	for _, due := range parts.due {
		b.addPlanned(due)
	}
	for _, row := range parts.rows {
		b.addRow(row)
	}
	for read, g := range parts.groups {
		b.addGroup(parts, read, g)
	}
	b.load.Herds = append(b.load.Herds, b.herds.find(parts.key, b.q, b.scratch)...)
	if series := b.downsample(); series.Total()+series.LeftOut > 0 {
		b.load.Queues[parts.key] = series
	}
}

// downsample returns the minutes of the scratch in buckets.
func (b *builder) downsample() *Series {
	out, per := NewSeries(b.q.Buckets), int(b.q.ResolutionMS/minuteMS)
	out.LeftOut = b.scratch.LeftOut
	for i := range b.scratch.Planned {
		out.Planned[i/per] += b.scratch.Planned[i]
		out.Computed[i/per] += b.scratch.Computed[i]
		out.Estimated[i/per] += b.scratch.Estimated[i]
	}
	return out
}

// addPlanned adds planned runs. What was overdue when the index was read is due now; what became due
// since then has run.
func (b *builder) addPlanned(due queueDue) {
	base, now := due.readMS/minuteMS, b.q.NowMS/minuteMS
	for i, minute := range due.minutes {
		at := base + int64(minute) - 1
		if minute == 0 {
			at = int64(now)
		}
		b.addTo(b.scratch.Planned, at*minuteMS, int64(due.counts[i]))
	}
}

// addTo adds runs at a time to a series of minutes, if it reaches from now to there.
func (b *builder) addTo(series []int64, ms, n int64) {
	i := (ms - int64(b.q.StartMS)) / minuteMS
	if ms/minuteMS >= int64(b.q.NowMS)/minuteMS && i < int64(len(series)) {
		series[i] += n
	}
}

// addRow adds what is counted in cells of ten minutes, spread evenly.
func (b *builder) addRow(row queueRow) {
	for cell, n := range row.cells {
		if n > 0 {
			b.spread(b.scratch.Estimated, row.beginMS+int64(cell)*rowCellMS, int64(n), rowCellMS)
		}
	}
}

// spread adds runs that are due evenly within a window.
func (b *builder) spread(series []int64, ms, n, window int64) {
	if window == 0 {
		b.addTo(series, ms, n)
		return
	}
	done := int64(0)
	for at := ms; at < ms+window; {
		next := min(ms+window, (at/minuteMS+1)*minuteMS)
		upto := (n*(next-ms) + window/2) / window
		b.addTo(series, at, upto-done)
		done, at = upto, next
	}
}

// addGroup adds the later occurrences of a group, counted from the read of its due index.
func (b *builder) addGroup(parts *queueParts, read readGroup, g group) {
	p := b.table.patterns[read.pattern]
	if b.steps >= maxSteps*stepWeight || b.budget.Exhausted() || b.isStopped() {
		b.scratch.LeftOut += int64(g.jobs)
		return
	}
	end := int64(b.q.StartMS) + int64(b.q.Buckets)*b.q.ResolutionMS - 1
	b.list = p.collect(b.list[:0], read.dueMS, end, g.offset(), b.budget)
	b.steps += int64(len(b.list)+1) * p.weight
	series := b.scratch.Computed
	if p.estimated {
		series = b.scratch.Estimated
	}
	early, phases := g.offset()-int64(g.low), int64(g.high-g.low)
	p.later(g, b.list, read.dueMS, func(ms, n, window int64) {
		b.spread(series, ms-early, n, window+phases)
	})
	if p.jitter == 0 && g.low == g.high {
		b.herds.add(p, g, b.list, int64(b.q.NowMS), parts.ids[read])
	}
}
