package admission

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/job"
)

// report is what a target hears of an attempt.
type report struct {
	target, holder string
	by             string // job
	failed         bool
	dropped        bool // the attempt ended without a verdict
	retryAfter     time.Duration
	reason         string
	since          time.Time // of the first try; zero before it
}

// maxReason bounds what a circuit remembers of an error.
const maxReason = 200

// reportOf is what an attempt's end says about its target; false when that is
// nothing: a success at a circuit that is known to be closed, an end without a result
// of an attempt that was no probe.
func (a *Admission) reportOf(e job.Ending, l *live) (report, bool) {
	if l.target == "" {
		return report{}, false
	}
	key, _, _ := job.ParseRecord(e.Record)
	r := report{target: l.target, holder: l.holder, by: key.ID}
	settle, settled := e.Settle.(job.Settle)
	switch {
	case !settled || settle.Outcome == job.OutcomeCancelled:
		r.dropped = true
		return r, l.probe
	case settle.Outcome == job.OutcomeSucceeded:
		return r, l.probe || !a.closedLately(l.target, readingSuccess)
	}
	a.forget(l.target)
	r.failed, r.retryAfter, r.reason = true, min(settle.RetryAfter, longestWish(e.Definition)), job.Clip(settle.Error, maxReason)
	return r, true
}

// longestWish bounds what an answer to a job's run holds all jobs of its target back for. Of a
// job that is not known it is as long as a circuit waits by itself.
func longestWish(d *job.Definition) time.Duration {
	if d == nil {
		return backoff.DefaultCircuit().MaxDelay
	}
	return d.LongestWish()
}

// report tells circuits of results, all results of one target in one change. It
// returns those that are to be told again.
func (a *Admission) report(ctx context.Context, list []report) (again []report) {
	byTarget := make(map[string][]report)
	var changes []change
	for _, r := range list {
		if byTarget[r.target] == nil {
			changes = append(changes, change{name: r.target})
		}
		byTarget[r.target] = append(byTarget[r.target], r)
	}
	for i := range changes {
		name := changes[i].name
		changes[i].next = func(c backoff.Circuit, nowMS int64) backoff.Circuit {
			for _, r := range byTarget[name] {
				c = r.apply(c, nowMS)
			}
			return c
		}
		changes[i].done = func(before, after backoff.Circuit, nowMS int64, err error) {
			if err == nil {
				a.tellCircuit(name, before, after, nowMS)
				return
			}
			a.failed("target", err)
			for _, r := range byTarget[name] {
				if r.since.IsZero() {
					r.since = time.Now()
				}
				if time.Since(r.since) < a.o.LeaseTTL {
					again = append(again, r)
				}
			}
		}
	}
	a.change(ctx, changes)
	return again
}

// apply takes a report into a circuit.
func (r report) apply(c backoff.Circuit, nowMS int64) backoff.Circuit {
	switch {
	case r.dropped:
		return c.Dropped(r.holder)
	case r.failed:
		seed := backoff.Seed(r.target, nowMS, 0)
		// The clock was read after the handler had returned, and is rounded down.
		return c.Failed(nowMS+1, r.holder, r.by, r.reason, r.retryAfter, backoff.DefaultCircuit(), seed)
	}
	return c.Succeeded(nowMS, r.holder)
}

// tellCircuit logs what an operator wants to know of a circuit.
func (a *Admission) tellCircuit(name string, before, after backoff.Circuit, nowMS int64) {
	switch {
	case after.OpenUntilMS > before.OpenUntilMS:
		a.metrics.opened.Inc()
		a.o.Logger.Warn("target backs off", "target", name, "failures", after.Failures, "by", after.By, "error", after.Error,
			"for", time.Duration(after.OpenUntilMS-nowMS)*time.Millisecond)
	case before.Failures > 0 && after.Failures == 0:
		a.o.Logger.Info("target has recovered", "target", name, "failures", before.Failures)
	}
}

// keepProbes renews the probes among the live attempts; false when some were not
// reached. It also finds out which of those that were taken over are none.
func (a *Admission) keepProbes() bool {
	probes := make(map[string][]*live)
	var changes []change
	a.mu.Lock()
	for _, l := range a.mu.live {
		if l.probe {
			if probes[l.target] == nil {
				changes = append(changes, change{name: l.target})
			}
			probes[l.target] = append(probes[l.target], l)
		}
	}
	a.mu.Unlock()
	all := true
	for i := range changes {
		list := probes[changes[i].name]
		changes[i].next = func(c backoff.Circuit, nowMS int64) backoff.Circuit {
			for _, l := range list {
				c = c.Kept(l.holder, nowMS, a.o.LeaseTTL)
			}
			return c
		}
		changes[i].done = func(_, after backoff.Circuit, _ int64, err error) {
			if err != nil {
				a.failed("target", err)
				all = false
				return
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, l := range list {
				if !l.ended {
					l.probe = after.Probe == l.holder
				}
			}
		}
	}
	ctx, cancel := context.WithTimeout(a.ctx, a.o.callTimeout())
	defer cancel()
	a.change(ctx, changes)
	return all
}
