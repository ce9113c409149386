package historycheck

import (
	"cmp"
	"slices"
)

// Shared is a set of jobs. At most Limit of their runs may be live at once, because each holds a unit of one
// lock.
type Shared struct {
	Lock  string
	Jobs  []string
	Limit int
}

// checkShared looks for more live runs than the lock has units. A handler that a fault may have delayed until
// its lease had ended is left out: it is asked to stop, and whether it held its unit when it began cannot be
// seen from outside.
func (h *History) checkShared(s Shared, jobs map[string]*timeline, r *Report) {
	var all []*execution
	for _, id := range s.Jobs {
		if line := jobs[id]; line != nil {
			all = append(all, line.executions...)
		}
	}
	slices.SortStableFunc(all, func(a, b *execution) int { return cmp.Compare(a.AtNS, b.AtNS) })
	var live []*execution
	for _, e := range all {
		if slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.affectsWorker(e.Worker, e.AtNS, e.AtNS) }) {
			continue
		}
		live = slices.DeleteFunc(live, func(o *execution) bool { return h.liveUntil(o) <= e.AtNS })
		live = append(live, e)
		if len(live) > s.Limit {
			o := live[0]
			r.addFinding(Overlap, e.Job, "%s started on %s at %s with lock %s, of which %d are held, one by %s of "+
				"%s since %s",
				e.Run, e.Worker, formatClock(e.AtNS), s.Lock, len(live)-1, o.Run, o.Job, formatClock(o.AtNS))
		}
		r.Held++
	}
}
