package admission

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// targetReport is an attempt's result for the circuit of its target.
type targetReport struct {
	target, holder string
	by             string // job
	failed         bool
	noVerdict      bool // the attempt ended without a verdict
	retryAfter     time.Duration
	reason         string
	since          time.Time // of the first try; zero before it
}

// maxReason bounds the error text that a circuit stores.
const maxReason = 200

// newTargetReport makes the report of an attempt's end to its target; false if there is none: a success at a
// circuit that is known to be closed, or an end without a result of an attempt that was no probe.
func (a *Admission) newTargetReport(e job.Ending, l *heldByAttempt) (targetReport, bool) {
	if l.target == "" {
		return targetReport{}, false
	}
	key := e.Record.Key()
	r := targetReport{target: l.target, holder: l.holder, by: key.ID}
	settle, settled := e.Settle.(job.FinishAttempt)
	switch {
	case !settled || settle.Outcome == job.OutcomeCancelled:
		r.noVerdict = true
		return r, l.mayProbe
	case settle.Outcome == job.OutcomeSucceeded:
		return r, l.mayProbe || !a.wasClosedWithin(l.target, closedForSuccess)
	}
	a.forgetCircuit(l.target)
	r.failed, r.reason = true, job.Clip(settle.Error, maxReason)
	r.retryAfter = min(settle.RetryAfter, maxRetryAfter(e.Definition))
	return r, true
}

// maxRetryAfter bounds the time for which a result of a job's run may hold back all jobs of its target. For an
// unknown job it is the longest time that a circuit waits by itself.
func maxRetryAfter(d *job.Definition) time.Duration {
	if d == nil {
		return backoff.DefaultCircuit().MaxDelay
	}
	return d.MaxRequestedDelay()
}

// reportToCircuits applies results to circuits, all results of one target in one change. It returns those to be
// repeated.
func (a *Admission) reportToCircuits(ctx context.Context, list []targetReport) (again []targetReport) {
	byTarget := make(map[string][]targetReport)
	var changes []circuitChange
	for _, r := range list {
		if byTarget[r.target] == nil {
			changes = append(changes, circuitChange{name: r.target})
		}
		byTarget[r.target] = append(byTarget[r.target], r)
	}
	for i := range changes {
		name := changes[i].name
		changes[i].next = func(c backoff.Circuit, nowMS unixtime.Milli) backoff.Circuit {
			for _, r := range byTarget[name] {
				c = r.applyTo(c, nowMS)
			}
			return c
		}
		changes[i].done = func(before, after backoff.Circuit, nowMS unixtime.Milli, err error) {
			if err == nil {
				a.logCircuit(name, before, after, nowMS)
				return
			}
			a.logFailure("target", err)
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
	a.changeCircuits(ctx, changes)
	return again
}

// applyTo applies a report to a circuit.
func (r targetReport) applyTo(c backoff.Circuit, nowMS unixtime.Milli) backoff.Circuit {
	switch {
	case r.noVerdict:
		return c.ReleaseProbe(r.holder)
	case r.failed:
		seed := backoff.Seed(r.target, int64(nowMS), 0)
		// The clock was read after the handler had returned, and is rounded down.
		return c.Failed(nowMS+1, r.holder, r.by, r.reason, r.retryAfter, backoff.DefaultCircuit(), seed)
	}
	return c.Succeeded(nowMS, r.holder)
}

// logCircuit logs the changes of a circuit that an operator needs to know.
func (a *Admission) logCircuit(name string, before, after backoff.Circuit, nowMS unixtime.Milli) {
	switch {
	case after.OpenUntilMS > before.OpenUntilMS:
		a.metrics.opened.Inc()
		a.o.Logger.Warn("target circuit open", "target", name, "failures", after.Failures, "by", after.FailedJob,
			"error", after.Error, "for", after.OpenUntilMS.Sub(nowMS))
	case before.Failures > 0 && after.Failures == 0:
		a.o.Logger.Info("target recovered", "target", name, "failures", before.Failures)
	}
}

// keepProbes renews the probes among the live attempts; false if some were not reached. It also finds out which
// adopted attempts are no probes.
func (a *Admission) keepProbes() bool {
	probes := make(map[string][]*heldByAttempt)
	var changes []circuitChange
	a.mu.Lock()
	for _, l := range a.mu.attempts {
		if l.mayProbe {
			if probes[l.target] == nil {
				changes = append(changes, circuitChange{name: l.target})
			}
			probes[l.target] = append(probes[l.target], l)
		}
	}
	a.mu.Unlock()
	all := true
	for i := range changes {
		list := probes[changes[i].name]
		changes[i].next = func(c backoff.Circuit, nowMS unixtime.Milli) backoff.Circuit {
			for _, l := range list {
				c = c.RenewProbe(l.holder, nowMS, a.o.LeaseTTL)
			}
			return c
		}
		changes[i].done = func(_, after backoff.Circuit, _ unixtime.Milli, err error) {
			if err != nil {
				a.logFailure("target", err)
				all = false
				return
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			for _, l := range list {
				if !l.ended {
					l.mayProbe = after.Probe == l.holder
				}
			}
		}
	}
	ctx, cancel := context.WithTimeout(a.ctx, a.o.callTimeout())
	defer cancel()
	a.changeCircuits(ctx, changes)
	return all
}
