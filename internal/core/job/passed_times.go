package job

import (
	"cmp"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// The verdict on nominal times without a run of their own. Each is counted once, with the reason,
// up to State.LastNominal. Before a plan is replaced, the times that it has passed over until then
// are counted.

// scheduleClock returns the instant up to which time has passed for the schedule. While the job is paused it
// does not advance: [Resume] decides on the times that pass.
func (t *transition) scheduleClock() unixtime.Milli {
	if t.Paused {
		return min(t.now, cmp.Or(t.PausedMS, t.now))
	}
	return t.now
}

// foreseeNext finds the next run of the schedule, and has the verdict on the times before it.
func (t *transition) foreseeNext(p planInput, reason string) plannedRun {
	p.sinceMS, p.clockLagMS = cmp.Or(p.sinceMS, t.latest.MS), t.latest.LagMS
	o := t.c.planNext(t.State, t.scheduleClock(), p)
	t.countPassed(o, p, reason)
	t.BufferedUntil = o.bufferedUntil
	return o
}

// lastRunMS returns when a run of the job last began or ended, which is what delays count from;
// now if none has.
func (t *transition) lastRunMS() unixtime.Milli {
	return cmp.Or(max(t.LastFinished, min(t.LastStarted, t.now)), t.latest.MS)
}

// isPlanned reports whether the current run belongs to the schedule in force and has not begun.
func (t *transition) isPlanned() bool {
	return t.HasRun() && !t.Live() && t.Trigger == TriggerSchedule && t.Generation == t.c.Generation && !t.hasBegun()
}

// hasBegun reports whether the current run has had an attempt, including one that was lost.
func (t *transition) hasBegun() bool {
	return t.HasRun() && (t.Attempt > 0 || t.Losses+t.Unacked > 0 || t.isLossOfCurrentRun())
}

// countPassed counts the nominal times that have passed and will have no run of their own.
func (t *transition) countPassed(o plannedRun, p planInput, reason string) {
	if o.nothingMissed {
		return
	}
	upTo := t.scheduleClock()
	if o.found {
		upTo = min(upTo, o.nominal-1)
	}
	from := t.c.judgedUpTo(t.State)
	missed := min(upTo, p.startedMS)
	if reason != "" || p.startedMS == 0 {
		missed = upTo
	}
	if n := t.c.countNominal(from, missed); n > 0 {
		t.countLeftOut(n, n-t.countLateBetween(from, missed), cmp.Or(reason, "misfire"))
	}
	if n := t.c.countNominal(max(from, missed), upTo); n > 0 {
		t.countSkipped(n, "overlap")
	}
	t.LastNominal = max(t.LastNominal, upTo)
}

func (t *transition) countSkipped(n int64, reason string) { t.countLeftOut(n, n, reason) }

// countLeftOut counts n nominal times that have no run; missed of them were not counted as late
// before.
func (t *transition) countLeftOut(n, missed int64, reason string) {
	t.Skipped += uint64(n)
	t.addNotice(Notice{Kind: NominalSkipped, Count: n, Reason: reason})
	if reason == "misfire" && t.c.MaxLag > 0 && missed > 0 {
		t.addNotice(Notice{Kind: LagBreached, Count: missed, Reason: LagMissed})
	}
}

// markNominalDone records that the nominal time of the run has had its run, and that the times passed over
// before it have none.
func (t *transition) markNominalDone() {
	if t.Trigger != TriggerSchedule || t.Generation != t.c.Generation {
		return
	}
	t.countPassedOver(t.Nominal - 1)
	t.LastNominal = max(t.LastNominal, t.Nominal)
	t.Fired++
}

// countPassedOver counts the nominal times up to an instant that are before the current run's, which backoff or
// a hint has moved later.
func (t *transition) countPassedOver(upTo unixtime.Milli) {
	if !t.HasRun() || t.Trigger != TriggerSchedule || t.Generation != t.c.Generation {
		return
	}
	upTo = min(upTo, t.Nominal-1)
	n := t.c.countNominal(t.c.judgedUpTo(t.State), upTo)
	if n == 0 {
		return
	}
	reason := "backoff"
	if t.Source == DelayHint {
		reason = "hint"
	}
	t.countSkipped(n, reason)
	t.LastNominal = max(t.LastNominal, upTo)
}

// replaceByManual replaces a scheduled run that is due by the manual run. Otherwise its nominal time would end
// without a notice or, for a one-time job, run again after the manual run. A scheduled run of the future stays.
func (t *transition) replaceByManual() {
	if !t.isPlanned() {
		return
	}
	t.countPassedOver(t.now)
	if t.Nominal > t.now || t.Nominal > t.scheduleClock() && t.c.Recurring() {
		return
	}
	t.LastNominal = max(t.LastNominal, t.Nominal)
	t.countSkipped(1, "manual run")
}

// closeGeneration counts the times that the replaced schedule leaves without a run.
func (t *transition) closeGeneration() {
	if !t.HasRun() || t.Generation != t.c.Generation {
		return
	}
	t.countPassedOver(t.now)
	n := t.c.countNominal(t.undoneAfterMS(), t.now)
	if t.isPlanned() && t.Nominal <= t.now && (!t.c.Recurring() || t.c.hasFixedDelay()) {
		n = 1
	}
	if left, bounded := t.c.RunsLeft(*t.State); bounded {
		n = min(n, left)
	}
	if n > 0 {
		t.countSkipped(n, "superseded")
	}
}

// undoneAfterMS returns the instant after which no nominal time has had its run or its verdict.
func (t *transition) undoneAfterMS() unixtime.Milli {
	from := t.c.judgedUpTo(t.State)
	if t.Trigger == TriggerSchedule && (t.Live() || t.hasBegun()) {
		from = max(from, t.Nominal)
	}
	return from
}
