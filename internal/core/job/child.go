package job

import (
	"math/bits"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// A run that is live while time goes on for its job's schedule is a child record
// "namespace/job#r<slot>". It uses its parent's definition. Its state is the part of [State]
// that belongs to a run; everything else is in the parent. So a decision on a child is a
// decision on both records.

// Spawned is a run that moves into a child record.
type Spawned struct {
	Slot  int
	State State
	// WatchMS is as in Decision.
	WatchMS unixtime.Milli
	// Payload is the run's own, if State describes one. nil: that of the dead letter of which the run is made.
	Payload *RunPayload
}

// ParentChildPair is a decision on a child and its parent. Both are stored, or neither; a
// parent that is not Changed is not written.
type ParentChildPair struct {
	Child, Parent Decision
}

// ChildSlots lists the slots that are taken.
func (s State) ChildSlots() []int { return listSlots(s.Children) }

func listSlots(set uint64) []int {
	var slots []int
	for ; set != 0; set &= set - 1 {
		slots = append(slots, bits.TrailingZeros64(set))
	}
	return slots
}

// findFreeSlot returns the first slot that is free; -1 when none is.
func (t *transition) findFreeSlot() int {
	if slot := bits.TrailingZeros64(^t.Children); slot < MaxConcurrentRuns {
		return slot
	}
	return -1
}

// addChild moves a run into a record of its own, in the region that its state has. The caller ensures that a
// slot is free.
func (t *transition) addChild(run State, started bool) (slot int) {
	slot = t.findFreeSlot()
	bit := uint64(1) << slot
	t.Children |= bit
	t.OwnBytes += run.OwnPayload.size()
	run.Children = bit
	if started {
		t.Started |= bit
		run.Started = bit
	}
	// A slot is used again: with the parent's revision no state of two runs in it
	// has the same guard.
	if until, excluded := t.c.excludesRun(&run, run.Due); excluded && run.Region == RegionDue {
		run.Due = until
	}
	run.Revision, run.Lane, run.Held = t.Revision, t.c.Lane(), Hold{DueMS: run.Held.DueMS}
	if run.Region == RegionLeased {
		run.Lane = t.Lane
	}
	t.spawn = &Spawned{Slot: slot, State: run}
	t.watchChild(t.spawn)
	return slot
}

// spawnManual makes a manual run that leaves the plan alone.
func (t *transition) spawnManual(id string, mode ManualMode) {
	t.Pending, t.PendingMode = id, mode
	t.Waiting = uint8(1 + t.addChild(State{
		Trigger: TriggerManual, ManualID: id, Mode: mode, Nominal: t.now, Due: t.now,
		Source: DelayManual, Generation: t.c.Generation, Callers: selectCallers(t.Callers, id),
		Exempt: selectExempt(t.Exempt, ManualRunID(id)),
	}, false))
	t.Callers, t.Exempt = removeCallers(t.Callers, id), removeExempt(t.Exempt, ManualRunID(id))
	t.addNotice(Notice{Kind: ManualRunStarted, RunID: ManualRunID(id), Trigger: TriggerManual,
		DueMS: t.spawn.State.Due})
}

// extractRun returns the part of a state that belongs to its run.
func extractRun(s *State) State {
	return State{
		Region: s.Region, Token: s.Token, Acked: s.Acked, Revision: s.Revision, Epoch: s.Epoch,
		Lane: s.Lane, Generation: s.Generation, Trigger: s.Trigger, ManualID: s.ManualID, Mode: s.Mode,
		Nominal: s.Nominal, Due: s.Due, Source: s.Source, Attempt: s.Attempt, FirstMS: s.FirstMS,
		Held: s.Held, Recovery: s.Recovery, Paced: s.Paced, Losses: s.Losses, Unacked: s.Unacked, LastLoss: s.LastLoss,
		Cancel: s.Cancel, SettledToken: s.SettledToken, Callers: s.Callers, Exempt: s.Exempt,
		LateNominal: s.LateNominal, WatchedBy: s.WatchedBy, OwnPayload: s.OwnPayload, AttemptLog: s.AttemptLog,
	}
}

// replaceRun returns a state with the run's part of another one.
func replaceRun(s, run State) State {
	s.Region, s.Token, s.Acked, s.Revision, s.Epoch = run.Region, run.Token, run.Acked, run.Revision, run.Epoch
	s.Lane, s.Generation, s.Trigger, s.ManualID, s.Mode = run.Lane, run.Generation, run.Trigger, run.ManualID, run.Mode
	s.Nominal, s.Due, s.Source, s.Attempt, s.FirstMS = run.Nominal, run.Due, run.Source, run.Attempt, run.FirstMS
	s.Held, s.Recovery, s.Paced, s.Losses, s.Unacked = run.Held, run.Recovery, run.Paced, run.Losses, run.Unacked
	s.LastLoss, s.Cancel, s.SettledToken, s.Callers = run.LastLoss, run.Cancel, run.SettledToken, run.Callers
	s.LateNominal, s.WatchedBy, s.Exempt, s.OwnPayload = run.LateNominal, run.WatchedBy, run.Exempt, run.OwnPayload
	s.AttemptLog = run.AttemptLog
	return s
}

// DecideChild moves a child record and its parent. Redrive and Discard are decided on a dead
// letter, every other event on the record of a run.
func DecideChild(c *Compiled, parent, child State, ev Input, now unixtime.Milli) ParentChildPair {
	return DecideChildBy(c, parent, child, ev, At(now))
}

// DecideChildBy is [DecideChild] by a clock that is not known exactly.
func DecideChildBy(c *Compiled, parent, child State, ev Input, clock Reading) ParentChildPair {
	now := clock.NowMS
	switch ev := ev.(type) {
	case Redrive:
		return redriveLetter(c, parent, child, ev, now)
	case Discard:
		return discardLetter(c, parent, child, ev, now)
	}
	d := Decision{State: replaceRun(parent, child)}
	t := d.beginTransition(c, clock)
	t.child, t.selfBit = true, child.Children
	failures := t.Failures
	switch ev := ev.(type) {
	case RunLeased:
		t.decideChildStart(ev, parent.Live())
	case FinishAttempt, LoseLease, ReturnLease, ForgiveLoss, HoldBack, Wake, CheckLateness, CancelRun, Terminate:
		t.applyEvent(ev)
	default: // requests to a job as a whole
		t.answerUnchanged(NoSuchRun, t.stateBefore())
	}
	if !d.Changed {
		return ParentChildPair{
			Child:  Decision{Answer: d.Answer, State: child, Arrival: d.Arrival, Notices: d.Notices},
			Parent: Decision{Answer: d.Answer, State: parent},
		}
	}
	pair := ParentChildPair{Child: d, Parent: Decision{State: replaceRun(d.State, parent)}}
	run := extractRun(t.State)
	pair.Child.IndexMS = c.IndexMS(&run, now)
	run.Children, run.Started, run.Unknown = child.Children, t.Started&child.Children, child.Unknown
	pair.Child.State = run
	pair.Child.Ended, pair.Child.DeadLetter, pair.Child.Notices = nil, false, nil

	p := pair.Parent.beginTransition(c, clock)
	p.ranksBefore = parent.Ranks()
	p.ended, p.dead, p.slot, p.notices = d.Ended, d.DeadLetter, d.DeadSlot, d.Notices
	var hint time.Duration
	if s, ok := ev.(FinishAttempt); ok && d.Delete {
		hint = s.RetryAfter
	}
	p.applyChildOutcome(child, d.Delete, t.Failures != failures, hint)
	if t.Paused && !parent.Paused && !t.Deleting {
		p.addNotice(Notice{Kind: JobPaused, DueMS: p.Due, Reason: t.PauseNote})
	}
	p.finishDecision(d.Answer)
	return pair
}

// decideChildStart decides whether the leased run of a child record starts.
func (t *transition) decideChildStart(ev RunLeased, parentLive bool) Answer {
	before := t.stateBefore()
	if answer := t.checkFence(ev.Token); answer != Applied {
		return t.answerUnchanged(answer, before)
	}
	if _, excluded := t.c.excludesRun(t.State, t.now); excluded {
		return t.postponeRun(ev.Token)
	}
	if t.Started&t.selfBit != 0 {
		return t.answerUnchanged(Applied, before) // a retry
	}
	b := t.findBackfill(t.ManualID)
	beside := t.c.Overlap == OverlapAllowAll
	if t.Trigger == TriggerBackfill {
		beside = b != nil && b.Concurrency > 1
	}
	switch {
	case t.Deleting, t.Cancel, t.Trigger == TriggerBackfill && b == nil && t.Mode != ManualKeep: // which is redriven
		t.arrival = ArrivalSkipped
		t.endRun(t.buildRun(FinishAttempt{Token: ev.Token}, 0), OutcomeCancelled,
			Notice{Kind: RunCancelled, Reason: "requested"}, 0)
	case !beside && (parentLive || t.Started != 0):
		return t.waitForOtherRuns()
	default:
		t.Started |= t.selfBit
		t.clearWaitingManual()
	}
	return t.finishDecision(Applied)
}

// clearWaitingManual notes that the waiting manual run is this child and has begun, or is gone.
func (t *transition) clearWaitingManual() {
	if t.Waiting != 0 && t.selfBit == 1<<(t.Waiting-1) {
		t.Pending, t.PendingMode, t.Waiting = "", ManualReset, 0
	}
}

// endChild ends a child record.
func (t *transition) endChild() {
	t.clearWaitingManual()
	t.deleted = true
}

// terminateRun ends a run at once, live or not.
func (t *transition) terminateRun() Answer {
	if !t.child || !t.HasRun() {
		return t.answerUnchanged(NoSuchRun, t.stateBefore())
	}
	t.LastOutcome, t.LastFinished = OutcomeCancelled, t.now
	run := t.buildRun(FinishAttempt{Token: t.Token}, t.Attempt)
	t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "terminated"}, 0)
	return t.finishDecision(Applied)
}

// applyChildOutcome updates the parent with the outcome of a child, whose worker may have requested a delay.
func (t *transition) applyChildOutcome(child State, ended, failuresChanged bool, hint time.Duration) {
	if ended {
		t.dropChild(child.Children, child.OwnPayload.size())
		if t.Deleting && !t.Live() {
			t.removeDeletedJob()
			return
		}
		if t.Region == RegionDue && t.Held.Reason == HeldOverlap {
			t.Due = max(min(t.Due, t.now), t.Nominal)
			t.avoidExclusion()
		}
	}
	if t.Paused && t.Region == RegionDue {
		t.placeRun()
	}
	late := t.Region == RegionDue && (t.Due <= t.now || t.Held.Reason != HeldNone)
	if failuresChanged && !late { // one that is late stays as it is
		if t.Hint.Source == HintWorker && t.Hint.AtMS == t.Due && t.Failures > 0 {
			hint = max(hint, t.Due.Sub(t.now)) // another hint, still in force
		}
		t.replanRun(hint)
		t.noteWorkerHint(t.LastError)
		if t.Source == DelayBackoff && t.Region == RegionDue {
			t.addNotice(Notice{Kind: BackoffApplied, DueMS: t.Due})
		}
	}
	t.planNextBackfill()
}

// dropChild frees the slot of a child that has ended, and the bytes that its own payload took.
func (t *transition) dropChild(bit, ownBytes uint64) {
	t.Children &^= bit
	t.Started &^= bit
	t.OwnBytes -= min(ownBytes, t.OwnBytes)
	for i := range t.Backfills {
		t.Backfills[i].Slots &^= bit
	}
}

// redriveLetter makes a dead letter a run again.
func redriveLetter(c *Compiled, parent, letter State, ev Redrive, now unixtime.Milli) ParentChildPair {
	refuse := func(a Answer) ParentChildPair {
		return ParentChildPair{Child: Decision{Answer: a, State: letter}, Parent: Decision{Answer: a, State: parent}}
	}
	pair := ParentChildPair{Parent: Decision{State: parent}}
	t := pair.Parent.beginTransition(c, At(now))
	switch {
	case !letter.isLetterSince(ev.FinishedMS):
		return refuse(NotDead)
	case t.Deleting:
		return refuse(NoSuchRun)
	case t.findFreeSlot() < 0 || letter.OwnPayload != nil && t.OwnBytes+letter.OwnPayload.size() > MaxRunPayloads:
		return refuse(TooMany)
	}
	run := State{
		Trigger: letter.Trigger, ManualID: letter.ManualID, Mode: ManualKeep, Nominal: letter.Nominal,
		Due: max(now, letter.Nominal), Source: DelayRedrive, Recovery: true, Generation: letter.Generation,
		OwnPayload: letter.OwnPayload,
	}
	if ev.IgnoreExclusions {
		run.Exempt = []string{run.RunID()}
	}
	t.addChild(run, false)
	t.addNotice(Notice{
		Kind: RunRedriven, RunID: letter.RunID(), Trigger: letter.Trigger,
	})
	t.finishDecision(Applied)
	gone := letter
	gone.Revision++
	pair.Child = Decision{Answer: Applied, Changed: true, State: gone, Delete: true}
	return pair
}
