package job

import (
	"slices"
	"time"
)

// New is the first state of a job and what to tell about it.
func New(c *Compiled, now int64) Decision {
	t := transition{c: c, now: now, State: State{Revision: 1, Lane: c.Lane(), Generation: c.Generation}}
	t.planNext(0, "")
	t.notice(Notice{Kind: JobCreated, DueMS: t.Due})
	return t.decision(Applied)
}

// Decide moves a record. It is the only way a stored state changes, except for
// [State.Leased]. An error means that state and definition do not belong
// together, which the store's auditor has to look at; nothing is changed.
func Decide(c *Compiled, s State, ev Event, now int64) Decision {
	s.Recent = slices.Clone(s.Recent)
	t := transition{c: c, now: now, State: s}
	t.Revision++
	switch ev := ev.(type) {
	case Settle:
		return t.settle(ev)
	case Lose:
		return t.lose(ev)
	case Return:
		return t.giveBack(ev)
	case Pause:
		return t.pause(ev)
	case Resume:
		return t.resume()
	case RunNow:
		return t.runNow(ev)
	case CancelRun:
		return t.cancelRun(ev)
	case Update:
		return t.update(ev)
	case Delete:
		return t.delete(ev)
	}
	return Decision{Answer: Applied, State: s}
}

// transition is a decision in the making.
type transition struct {
	State
	c       *Compiled
	now     int64
	deleted bool
	ended   *Run
	dead    bool
	slot    int
	def     *Definition
	notices []Notice
}

func (t *transition) decision(a Answer) Decision {
	return Decision{
		Answer: a, Changed: true, State: t.State, IndexMS: t.c.IndexMS(t.State, t.now), Delete: t.deleted,
		Ended: t.ended, DeadLetter: t.dead, DeadSlot: t.slot, Definition: t.def, Notices: t.notices,
	}
}

// unchanged answers without any effect.
func (t *transition) unchanged(a Answer, original State) Decision {
	return Decision{Answer: a, State: original, Notices: t.notices}
}

func (t *transition) notice(n Notice) {
	n.Key, n.Queue, n.AtMS, n.Failures = t.c.Key, t.Lane.Queue, t.now, t.Failures
	if n.RunID == "" && t.HasRun() && t.Due != 0 {
		n.RunID, n.Trigger = t.RunID(), t.Trigger
		n.Correlation = Correlation(t.c.Key, n.RunID)
	}
	t.notices = append(t.notices, n)
}

// planNext replaces the run that ended by the one that comes after it: a
// waiting manual run, the next of the schedule, or none.
func (t *transition) planNext(hint time.Duration, reason string) {
	t.clearRun()
	switch {
	case t.Pending != "":
		t.planManual(t.Pending)
		t.Pending = ""
	default:
		o := t.c.next(t.State, t.now, hint)
		if o.skipped > 0 {
			t.Skipped += uint64(o.skipped)
			t.notice(Notice{Kind: NominalSkipped, Count: o.skipped, Reason: skipReason(reason, o.source)})
		}
		if !o.ok {
			t.Region, t.Due = RegionDone, 0
			t.Lane = t.c.Lane()
			return
		}
		t.Trigger, t.Generation = TriggerSchedule, t.c.Generation
		t.Nominal, t.Due, t.Source = o.nominal, o.due, o.source
	}
	t.place()
}

// place puts a planned run where it belongs.
func (t *transition) place() {
	t.Lane = t.c.Lane()
	t.Region = RegionDue
	if t.Paused && t.Trigger != TriggerManual {
		t.Region = RegionPaused
	}
}

func (t *transition) clearRun() {
	t.Trigger, t.ManualID, t.Nominal, t.Due, t.Source = TriggerSchedule, "", 0, 0, DelaySchedule
	t.Attempt, t.FirstMS, t.Losses, t.Unacked, t.Cancel = 0, 0, 0, 0, false
	t.Acked, t.Epoch = false, 0
}

func (t *transition) planManual(requestID string) {
	t.Trigger, t.ManualID, t.Generation = TriggerManual, requestID, t.c.Generation
	t.Nominal, t.Due, t.Source = t.now, t.now, DelayManual
	t.place()
	t.notice(Notice{Kind: ManualRunStarted, DueMS: t.now})
}

func skipReason(reason string, source DelaySource) string {
	switch {
	case reason != "":
		return reason
	case source == DelayBackoff || source == DelayHint:
		return "backoff"
	}
	return "overlap"
}
