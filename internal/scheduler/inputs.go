package scheduler

import (
	"slices"

	"github.com/fermata-io/fermata/internal/job"
)

// Acquired says that this node has won a shard's lock. Its lanes are read at once.
func (s *Scheduler) Acquired(id int) {
	s.mu.Lock()
	if _, held := s.shards[id]; !held {
		s.shards[id] = newShard(id, s.scans)
	}
	s.mu.Unlock()
	select {
	case s.unread <- struct{}{}:
	default:
	}
}

// Lost says that this node no longer holds a shard. A call that is in flight for it
// ends as it may; until then none is made for the shard, even if it is acquired
// anew.
func (s *Scheduler) Lost(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh, held := s.shards[id]
	if !held {
		return
	}
	for _, l := range sh.lanes {
		sh.take(l, &s.backlog)
	}
	delete(s.shards, id)
}

// Nudge says that lanes of a shard may have become due earlier.
func (s *Scheduler) Nudge(id int, heads []job.LaneHead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh, held := s.shards[id]
	if !held {
		return
	}
	news := false
	for _, h := range heads {
		l := sh.lane(h.Lane)
		l.touched = s.scans
		switch {
		case l.pending():
			l.nudged = min(l.nudged, h.DueMS)
		case h.DueMS < l.due:
			s.setDue(l, h.DueMS)
			news = true
		}
	}
	if news {
		s.wake.Signal()
	}
}

// DemandChanged says that slots of this node's workers became free which serve these queues.
func (s *Scheduler) DemandChanged(namespace string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waited := false
	for _, name := range names {
		waited = s.backlog.water(queue{namespace, name}) || waited
	}
	if waited {
		s.wake.Signal()
	}
}

// Waits tells whether something is due in this node's shards that waits for a slot of one of
// these queues.
func (s *Scheduler) Waits(namespace string, names []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(names, func(name string) bool { return s.backlog.thirsts(queue{namespace, name}) })
}

// LimitsChanged says that a queue which has limits may have room again.
func (s *Scheduler) LimitsChanged(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rooms++
	if s.backlog.rouse(queue{namespace, name}) {
		s.wake.Signal()
	}
}

// setDue takes a lane's first due time and puts it to where it belongs. A score that somebody
// else wrote may be far below any time, from which nothing could be subtracted.
func (s *Scheduler) setDue(l *lane, due int64) {
	l.shard.take(l, &s.backlog)
	l.due = max(due, 0)
	if due < job.NeverMS && !l.pending() {
		s.putOff(l)
	}
}

// take takes a lane out of where it waits.
func (sh *shard) take(l *lane, b *backlog) {
	switch {
	case l.flow != nil:
		b.remove(l)
	case l.pos > 0:
		sh.later.Remove(l)
	}
}

// settle takes the first due time that the answer to a pending lane brought.
// The caller has ended what was pending.
func (s *Scheduler) settle(l *lane, due int64) {
	due = min(due, l.nudged)
	l.nudged = job.NeverMS
	l.touched = s.scans
	s.setDue(l, due)
}
