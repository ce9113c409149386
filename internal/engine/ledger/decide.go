package ledger

import (
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// needsParent reports whether a change is decided on a record and its parent: a change of a run with a record of
// its own, and what is done with a dead letter.
func needsParent(record job.RecordID, ev job.Input) bool {
	return record.IsRun() || job.DecidesOnLetter(ev) && !record.IsJob()
}

// isCovered reports whether the change is within the queues that it is limited to.
func (e *changeEntry) isCovered() bool {
	if e.Covers == nil {
		return true
	}
	definition := e.Known.Definition
	if e.needsParent {
		definition = e.parent.Definition
	}
	if !e.Covers.Holds(definition) {
		return false
	}
	return !job.DecidesOnLetter(e.Input) ||
		e.Covers(job.QueueKey{Namespace: definition.Namespace, Queue: e.Known.State.Lane.Queue})
}

// decidedChange is a change with its decision.
type decidedChange struct {
	*changeEntry
	ownDecision job.Decision
	// parentDecision is the parent's half of a paired change, if the parent changes.
	parentDecision *job.Decision
	// corruptErr is the caller's error when the decision is stored.
	corruptErr error
}

// CompiledDefinition returns the compiled definition of a job's record from the cache, or compiles it: parsing a
// schedule costs far more than evaluating it.
func (l *Ledger) CompiledDefinition(record job.RecordID, d *job.Definition) (*job.Compiled, error) {
	cached, err := l.cache.compiledFor(record, d)
	return cached.shared, err
}

// decideChange calls the policy. With corruptErr there may be a decision that is to be stored.
func (l *Ledger) decideChange(it *decidedChange, clock job.Reading) {
	e := it.changeEntry
	definition := e.Known.Definition
	if e.needsParent {
		definition = e.parent.Definition
	}
	cached, fault := l.cache.compiledFor(e.jobRecord, definition)
	compiled := cached.remembering
	switch {
	case fault != nil:
		l.decideUnusable(it, definition, fault, clock.NowMS)
	case e.needsParent:
		pair := job.DecideChildBy(compiled, e.parent.State, e.Known.State, e.Input, clock)
		it.applyPair(&pair)
	default:
		job.DecideBy(&it.ownDecision, compiled, &e.Known.State, e.Input, clock)
	}
}

// decideUnusable decides a change of a definition that does not compile.
func (l *Ledger) decideUnusable(it *decidedChange, d *job.Definition, fault error, now unixtime.Milli) {
	e := it.changeEntry
	if e.needsParent {
		var pair job.ParentChildPair
		pair, it.corruptErr = job.DecideCorruptChild(d, e.parent.State, e.Known.State, fault, e.Input, now)
		it.applyPair(&pair)
	} else {
		it.ownDecision, it.corruptErr = job.DecideCorrupt(d, e.Known.State, fault, e.Input, now)
	}
	if it.corruptErr != nil {
		l.o.Logger.Error("unusable record, edit or delete the job", "record", e.Record,
			"put_aside", it.ownDecision.Changed, "error", fault)
	}
}

func (it *decidedChange) applyPair(pair *job.ParentChildPair) {
	it.ownDecision = pair.Child
	if pair.Parent.Changed {
		it.parentDecision = &pair.Parent
	} else {
		it.ownDecision.Notices = append(it.ownDecision.Notices, pair.Parent.Notices...)
	}
}

// appendWrites appends the compare-and-sets that store the decision. If the namespace is full, they store
// nothing about runs that have ended.
func (l *Ledger) appendWrites(writes []job.Write, it *decidedChange) []job.Write {
	bare := l.o.Full != nil && it.endsRun() && l.o.Full(it.Known.State.Lane.Namespace)
	state := &it.Known.State
	writes = append(writes, job.Write{
		Record: it.Record, Token: state.Token, Revision: state.Revision, IfExpired: it.IfExpired,
		From: state.Lane, Current: it.Known.Definition, Bare: bare, Revisions: l.keptRevisions(it),
		Decision: &it.ownDecision,
	})
	if it.parentDecision != nil {
		state := &it.parent.State
		writes = append(writes, job.Write{
			Record: it.jobRecord, Token: state.Token, Revision: state.Revision, From: state.Lane,
			Current: it.parent.Definition, Together: true, Bare: bare, Decision: it.parentDecision,
		})
	}
	return writes
}

// keptRevisions is how many earlier revisions the job keeps after the change: see job.Write.
func (l *Ledger) keptRevisions(it *decidedChange) int {
	switch {
	case it.ownDecision.Definition == nil:
		return 0
	case l.o.Revisions == 0:
		return job.RemoveRevisions
	case l.o.Full != nil && l.o.Full(it.Known.Definition.Namespace), addsNoRevision(it.Input):
		return 0
	}
	return min(l.o.Revisions, job.MaxRevisions)
}

// addsNoRevision reports whether the caller asks for an edit without a revision.
func addsNoRevision(ev job.Input) bool {
	update, ok := ev.(job.Update)
	return ok && update.NoRevision
}

// endsRun reports whether a run ends with the change.
func (it *decidedChange) endsRun() bool {
	return it.ownDecision.Ended != nil || it.parentDecision != nil && it.parentDecision.Ended != nil
}

// writeCount is the number of its writes.
func (it *decidedChange) writeCount() int {
	if it.parentDecision != nil {
		return 2
	}
	return 1
}

// combineResults is the result of a change from those of its writes. Of two, both were written or neither; if
// the parent is gone or has changed, the change is decided again.
func combineResults(results []job.WriteResult) job.WriteCode {
	code := results[0].Code
	for _, r := range results[1:] {
		if code == job.Written && r.Code != job.Written {
			code = job.Conflict
		}
	}
	return code
}

// answerDecided answers with the decision.
func (it *decidedChange) answerDecided(err error) {
	if it.group != nil {
		it.group.addAnswer(it.changeEntry, it.ownDecision.Answer, err) // needs no record: they are large
		return
	}
	it.answerWith(it.storedResult(err))
}

// storedResult is the answer to a change that is stored as decided.
func (it *decidedChange) storedResult(err error) job.ChangeResult {
	r := it.refusedResult(it.ownDecision.Answer, err)
	r.Arrival, r.Spawn = it.ownDecision.Arrival, it.ownDecision.Spawn
	r.CancelChildren, r.TerminateChildren = it.ownDecision.CancelChildren, it.ownDecision.TerminateChildren
	if it.ownDecision.Changed {
		r.Changed = err == nil
		r.Record, r.Deleted = recordAfter(it.Known, &it.ownDecision), it.ownDecision.Delete
	}
	if it.parentDecision != nil {
		it.addParentResult(&r)
	}
	if it.needsParent && it.ownDecision.Delete {
		r.Record = job.Record{}
	}
	return r
}

// addParentResult adds the result of the parent's half.
func (it *decidedChange) addParentResult(r *job.ChangeResult) {
	b := it.parentDecision
	r.Parent = nil
	if !b.Delete {
		parent := recordAfter(it.parent, b)
		r.Parent = &parent
	}
	if r.Spawn == nil {
		r.Spawn = b.Spawn
	}
	r.CancelChildren = append(r.CancelChildren, b.CancelChildren...)
	r.TerminateChildren = append(r.TerminateChildren, b.TerminateChildren...)
}

// refusedResult is an answer that leaves everything as it was.
func (it *decidedChange) refusedResult(a job.Answer, err error) job.ChangeResult {
	return job.ChangeResult{Answer: a, Record: *it.Known, Parent: it.parent, Err: err}
}

// recordAfter is a record after a decision.
func recordAfter(before *job.Record, d *job.Decision) job.Record {
	r := job.Record{Definition: before.Definition, State: d.State, IndexMS: d.IndexMS}
	if d.Definition != nil {
		r.Definition = d.Definition
	}
	return r
}

func (l *Ledger) observeDecision(it *decidedChange) {
	if l.o.Tracer != nil && it.ownDecision.Changed {
		it.traceDecision(l.o.Tracer)
	}
	l.o.Observer.Observe(it.ownDecision.Notices)
	if it.parentDecision != nil && len(it.parentDecision.Notices) > 0 {
		l.o.Observer.Observe(it.parentDecision.Notices)
	}
}

// traceDecision passes the decision to the tracer, with the run that the change was about.
func (it *decidedChange) traceDecision(t Tracer) {
	definition, decision := it.Known.Definition, &it.ownDecision
	if it.needsParent {
		definition = it.parent.Definition
	}
	if it.parentDecision != nil {
		decision = it.parentDecision // which has the child's run and notices
	}
	t.RecordDecision(definition, &it.Known.State, it.Input, decision.Ended, decision.Notices)
}
