package scheduler

import (
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// ShardAcquired is called when this node has acquired a shard's lock. The shard's lanes are read at once.
func (s *Scheduler) ShardAcquired(id int) {
	s.mu.Lock()
	if _, held := s.shards[id]; !held {
		s.shards[id] = newShard(id, s.scanCount)
	}
	s.mu.Unlock()
	select {
	case s.shardUnread <- struct{}{}:
	default:
	}
}

// ShardLost is called when this node no longer holds a shard. A call in flight for it runs to its end; until then no
// other call is made for the shard, even if it is acquired again.
func (s *Scheduler) ShardLost(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh, held := s.shards[id]
	if !held {
		return
	}
	for _, l := range sh.lanes {
		sh.removeFromHeaps(l, &s.backlog)
	}
	delete(s.shards, id)
}

// LanesDueEarlier notes that lanes of a shard may have become due earlier.
func (s *Scheduler) LanesDueEarlier(id int, heads []job.LaneHead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh, held := s.shards[id]
	if !held {
		return
	}
	changed := false
	for _, h := range heads {
		l := sh.laneOf(h.Lane)
		l.touchedInScan = s.scanCount
		switch {
		case l.isPending():
			l.nudgedDue = min(l.nudgedDue, h.DueMS)
		case h.DueMS < l.due:
			s.setDue(l, h.DueMS)
			changed = true
		}
	}
	if changed {
		s.wake.Signal()
	}
}

// DemandChanged notes that slots of this node's workers became free which serve these queues.
func (s *Scheduler) DemandChanged(namespace string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waited := false
	for _, name := range names {
		waited = s.backlog.slotsAvailable(queueKey{namespace, name}) || waited
	}
	if waited {
		s.wake.Signal()
	}
}

// HasWaitingLanes reports whether a due record in this node's shards waits for a slot of one of these queues.
func (s *Scheduler) HasWaitingLanes(namespace string, names []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool { return s.backlog.isStarved(queueKey{namespace, name}) })
}

// LimitsChanged notes that a queue with limits may have room again.
func (s *Scheduler) LimitsChanged(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limitChanges++
	if s.backlog.endRest(queueKey{namespace, name}) {
		s.wake.Signal()
	}
}

// setDue sets a lane's first due time and puts the lane in its place. A score written by another program may be
// far below any time; subtracting from it would overflow.
func (s *Scheduler) setDue(l *lane, due unixtime.Milli) {
	l.shard.removeFromHeaps(l, &s.backlog)
	l.due = max(due, 0)
	if due < job.NeverMS && !l.isPending() {
		s.pushLater(l)
	}
}

// removeFromHeaps removes a lane from the heap or flow in which it waits.
func (sh *shard) removeFromHeaps(l *lane, b *backlog) {
	switch {
	case l.flow != nil:
		b.removeLane(l)
	case l.pos > 0:
		sh.laterLanes.Remove(l)
	}
}

// applyDue sets the first due time that the answer to a pending lane contained. The caller has ended the call or
// permit.
func (s *Scheduler) applyDue(l *lane, due unixtime.Milli) {
	due = min(due, l.nudgedDue)
	l.nudgedDue = job.NeverMS
	l.touchedInScan = s.scanCount
	s.setDue(l, due)
}
