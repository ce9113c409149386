package ledger

import "github.com/fermata-io/fermata/internal/core/job"

// changeGroup is the part of a submission of many changes that belongs to one shard. Its
// answers are collected while a round is committed and delivered together, so that the
// caller takes one lock and sends one message.
//
// A shard has one batch in flight, so only one goroutine at a time uses a group.
type changeGroup struct {
	done       func([]job.ChangeSummary)
	answers    []job.ChangeSummary
	unanswered int // not answered yet
}

// SubmitAll queues changes, like Submit. done is called with the answers, several at a
// time, each of them once; it may run on several goroutines at once.
func (l *Ledger) SubmitAll(changes []job.Change, done func([]job.ChangeSummary)) {
	entries, shards := make([]changeEntry, len(changes)), make([]int, len(changes))
	groups := make(map[int]*changeGroup)
	var refused []job.ChangeSummary
	for i := range changes {
		record := changes[i].Record
		key := record.Key()
		if key == (job.Key{}) {
			refused = append(refused, job.ChangeSummary{Nth: i, Err: job.ErrNotFound})
			continue
		}
		shard := l.o.Store.ShardOf(key)
		g := groups[shard]
		if g == nil {
			g = &changeGroup{done: done}
			groups[shard] = g
		}
		g.unanswered++
		shards[i] = shard
		entries[i] = changeEntry{
			Change: changes[i], jobRecord: record.Job(), group: g, index: i,
			needsParent: needsParent(record, changes[i].Input),
		}
	}
	l.mu.Lock()
	for i := range entries {
		switch e := &entries[i]; {
		case e.group == nil:
		case l.mu.closed:
			refused = append(refused, job.ChangeSummary{Nth: i, Err: ErrClosed})
		default:
			l.enqueue(shards[i], e)
		}
	}
	l.mu.Unlock()
	if len(refused) > 0 {
		done(refused)
	}
}

// answerWith answers a change.
func (e *changeEntry) answerWith(r job.ChangeResult) {
	if e.group == nil {
		e.answer(r)
		return
	}
	e.group.addAnswer(e, r.Answer, r.Err)
}

func (g *changeGroup) addAnswer(e *changeEntry, answer job.Answer, err error) {
	if g.answers == nil {
		g.answers = make([]job.ChangeSummary, 0, g.unanswered)
	}
	g.unanswered--
	a := job.ChangeSummary{Nth: e.index, Answer: answer, Err: err}
	switch {
	case e.Known != nil:
		a.Definition = e.Known.Definition
	case e.parent != nil:
		a.Definition = e.parent.Definition
	}
	g.answers = append(g.answers, a)
}

// deliverAnswers delivers the answers of a round.
func deliverAnswers(round []*changeEntry) {
	for _, e := range round {
		if g := e.group; g != nil && len(g.answers) > 0 {
			answers := g.answers
			g.answers = nil
			g.done(answers)
		}
	}
}
