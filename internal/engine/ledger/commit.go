package ledger

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// triesInBatch is how often a conflicting change is decided together with others; after that it is decided
	// alone.
	triesInBatch = 3
	// maxTries bounds the tries for a record that keeps changing.
	maxTries = 20
	// maxDecisionTime bounds how long a round decides before what it has decided is written: schedules may take
	// milliseconds, and all changes of a round have to be written before the first of them expires.
	maxDecisionTime = 250 * time.Millisecond
	// maxTogetherTime is maxDecisionTime of all shards that are committed together: none of them is written before all
	// are decided.
	maxTogetherTime = 50 * time.Millisecond
)

// committer commits one batch at a time, or those of several shards together.
type committer struct {
	*Ledger
	rounds []*shardRound             // memory to be reused
	seen   map[job.RecordID]struct{} // jobs
}

// shardRound takes a batch of a shard through a round of read, decide and apply.
type shardRound struct {
	*Ledger
	shard       int
	round, rest []*changeEntry // changes of this round, and of the next one
	again       []*changeEntry // those of this round that met a conflict
	// Memory of the last round, which the next one reuses: decisions are large.
	all    []decidedChange
	items  []*decidedChange
	writes []job.Write
}

// beginRound begins a round for a batch, in the memory with that number.
func (l *committer) beginRound(number int, batch shardBatch, now time.Time) *shardRound {
	if number == len(l.rounds) {
		l.rounds = append(l.rounds, &shardRound{Ledger: l.Ledger})
	}
	l.setDeadlines(batch, now)
	l.metrics.batch.Observe(float64(len(batch.entries)))
	r := l.rounds[number]
	r.shard, r.again = batch.shard, nil
	r.round, r.rest = l.firstOfEachJob(answerExpired(dropEnded(batch.entries)), l.sizes.mostUnknown())
	return r
}

// setDeadlines begins the time of the changes that have had no round.
func (l *Ledger) setDeadlines(batch shardBatch, now time.Time) {
	for _, e := range batch.entries {
		if e.deadline.IsZero() {
			e.deadline = now.Add(l.o.Timeout)
		}
	}
}

// commitRound takes a batch through a round. It returns the changes that need another round. They go first in the
// shard's next batch, so that changes that arrived meanwhile do not wait for all of their rounds, which take long
// where the store answers late.
func (l *committer) commitRound(batch shardBatch) (left []*changeEntry) {
	began := time.Now()
	r := l.beginRound(0, batch, began)
	ctx, cancel := context.WithDeadline(context.Background(), latestDeadline(r.round))
	defer cancel()
	r.decide(ctx, began.Add(l.o.decisionTime))
	switch {
	case len(r.writes) == 0:
	case ctx.Err() != nil: // all have expired while they were decided
		answerRefused(r.items, job.ErrNodeBusy)
	default:
		sent := time.Now()
		r.complete(l.o.Store.Apply(ctx, r.shard, r.writes), sent)
	}
	return r.end()
}

// commitTogether takes small batches of several shards through a round each, with one call of the store. Each shard is
// released as soon as its writes are answered. Those that are not decided in time are released undecided, and go alone
// from then on.
func (l *committer) commitTogether(batches []shardBatch) {
	started := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), started.Add(l.o.Timeout))
	defer cancel()
	requests, rounds := make([]job.ShardWrites, 0, len(batches)), make([]*shardRound, 0, len(batches))
	until := started.Add(min(l.o.decisionTime, maxTogetherTime))
	for i, batch := range batches {
		if i > 0 && time.Now().After(until) {
			l.setDeadlines(batch, started)
			l.releaseShard(batch.shard, batch.entries)
			continue
		}
		r := l.beginRound(len(rounds), batch, started)
		r.decide(ctx, until)
		if len(r.writes) == 0 {
			l.releaseShard(r.shard, r.end())
			continue
		}
		requests, rounds = append(requests, job.ShardWrites{Shard: r.shard, Writes: r.writes}), append(rounds, r)
	}
	if len(requests) == 0 {
		return
	}
	sent := time.Now()
	l.o.Store.ApplyMany(ctx, requests, func(i int, reply job.ApplyReply) {
		r := rounds[i]
		r.complete(reply, sent)
		l.releaseShard(r.shard, r.end())
	})
}

// end delivers the answers of the round, and returns the changes that need another one.
func (r *shardRound) end() (left []*changeEntry) {
	r.clearMemory()
	deliverAnswers(r.round)
	left = answerExpired(append(r.again, r.rest...))
	r.round, r.rest, r.again = nil, nil, nil
	return left
}

// latestDeadline is when the last change of a round expires.
func latestDeadline(round []*changeEntry) (last time.Time) {
	for _, e := range round {
		if e.deadline.After(last) {
			last = e.deadline
		}
	}
	return last
}

// dropEnded drops the changes whose calls have ended, and returns the others. They are answered as if their Begin had
// refused.
func dropEnded(entries []*changeEntry) []*changeEntry {
	return slices.DeleteFunc(entries, func(e *changeEntry) bool {
		select {
		case <-e.callEnded:
			e.answerWith(job.ChangeResult{Err: context.Canceled})
			return true
		default:
			return false
		}
	})
}

// answerExpired answers the changes whose deadline has passed, and returns the others. It is no sign that Redis does
// not answer: changes before them may have taken long.
func answerExpired(left []*changeEntry) []*changeEntry {
	var over []*changeEntry
	now := time.Now()
	left = slices.DeleteFunc(left, func(e *changeEntry) bool {
		late := !now.Before(e.deadline)
		if late {
			over = append(over, e)
		}
		return late
	})
	failAll(over, job.ErrNodeBusy)
	deliverAnswers(over)
	return left
}

// firstOfEachJob splits off the changes that have to wait for an earlier change of the same job: of its record,
// or of its runs, which may change the record too. A change that keeps conflicting gets a round of its own,
// before others: otherwise new ones would keep it waiting. A round has at most unknown changes whose records have to be
// read, because their definitions may be large.
func (l *committer) firstOfEachJob(batch []*changeEntry, unknown int) (round, rest []*changeEntry) {
	for i, e := range batch {
		if e.tries >= triesInBatch {
			return []*changeEntry{e}, slices.Concat(batch[:i], batch[i+1:])
		}
	}
	clear(l.seen)
	round = make([]*changeEntry, 0, len(batch))
	for _, e := range batch {
		known := len(l.seen)
		l.seen[e.jobRecord] = struct{}{}
		reads := e.Known == nil || e.needsParent && e.parent == nil
		if len(l.seen) == known || reads && unknown == 0 {
			rest = append(rest, e)
			continue
		}
		if reads {
			unknown--
		}
		round = append(round, e)
	}
	return round, rest
}

// decide decides the changes of the round, those that it reaches in time and one at least. What is to be stored are the
// writes.
func (r *shardRound) decide(ctx context.Context, until time.Time) {
	r.makeRoom(0)
	round := r.readRecords(ctx, r.shard, r.round)
	if len(round) == 0 {
		return
	}
	now, err := r.o.Store.Now(ctx, r.shard)
	if err != nil {
		failAll(round, err)
		return
	}
	clock := job.Reading{NowMS: now, Latest: r.o.Store.Latest(r.shard)}
	all, items, writes := r.makeRoom(len(round))
	var unchanged []*decidedChange
	for i, e := range round {
		if i > 0 && time.Now().After(until) {
			r.postpone(round[i:])
			break
		}
		it := &all[i]
		it.changeEntry = e
		if !e.isCovered() {
			if e.knownFresh {
				e.answerWith(job.ChangeResult{Err: job.ErrNotFound})
				continue
			}
			e.forgetKnown()
			r.again = append(r.again, e)
			continue
		}
		r.decideChange(it, clock)
		switch {
		case it.ownDecision.Changed && !e.MayBegin():
			e.answerWith(job.ChangeResult{Err: context.Canceled})
		case it.ownDecision.Changed:
			writes = r.appendWrites(writes, it)
			items = append(items, it)
		case it.corruptErr != nil:
			e.answerWith(job.ChangeResult{Err: it.corruptErr})
		case !e.knownFresh:
			// A caller's known record does not prove that there is nothing to do.
			e.forgetKnown()
			r.again = append(r.again, e)
		default:
			unchanged = append(unchanged, it)
		}
	}
	r.items, r.writes = items, writes
	r.confirmUnchanged(ctx, r.shard, unchanged)
}

// postpone leaves changes to the next round, before later changes of the same jobs.
func (r *shardRound) postpone(late []*changeEntry) {
	for _, e := range late {
		e.forgetKnown()
	}
	r.rest = slices.Concat(late, r.rest)
}

// complete answers the changes that were written; sent is when.
func (r *shardRound) complete(reply job.ApplyReply, sent time.Time) {
	r.metrics.commit.Observe(time.Since(sent).Seconds())
	if reply.Err != nil && !errors.Is(reply.Err, job.ErrDurability) {
		r.again = append(r.again, answerRefused(r.items, reply.Err)...)
		return
	}
	// The holder is notified first: a run that is due now should not wait for the callers' goroutines.
	if len(reply.Earlier) > 0 {
		r.o.Nudger.Nudge(r.shard, reply.Earlier, reply.Holder)
	}
	results := reply.Results
	for _, it := range r.items {
		n := it.writeCount()
		if r.answerChange(it, combineResults(results[:n]), reply.Err) {
			r.again = append(r.again, it.changeEntry)
		}
		results = results[n:]
	}
}

// makeRoom returns memory for the decisions of a round and their writes. Writes point to decisions, so these
// must not move.
func (r *shardRound) makeRoom(n int) ([]decidedChange, []*decidedChange, []job.Write) {
	if n > cap(r.all) {
		r.all, r.items, r.writes = make([]decidedChange, n), make([]*decidedChange, 0, n), make([]job.Write, 0, n)
	}
	r.all, r.items, r.writes = r.all[:n], r.items[:0], r.writes[:0]
	return r.all, r.items, r.writes
}

// clearMemory drops all references of the round, but keeps the memory of notices.
func (r *shardRound) clearMemory() {
	for i := range r.all {
		notices := r.all[i].ownDecision.Notices
		clear(notices)
		r.all[i] = decidedChange{ownDecision: job.Decision{Notices: notices[:0]}}
	}
	clear(r.items)
	clear(r.writes)
}

// confirmUnchanged answers changes that had nothing to do. What they found may have been stored by an earlier
// copy that was not confirmed, so it is confirmed now.
func (l *Ledger) confirmUnchanged(ctx context.Context, shard int, unchanged []*decidedChange) {
	if len(unchanged) == 0 {
		return
	}
	err := l.o.Store.Confirm(ctx, shard)
	for _, it := range unchanged {
		if err == nil {
			l.observeDecision(it)
		}
		it.answerDecided(err)
	}
}

// answerRefused handles changes that the store did not accept. Unless the error is transient it may belong to
// one of the changes: each is then tried alone, so that it delays no other.
func answerRefused(items []*decidedChange, err error) (again []*changeEntry) {
	for _, it := range items {
		if len(items) > 1 && !isTransient(err) {
			it.tries = max(it.tries, triesInBatch)
			again = append(again, it.changeEntry)
			continue
		}
		it.answerWith(job.ChangeResult{Err: err})
	}
	return again
}

// isTransient reports whether an error is unrelated to the change that met it.
func isTransient(err error) bool {
	for _, known := range []error{job.ErrUnavailable, job.ErrClockJump, job.ErrNoMemory} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// readRecords reads the records that callers do not know, and parents; changes of missing records are answered.
func (l *Ledger) readRecords(ctx context.Context, shard int, round []*changeEntry) []*changeEntry {
	var missing []job.RecordID
	for _, e := range round {
		if e.Known == nil {
			missing = append(missing, e.Record)
		}
		if e.needsParent && e.parent == nil {
			missing = append(missing, e.jobRecord)
		}
	}
	if len(missing) == 0 {
		return round
	}
	records, err := l.o.Store.GetRecords(ctx, shard, missing)
	if err != nil {
		failAll(round, err)
		return nil
	}
	l.sizes.note(records)
	kept := round[:0:0]
	for _, e := range round {
		if e.Known == nil {
			e.Known, records = records[0], records[1:]
			e.knownFresh = true
		}
		if e.needsParent && e.parent == nil {
			e.parent, records = records[0], records[1:]
		}
		if e.Known == nil || e.needsParent && e.parent == nil {
			e.answerWith(job.ChangeResult{Err: job.ErrNotFound})
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// answerChange answers the caller; it reports whether the change must be decided again. A change that is stored,
// but not confirmed as durable, is final for everybody except the caller, which receives the error and submits
// again.
func (l *Ledger) answerChange(it *decidedChange, code job.WriteCode, unconfirmed error) (again bool) {
	switch code {
	case job.Written:
		l.observeDecision(it)
		it.answerDecided(firstError(unconfirmed, it.corruptErr))
	case job.NotFound:
		it.answerWith(job.ChangeResult{Err: firstError(unconfirmed, job.ErrNotFound)})
	case job.NotExpired:
		it.answerWith(it.refusedResult(job.Stale, unconfirmed))
	default:
		l.metrics.conflicts.Inc()
		it.tries++
		if it.tries >= maxTries {
			it.answerWith(job.ChangeResult{Err: job.ErrConflict})
			return false
		}
		it.forgetKnown()
		return true
	}
	return false
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func failAll(entries []*changeEntry, err error) {
	for _, e := range entries {
		e.answerWith(job.ChangeResult{Err: err})
	}
}
