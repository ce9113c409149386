package job

import (
	"math/bits"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// arrive decides whether a run that was leased starts: in its place, as a record
// of its own, later, or not at all. The caller delivers it only if it starts.
func (t *transition) arrive(ev Arrive) Answer {
	before := t.before()
	if answer := t.fence(ev.Token); answer != Applied {
		return t.unchanged(answer, before)
	}
	if isLate(t.c.Definition, t.State, t.now) {
		return t.leaveOutRun("misfire")
	}
	if _, excluded := t.c.excluded(t.State, t.now); excluded {
		return t.putOff(ev.Token)
	}
	others := t.Started
	crowded := bits.OnesCount64(others) >= t.c.overlapLimit()
	fresh := t.Attempt == 0 && t.c.Schedule.Kind != schedule.KindOnce
	switch {
	case fresh && t.c.Overlap == OverlapAllowAll && crowded && t.Trigger == TriggerSchedule:
		return t.leaveOutRun("overlap")
	case fresh && t.c.Overlap == OverlapAllowAll && t.freeSlot() >= 0:
		return t.spawnRun()
	case fresh && t.c.Overlap == OverlapTerminateOther && t.freeSlot() >= 0:
		t.kill = slotsOf(others)
		return t.spawnRun()
	case others == 0 && fresh && t.c.Overlap == OverlapCancelOther && t.freeSlot() >= 0:
		return t.spawnRun()
	case others == 0:
		return t.unchanged(Applied, before) // it starts in its place
	case t.c.Overlap == OverlapCancelOther:
		t.cancel = slotsOf(others)
	}
	if t.overtaken(ev.Token) {
		t.arrival, t.cancel = ArrivalSkipped, nil
		return t.decision(Applied)
	}
	return t.waitForOthers()
}

// leaveOutRun gives the run up before it has begun.
func (t *transition) leaveOutRun(reason string) Answer {
	t.arrival = ArrivalSkipped
	if reason == "misfire" {
		if late, ok := t.c.breaks(t.State, t.now); ok {
			t.LateMS = late
		}
	}
	t.passOver(t.now)
	missed := int64(1)
	if t.countedLate() {
		missed = 0
	}
	t.LastNominal = max(t.LastNominal, t.Nominal)
	t.leftOut(1, missed, reason)
	t.spendHint()
	if t.Deleting {
		t.vanish()
	} else {
		t.planNext(passed{}, reason)
	}
	return t.decision(Applied)
}

// overlapPoll is how long a run that waits for another run of its job sleeps
// unless that run's end wakes it.
const overlapPoll = 1000

// waitForOthers makes the run due again when the others have ended.
func (t *transition) waitForOthers() Answer {
	t.arrival = ArrivalHeld
	t.hold(HoldBack{Reason: HeldOverlap, UntilMS: t.now + overlapPoll})
	return t.decision(Applied)
}

// spawnRun makes the leased run a record of its own and plans the next one.
func (t *transition) spawnRun() Answer {
	t.arrival = ArrivalSpawn
	run := runPart(t.State)
	t.addChild(run, true)
	t.LastStarted = max(t.LastStarted, t.now)
	t.settleNominal()
	t.spendHint()
	if t.Deleting {
		t.vanish()
	} else {
		t.planNext(passed{begun: t.now, covered: true}, "")
	}
	return t.decision(Applied)
}

// holdBack takes the word of a gate.
func (t *transition) holdBack(ev HoldBack) Answer {
	before := t.before()
	if answer := t.fence(ev.Token); answer != Applied {
		return t.unchanged(answer, before)
	}
	if !t.overtaken(ev.Token) {
		t.hold(ev)
	}
	return t.decision(Applied)
}

// overtaken ends a leased run that was to be held back, if something else was asked for
// meanwhile. It reports whether it did.
func (t *transition) overtaken(token uint64) bool {
	run := t.run(Settle{Token: token}, t.Attempt)
	switch {
	case t.Cancel || t.Deleting:
		t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "requested"}, 0)
	case t.edited():
		t.supersede(run)
	default:
		return false
	}
	return true
}

// hold puts the leased run back.
func (t *transition) hold(ev HoldBack) {
	since, known := t.now, t.Held.Reason == ev.Reason && t.Held.Key == ev.Key
	if known {
		since = t.Held.SinceMS
	}
	due := t.Held.DueMS
	if t.Held.Reason == HeldNone {
		due = t.promised()
	}
	t.judgeLag(t.now, "")
	t.Held = Hold{DueMS: due, Reason: ev.Reason, Key: Clip(ev.Key, MaxNote), By: Clip(ev.By, MaxNote), SinceMS: since}
	t.Paced = t.Paced || ev.Paced
	t.Due, t.Source = max(ev.UntilMS, t.now, t.Nominal), DelayHeld
	t.again()
	if !known {
		t.notice(Notice{Kind: RunHeld, Attempt: t.Attempt + 1, Reason: ev.Reason.String(), DueMS: t.Due})
	}
}

// wake makes a run due that a gate holds back.
func (t *transition) wake(ev Wake) Answer {
	if t.Region != RegionDue || t.Held.Reason != ev.Reason || t.Held.Key != ev.Key || t.Due <= t.now {
		return t.unchanged(Stale, t.before())
	}
	if _, excluded := t.c.excluded(t.State, max(t.now, t.Nominal)); excluded {
		return t.unchanged(Stale, t.before()) // who can start now is to be woken instead
	}
	t.Due = max(t.now, t.Nominal)
	return t.decision(Applied)
}
