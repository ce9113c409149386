package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// objectiveBatch bounds the entries of one shard's index of objectives that are looked at
// before the others' turn.
const objectiveBatch = 200

// findLate has the runs counted that wait and have broken their lateness objective. Where
// they are many it takes a quarter of the time for that, so that what is due is not held up.
func (s *Scheduler) findLate(ctx context.Context) {
	for {
		began := time.Now()
		if left := s.findLateOnce(ctx); !left || !pause(ctx, max(3*time.Since(began), sweepRest)) {
			return
		}
	}
}

// findLateOnce takes a batch of each shard and reports whether there is more of any.
func (s *Scheduler) findLateOnce(ctx context.Context) (left bool) {
	shards := s.toWatch(time.Now())
	if len(shards) == 0 {
		return false
	}
	heads, err := s.firstObjectives(ctx, shards)
	if err != nil && context.Cause(ctx) != context.Canceled {
		s.o.Logger.Warn("failed to read lateness objectives", "error", err)
	}
	s.noteObjectives(heads)
	for id, first := range heads {
		if _, held := s.o.Held(id); !held || ctx.Err() != nil {
			continue
		}
		now, err := s.o.Store.Now(ctx, id)
		if err != nil || first > now {
			continue
		}
		more, err := s.judge(ctx, id, now)
		if err != nil && ctx.Err() == nil {
			s.o.Logger.Warn("failed to judge lateness objectives", "shard", id, "error", err)
		}
		left = left || more
	}
	return left
}

func (s *Scheduler) firstObjectives(ctx context.Context, shards []int) (map[int]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	return s.o.Store.FirstObjectives(ctx, shards)
}

// toWatch lists the shards whose index of objectives is to be read. An objective is broken
// by a run that is due, leased, or held back by a gate, which has had a lease: so others
// have nothing to be read before the time of their first entry, as it was read last.
func (s *Scheduler) toWatch(now time.Time) []int {
	s.mu.Lock()
	ids := make([]int, 0, len(s.shards))
	for id := range s.shards {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	watch := ids[:0]
	for _, id := range ids { // one after the other: some have many lanes
		s.mu.Lock()
		if sh := s.shards[id]; sh != nil && sh.mayBreak(sh.clock.show(now)/1000) {
			watch = append(watch, id)
		}
		s.mu.Unlock()
	}
	return watch
}

// mayBreak reports whether a run of the shard may have broken its objective by now.
func (sh *shard) mayBreak(nowMS int64) bool {
	if sh.firstObjective <= nowMS || len(sh.warm) > 0 {
		return true
	}
	for _, l := range sh.lanes {
		if l.due <= nowMS || l.pending() {
			return true
		}
	}
	return false
}

func (s *Scheduler) noteObjectives(heads map[int]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, first := range heads {
		if sh := s.shards[id]; sh != nil {
			sh.firstObjective = first
		}
	}
}

// judge looks at the first entries of a shard's index whose time has come: it has the runs
// counted that are late, and moves the entries to where they belong. It reports whether there
// are more; not if none could be moved, for the next look would find the same ones.
func (s *Scheduler) judge(ctx context.Context, shard int, nowMS int64) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	entries, err := s.o.Store.Objectives(ctx, shard, nowMS, objectiveBatch)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	moves := make([]job.ObjectiveMove, 0, len(entries))
	var late []job.Objective
	for _, e := range entries {
		to, isLate := placeOf(e.Known, nowMS)
		if isLate {
			late = append(late, e)
			continue
		}
		moves = append(moves, job.ObjectiveMove{Objective: e, ToMS: to})
	}
	counted, failed := s.countLate(ctx, late, nowMS)
	if moves = append(moves, counted...); len(moves) == 0 {
		return false, failed
	}
	return len(entries) == objectiveBatch, errors.Join(failed, s.o.Store.MoveObjectives(ctx, shard, moves))
}

// placeOf is where the entry of a record belongs; 0: nowhere. The run may be late by now
// instead. One that is leased is its dispatcher's to judge.
func placeOf(r *job.Record, nowMS int64) (toMS int64, late bool) {
	if r == nil {
		return 0, false
	}
	at := r.Definition.BreaksAt(&r.State)
	switch {
	case at == 0 || at <= nowMS && r.State.Live():
		return 0, false
	case at <= nowMS:
		return 0, true
	}
	return at, false
}

// countLate has late runs counted, each by a decision, and waits for the answers. It
// returns where the entries belong then; those that could not be decided stay.
func (s *Scheduler) countLate(ctx context.Context, late []job.Objective, nowMS int64) (moves []job.ObjectiveMove, failed error) {
	type answer struct {
		nth int
		job.ChangeResult
	}
	answers := make(chan answer, len(late))
	for i, e := range late {
		change := job.Change{Record: e.Record, Event: job.FindLate{}, Known: e.Known}
		s.o.Ledger.Submit(change, func(r job.ChangeResult) { answers <- answer{i, r} })
	}
	for range late {
		select {
		case a := <-answers:
			e := late[a.nth]
			switch {
			case a.Err == nil:
				e.Known = &a.Record
			case errors.Is(a.Err, job.ErrNotFound):
				e.Known, e.Unreadable = nil, false
			default:
				failed = a.Err
				continue
			}
			if to, again := placeOf(e.Known, nowMS); !again {
				moves = append(moves, job.ObjectiveMove{Objective: e, ToMS: to})
			}
		case <-ctx.Done():
			return moves, ctx.Err()
		}
	}
	return moves, failed
}
