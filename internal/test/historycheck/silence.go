package historycheck

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"
)

// NoRunPeriod is a time in which no run of a job may start, because a client was answered at its beginning that the
// job is paused, or deleted.
type NoRunPeriod struct {
	Job string
	// FromNS is when the client was answered, ToNS when a client asked for the opposite; 0 is the end of the
	// history.
	FromNS, ToNS int64
	// Deleted: it need not be stored any more.
	Deleted bool
}

// Backoff is a promise for an interval job whose runs fail: waits between them grow, and do not shrink until one
// has succeeded.
type Backoff struct {
	Job   string
	Every time.Duration
	// Jitter is the fraction by which a wait may fall short.
	Jitter float64
	// SlowClock: due times are those of a clock which may lag behind the one of the history. A wait then falls
	// short only if its run also started too early.
	SlowClock bool
}

// Wait is a promise for a job whose attempts fail: the next one, of the same run or of the next, starts no
// earlier than Least after the failed handler has returned.
type Wait struct {
	Job   string
	Least time.Duration
}

// checkWait looks for starts that come too soon after a failure. A result that a fault may have kept from
// being stored begins no wait.
func (h *History) checkWait(w Wait, line *timeline, r *Report) {
	if line == nil {
		return
	}
	for i, before := range line.executions {
		if before.outcome != Failed || h.isExplained(before) || i+1 == len(line.executions) {
			continue
		}
		e := line.executions[i+1]
		if strings.HasPrefix(path.Base(e.Run), "m-") {
			continue
		}
		if waited := time.Duration(e.AtNS - before.end); waited < w.Least {
			r.addFinding(Hasty, w.Job, "%s started %v after the failure at %s, which has to be %v", e.Run, waited,
				formatClock(before.end), w.Least)
		}
		r.Waited++
	}
}

// checkSilence looks for runs that no client asked for. A run that was leased just before may still be on its
// way to its handler, for as long as faults hold it there.
func (h *History) checkSilence(s NoRunPeriod, line *timeline, r *Report) {
	if line == nil {
		return
	}
	from := h.latestBy(s.FromNS, h.Bounds.Lag+h.Bounds.Grace)
	for _, e := range line.executions {
		manual := strings.HasPrefix(path.Base(e.Run), "m-")
		if e.AtNS > from && (s.ToNS == 0 || e.AtNS < s.ToNS) && !manual {
			r.addFinding(Uncalled, s.Job, "%s started on %s at %s; since %s it is paused or deleted", e.Run, e.Worker,
				formatClock(e.AtNS), formatClock(s.FromNS))
		}
	}
}

// checkBackoff compares each wait after a failed run with the one before. A backed-off
// run keeps the phase of its job, so that a wait may be longer than it has to be by
// up to an interval, and the next one shorter than it by as much.
func (h *History) checkBackoff(b Backoff, line *timeline, r *Report) {
	if line == nil {
		return
	}
	type ended struct {
		due, end int64
		start    int64 // of its first attempt
		failed   bool
		held     bool // a fault may have held its result back
	}
	var runs []ended
	for _, executions := range line.runs {
		last := slices.MaxFunc(executions, func(a, b *execution) int { return cmp.Compare(a.Token, b.Token) })
		if last.end != 0 {
			first := slices.MinFunc(executions, func(a, b *execution) int { return cmp.Compare(a.AtNS, b.AtNS) })
			runs = append(runs, ended{last.DueMS * 1e6, last.end, first.AtNS, last.outcome == Failed,
				h.isExplained(last)})
		}
	}
	slices.SortFunc(runs, func(a, b ended) int { return cmp.Compare(a.end, b.end) })
	before := time.Duration(0)
	for i := 1; i < len(runs); i++ {
		if !runs[i-1].failed {
			before = 0
			continue
		}
		wait := time.Duration(runs[i].due - runs[i-1].end)
		longest := wait
		if b.SlowClock {
			longest = max(wait, time.Duration(runs[i].start-runs[i-1].end))
		}
		if least := time.Duration(float64(before)*(1-b.Jitter)) - b.Every; longest < least {
			r.addFinding(Shrunk, b.Job, "waited %v after the failure at %s, and %v after the one before", longest,
				formatClock(runs[i-1].end), before)
		}
		if !runs[i-1].held { // the wait counts from when the result is stored
			before = wait
		}
		r.Waits++
	}
}
