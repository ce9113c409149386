package job

import "cmp"

// The verdict on nominal times without a run of their own: each is counted once, with
// the reason why, up to State.LastNominal. Whatever takes the place of a plan settles
// first what that plan has passed over until then.

// clock is how far time has gone on for the schedule. While the job is paused it
// stands still: what becomes of the times that pass is for [Resume] to say.
func (t *transition) clock() int64 {
	if t.Paused {
		return min(t.now, cmp.Or(t.PausedMS, t.now))
	}
	return t.now
}

// foresee finds the next run of the schedule, and has the verdict on the times before it.
func (t *transition) foresee(p passed, reason string) occurrence {
	p.since, p.lag = cmp.Or(p.since, t.latest.MS), t.latest.LagMS
	o := t.c.next(t.State, t.clock(), p)
	t.judge(o, p, reason)
	t.BufferedUntil = o.buffered
	return o
}

// lastRun is when a run of the job last began or ended, which is what delays count from;
// now if none has.
func (t *transition) lastRun() int64 {
	return cmp.Or(max(t.LastFinished, min(t.LastStarted, t.now)), t.latest.MS)
}

// planned tells whether the current run is one of the schedule in force that has not begun.
func (t *transition) planned() bool {
	return t.HasRun() && !t.Live() && t.Trigger == TriggerSchedule && t.Generation == t.c.Generation && !t.begun()
}

// begun tells whether the current run has had an attempt, be it one that was lost.
func (t *transition) begun() bool {
	return t.Attempt > 0 || t.Losses+t.Unacked > 0 || t.lossStands()
}

// judge counts the nominal times that have passed and will not have a run of
// their own.
func (t *transition) judge(o occurrence, p passed, reason string) {
	if o.clean {
		return
	}
	upTo := t.clock()
	if o.ok {
		upTo = min(upTo, o.nominal-1)
	}
	from := t.c.judged(t.State)
	missed := min(upTo, p.begun)
	if reason != "" || p.begun == 0 {
		missed = upTo
	}
	if n := t.c.countBetween(from, missed); n > 0 {
		t.leftOut(n, n-t.countedLateIn(from, missed), cmp.Or(reason, "misfire"))
	}
	if n := t.c.countBetween(max(from, missed), upTo); n > 0 {
		t.skipped(n, "overlap")
	}
	t.LastNominal = max(t.LastNominal, upTo)
}

func (t *transition) skipped(n int64, reason string) { t.leftOut(n, n, reason) }

// leftOut counts n nominal times that have no run; missed of them were not counted as late
// before.
func (t *transition) leftOut(n, missed int64, reason string) {
	t.Skipped += uint64(n)
	t.notice(Notice{Kind: NominalSkipped, Count: n, Reason: reason})
	if reason == "misfire" && t.c.MaxLag > 0 && missed > 0 {
		t.notice(Notice{Kind: LagBreached, Count: missed, Reason: LagMissed})
	}
}

// settleNominal notes that the nominal time of the run has had its run, and those
// that were passed over before it have none.
func (t *transition) settleNominal() {
	if t.Trigger != TriggerSchedule || t.Generation != t.c.Generation {
		return
	}
	t.passOver(t.Nominal - 1)
	t.LastNominal = max(t.LastNominal, t.Nominal)
	t.Fired++
}

// passOver counts the nominal times up to an instant that come before the current run's:
// backoff or a hint has given it a later one.
func (t *transition) passOver(upTo int64) {
	if !t.HasRun() || t.Trigger != TriggerSchedule || t.Generation != t.c.Generation {
		return
	}
	upTo = min(upTo, t.Nominal-1)
	n := t.c.countBetween(t.c.judged(t.State), upTo)
	if n == 0 {
		return
	}
	reason := "backoff"
	if t.Source == DelayHint {
		reason = "hint"
	}
	t.skipped(n, reason)
	t.LastNominal = max(t.LastNominal, upTo)
}

// stepIn gives the place of a scheduled run that is due to the manual run: otherwise its
// nominal time would end without a word, or, of a one-time job, run once more after the
// manual run. One still to come stays.
func (t *transition) stepIn() {
	if !t.planned() {
		return
	}
	t.passOver(t.now)
	if t.Nominal > t.now || t.Nominal > t.clock() && t.c.Recurring() {
		return
	}
	t.LastNominal = max(t.LastNominal, t.Nominal)
	t.skipped(1, "manual run")
}

// closeGeneration counts what the schedule that is about to be replaced leaves undone.
func (t *transition) closeGeneration() {
	if !t.HasRun() || t.Generation != t.c.Generation {
		return
	}
	t.passOver(t.now)
	n := t.c.countBetween(t.undoneFrom(), t.now)
	if t.planned() && t.Nominal <= t.now && (!t.c.Recurring() || t.c.fixedDelay()) {
		n = 1
	}
	if left, bounded := t.c.RunsLeft(*t.State); bounded {
		n = min(n, left)
	}
	if n > 0 {
		t.skipped(n, "superseded")
	}
}

// undoneFrom is the instant after which no nominal time has had its run or its verdict.
func (t *transition) undoneFrom() int64 {
	from := t.c.judged(t.State)
	if t.Trigger == TriggerSchedule && (t.Live() || t.begun()) {
		from = max(from, t.Nominal)
	}
	return from
}
