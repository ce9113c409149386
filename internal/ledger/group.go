package ledger

import "github.com/fermata-io/fermata/internal/job"

// group is the part of a submission of many changes that is of one shard. Its answers
// gather while a round is committed and are told together: whoever submits many has one
// lock to take then, and one message to send.
//
// A shard has one batch in flight, so that one goroutine at a time has to do with it.
type group struct {
	done    func([]job.Answered)
	answers []job.Answered
	left    int // not answered yet
}

// SubmitAll queues changes, like Submit. done is called with the answers, several at a
// time, each of them once; it may run on several goroutines at once.
func (l *Ledger) SubmitAll(changes []job.Change, done func([]job.Answered)) {
	entries, shards := make([]entry, len(changes)), make([]int, len(changes))
	groups := make(map[int]*group)
	var refused []job.Answered
	for i := range changes {
		key, child, ok := job.ParseRecord(changes[i].Record)
		if !ok {
			refused = append(refused, job.Answered{Nth: i, Err: job.ErrNotFound})
			continue
		}
		shard := l.o.Store.ShardOf(key)
		g := groups[shard]
		if g == nil {
			g = &group{done: done}
			groups[shard] = g
		}
		g.left++
		shards[i] = shard
		entries[i] = entry{
			Change: changes[i], job: jobOf(changes[i].Record, key), group: g, nth: i, paired: paired(child, changes[i].Event),
		}
	}
	l.mu.Lock()
	for i := range entries {
		switch e := &entries[i]; {
		case e.group == nil:
		case l.mu.closed:
			refused = append(refused, job.Answered{Nth: i, Err: ErrClosed})
		default:
			l.queue(shards[i], e)
		}
	}
	l.mu.Unlock()
	if len(refused) > 0 {
		done(refused)
	}
}

// done answers a change.
func (e *entry) done(r job.ChangeResult) {
	if e.group == nil {
		e.answer(r)
		return
	}
	e.group.add(e, r.Answer, r.Err)
}

func (g *group) add(e *entry, answer job.Answer, err error) {
	if g.answers == nil {
		g.answers = make([]job.Answered, 0, g.left)
	}
	g.left--
	a := job.Answered{Nth: e.nth, Answer: answer, Err: err}
	switch {
	case e.Known != nil:
		a.Definition = e.Known.Definition
	case e.parent != nil:
		a.Definition = e.parent.Definition
	}
	g.answers = append(g.answers, a)
}

// tell hands out the answers that a round has brought.
func tell(round []*entry) {
	for _, e := range round {
		if g := e.group; g != nil && len(g.answers) > 0 {
			answers := g.answers
			g.answers = nil
			g.done(answers)
		}
	}
}
