package ledger

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

const (
	// triesInBatch is how often a conflicting change is decided beside others;
	// after that it is decided alone, where nothing slows it down.
	triesInBatch = 3
	// maxTries ends the struggle for a record that never stands still.
	maxTries = 20
)

// committer commits one batch at a time.
type committer struct {
	*Ledger
	// Of the last round, for the next one to use again: decisions are large.
	all    []decided
	items  []*decided
	writes []job.Write
	seen   map[string]struct{} // jobs
}

// commit takes a batch through a round of read, decide and apply. It returns the changes that
// need another one. They go first in the shard's next batch: what has come meanwhile does not wait
// for all of their rounds, which take long where the store answers late.
func (l *committer) commit(shard int, batch []*entry) (left []*entry) {
	for _, e := range batch {
		if e.until.IsZero() {
			e.until = time.Now().Add(l.o.Timeout)
		}
	}
	l.metrics.batch.Observe(float64(len(batch)))
	round, rest := l.firstOfEachJob(batch)
	ctx, cancel := context.WithDeadline(context.Background(), lastUntil(round))
	defer cancel()
	again := l.round(ctx, shard, round)
	tell(round)
	return giveUp(append(again, rest...))
}

// lastUntil is until when a round is tried: as long as one of its changes may be.
func lastUntil(round []*entry) (last time.Time) {
	for _, e := range round {
		if e.until.After(last) {
			last = e.until
		}
	}
	return last
}

// giveUp answers the changes whose time is over, and returns the others.
func giveUp(left []*entry) []*entry {
	var over []*entry
	now := time.Now()
	left = slices.DeleteFunc(left, func(e *entry) bool {
		late := !now.Before(e.until)
		if late {
			over = append(over, e)
		}
		return late
	})
	fail(over, job.ErrUnavailable)
	tell(over)
	return left
}

// firstOfEachJob splits off what has to wait for an earlier change of the same
// job: its record, and those of its runs, which may change it too. A change that
// keeps conflicting makes a round of its own, before others: new ones would keep it waiting.
func (l *committer) firstOfEachJob(batch []*entry) (round, rest []*entry) {
	for i, e := range batch {
		if e.tries >= triesInBatch {
			return []*entry{e}, slices.Concat(batch[:i], batch[i+1:])
		}
	}
	clear(l.seen)
	round = make([]*entry, 0, len(batch))
	for _, e := range batch {
		known := len(l.seen)
		l.seen[e.job] = struct{}{}
		if len(l.seen) == known {
			rest = append(rest, e)
			continue
		}
		round = append(round, e)
	}
	return round, rest
}

// round decides and applies; it returns the changes that met a conflict.
func (l *committer) round(ctx context.Context, shard int, round []*entry) (again []*entry) {
	round = l.read(ctx, shard, round)
	if len(round) == 0 {
		return nil
	}
	now, err := l.o.Store.Now(ctx, shard)
	if err != nil {
		fail(round, err)
		return nil
	}
	clock := job.Reading{NowMS: now, Latest: l.o.Store.Latest(shard)}
	all, items, writes := l.room(len(round))
	defer l.clean()
	var unchanged []*decided
	for i, e := range round {
		it := &all[i]
		it.entry = e
		l.decide(it, clock)
		switch {
		case it.own.Changed && !e.MayBegin():
			e.done(job.ChangeResult{Err: context.Canceled})
		case it.own.Changed:
			writes = it.appendWrites(writes)
			items = append(items, it)
		case it.corrupt != nil:
			e.done(job.ChangeResult{Err: it.corrupt})
		case !e.fresh:
			// What a caller remembers is not proof enough for "nothing to do".
			e.forget()
			again = append(again, e)
		default:
			unchanged = append(unchanged, it)
		}
	}
	l.items, l.writes = items, writes
	l.stand(ctx, shard, unchanged)
	if len(writes) == 0 {
		return again
	}
	started := time.Now()
	reply := l.o.Store.Apply(ctx, shard, writes)
	l.metrics.commit.Observe(time.Since(started).Seconds())
	if reply.Err != nil && !errors.Is(reply.Err, job.ErrDurability) {
		return append(again, refused(items, reply.Err)...)
	}
	// The holder hears before anybody else: what is due now should not wait for
	// the callers' goroutines.
	if len(reply.Earlier) > 0 {
		l.o.Nudger.Nudge(shard, reply.Earlier, reply.Holder)
	}
	results := reply.Results
	for _, it := range items {
		n := it.width()
		if l.answer(it, verdict(results[:n]), reply.Err) {
			again = append(again, it.entry)
		}
		results = results[n:]
	}
	return again
}

// room is place for the decisions of a round and their writes. Writes point to
// decisions, so these stay where they are.
func (l *committer) room(n int) ([]decided, []*decided, []job.Write) {
	if n > cap(l.all) {
		l.all, l.items, l.writes = make([]decided, n), make([]*decided, 0, n), make([]job.Write, 0, n)
	}
	l.all = l.all[:n]
	return l.all, l.items[:0], l.writes[:0]
}

// clean lets go of all that the round knew, but for the memory of what there was to tell.
func (l *committer) clean() {
	for i := range l.all {
		notices := l.all[i].own.Notices
		clear(notices)
		l.all[i] = decided{own: job.Decision{Notices: notices[:0]}}
	}
	clear(l.items)
	clear(l.writes)
}

// stand answers changes that found nothing to do. What they found may be the work
// of an earlier copy that was not confirmed, so it is confirmed now.
func (l *Ledger) stand(ctx context.Context, shard int, unchanged []*decided) {
	if len(unchanged) == 0 {
		return
	}
	err := l.o.Store.Confirm(ctx, shard)
	for _, it := range unchanged {
		if err == nil {
			l.observe(it)
		}
		it.conclude(err)
	}
}

// refused deals with changes that the store did not take. When the fault is not
// that of the moment it may be one change's alone: each is then tried by itself,
// so that it holds up no other.
func refused(items []*decided, err error) (again []*entry) {
	for _, it := range items {
		if len(items) > 1 && !passing(err) {
			it.tries = max(it.tries, triesInBatch)
			again = append(again, it.entry)
			continue
		}
		it.done(job.ChangeResult{Err: err})
	}
	return again
}

// passing tells whether an error says nothing about the change that met it.
func passing(err error) bool {
	for _, known := range []error{job.ErrUnavailable, job.ErrClockJump, job.ErrNoMemory} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// read fills in the records that callers do not know, parents among them; changes
// of those that do not exist are answered.
func (l *Ledger) read(ctx context.Context, shard int, round []*entry) []*entry {
	var missing []string
	for _, e := range round {
		if e.Known == nil {
			missing = append(missing, e.Record)
		}
		if e.paired && e.parent == nil {
			missing = append(missing, e.job)
		}
	}
	if len(missing) == 0 {
		return round
	}
	records, err := l.o.Store.GetRecords(ctx, shard, missing)
	if err != nil {
		fail(round, err)
		return nil
	}
	kept := round[:0:0]
	for _, e := range round {
		if e.Known == nil {
			e.Known, records = records[0], records[1:]
			e.fresh = true
		}
		if e.paired && e.parent == nil {
			e.parent, records = records[0], records[1:]
		}
		if e.Known == nil || e.paired && e.parent == nil {
			e.done(job.ChangeResult{Err: job.ErrNotFound})
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// answer tells the caller; it reports whether the change must be decided again.
// What is stored, but not confirmed as durable, has happened for everybody except
// the caller: it hears the error and asks again.
func (l *Ledger) answer(it *decided, code job.WriteCode, unconfirmed error) (again bool) {
	switch code {
	case job.Written:
		l.observe(it)
		it.conclude(firstError(unconfirmed, it.corrupt))
	case job.NotFound:
		it.done(job.ChangeResult{Err: firstError(unconfirmed, job.ErrNotFound)})
	case job.NotExpired:
		it.done(it.refused(job.Stale, unconfirmed))
	default:
		l.metrics.conflicts.Inc()
		if it.tries++; it.tries >= maxTries {
			it.done(job.ChangeResult{Err: job.ErrConflict})
			return false
		}
		it.forget()
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

func fail(entries []*entry, err error) {
	for _, e := range entries {
		e.done(job.ChangeResult{Err: err})
	}
}
