package job

import (
	"slices"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// New returns the first state of a job, with its notices.
func New(c *Compiled, now unixtime.Milli) Decision {
	var d Decision
	NewInto(&d, c, now)
	return d
}

// NewInto is [New] in memory of the caller's, see [DecideInto]. The notices are new.
func NewInto(d *Decision, c *Compiled, now unixtime.Milli) {
	*d = Decision{State: State{Revision: firstRevision(c.Definition), Lane: c.Lane(), Generation: c.Generation}}
	t := transition{State: &d.State, result: d, c: c, now: now, latest: lease.ClockBound{MS: now}}
	t.planNextRun(planInput{}, "")
	t.addNotice(Notice{Kind: JobCreated, DueMS: t.Due})
	t.finishDecision(Applied)
}

// firstRevision differs each time that a job is created: who decided on a
// job that has been deleted and created again since must not find token and revision
// as they were.
func firstRevision(d *Definition) uint32 {
	const room = 33 // leaves as many revisions to come as have been left out
	return 1 + uint32(backoff.SeedOf(int64(d.CreatedMS), 0, d.Namespace, "/", d.ID, " ", d.CreateRequestID)>>room)
}

// Decide moves a record. It is the only way a stored state changes, except for
// [State.Leased]. The state is a parent's; [DecideChild] is for the records of
// single runs.
func Decide(c *Compiled, s State, ev Input, now unixtime.Milli) Decision {
	var d Decision
	DecideInto(&d, c, &s, ev, now)
	return d
}

// DecideInto is [Decide] into memory of the caller, which includes the slice of earlier notices: a decision is
// large, and callers on the hot path reuse it.
func DecideInto(d *Decision, c *Compiled, s *State, ev Input, now unixtime.Milli) {
	DecideBy(d, c, s, ev, At(now))
}

// DecideBy is [DecideInto] by a clock that is not known exactly.
func DecideBy(d *Decision, c *Compiled, s *State, ev Input, clock Reading) {
	*d = Decision{State: *s, Notices: d.Notices[:0]}
	t := d.beginTransition(c, clock)
	t.applyEvent(ev)
}

// Reading is a bound on the shard's clock: the clock shows an instant between the two. Due runs are judged by
// the earlier one, and waits count from the later one, so that no wait is shorter than it should be.
type Reading struct {
	NowMS  unixtime.Milli   // it shows this at least
	Latest lease.ClockBound // it shows this at most
}

// At returns the reading of a clock that is known exactly.
func At(nowMS unixtime.Milli) Reading {
	return Reading{NowMS: nowMS, Latest: lease.ClockBound{MS: nowMS}}
}

// beginTransition makes the transition of the decision's state.
func (d *Decision) beginTransition(c *Compiled, clock Reading) transition {
	s := &d.State
	s.Recent, s.Backfills, s.AttemptLog = slices.Clone(s.Recent), slices.Clone(s.Backfills), s.attemptLog()
	t := transition{State: s, result: d, c: c, now: s.AtLeastDue(clock.NowMS), latest: clock.Latest,
		ranksBefore: s.Ranks(), notices: d.Notices}
	t.latest.MS = max(t.latest.MS, t.now)
	t.detectBreach()
	t.Revision++
	return t
}

// applyEvent dispatches an event.
func (t *transition) applyEvent(ev Input) Answer {
	if t.Rename != nil {
		return t.answerUnchanged(NoSuchRun, t.stateBefore())
	}
	switch ev := ev.(type) {
	case FinishAttempt:
		return t.settleAttempt(ev)
	case LoseLease:
		return t.handleLeaseLoss(ev)
	case ReturnLease:
		return t.returnAttempt(ev)
	case ForgiveLoss:
		return t.forgiveLoss(ev)
	case RunLeased:
		return t.decideStart(ev)
	case HoldBack:
		return t.holdLeasedRun(ev)
	case Wake:
		return t.releaseHeldRun(ev)
	case CheckLateness:
		return t.countLateRun(ev)
	case Pause:
		return t.pauseJob(ev)
	case Resume:
		return t.resumeJob(ev)
	case SetHint:
		return t.setHint(ev)
	case StartBackfill:
		return t.startBackfill(ev)
	case StopBackfill:
		return t.stopBackfill(ev)
	case Redrive:
		return t.redriveRun(ev)
	case Discard:
		return t.discardJob(ev)
	case Terminate:
		return t.terminateRun()
	case RequestManualRun:
		return t.requestManualRun(ev)
	case CancelRun:
		return t.cancelRun(ev)
	case Update:
		return t.updateDefinition(ev)
	case Delete:
		return t.deleteJob(ev)
	}
	return t.answerUnchanged(Applied, t.stateBefore())
}

// transition is a decision in progress. It writes to the result directly, because decisions are large: State is
// the decision's.
type transition struct {
	*State

	result      *Decision
	c           *Compiled
	now         unixtime.Milli
	latest      lease.ClockBound // waits count from it
	ranksBefore Ranks            // before the decision
	lagBefore   lagSnapshot
	deleted     bool
	ended       *Run
	dead        bool
	slot        int
	def         *Definition
	forgets     bool // the earlier revisions are removed
	notices     []Notice

	// child: the run is a child record, whose state is the run's part of State; selfBit is the bit of its slot.
	child   bool
	selfBit uint64

	arrival      Arrival
	spawn        *Spawned
	cancel, kill []int
}

func (t *transition) finishDecision(a Answer) Answer {
	t.countBreach()
	ranked := t.State.Ranks() != t.ranksBefore
	if t.deleted {
		ranked = t.ranksBefore != Ranks{}
	}
	d := t.result
	if t.ended != nil && !t.child {
		d.EarlierRun, t.KeptRun = t.KeptRun, ""
	}
	d.Ranked, d.WatchMS = ranked && !t.child, t.nextWatchMS()
	d.Answer, d.Changed, d.IndexMS, d.Delete = a, true, t.c.IndexMS(t.State, t.now), t.deleted
	d.Ended, d.DeadLetter, d.DeadSlot, d.Definition, d.Notices = t.ended, t.dead, t.slot, t.def, t.notices
	d.RemoveRevisions = t.forgets
	d.Arrival, d.Spawn, d.CancelChildren, d.TerminateChildren = t.arrival, t.spawn, t.cancel, t.kill
	return a
}

// answerUnchanged answers without any effect.
func (t *transition) answerUnchanged(a Answer, original State) Answer {
	*t.result = Decision{Answer: a, State: original, Notices: t.notices}
	return a
}

func (t *transition) addNotice(n Notice) {
	n.Key, n.Queue, n.AtMS, n.Failures = t.c.Key, t.Lane.Queue, t.now, t.Failures
	if n.RunID == "" && t.HasRun() && t.Due != 0 {
		n.RunID, n.Trigger = t.RunID(), t.Trigger
	}
	t.notices = append(t.notices, n)
}

// planNextRun replaces the run that ended by the one that comes after it: a
// waiting manual run, the next of the schedule, or none.
func (t *transition) planNextRun(p planInput, reason string) {
	t.clearRun()
	if t.Pending == "" || t.Waiting != 0 {
		t.planScheduledRun(p, reason)
		return
	}
	id, mode := t.Pending, t.PendingMode
	t.Pending, t.PendingMode = "", ManualReset
	if mode == ManualReset || t.spawn != nil || t.findFreeSlot() < 0 { // it takes the place of the next run
		t.foreseeNext(p, reason)
		t.planManualRun(id)
		t.Mode = mode
		return
	}
	t.planScheduledRun(p, reason)
	t.spawnManual(id, mode)
}

// planScheduledRun plans the next run of the schedule, or none.
func (t *transition) planScheduledRun(p planInput, reason string) {
	if t.Hint.Source == HintWorker || t.Hint.Source != HintNone && t.now >= t.Hint.UntilMS {
		t.Hint = Hint{}
	}
	o := t.foreseeNext(p, reason)
	if !o.found {
		t.clearRun()
		t.Region = RegionDone
		t.Lane = t.c.Lane()
		return
	}
	t.Trigger, t.Generation = TriggerSchedule, t.c.Generation
	t.Nominal, t.Due, t.Source, t.Recovery = o.nominal, o.due, o.source, o.recovery
	t.Held, t.Paced = Hold{}, false
	if t.Hint.Source > HintWorker && t.Source == DelayHint {
		t.Hint.AtMS = min(t.Hint.AtMS, t.Due) // see consumeHint
	}
	t.placeRun()
}

// placeRun puts a planned run where it belongs.
func (t *transition) placeRun() {
	t.Lane = t.c.Lane()
	t.Region = RegionDue
	if t.Paused && t.Trigger != TriggerManual && !t.child {
		t.Region = RegionPaused
		return
	}
	t.avoidExclusion()
}

func (t *transition) clearRun() {
	t.Trigger, t.ManualID, t.Nominal, t.Due, t.Source = TriggerSchedule, "", 0, 0, DelaySchedule
	t.Attempt, t.FirstMS, t.Losses, t.Unacked, t.Cancel = 0, 0, 0, 0, false
	t.LastLoss, t.AttemptLog = Loss{}, nil
	t.Acked, t.Epoch = false, 0
	t.Mode, t.Held, t.Recovery, t.Paced = ManualReset, Hold{}, false, false
	t.dropOtherCallers()
	t.forgetOtherExempt()
}

func (t *transition) planManualRun(requestID string) {
	t.Trigger, t.ManualID, t.Generation = TriggerManual, requestID, t.c.Generation
	t.Nominal, t.Due, t.Source = t.now, t.now, DelayManual
	if until, excluded := t.c.excludesRun(t.State, t.now); excluded {
		t.Due = until
	}
	t.placeRun()
	t.addNotice(Notice{Kind: ManualRunStarted, DueMS: t.Due})
}
