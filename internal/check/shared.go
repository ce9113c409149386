package check

import (
	"cmp"
	"slices"
)

// Shared is a set of jobs of which no more than Limit may run at once, because each
// of their runs holds a unit of one lock.
type Shared struct {
	Lock  string
	Jobs  []string
	Limit int
}

// shared looks for more live runs than the lock has units. A handler that a fault
// may have held back until its lease had ended is left out: it is told to stop, and
// nobody can say from outside whether it held its unit when it began.
func (h *History) shared(s Shared, jobs map[string]*timeline, r *Report) {
	var all []*execution
	for _, id := range s.Jobs {
		if line := jobs[id]; line != nil {
			all = append(all, line.executions...)
		}
	}
	slices.SortStableFunc(all, func(a, b *execution) int { return cmp.Compare(a.AtNS, b.AtNS) })
	var live []*execution
	for _, e := range all {
		if slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.touches(e.Worker, e.AtNS, e.AtNS) }) {
			continue
		}
		live = slices.DeleteFunc(live, func(o *execution) bool { return h.liveUntil(o) <= e.AtNS })
		if live = append(live, e); len(live) > s.Limit {
			o := live[0]
			r.find(Overlap, e.Job, "%s started on %s at %s with lock %s, of which %d are held, one by %s of %s since %s", e.Run, e.Worker,
				clock(e.AtNS), s.Lock, len(live)-1, o.Run, o.Job, clock(o.AtNS))
		}
		r.Held++
	}
}
