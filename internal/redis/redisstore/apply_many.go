package redisstore

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// ApplyMany is [Store.Apply] for several shards, in one pipeline for each server. It calls done once for each request,
// with its index, as soon as its reply is known, and returns after the last call. done may be called on several
// goroutines at once.
//
// All requests are sent together once. One that then has no reply, or needs another call first, goes on alone, so that
// it does not delay the others.
func (s *Store) ApplyMany(ctx context.Context, requests []job.ShardWrites, done func(int, job.ApplyReply)) {
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	var ops []*runner.Op
	planned := make(map[*runner.Op]*plannedApply, len(requests))
	for i, r := range requests {
		p := s.planApply(ctx, r)
		if p == nil {
			goroutines.Go(func() { done(i, s.Apply(ctx, r.Shard, r.Writes)) })
			continue
		}
		p.done = func(reply job.ApplyReply) { done(i, reply) }
		for _, o := range p.ops {
			planned[o] = p
		}
		ops = append(ops, p.ops...)
	}
	for _, group := range s.runner.GroupByServer(ctx, ops) {
		if len(group) < len(ops) { // there are several servers: none waits for another one
			goroutines.Go(func() { s.runTogether(ctx, group, planned, &goroutines) })
			continue
		}
		s.runTogether(ctx, group, planned, &goroutines)
	}
}

// plannedApply is a request of [Store.ApplyMany] that is ready to be sent.
type plannedApply struct {
	job.ShardWrites
	room  *applyMemory
	calls []*applyCall
	ops   []*runner.Op // of the calls: all are for one server
	done  func(job.ApplyReply)
}

// planApply returns nil if the request is not ready without a call of its own, or is invalid or empty.
func (s *Store) planApply(ctx context.Context, r job.ShardWrites) *plannedApply {
	if len(r.Writes) == 0 {
		return nil
	}
	for i := range r.Writes {
		if len(lettersToDelete(&r.Writes[i])) > 0 {
			return nil
		}
	}
	room := acquireApplyMemory(len(r.Writes))
	groups, err := room.planGroups(s.form(), s.unsuccessful, s.keepsRuns(), r.Writes)
	if err != nil {
		room.release()
		return nil
	}
	p := &plannedApply{ShardWrites: r, room: room, calls: room.cutCalls(r.Shard, groups)}
	s.addAnnouncements(ctx, p.calls)
	p.ops = s.buildOps(p.calls, r.Writes)
	return p
}

// runTogether sends the ops of several requests, which are for one server.
func (s *Store) runTogether(ctx context.Context, ops []*runner.Op, planned map[*runner.Op]*plannedApply,
	goroutines *sync.WaitGroup) {
	unanswered := s.runner.RunOnce(ctx, ops)
	var last *plannedApply
	for _, o := range ops { // those of a request are neighbours
		p := planned[o]
		if p == last {
			continue
		}
		last = p
		if p.isComplete(unanswered) {
			s.endApply(ctx, p)
			continue
		}
		goroutines.Go(func() {
			s.runner.RunEach(ctx, p.opsAmong(unanswered))
			s.endApply(ctx, p)
		})
	}
}

// isComplete reports whether all calls of the request are answered for good.
func (p *plannedApply) isComplete(unanswered []*runner.Op) bool {
	return !slices.ContainsFunc(p.ops, func(o *runner.Op) bool {
		return redis.IsOOMError(o.Err) || slices.Contains(unanswered, o)
	})
}

func (p *plannedApply) opsAmong(unanswered []*runner.Op) (ops []*runner.Op) {
	for _, o := range p.ops {
		if slices.Contains(unanswered, o) {
			ops = append(ops, o)
		}
	}
	return ops
}

// endApply reads the replies to a request.
func (s *Store) endApply(ctx context.Context, p *plannedApply) {
	defer p.room.release()
	s.endApplyCalls(ctx, p.calls, p.Writes)
	p.done(s.readApplyReplies(p.Writes, p.calls))
}
