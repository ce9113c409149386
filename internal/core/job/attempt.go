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

// settle takes the result of an attempt.
func (t *transition) settle(ev Settle) Answer {
	if answer := t.fence(ev.Token); answer != Applied {
		return t.unchanged(answer, t.before())
	}
	t.SettledToken = ev.Token
	t.judgeLag(ev.StartedMS, ev.Worker)
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
	run := t.run(ev, attempt)
	switch {
	case ev.Outcome == OutcomeSucceeded:
		if t.counts() || t.Mode == ManualResetOnSuccess {
			t.Failures = 0
		}
		t.Succeeded++
		t.endRun(run, OutcomeSucceeded, Notice{Kind: RunSucceeded, Attempt: attempt, Worker: ev.Worker}, 0)
	case t.Cancel || ev.Outcome == OutcomeCancelled:
		t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Attempt: attempt, Reason: "requested"}, 0)
	default:
		t.failed(ev, run, attempt)
	}
	return t.decision(Applied)
}

// counts tells whether the run's outcome is the schedule's: whether it counts for
// the backoff. Backfills, redriven runs and manual runs that ask for it do not.
func (t *transition) counts() bool {
	return t.Trigger != TriggerBackfill && t.Mode == ManualReset
}

// failed decides between another attempt and the end of the run.
func (t *transition) failed(ev Settle, run Run, attempt uint32) {
	kind := AttemptFailed
	if ev.Outcome == OutcomeTimedOut {
		kind = AttemptTimedOut
		t.TimedOut++
	}
	due, source, again := t.c.retry(t.State, attempt, Reading{t.now, t.latest}, ev, t.child)
	notice := Notice{Kind: kind, Attempt: attempt, Error: t.LastError, Worker: ev.Worker, StartedMS: ev.StartedMS}
	if again {
		notice.DueMS = due
	}
	t.name(&notice, &run)
	t.notice(notice)
	switch {
	case again && t.manualWaits():
		t.supersede(run)
		return
	case again && !t.edited() && !t.Deleting:
		t.Attempt, t.Losses, t.Unacked, t.LastLoss = attempt, 0, 0, Loss{}
		t.Due, t.Source = due, source
		t.Acked, t.Epoch, t.Held = false, 0, Hold{}
		t.noteHint(t.LastError)
		t.place()
		return
	}
	reason := DeadOutOfAttempts
	if ev.Permanent {
		reason = DeadPermanent
	}
	t.runFailed(run, OutcomeDead, Notice{Kind: RunDead, Attempt: attempt, Reason: reason, Error: t.LastError, Worker: ev.Worker}, ev.RetryAfter)
}

// runFailed counts a failed run, keeps its dead letter, and plans what follows.
func (t *transition) runFailed(run Run, outcome Outcome, n Notice, hint time.Duration) {
	stops := false
	if t.counts() {
		// Neither what the backoff itself held back makes it stale, nor how long the run took.
		age := time.Duration(max(0, cmp.Or(run.StartedMS, t.now)-t.Due)) * time.Millisecond
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
		t.notice(Notice{Kind: JobPaused, DueMS: t.Due, Reason: t.PauseNote})
	}
	if t.Source == DelayBackoff && t.Region == RegionDue {
		t.notice(Notice{Kind: BackoffApplied, DueMS: t.Due})
	}
	t.noteHint(t.LastError)
}

// DeadLettersPerJob is how many dead runs of a job that goes on are kept; the
// oldest is overwritten.
const DeadLettersPerJob = 3

// Recurs tells whether the job goes on after a dead run: its dead runs are
// child records. A one-time job's dead run is the job itself.
func (t *transition) Recurs() bool { return t.child || t.c.Schedule.Kind != schedule.KindOnce }

// endRun writes the run's end and plans what follows.
func (t *transition) endRun(run Run, outcome Outcome, n Notice, hint time.Duration) {
	run.Outcome, run.Error = outcome, t.LastError
	run.DeadLetter = t.dead
	t.ended = &run
	n.DueMS, n.StartedMS, n.FirstMS = t.Due, run.StartedMS, t.FirstMS
	t.name(&n, &run)
	t.notice(n)
	t.Runs++
	if t.child {
		t.leave()
		return
	}
	t.spendHint()
	t.settleNominal()
	switch failed := outcome == OutcomeDead || outcome == OutcomeQuarantined; {
	case t.Deleting:
		t.vanish()
	case failed && !t.Recurs() && t.Pending == "" && t.LastNominal != 0: // else its time is still to come
		t.clearRun()
		t.Region, t.Lane = RegionDead, t.c.Lane()
	default:
		asked := t.Trigger != TriggerSchedule
		t.planNext(passed{hint: hint, begun: cmp.Or(t.FirstMS, t.Due), covered: true, asked: asked}, "")
	}
}

// name says in a notice which run it is about, which notice would have to find out.
func (t *transition) name(n *Notice, run *Run) {
	if t.HasRun() && t.Due != 0 {
		n.RunID, n.Trigger = run.ID, run.Trigger
	}
}

// vanish ends a deleted job, unless runs of it are live as records of their own:
// then it goes with the last of them.
func (t *transition) vanish() {
	if t.Children == 0 {
		t.deleted = true
		t.notice(Notice{Kind: JobDeleted})
		return
	}
	t.clearRun()
	t.Deleting, t.Pending, t.Waiting, t.Backfills = true, "", 0, nil
	t.Region, t.Lane = RegionDone, t.c.Lane()
}

// lose takes the end of a lease without a result. Losses use up no attempts.
func (t *transition) lose(ev Lose) Answer {
	if answer := t.fence(ev.Token); answer != Applied {
		return t.unchanged(answer, t.before())
	}
	t.Lost++
	t.LastOutcome, t.LastFinished = OutcomeLost, t.latest.MS
	t.noteLoss(ev.Token)
	if t.Acked {
		t.Losses++
	} else {
		t.Unacked++
	}
	t.notice(Notice{Kind: AttemptLost, Attempt: t.Attempt + 1, Count: int64(t.Losses)})
	run := t.run(Settle{Token: ev.Token}, t.Attempt)
	switch {
	case t.Cancel || t.Deleting:
		t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "requested"}, 0)
	case t.Losses >= lease.PoisonLosses:
		t.LastError = strconv.Itoa(lease.PoisonLosses) + " workers in a row were lost with this run"
		t.runFailed(run, OutcomeQuarantined, Notice{Kind: RunQuarantined, Reason: DeadPoison, Error: t.LastError}, 0)
	// A payload that kills its worker at once is acknowledged now and then.
	case t.Losses > 0 && t.Losses+t.Unacked >= lease.UndeliveredBound:
		t.LastError = strconv.Itoa(lease.UndeliveredBound) + " leases in a row were lost with this run, some of them after it had begun"
		t.runFailed(run, OutcomeQuarantined, Notice{Kind: RunQuarantined, Reason: DeadPoison, Error: t.LastError}, 0)
	case t.Unacked >= lease.UndeliveredBound:
		t.LastError = "leased " + strconv.Itoa(lease.UndeliveredBound) + " times in a row without reaching a worker"
		t.runFailed(run, OutcomeQuarantined, Notice{Kind: RunQuarantined, Reason: DeadUndelivered, Error: t.LastError}, 0)
	default:
		t.again()
		t.standApart()
	}
	return t.decision(Applied)
}

// standApart spreads the starts of runs that one more lost worker would quarantine.
func (t *transition) standApart() {
	if t.Losses != lease.PoisonLosses-1 {
		return
	}
	draw := backoff.SeedOf(int64(t.Losses), int64(t.Unacked), t.c.Namespace, "/", t.c.ID, "@", t.RunID())
	t.hold(HoldBack{Reason: HeldPace, UntilMS: t.latest.After(int64(draw % uint64(lease.Apart.Milliseconds())))})
}

// giveBack returns an attempt that never started. One of which it is stored that it did is
// lost: given back for nothing it could go round for ever.
func (t *transition) giveBack(ev Return) Answer {
	if answer := t.fence(ev.Token); answer != Applied {
		return t.unchanged(answer, t.before())
	}
	if t.Acked {
		return t.lose(Lose(ev))
	}
	t.notice(Notice{Kind: AttemptReturned, Attempt: t.Attempt + 1})
	if t.Cancel || t.Deleting {
		run := t.run(Settle{Token: ev.Token}, t.Attempt)
		t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "requested"}, 0)
	} else {
		t.unstart()
		t.again()
	}
	return t.decision(Applied)
}

// unstart notes that a run beside the schedule that people have asked for, and that was given
// back, has not begun: it waits for others once more, and none of them stops it.
func (t *transition) unstart() {
	if asked := t.Trigger != TriggerSchedule || t.Mode == ManualKeep; asked && !t.begun() {
		t.Started &^= t.self
	}
}

// again puts the leased run back: the same attempt is due once more, in its old place in the
// order unless the due time has been moved. A manual run
// that waits for the run goes on waiting, and a schedule that was edited meanwhile follows
// it: only a run that has failed is superseded.
func (t *transition) again() {
	t.Acked, t.Epoch = false, 0
	t.place()
	t.releaseManual()
}

// releaseManual makes the waiting manual run a record of its own where a pause keeps the run
// that it waits for from starting: a pause does not hold back what people ask for.
func (t *transition) releaseManual() {
	if t.Region == RegionPaused && t.manualWaits() && t.spawn == nil && t.freeSlot() >= 0 {
		t.spawnManual(t.Pending, t.PendingMode)
	}
}

// interrupted reports whether the current run waits to start again after the loss of a worker,
// or is what an edited schedule has left to finish. Such a run gives way to nothing.
func (t *transition) interrupted() bool {
	return t.HasRun() && !t.Live() && (t.Losses+t.Unacked > 0 || t.lossStands() || t.edited())
}

// manualWaits tells whether a manual run waits for this one.
func (t *transition) manualWaits() bool { return t.Pending != "" && t.Waiting == 0 && !t.child }

// edited tells whether the schedule that the run belongs to has been replaced.
func (t *transition) edited() bool {
	return t.Trigger == TriggerSchedule && t.Generation != t.c.Generation && !t.child
}

// supersede ends a run that would have been tried again.
func (t *transition) supersede(run Run) {
	t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "superseded"}, 0)
}

// fence compares a token with the live lease's.
func (t *transition) fence(token uint64) Answer {
	switch {
	case t.Live() && token == t.Token:
		return Applied
	case token != 0 && token == t.SettledToken:
		return Duplicate
	}
	return Stale
}

// before undoes what Decide prepared, for answers without effect.
func (t *transition) before() State {
	s := *t.State
	s.Revision--
	return s
}

func (t *transition) run(ev Settle, attempts uint32) Run {
	return Run{
		ID: t.RunID(), Trigger: t.Trigger, ManualID: t.ManualID, NominalMS: t.Nominal, DueMS: t.Due,
		StartedMS: ev.StartedMS, FinishedMS: t.latest.MS, Attempts: attempts, Losses: t.Losses,
		Output: clipBytes(ev.Output, MaxOutput), Worker: ev.Worker, Caller: t.State.callerTrace(),
	}
}

func clipBytes(b []byte, n int) []byte {
	if len(b) > n {
		return b[:n:n]
	}
	return b
}

// Correlation is that of the run that the notice is about; "" if it is about none.
func (n *Notice) Correlation() string {
	if n.RunID == "" {
		return ""
	}
	return Correlation(n.Key, n.RunID)
}

// Correlation is the id that links everything said about one run. It is
// computed, so that every node and every attempt use the same.
func Correlation(k Key, runID string) string {
	return strconv.FormatUint(backoff.SeedOf(0, 0, k.Namespace, "/", k.ID, "@", runID), 36)
}
