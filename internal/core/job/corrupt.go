package job

import (
	"fmt"
	"slices"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// DecideCorrupt replaces [Decide] where the stored definition does not compile; fault is the error. Update and
// Delete work as usual, so that users can repair the job. The end of a lease, of any kind, makes the record dead
// permanently, so that it is neither leased nor reaped again.
// Every other change answers [ErrCorrupt]; a decision that comes with it must be stored nevertheless.
func DecideCorrupt(d *Definition, s State, fault error, ev Input, now unixtime.Milli) (Decision, error) {
	s.Recent = slices.Clone(s.Recent)
	made := Decision{State: s}
	t := transition{State: &made.State, result: &made, c: &Compiled{Definition: d}, now: now}
	t.Revision++
	corrupt := fmt.Errorf("%w: %w", ErrCorrupt, fault)
	switch ev := ev.(type) {
	case Update:
		t.updateDefinition(ev)
		corrupt = nil
	case Delete:
		t.deleteJob(ev)
		corrupt = nil
	case FinishAttempt:
		corrupt = t.endCorruptRun(ev.Token, corrupt)
	case LoseLease:
		corrupt = t.endCorruptRun(ev.Token, corrupt)
	case ReturnLease:
		corrupt = t.endCorruptRun(ev.Token, corrupt)
	case ForgiveLoss:
		corrupt = t.endCorruptRun(ev.Token, corrupt)
	default:
		t.answerUnchanged(Stale, t.stateBefore())
	}
	return made, corrupt
}

// DecideCorruptChild replaces [DecideChild] in the same case. The end of a lease, of any kind, ends the run:
// its record is deleted, and the parent, which stays as it is, counts a dead run. Terminate and CancelRun do the
// same.
func DecideCorruptChild(d *Definition, parent, child State, fault error,
	ev Input, now unixtime.Milli) (ParentChildPair, error) {
	corrupt := fmt.Errorf("%w: %w", ErrCorrupt, fault)
	refuse := func(a Answer, err error) (ParentChildPair, error) {
		return ParentChildPair{Child: Decision{Answer: a, State: child}, Parent: Decision{Answer: a, State: parent}}, err
	}
	c := &Compiled{Definition: d}
	pair := ParentChildPair{Child: Decision{State: replaceRun(parent, child)}}
	t := pair.Child.beginTransition(c, At(now))
	t.child, t.selfBit = true, child.Children
	answer := Applied
	switch ev := ev.(type) {
	case FinishAttempt:
		answer = t.checkFence(ev.Token)
	case LoseLease:
		answer = t.checkFence(ev.Token)
	case ReturnLease:
		answer = t.checkFence(ev.Token)
	case ForgiveLoss:
		answer = t.checkFence(ev.Token)
	case Terminate, CancelRun:
	default:
		return refuse(Stale, corrupt)
	}
	if answer != Applied {
		return refuse(answer, nil)
	}
	t.LastOutcome, t.LastFinished, t.LastError = OutcomeDead, now, Clip(corrupt.Error(), MaxError)
	run := t.buildRun(FinishAttempt{Token: child.Token}, t.Attempt)
	t.Dead++
	t.endRun(run, OutcomeDead, Notice{Kind: RunDead, Reason: DeadCorrupt, Error: t.LastError}, 0)
	t.finishDecision(Applied)

	pair.Parent.State = replaceRun(*t.State, parent)
	p := pair.Parent.beginTransition(c, At(now))
	p.ended, p.notices = t.ended, t.notices
	p.dropChild(child.Children, child.OwnPayload.size())
	if p.Deleting && !p.Live() {
		p.removeDeletedJob()
	}
	p.finishDecision(Applied)
	own := &pair.Child
	own.State, own.Ended, own.Notices = extractRun(t.State), nil, nil
	return pair, corrupt
}

// endCorruptRun ends the live run and every later one. It returns the corruption error, if the event was
// applied.
func (t *transition) endCorruptRun(token uint64, corrupt error) error {
	before := t.stateBefore()
	if answer := t.checkFence(token); answer != Applied {
		t.answerUnchanged(answer, before)
		return nil
	}
	t.SettledToken = token
	t.LastOutcome, t.LastFinished, t.LastError = OutcomeDead, t.now, Clip(corrupt.Error(), MaxError)
	run := t.buildRun(FinishAttempt{Token: token}, t.Attempt)
	run.Outcome, run.Error = OutcomeDead, t.LastError
	t.ended = &run
	t.Runs++
	t.Dead++
	t.addNotice(Notice{Kind: RunDead, Reason: DeadCorrupt, Error: t.LastError})
	if t.Deleting {
		t.deleted = true
		t.addNotice(Notice{Kind: JobDeleted})
		t.finishDecision(Applied)
		return corrupt
	}
	if t.hasWaitingManual() {
		t.addNotice(Notice{Kind: RunCancelled, RunID: ManualRunID(t.Pending), Trigger: TriggerManual,
			Reason: DeadCorrupt})
	}
	t.clearRun()
	t.Pending = ""
	t.Region = RegionDead
	t.finishDecision(Applied)
	t.result.IndexMS = NeverMS
	return corrupt
}
