package job

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// settleAttempt takes the result of an attempt.
func (t *transition) settleAttempt(ev FinishAttempt) Answer {
	if answer := t.checkFence(ev.Token); answer != Applied {
		return t.answerUnchanged(answer, t.stateBefore())
	}
	t.SettledToken = ev.Token
	t.recordLag(ev.StartedMS, ev.Worker)
	if !t.child || ev.StartedMS > t.LastStarted { // another may have begun since
		t.LastStarted = ev.StartedMS
	}
	t.LastFinished, t.LastOutcome = t.latest.MS, ev.Outcome
	t.LastError = ""
	if ev.Outcome != OutcomeSucceeded {
		t.LastError = Clip(ev.Error, MaxError)
	}
	if t.FirstMS == 0 {
		t.FirstMS = ev.StartedMS
	}
	attempt := t.Attempt + 1
	t.logAttempt(ev.Token, Attempt{Outcome: ev.Outcome, StartedMS: ev.StartedMS, Worker: ev.Worker})
	run := t.buildRun(ev, attempt)
	switch {
	case ev.Outcome == OutcomeSucceeded:
		if t.countsForSchedule() || t.Mode == ManualResetOnSuccess {
			t.Failures = 0
		}
		t.Succeeded++
		t.endRun(run, OutcomeSucceeded, Notice{Kind: RunSucceeded, Attempt: attempt, Worker: ev.Worker}, 0)
	case t.Cancel || ev.Outcome == OutcomeCancelled:
		t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Attempt: attempt, Reason: "requested"}, 0)
	default:
		t.handleFailedAttempt(ev, run, attempt)
	}
	return t.finishDecision(Applied)
}

// countsForSchedule reports whether the run's outcome counts for the schedule's backoff. Those of backfills,
// redriven runs, and manual runs that request it do not.
func (t *transition) countsForSchedule() bool {
	return t.Trigger != TriggerBackfill && t.Mode == ManualReset
}

// handleFailedAttempt decides between another attempt and the end of the run.
func (t *transition) handleFailedAttempt(ev FinishAttempt, run Run, attempt uint32) {
	kind := AttemptFailed
	if ev.Outcome == OutcomeTimedOut {
		kind = AttemptTimedOut
		t.TimedOut++
	}
	due, source, again := t.c.planRetry(t.State, attempt, Reading{t.now, t.latest}, ev, t.child)
	notice := Notice{Kind: kind, Attempt: attempt, Error: t.LastError, Worker: ev.Worker, StartedMS: ev.StartedMS}
	if again {
		notice.DueMS = due
	}
	t.setNoticeRun(&notice, &run)
	t.addNotice(notice)
	switch {
	case again && t.hasWaitingManual():
		t.supersedeRun(run)
		return
	case again && !t.isScheduleReplaced() && !t.Deleting:
		t.Attempt, t.Losses, t.Unacked, t.LastLoss = attempt, 0, 0, Loss{}
		t.Due, t.Source = due, source
		t.Acked, t.Epoch, t.Held = false, 0, Hold{}
		t.noteWorkerHint(t.LastError)
		t.placeRun()
		return
	}
	reason := DeadOutOfAttempts
	if ev.Permanent {
		reason = DeadPermanent
	}
	t.handleFailedRun(run, OutcomeDead, Notice{Kind: RunDead, Attempt: attempt, Reason: reason, Error: t.LastError,
		Worker: ev.Worker}, ev.RetryAfter)
}

// handleFailedRun counts a failed run, keeps its dead letter, and plans the next run.
func (t *transition) handleFailedRun(run Run, outcome Outcome, n Notice, hint time.Duration) {
	stops := false
	if t.countsForSchedule() {
		// Neither the delay by the backoff itself nor the duration of the run counts as staleness.
		age := max(0, cmp.Or(run.StartedMS, t.now).Sub(t.Due))
		trusted, _ := t.c.Backoff.Trusted(int64(t.Failures), age)
		t.Failures = uint32(min(trusted+1, 1<<31))
		if limit := t.c.PauseAfter; limit > 0 && t.Failures >= uint32(limit) && !t.Paused {
			t.Paused, t.PausedMS = true, t.now
			t.PauseNote = fmt.Sprintf("paused after %d failed runs in a row", t.Failures)
			stops = true
		}
	}
	t.slot = int(t.Dead % DeadLettersPerJob)
	t.dead = t.Recurs()
	t.Dead++
	t.endRun(run, outcome, n, hint)
	if stops && !t.child && !t.Deleting {
		t.addNotice(Notice{Kind: JobPaused, DueMS: t.Due, Reason: t.PauseNote})
	}
	if t.Source == DelayBackoff && t.Region == RegionDue {
		t.addNotice(Notice{Kind: BackoffApplied, DueMS: t.Due})
	}
	t.noteWorkerHint(t.LastError)
}

// DeadLettersPerJob is how many dead runs of a job that goes on are kept; the
// oldest is overwritten.
const DeadLettersPerJob = 3

// Recurs reports whether the job continues after a dead run: its dead runs are child records. A one-time job's
// dead run is the job itself.
func (t *transition) Recurs() bool { return t.child || t.c.Schedule.Kind != schedule.KindOnce }

// endRun writes the run's end and plans the next run.
func (t *transition) endRun(run Run, outcome Outcome, n Notice, hint time.Duration) {
	run.Outcome, run.Error = outcome, t.LastError
	if outcome == OutcomeCancelled && run.Attempts == 0 {
		run.Error = "" // that of an earlier run
	}
	run.DeadLetter = t.dead
	t.ended = &run
	n.DueMS, n.StartedMS, n.FirstMS = t.Due, run.StartedMS, t.FirstMS
	t.setNoticeRun(&n, &run)
	t.addNotice(n)
	t.Runs++
	if t.child {
		t.endChild()
		return
	}
	t.consumeHint()
	t.markNominalDone()
	switch failed := outcome == OutcomeDead || outcome == OutcomeQuarantined; {
	case t.Deleting:
		t.removeDeletedJob()
	case failed && !t.Recurs() && t.Pending == "" && t.LastNominal != 0: // else its time is still to come
		t.clearRun()
		t.Region, t.Lane = RegionDead, t.c.Lane()
	default:
		asked := t.Trigger != TriggerSchedule
		t.planNextRun(planInput{hint: hint, startedMS: cmp.Or(t.FirstMS, t.Due), missedCovered: true, manual: asked},
			"")
	}
}

// setNoticeRun sets the run of a notice, so that addNotice need not look for it.
func (t *transition) setNoticeRun(n *Notice, run *Run) {
	if t.HasRun() && t.Due != 0 {
		n.RunID, n.Trigger = run.ID, run.Trigger
	}
}

// removeDeletedJob ends a deleted job, unless runs of it are live as records of their own:
// then it goes with the last of them.
func (t *transition) removeDeletedJob() {
	if t.Children == 0 {
		t.deleted = true
		t.addNotice(Notice{Kind: JobDeleted})
		return
	}
	t.clearRun()
	t.Deleting, t.Pending, t.Waiting, t.Backfills = true, "", 0, nil
	t.Region, t.Lane = RegionDone, t.c.Lane()
}

// handleLeaseLoss takes the end of a lease without a result. Losses use up no attempts.
func (t *transition) handleLeaseLoss(ev LoseLease) Answer {
	if answer := t.checkFence(ev.Token); answer != Applied {
		return t.answerUnchanged(answer, t.stateBefore())
	}
	t.Lost++
	t.LastOutcome, t.LastFinished = OutcomeLost, t.latest.MS
	t.recordLoss(ev.Token)
	t.logLoss(ev.Token)
	if t.Acked {
		t.Losses++
	} else {
		t.Unacked++
	}
	t.addNotice(Notice{Kind: AttemptLost, Attempt: t.Attempt + 1, Count: int64(t.Losses)})
	run := t.buildRun(FinishAttempt{Token: ev.Token}, t.Attempt)
	switch {
	case t.Cancel || t.Deleting:
		t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "requested"}, 0)
	case t.Losses >= lease.PoisonLosses:
		t.LastError = strconv.Itoa(lease.PoisonLosses) + " workers in a row were lost with this run"
		t.handleFailedRun(run, OutcomeQuarantined,
			Notice{Kind: RunQuarantined, Reason: DeadPoison, Error: t.LastError}, 0)
	// A payload that kills its worker at once is acknowledged now and then.
	case t.Losses > 0 && t.Losses+t.Unacked >= lease.UndeliveredBound:
		t.LastError = strconv.Itoa(lease.UndeliveredBound) + " leases in a row were lost with this run, some of " +
			"them after it had begun"
		t.handleFailedRun(run, OutcomeQuarantined,
			Notice{Kind: RunQuarantined, Reason: DeadPoison, Error: t.LastError}, 0)
	case t.Unacked >= lease.UndeliveredBound:
		t.LastError = "leased " + strconv.Itoa(lease.UndeliveredBound) + " times in a row without reaching a worker"
		t.handleFailedRun(run, OutcomeQuarantined,
			Notice{Kind: RunQuarantined, Reason: DeadUndelivered, Error: t.LastError}, 0)
	default:
		t.repeatAttempt()
		t.spreadRestarts()
	}
	return t.finishDecision(Applied)
}

// spreadRestarts spreads the starts of runs that one more lost worker would quarantine.
func (t *transition) spreadRestarts() {
	if t.Losses != lease.PoisonLosses-1 {
		return
	}
	draw := backoff.SeedOf(int64(t.Losses), int64(t.Unacked), t.c.Namespace, "/", t.c.ID, "@", t.RunID())
	wait := int64(draw % uint64(lease.RestartSpread.Milliseconds()))
	t.putRunOnHold(HoldBack{Reason: HeldPace, UntilMS: t.latest.After(wait)})
}

// returnAttempt returns an attempt that never started. If the state records that it did start, it is lost:
// returned without a cost, it could be leased again without end.
func (t *transition) returnAttempt(ev ReturnLease) Answer {
	if answer := t.checkFence(ev.Token); answer != Applied {
		return t.answerUnchanged(answer, t.stateBefore())
	}
	if t.Acked {
		return t.handleLeaseLoss(LoseLease(ev))
	}
	t.addNotice(Notice{Kind: AttemptReturned, Attempt: t.Attempt + 1})
	if t.Cancel || t.Deleting {
		run := t.buildRun(FinishAttempt{Token: ev.Token}, t.Attempt)
		t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "requested"}, 0)
	} else {
		t.uncountManualStart()
		t.repeatAttempt()
	}
	return t.finishDecision(Applied)
}

// uncountManualStart marks a returned manual run beside the schedule as not begun: it waits for other runs
// again, and none of them stops it.
func (t *transition) uncountManualStart() {
	if asked := t.Trigger != TriggerSchedule || t.Mode == ManualKeep; asked && !t.hasBegun() {
		t.Started &^= t.selfBit
	}
}

// repeatAttempt puts the leased run back: the same attempt is due once more, in its old place in the
// order unless the due time has been moved. A manual run
// that waits for the run goes on waiting, and a schedule that was edited meanwhile follows
// it: only a run that has failed is superseded.
func (t *transition) repeatAttempt() {
	t.Acked, t.Epoch = false, 0
	t.placeRun()
	t.spawnWaitingManual()
}

// spawnWaitingManual moves the waiting manual run into a child record if a pause keeps the run that it waits for
// from starting: a pause does not hold back manual runs.
func (t *transition) spawnWaitingManual() {
	if t.Region == RegionPaused && t.hasWaitingManual() && t.spawn == nil && t.findFreeSlot() >= 0 {
		t.spawnManual(t.Pending, t.PendingMode)
	}
}

// isInterrupted reports whether the current run waits to restart after the loss of a worker, or is a run of an
// edited schedule that is to finish. No other run replaces such a run.
func (t *transition) isInterrupted() bool {
	return t.HasRun() && !t.Live() && (t.Losses+t.Unacked > 0 || t.isLossOfCurrentRun() || t.isScheduleReplaced())
}

// hasWaitingManual reports whether a manual run waits for this one.
func (t *transition) hasWaitingManual() bool { return t.Pending != "" && t.Waiting == 0 && !t.child }

// isScheduleReplaced reports whether the current run is of a schedule that has been replaced.
func (t *transition) isScheduleReplaced() bool {
	return t.HasRun() && t.Trigger == TriggerSchedule && t.Generation != t.c.Generation && !t.child
}

// supersedeRun ends a run that would have been tried again.
func (t *transition) supersedeRun(run Run) {
	t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "superseded"}, 0)
}

// checkFence compares a token with the live lease's.
func (t *transition) checkFence(token uint64) Answer {
	switch {
	case t.Live() && token == t.Token:
		return Applied
	case token != 0 && token == t.SettledToken:
		return Duplicate
	}
	return Stale
}

// stateBefore returns the state before the changes that Decide prepared, for answers without effect.
func (t *transition) stateBefore() State {
	s := *t.State
	s.Revision--
	return s
}

func (t *transition) buildRun(ev FinishAttempt, attempts uint32) Run {
	run := Run{
		ID: t.RunID(), Trigger: t.Trigger, ManualID: t.ManualID, NominalMS: t.Nominal, DueMS: t.Due,
		StartedMS: ev.StartedMS, FinishedMS: t.latest.MS, Attempts: attempts, Losses: t.Losses,
		Output: clipBytes(ev.Output, MaxOutput), Worker: ev.Worker, Caller: t.State.findCallerTrace(),
		OwnPayload: t.OwnPayload,
	}
	if t.AttemptLog != nil {
		run.AttemptLog = t.AttemptLog.Attempts
	}
	return run
}

func clipBytes(b []byte, n int) []byte {
	if len(b) > n {
		return b[:n:n]
	}
	return b
}

// Correlation returns that of the run that the notice is about; "" if it is about none.
func (n *Notice) Correlation() string {
	if n.RunID == "" {
		return ""
	}
	return Correlation(n.Key, n.RunID)
}

// Correlation returns the id that links all log lines, events and records of one run. It is computed, so that every
// node and every attempt use the same.
func Correlation(k Key, runID string) string {
	return strconv.FormatUint(backoff.SeedOf(0, 0, k.Namespace, "/", k.ID, "@", runID), 36)
}
