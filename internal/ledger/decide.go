package ledger

import (
	"github.com/fermata-io/fermata/internal/job"
)

// paired tells whether a change is decided on a record and its parent: that of a
// run that is a record of its own, and the redriving of a dead letter.
func paired(child string, ev job.Event) bool {
	if _, isRun := job.ChildSlot(child); isRun {
		return true
	}
	_, redrive := ev.(job.Redrive)
	return redrive && child != ""
}

// covered reports whether the change is within the queues that it is limited to.
func (e *entry) covered() bool {
	if e.Covers == nil {
		return true
	}
	definition := e.Known.Definition
	if e.paired {
		definition = e.parent.Definition
	}
	if !e.Covers.Holds(definition) {
		return false
	}
	_, redrive := e.Event.(job.Redrive)
	return !redrive || e.Covers(job.QueueKey{Namespace: definition.Namespace, Queue: e.Known.State.Lane.Queue})
}

// decided is a change with its decision.
type decided struct {
	*entry
	own job.Decision
	// beside is the parent's half of a paired change, if it changes.
	beside *job.Decision
	// corrupt is what the caller hears when the decision is stored.
	corrupt error
}

// Compiled makes the definition of a job's record ready to be asked, unless it is known
// already: to parse a schedule costs far more than to ask it.
func (l *Ledger) Compiled(record string, d *job.Definition) (*job.Compiled, error) {
	return l.cache.get(record, d)
}

// decide asks the policy. With corrupt may come a decision that is to be stored.
func (l *Ledger) decide(it *decided, clock job.Reading) {
	e := it.entry
	definition := e.Known.Definition
	if e.paired {
		definition = e.parent.Definition
	}
	compiled, fault := l.cache.get(e.job, definition)
	switch {
	case fault != nil:
		l.decideUnusable(it, definition, fault, clock.NowMS)
	case e.paired:
		pair := job.DecideChildBy(compiled, e.parent.State, e.Known.State, e.Event, clock)
		it.take(&pair)
	default:
		job.DecideBy(&it.own, compiled, &e.Known.State, e.Event, clock)
	}
}

// decideUnusable is for a definition that does not compile.
func (l *Ledger) decideUnusable(it *decided, d *job.Definition, fault error, now int64) {
	e := it.entry
	if e.paired {
		var pair job.Pair
		pair, it.corrupt = job.DecideUnusableChild(d, e.parent.State, e.Known.State, fault, e.Event, now)
		it.take(&pair)
	} else {
		it.own, it.corrupt = job.DecideUnusable(d, e.Known.State, fault, e.Event, now)
	}
	if it.corrupt != nil {
		l.o.Logger.Error("record cannot be used: edit or delete the job", "record", e.Record, "put_aside", it.own.Changed, "error", fault)
	}
}

func (it *decided) take(pair *job.Pair) {
	it.own = pair.Child
	if pair.Parent.Changed {
		it.beside = &pair.Parent
	} else {
		it.own.Notices = append(it.own.Notices, pair.Parent.Notices...)
	}
}

// appendWrites appends the compare-and-sets that store the decision, without what it tells of runs
// that have ended if the namespace is full.
func (l *Ledger) appendWrites(writes []job.Write, it *decided) []job.Write {
	bare := l.o.Full != nil && it.ends() && l.o.Full(it.Known.State.Lane.Namespace)
	state := &it.Known.State
	writes = append(writes, job.Write{
		Record: it.Record, Token: state.Token, Revision: state.Revision, IfExpired: it.IfExpired,
		From: state.Lane, Current: it.Known.Definition, Bare: bare, Decision: &it.own,
	})
	if it.beside != nil {
		state := &it.parent.State
		writes = append(writes, job.Write{
			Record: it.job, Token: state.Token, Revision: state.Revision, From: state.Lane,
			Current: it.parent.Definition, Together: true, Bare: bare, Decision: it.beside,
		})
	}
	return writes
}

// ends reports whether a run has ended with the change.
func (it *decided) ends() bool {
	return it.own.Ended != nil || it.beside != nil && it.beside.Ended != nil
}

// width is the number of its writes.
func (it *decided) width() int {
	if it.beside != nil {
		return 2
	}
	return 1
}

// verdict is what became of a change by what became of its writes. Of two, both
// were written or neither; a parent that has gone or changed asks for another
// look.
func verdict(results []job.WriteResult) job.WriteCode {
	code := results[0].Code
	for _, r := range results[1:] {
		if code == job.Written && r.Code != job.Written {
			code = job.Conflict
		}
	}
	return code
}

// conclude answers with what was decided.
func (it *decided) conclude(err error) {
	if it.group != nil {
		it.group.add(it.entry, it.own.Answer, err) // needs no record: they are large
		return
	}
	it.done(it.result(err))
}

// result is the answer to a change that is stored as decided.
func (it *decided) result(err error) job.ChangeResult {
	r := it.refused(it.own.Answer, err)
	r.Arrival, r.Spawn = it.own.Arrival, it.own.Spawn
	r.CancelChildren, r.TerminateChildren = it.own.CancelChildren, it.own.TerminateChildren
	if it.own.Changed {
		r.Record, r.Deleted = stored(it.Known, &it.own), it.own.Delete
	}
	if it.beside != nil {
		it.aside(&r)
	}
	if it.paired && it.own.Delete {
		r.Record = job.Record{}
	}
	return r
}

// aside adds what the parent's half has to say.
func (it *decided) aside(r *job.ChangeResult) {
	b := it.beside
	r.Parent = nil
	if !b.Delete {
		parent := stored(it.parent, b)
		r.Parent = &parent
	}
	if r.Spawn == nil {
		r.Spawn = b.Spawn
	}
	r.CancelChildren = append(r.CancelChildren, b.CancelChildren...)
	r.TerminateChildren = append(r.TerminateChildren, b.TerminateChildren...)
}

// refused is an answer that leaves everything as it was.
func (it *decided) refused(a job.Answer, err error) job.ChangeResult {
	return job.ChangeResult{Answer: a, Record: *it.Known, Parent: it.parent, Err: err}
}

// stored is a record after a decision.
func stored(before *job.Record, d *job.Decision) job.Record {
	r := job.Record{Definition: before.Definition, State: d.State, IndexMS: d.IndexMS}
	if d.Definition != nil {
		r.Definition = d.Definition
	}
	return r
}

func (l *Ledger) observe(it *decided) {
	if l.o.Tracer != nil && it.own.Changed {
		it.trace(l.o.Tracer)
	}
	l.o.Observer.Observe(it.own.Notices)
	if it.beside != nil && len(it.beside.Notices) > 0 {
		l.o.Observer.Observe(it.beside.Notices)
	}
}

// trace tells of the decision on the run that the change was about.
func (it *decided) trace(t Tracer) {
	definition, told := it.Known.Definition, &it.own
	if it.paired {
		definition = it.parent.Definition
	}
	if it.beside != nil {
		told = it.beside // which has the child's run and notices
	}
	t.Decided(definition, &it.Known.State, it.Event, told.Ended, told.Notices)
}
