package historycheck

import (
	"path"
	"slices"
)

// ManualRun is a manual run that was acknowledged to a client: the run that the answer names,
// which may be one that the request joined.
type ManualRun struct {
	Job, Run string // "m-..."
	// AtNS is when the client was answered.
	AtNS int64
	// CancelledNS is when a client asked for its end, or the job's; 0 is never.
	CancelledNS int64
}

// checkAsked looks for acknowledged manual runs that never began although there was time to:
// behind a run that was live, which may have to start once more, and those that were asked
// for before.
func (h *History) checkAsked(a ManualRun, line *timeline, r *Report) {
	limit := h.latestBy(a.AtNS, h.Bounds.Lag+h.Bounds.Grace+askedRuns*(h.Bounds.Longest+h.Bounds.Settle))
	if h.EndNS <= limit || a.CancelledNS != 0 && a.CancelledNS <= limit {
		return
	}
	r.Asked++
	began := line != nil && slices.ContainsFunc(line.executions,
		func(e *execution) bool { return path.Base(e.Run) == a.Run })
	if !began {
		r.addFinding(Dropped, a.Job, "the manual run %s was acknowledged at %s and never began, though there was "+
			"time to until %s",
			a.Run, formatClock(a.AtNS), formatClock(limit))
	}
}

// askedRuns is how many runs of its job, or of its locks, a manual run may have to wait for.
const askedRuns = 4
