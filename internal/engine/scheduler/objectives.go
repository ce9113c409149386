package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// objectiveBatch bounds the entries of one shard's index of objectives that are looked at
// before the others' turn.
const objectiveBatch = 200

// countLateRuns counts waiting runs that have broken their lateness objective. If there are many it takes a
// quarter of the time, so that due runs are not delayed.
func (s *Scheduler) countLateRuns(ctx context.Context) {
	for {
		began := time.Now()
		if left := s.countLateRunsOnce(ctx); !left || !sleepContext(ctx, max(3*time.Since(began), minSweepPause)) {
			return
		}
	}
}

// countLateRunsOnce handles a batch of each shard and reports whether any shard has more.
func (s *Scheduler) countLateRunsOnce(ctx context.Context) (left bool) {
	shards := s.shardsToWatch(time.Now())
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
		more, err := s.judgeObjectives(ctx, id, now)
		if err != nil && ctx.Err() == nil {
			s.o.Logger.Warn("failed to judge lateness objectives", "shard", id, "error", err)
		}
		left = left || more
	}
	return left
}

func (s *Scheduler) firstObjectives(ctx context.Context, shards []int) (map[int]unixtime.Milli, error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	return s.o.Store.FirstObjectives(ctx, shards)
}

// shardsToWatch lists the shards whose index of objectives is to be read. Only a run that is due, leased, or
// held back by a gate after a lease can break its objective. Shards without such runs need not be read before
// the time of their first entry, as it was read last.
func (s *Scheduler) shardsToWatch(now time.Time) []int {
	s.mu.Lock()
	ids := make([]int, 0, len(s.shards))
	for id := range s.shards {
		ids = append(ids, id)
	}
	s.mu.Unlock()
	watch := ids[:0]
	for _, id := range ids { // one after the other: some have many lanes
		s.mu.Lock()
		if sh := s.shards[id]; sh != nil && sh.mayBreakObjective(sh.clock.estimateUS(now).Milli()) {
			watch = append(watch, id)
		}
		s.mu.Unlock()
	}
	return watch
}

// mayBreakObjective reports whether a run of the shard may have broken its objective by now.
func (sh *shard) mayBreakObjective(nowMS unixtime.Milli) bool {
	if sh.firstObjective <= nowMS || len(sh.maybeLeased) > 0 {
		return true
	}
	for _, l := range sh.lanes {
		if l.due <= nowMS || l.isPending() {
			return true
		}
	}
	return false
}

func (s *Scheduler) noteObjectives(heads map[int]unixtime.Milli) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, first := range heads {
		if sh := s.shards[id]; sh != nil {
			sh.firstObjective = first
		}
	}
}

// judgeObjectives handles the first entries of a shard's index whose time has come: it counts late runs, and
// moves entries to their next place. It reports whether there are more. If none could be moved it reports false,
// because the next look would find the same ones.
func (s *Scheduler) judgeObjectives(ctx context.Context, shard int, nowMS unixtime.Milli) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
	defer cancel()
	entries, err := s.o.Store.Objectives(ctx, shard, nowMS, objectiveBatch)
	if err != nil || len(entries) == 0 {
		return false, err
	}
	moves := make([]job.ObjectiveMove, 0, len(entries))
	var late []job.Objective
	for _, e := range entries {
		to, isLate := objectivePlace(e.Known, nowMS)
		if isLate {
			late = append(late, e)
			continue
		}
		moves = append(moves, job.ObjectiveMove{Objective: e, ToMS: to})
	}
	counted, failed := s.countLate(ctx, late, nowMS)
	moves = append(moves, counted...)
	if len(moves) == 0 {
		return false, failed
	}
	return len(entries) == objectiveBatch, errors.Join(failed, s.o.Store.MoveObjectives(ctx, shard, moves))
}

// objectivePlace returns where the entry of a record belongs, 0 for nowhere, or that its run is late. A leased
// run is judged by its dispatcher.
func objectivePlace(r *job.Record, nowMS unixtime.Milli) (toMS unixtime.Milli, late bool) {
	if r == nil {
		return 0, false
	}
	at := r.Definition.BreachAtMS(&r.State)
	switch {
	case at == 0 || at <= nowMS && r.State.Live():
		return 0, false
	case at <= nowMS:
		return 0, true
	}
	return at, false
}

// countLate submits a decision for each late run and waits for the answers. It returns the new places of their
// entries; entries of failed decisions stay.
func (s *Scheduler) countLate(ctx context.Context, late []job.Objective,
	nowMS unixtime.Milli) (moves []job.ObjectiveMove, failed error) {
	type answer struct {
		nth int
		job.ChangeResult
	}
	answers := make(chan answer, len(late))
	for i, e := range late {
		change := job.Change{Record: e.Record, Input: job.CheckLateness{}, Known: e.Known}
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
			if to, again := objectivePlace(e.Known, nowMS); !again {
				moves = append(moves, job.ObjectiveMove{Objective: e, ToMS: to})
			}
		case <-ctx.Done():
			return moves, ctx.Err()
		}
	}
	return moves, failed
}
