package historycheck

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// execution is one handler call: a start with what followed.
type execution struct {
	Event         // its start
	end     int64 // 0 when it did not end
	told    int64 // 0 when its context was not cancelled
	outcome string
}

// endNS is when the execution was over, at the latest.
func (e *execution) endNS() int64 {
	if e.end == 0 {
		return math.MaxInt64
	}
	return e.end
}

// timeline has the executions of one job.
type timeline struct {
	job        string
	executions []*execution // by start
	runs       map[string][]*execution
}

type handlerKey struct {
	worker, job string
	token       int64
}

// buildTimelines pairs events. A token that starts twice is a finding and keeps its
// first start.
func buildTimelines(events []Event, r *Report) map[string]*timeline {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.AtNS, b.AtNS) })
	jobs := map[string]*timeline{}
	open := map[handlerKey]*execution{}
	for _, e := range events {
		h := handlerKey{e.Worker, e.Job, e.Token}
		x := open[h]
		switch {
		case e.Kind == Start && x != nil:
			r.addFinding(TokenOrder, e.Job, "token %d of %s started twice on %s", e.Token, e.Run, e.Worker)
		case e.Kind == Start:
			x = &execution{Event: e}
			open[h] = x
			line := jobs[e.Job]
			if line == nil {
				line = &timeline{job: e.Job, runs: map[string][]*execution{}}
				jobs[e.Job] = line
			}
			line.executions = append(line.executions, x)
			line.runs[e.Run] = append(line.runs[e.Run], x)
			r.Executions++
		case x == nil:
			r.addFinding(Stray, e.Job, "%s of %s on %s without a start", e.Kind, e.Run, e.Worker)
		case e.Kind == ContextCancelled:
			x.told = e.AtNS
		case e.Kind == End:
			x.end, x.outcome = e.AtNS, e.Outcome
		}
	}
	return jobs
}

// affectsWorker reports whether the fault may have cost this worker a lease or a result between from and to.
func (f Fault) affectsWorker(worker string, from, to int64) bool {
	if f.Harmless || f.Workers != nil && !slices.Contains(f.Workers, worker) {
		return false
	}
	return f.FromNS <= to && from <= f.ToNS+int64(f.Hold)
}

// isExplained reports whether any fault affected the execution, up to the moment its result was stored.
func (h *History) isExplained(e *execution) bool {
	to := e.endNS()
	if to != math.MaxInt64 {
		to += int64(h.Bounds.Settle)
	}
	return slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.affectsWorker(e.Worker, e.AtNS, to) })
}

// latestBy returns until when faults may delay something that takes at most calm: past the end of every fault on
// its way.
func (h *History) latestBy(from int64, calm time.Duration) int64 {
	limit := from + int64(calm)
	for again := true; again; {
		again = false
		for _, f := range h.Faults {
			if late := f.ToNS + int64(f.Hold) + int64(calm); f.FromNS <= limit && from <= f.ToNS+int64(f.Hold) &&
				late > limit {
				limit, again = late, true
			}
		}
	}
	return limit
}

// liveUntil is how long the execution's lease is certain to have been live: to
// its end, or until renewals that a fault prevented may have been missed.
func (h *History) liveUntil(e *execution) int64 {
	until := e.endNS()
	if e.told != 0 {
		until = min(until, e.told)
	}
	// A lease is renewed every third of its life, so two thirds are left at any
	// moment, less what a renewal takes.
	kept := int64(h.Bounds.LeaseTTL)*2/3 - int64(h.Bounds.LeaseTTL)/10
	if s := int64(h.Bounds.SessionTTL); s > 0 {
		// A session that a fault ends has had a heartbeat within the last quarter of it.
		kept = min(kept, s*3/4-s/10)
	}
	// A worker that was frozen may start what was leased to it long before; not
	// before it was due, though.
	granted := min(e.AtNS, e.DueMS*1e6)
	for _, f := range h.Faults {
		if f.affectsWorker(e.Worker, e.AtNS, until) {
			until = min(until, max(granted, f.FromNS)+kept)
		}
	}
	return until
}
