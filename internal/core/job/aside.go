package job

import (
	"fmt"
	"slices"
)

// DecideUnusable stands in for [Decide] where the stored definition does not
// compile, because of the fault. Update and Delete work as ever: they are how
// people mend it. The end of a lease, however it comes, puts the record among
// the dead ones for ever, so that it is neither leased nor reaped again and
// again. Whatever changes or refuses nothing else answers [ErrCorrupt]; a
// decision that comes with it is to be stored all the same.
func DecideUnusable(d *Definition, s State, fault error, ev Event, now int64) (Decision, error) {
	s.Recent = slices.Clone(s.Recent)
	made := Decision{State: s}
	t := transition{State: &made.State, into: &made, c: &Compiled{Definition: d}, now: now}
	t.Revision++
	corrupt := fmt.Errorf("%w: %w", ErrCorrupt, fault)
	switch ev := ev.(type) {
	case Update:
		t.update(ev)
		corrupt = nil
	case Delete:
		t.delete(ev)
		corrupt = nil
	case Settle:
		corrupt = t.putAside(ev.Token, corrupt)
	case Lose:
		corrupt = t.putAside(ev.Token, corrupt)
	case Return:
		corrupt = t.putAside(ev.Token, corrupt)
	case ForgiveLoss:
		corrupt = t.putAside(ev.Token, corrupt)
	default:
		t.unchanged(Stale, t.before())
	}
	return made, corrupt
}

// DecideUnusableChild stands in for [DecideChild] in the same case. The end of a
// lease, however it comes, ends the run: its record goes, and the parent, which is
// as good or bad as it was, counts a dead run. So do Terminate and CancelRun.
func DecideUnusableChild(d *Definition, parent, child State, fault error, ev Event, now int64) (Pair, error) {
	corrupt := fmt.Errorf("%w: %w", ErrCorrupt, fault)
	refuse := func(a Answer, err error) (Pair, error) {
		return Pair{Child: Decision{Answer: a, State: child}, Parent: Decision{Answer: a, State: parent}}, err
	}
	c := &Compiled{Definition: d}
	pair := Pair{Child: Decision{State: withRun(parent, child)}}
	t := pair.Child.begin(c, At(now))
	t.child, t.self = true, child.Children
	answer := Applied
	switch ev := ev.(type) {
	case Settle:
		answer = t.fence(ev.Token)
	case Lose:
		answer = t.fence(ev.Token)
	case Return:
		answer = t.fence(ev.Token)
	case ForgiveLoss:
		answer = t.fence(ev.Token)
	case Terminate, CancelRun:
	default:
		return refuse(Stale, corrupt)
	}
	if answer != Applied {
		return refuse(answer, nil)
	}
	t.LastOutcome, t.LastFinished, t.LastError = OutcomeDead, now, Clip(corrupt.Error(), MaxError)
	run := t.run(Settle{Token: child.Token}, t.Attempt)
	t.Dead++
	t.endRun(run, OutcomeDead, Notice{Kind: RunDead, Reason: DeadCorrupt, Error: t.LastError}, 0)
	t.decision(Applied)

	pair.Parent.State = withRun(*t.State, parent)
	p := pair.Parent.begin(c, At(now))
	p.ended, p.notices = t.ended, t.notices
	p.dropChild(child.Children)
	if p.Deleting && !p.Live() {
		p.vanish()
	}
	p.decision(Applied)
	own := &pair.Child
	own.State, own.Ended, own.Notices = runPart(t.State), nil, nil
	return pair, corrupt
}

// putAside ends the live run and every later one. It returns what is corrupt, if the
// event was taken.
func (t *transition) putAside(token uint64, corrupt error) error {
	before := t.before()
	if answer := t.fence(token); answer != Applied {
		t.unchanged(answer, before)
		return nil
	}
	t.SettledToken = token
	t.LastOutcome, t.LastFinished, t.LastError = OutcomeDead, t.now, Clip(corrupt.Error(), MaxError)
	run := t.run(Settle{Token: token}, t.Attempt)
	run.Outcome, run.Error = OutcomeDead, t.LastError
	t.ended = &run
	t.Runs++
	t.Dead++
	t.notice(Notice{Kind: RunDead, Reason: DeadCorrupt, Error: t.LastError})
	if t.Deleting {
		t.deleted = true
		t.notice(Notice{Kind: JobDeleted})
		t.decision(Applied)
		return corrupt
	}
	if t.manualWaits() {
		t.notice(Notice{Kind: RunCancelled, RunID: ManualRunID(t.Pending), Trigger: TriggerManual, Reason: DeadCorrupt})
	}
	t.clearRun()
	t.Pending = ""
	t.Region = RegionDead
	t.decision(Applied)
	t.into.IndexMS = NeverMS
	return corrupt
}
