package job

import (
	"math/bits"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// decideStart decides whether a leased run starts: in its place, as a child record, later, or not at all. The
// caller delivers it only if it starts.
func (t *transition) decideStart(ev RunLeased) Answer {
	before := t.stateBefore()
	if answer := t.checkFence(ev.Token); answer != Applied {
		return t.answerUnchanged(answer, before)
	}
	if isLate(t.c.Definition, t.State, t.now) {
		return t.skipLeasedRun("misfire")
	}
	if _, excluded := t.c.excludesRun(t.State, t.now); excluded {
		return t.postponeRun(ev.Token)
	}
	others := t.Started
	crowded := bits.OnesCount64(others) >= t.c.maxOverlap()
	fresh := t.Attempt == 0 && t.c.Schedule.Kind != schedule.KindOnce
	switch {
	case fresh && t.c.Overlap == OverlapAllowAll && crowded && t.Trigger == TriggerSchedule:
		return t.skipLeasedRun("overlap")
	case fresh && t.c.Overlap == OverlapAllowAll && t.findFreeSlot() >= 0:
		return t.spawnChildRun()
	case fresh && t.c.Overlap == OverlapTerminateOther && t.findFreeSlot() >= 0:
		t.kill = listSlots(others)
		return t.spawnChildRun()
	case others == 0 && fresh && t.c.Overlap == OverlapCancelOther && t.findFreeSlot() >= 0:
		return t.spawnChildRun()
	case others == 0:
		return t.answerUnchanged(Applied, before) // it starts in its place
	case t.c.Overlap == OverlapCancelOther:
		t.cancel = listSlots(others)
	}
	if t.endOvertakenRun(ev.Token) {
		t.arrival, t.cancel = ArrivalSkipped, nil
		return t.finishDecision(Applied)
	}
	return t.waitForOtherRuns()
}

// skipLeasedRun gives the run up before it has begun.
func (t *transition) skipLeasedRun(reason string) Answer {
	t.arrival = ArrivalSkipped
	if reason == "misfire" {
		if late, ok := t.c.objectiveExcess(t.State, t.now); ok {
			t.LateMS = late
		}
	}
	t.countPassedOver(t.now)
	missed := int64(1)
	if t.isCountedLate() {
		missed = 0
	}
	t.LastNominal = max(t.LastNominal, t.Nominal)
	t.countLeftOut(1, missed, reason)
	t.consumeHint()
	if t.Deleting {
		t.removeDeletedJob()
	} else {
		t.planNextRun(planInput{}, reason)
	}
	return t.finishDecision(Applied)
}

// overlapPollMS is how long a run that waits for another run of its job sleeps
// unless that run's end wakes it.
const overlapPollMS = 1000

// waitForOtherRuns makes the run due again when the others have ended.
func (t *transition) waitForOtherRuns() Answer {
	t.arrival = ArrivalHeld
	t.putRunOnHold(HoldBack{Reason: HeldOverlap, UntilMS: t.now + overlapPollMS})
	return t.finishDecision(Applied)
}

// spawnChildRun moves the leased run into a child record and plans the next one.
func (t *transition) spawnChildRun() Answer {
	t.arrival = ArrivalSpawn
	run := extractRun(t.State)
	t.addChild(run, true)
	t.LastStarted = max(t.LastStarted, t.now)
	t.markNominalDone()
	t.consumeHint()
	if t.Deleting {
		t.removeDeletedJob()
	} else {
		t.planNextRun(planInput{startedMS: t.now, missedCovered: true}, "")
	}
	return t.finishDecision(Applied)
}

// holdLeasedRun puts a leased run back that a gate holds.
func (t *transition) holdLeasedRun(ev HoldBack) Answer {
	before := t.stateBefore()
	if answer := t.checkFence(ev.Token); answer != Applied {
		return t.answerUnchanged(answer, before)
	}
	if !t.endOvertakenRun(ev.Token) {
		t.putRunOnHold(ev)
	}
	return t.finishDecision(Applied)
}

// endOvertakenRun ends a leased run that was to be held back, if another request replaced it meanwhile. It
// reports whether it did.
func (t *transition) endOvertakenRun(token uint64) bool {
	run := t.buildRun(FinishAttempt{Token: token}, t.Attempt)
	switch {
	case t.Cancel || t.Deleting:
		t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "requested"}, 0)
	case t.isScheduleReplaced():
		t.supersedeRun(run)
	default:
		return false
	}
	return true
}

// putRunOnHold puts the leased run back.
func (t *transition) putRunOnHold(ev HoldBack) {
	since, known := t.now, t.Held.Reason == ev.Reason && t.Held.Key == ev.Key
	if known {
		since = t.Held.SinceMS
	}
	due := t.Held.DueMS
	if t.Held.Reason == HeldNone {
		due = t.expectedStartMS()
	}
	t.recordLag(t.now, "")
	t.Held = Hold{DueMS: due, Reason: ev.Reason, Key: Clip(ev.Key, MaxNote), By: Clip(ev.By, MaxNote), SinceMS: since}
	t.Paced = t.Paced || ev.Paced
	t.Due, t.Source = max(ev.UntilMS, t.now, t.Nominal), DelayHeld
	t.repeatAttempt()
	if !known {
		t.addNotice(Notice{Kind: RunHeld, Attempt: t.Attempt + 1, Reason: ev.Reason.String(), DueMS: t.Due})
	}
}

// releaseHeldRun makes a run due that a gate holds back.
func (t *transition) releaseHeldRun(ev Wake) Answer {
	if t.Region != RegionDue || t.Held.Reason != ev.Reason || t.Held.Key != ev.Key || t.Due <= t.now {
		return t.answerUnchanged(Stale, t.stateBefore())
	}
	if _, excluded := t.c.excludesRun(t.State, max(t.now, t.Nominal)); excluded {
		return t.answerUnchanged(Stale, t.stateBefore()) // who can start now is to be woken instead
	}
	t.Due = max(t.now, t.Nominal)
	return t.finishDecision(Applied)
}
