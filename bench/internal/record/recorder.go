package record

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/bench/internal/stats"
)

// Recorder counts executions. Its cost in a handler is a reading of the clock and
// a few atomic writes.
type Recorder struct {
	classes  []class
	every    time.Duration // of the jobs of class 0, if they recur
	periods  int           // runs of each that are recorded
	executed atomic.Int64
	strange  atomic.Int64 // payloads that are none of this measurement
}

// class has an entry for each job.
type class []entry

// entry is of what was seen first. It is in one place, as jobs come in any order and what
// is fetched from memory for them counts as the handler's.
type entry struct {
	start int64 // handler entry, Unix nanoseconds
	due   int64
	runs  atomic.Int32
}

// New makes a recorder for as many jobs of each class.
func New(jobs ...int) *Recorder {
	r := &Recorder{classes: make([]class, len(jobs))}
	for c, n := range jobs {
		r.classes[c] = make(class, n)
	}
	return r
}

// NewRecurring makes a recorder for recurring jobs of class 0 with an interval. It records so many runs of each from
// the first due time, which is that in the payload; later runs are left out.
func NewRecurring(jobs int, every time.Duration, periods int) *Recorder {
	r := New(jobs * periods)
	r.every, r.periods = every, periods
	return r
}

// Start records that a handler has started now, and returns how often it has started for this job. The due time is
// that in the payload; without one it is scheduled, the due time according to the scheduler.
func (r *Recorder) Start(payload []byte, scheduled time.Time) int {
	now := time.Now()
	c, i, due, err := parse(payload)
	if err == nil && r.periods > 0 {
		// The exact due time is that of the payload: the scheduler's is rounded.
		period := int((scheduled.Sub(due) + r.every/2) / r.every)
		if period >= r.periods {
			return 0
		}
		i, due = i*r.periods+period, due.Add(time.Duration(period)*r.every)
	}
	if err != nil || int(c) >= len(r.classes) || i < 0 || i >= len(r.classes[c]) {
		r.strange.Add(1)
		return 0
	}
	if due.IsZero() {
		due = scheduled
	}
	e := &r.classes[c][i]
	n := e.runs.Add(1)
	if n == 1 {
		e.start, e.due = now.UnixNano(), due.UnixNano()
	}
	r.executed.Add(1)
	return int(n)
}

// Executed is how often handlers were entered.
func (r *Recorder) Executed() int { return int(r.executed.Load()) }

// Report is what became of the jobs of one class.
type Report struct {
	Jobs       int
	Executions int
	Missing    int // never ran
	Wrong      int // did not run as often as expected, the missing ones included
	Early      int // started before they were due
	LagMS      stats.Quantiles
	FirstStart time.Time
	LastStart  time.Time
	// Disorder is how far a job started behind one of its group that was due later,
	// in milliseconds between their due times.
	DisorderMS stats.Quantiles
}

// Reports sums up each class, whose jobs should have run so often. The jobs of a
// group should start in the order of their due times; nil means no groups.
func (r *Recorder) Reports(expect int, group func(id string) int) ([]Report, error) {
	if n := r.strange.Load(); n > 0 {
		return nil, fmt.Errorf("%d executions of jobs that are none of this measurement", n)
	}
	out := make([]Report, len(r.classes))
	for c := range r.classes {
		out[c] = r.classes[c].report(expect)
		if group != nil {
			out[c].DisorderMS = r.classes[c].disorder(func(i int) int { return group(ID(Class(c), i)) })
		}
	}
	return out, nil
}

func (k class) report(expect int) Report {
	p := Report{Jobs: len(k)}
	var lags []float64
	first, last := int64(0), int64(0)
	for i := range k {
		e := &k[i]
		n := int(e.runs.Load())
		p.Executions += n
		if n != expect {
			p.Wrong++
		}
		if n == 0 {
			p.Missing++
			continue
		}
		if first == 0 || e.start < first {
			first = e.start
		}
		last = max(last, e.start)
		lag := e.start - e.due
		if lag < 0 {
			p.Early++
		}
		lags = append(lags, float64(lag)/1e6)
	}
	p.LagMS = stats.Of(lags)
	p.FirstStart, p.LastStart = time.Unix(0, first), time.Unix(0, last)
	return p
}

// disorder compares each start with the latest due time that the group had begun
// before it.
func (k class) disorder(group func(int) int) stats.Quantiles {
	order := make([]int, 0, len(k))
	for i := range k {
		if k[i].runs.Load() > 0 {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return int(k[a].start - k[b].start) })
	newest := map[int]int64{}
	var behind []float64
	for _, i := range order {
		g := group(i)
		newest[g] = max(newest[g], k[i].due)
		behind = append(behind, float64(newest[g]-k[i].due)/1e6)
	}
	return stats.Of(behind)
}
