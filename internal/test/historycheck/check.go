package historycheck

import (
	"cmp"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/lease"
)

// Check judges a history. Findings are ordered by job.
func Check(h History) Report {
	var r Report
	jobs := buildTimelines(h.Events, &r)
	acknowledged := map[string]bool{} // of all that a client tried to register
	for _, p := range h.ExpectedSchedules {
		acknowledged[p.Job] = acknowledged[p.Job] || !p.Unsure
		h.checkPromise(p, jobs[p.Job], &r)
	}
	for _, s := range h.NoRunPeriods {
		h.checkSilence(s, jobs[s.Job], &r)
	}
	for _, a := range h.ManualRuns {
		h.checkAsked(a, jobs[a.Job], &r)
	}
	for _, b := range h.Backoffs {
		h.checkBackoff(b, jobs[b.Job], &r)
	}
	for _, w := range h.Waits {
		h.checkWait(w, jobs[w.Job], &r)
	}
	for _, s := range h.Shared {
		h.checkShared(s, jobs, &r)
	}
	for job, line := range jobs {
		if _, known := acknowledged[job]; !known {
			r.addFinding(Stray, job, "executed %d times, but nobody registered it", len(line.executions))
		}
		h.checkFences(line, &r)
		h.checkRepeats(line, &r)
	}
	if h.Stored != nil {
		for job, sure := range acknowledged {
			deleted := slices.ContainsFunc(h.NoRunPeriods, func(s NoRunPeriod) bool { return s.Job == job && s.Deleted })
			if sure && !h.Stored[job] && !deleted {
				r.addFinding(Lost, job, "acknowledged, but no longer stored")
			}
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	slices.SortFunc(r.Lags, func(a, b Lag) int { return cmp.Compare(a.AtNS, b.AtNS) })
	return r
}

// checkFences checks one job for early starts, tokens out of order and overlaps.
func (h *History) checkFences(line *timeline, r *Report) {
	var highest int64
	var live []*execution
	seen := map[int64]bool{}
	for _, e := range line.executions {
		h.checkEarly(e, r)
		h.checkExpired(e, r)
		if seen[e.Token] {
			r.addFinding(TokenOrder, line.job, "token %d of %s started on two workers", e.Token, e.Run)
		}
		seen[e.Token] = true
		late := h.Bounds.SessionTTL == 0 &&
			slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.affectsWorker(e.Worker, e.AtNS, e.AtNS) })
		if e.Token < highest && !late {
			r.addFinding(TokenOrder, line.job, "%s started on %s with token %d after token %d",
				e.Run, e.Worker, e.Token, highest)
		}
		if e.Token < highest {
			continue // its lease had ended before a later one began, as the handler sees from its token
		}
		highest = e.Token
		live = slices.DeleteFunc(live, func(o *execution) bool { return h.liveUntil(o) <= e.AtNS })
		for _, o := range live {
			r.addFinding(Overlap, line.job, "%s started on %s at %s while %s was live on %s since %s", e.Run, e.Worker,
				formatClock(e.AtNS), o.Run, o.Worker, formatClock(o.AtNS))
		}
		live = append(live, e)
	}
}

func (h *History) checkEarly(e *execution, r *Report) {
	if ahead := e.DueMS*1e6 - e.AtNS; ahead > int64(h.Bounds.Early) {
		r.addFinding(Early, e.Job, "%s started on %s %v before it was due", e.Run, e.Worker, time.Duration(ahead))
	}
	if e.NominalMS > e.DueMS {
		r.addFinding(Early, e.Job, "%s is due %d ms before its nominal time", e.Run, e.NominalMS-e.DueMS)
	}
}

// checkExpired looks for a start on a lease that had ended. Until a handler begins a lease is not renewed, and
// its token has the time at which it was taken, in microseconds of Redis's clock.
func (h *History) checkExpired(e *execution, r *Report) {
	if h.Bounds.SessionTTL == 0 || slices.ContainsFunc(h.Faults, func(f Fault) bool { return f.Clock }) {
		return
	}
	if age := time.Duration(e.AtNS - e.Token*1000); age > h.Bounds.LeaseTTL+h.Bounds.Grace {
		r.addFinding(Expired, e.Job, "%s started on %s %v after it was leased, for %v", e.Run, e.Worker, age,
			h.Bounds.LeaseTTL)
	}
}

// checkRepeats checks the executions of each run.
func (h *History) checkRepeats(line *timeline, r *Report) {
	redriven := map[string]bool{}
	for _, id := range h.Redriven {
		redriven[id] = true
	}
	for run, all := range line.runs {
		all = slices.Clone(all)
		slices.SortStableFunc(all, func(a, b *execution) int { return cmp.Compare(a.Token, b.Token) })
		first := slices.MinFunc(all, func(a, b *execution) int { return cmp.Compare(a.AtNS, b.AtNS) })
		r.Lags = append(r.Lags, Lag{first.AtNS, time.Duration(first.AtNS - first.DueMS*1e6)})
		for i := 1; i < len(all); i++ {
			r.Repeats++
			if e := all[i]; redriven[e.Job] && e.Attempt == 1 && all[i-1].outcome == Failed {
				delete(redriven, e.Job)
				continue
			}
			h.checkRepeat(all[i-1], all[i], r)
		}
		h.checkFinished(run, all, r)
	}
}

func (h *History) checkRepeat(before, e *execution, r *Report) {
	failed := before.outcome == Failed
	explained := h.isExplained(before)
	switch {
	case !failed && !explained:
		r.addFinding(Repeat, e.Job, "%s ran on %s at %s, ended %q, and again on %s at %s without a reason", e.Run,
			before.Worker, formatClock(before.AtNS), before.outcome, e.Worker, formatClock(e.AtNS))
	case e.Attempt == before.Attempt+1 && failed, e.Attempt == before.Attempt && explained:
	default:
		r.addFinding(Attempt, e.Job, "%s: attempt %d, which ended %q, was followed by attempt %d", e.Run,
			before.Attempt, before.outcome, e.Attempt)
	}
}

// checkFinished looks for a run whose last execution never ended although there was
// time to.
func (h *History) checkFinished(run string, all []*execution, r *Report) {
	if slices.ContainsFunc(all, func(e *execution) bool { return e.end != 0 }) {
		return
	}
	if h.GivenUp[all[0].Job] {
		return
	}
	last := all[len(all)-1]
	limit := h.latestBy(last.AtNS, h.Bounds.Longest+h.Bounds.Settle)
	if h.isExplained(last) {
		again := h.Bounds.LeaseTTL + h.Bounds.Lag + h.Bounds.Grace
		if len(all) >= lease.PoisonLosses-1 {
			again += lease.RestartSpread
		}
		limit = h.latestBy(limit, again)
	}
	if h.EndNS > limit {
		r.addFinding(Unfinished, last.Job, "%s started on %s at %s and never ended, nor was it repeated",
			run, last.Worker, formatClock(last.AtNS))
	}
}

func formatClock(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000") }
