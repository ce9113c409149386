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
func DecideUnusable(d Definition, s State, fault error, ev Event, now int64) (Decision, error) {
	s.Recent = slices.Clone(s.Recent)
	t := transition{c: &Compiled{Definition: d}, now: now, State: s}
	t.Revision++
	corrupt := fmt.Errorf("%w: %w", ErrCorrupt, fault)
	switch ev := ev.(type) {
	case Update:
		return t.update(ev), nil
	case Delete:
		return t.delete(ev), nil
	case Settle:
		return t.putAside(ev.Token, corrupt)
	case Lose:
		return t.putAside(ev.Token, corrupt)
	case Return:
		return t.putAside(ev.Token, corrupt)
	}
	return t.unchanged(Stale, t.before()), corrupt
}

// putAside ends the live run and every later one.
func (t *transition) putAside(token uint64, corrupt error) (Decision, error) {
	before := t.before()
	if answer := t.fence(token); answer != Applied {
		return t.unchanged(answer, before), nil
	}
	t.SettledToken = token
	t.LastOutcome, t.LastFinished, t.LastError = OutcomeDead, t.now, Clip(corrupt.Error(), MaxError)
	run := t.run(Settle{Token: token}, t.Attempt)
	run.Outcome, run.Error = OutcomeDead, t.LastError
	t.ended = &run
	t.Runs++
	t.Dead++
	t.notice(Notice{Kind: RunDead, Reason: "corrupt", Error: t.LastError})
	if t.Deleting {
		t.deleted = true
		t.notice(Notice{Kind: JobDeleted})
		return t.decision(Applied), corrupt
	}
	t.clearRun()
	t.Pending = ""
	t.Region = RegionDead
	d := t.decision(Applied)
	d.IndexMS = NeverMS
	return d, corrupt
}
