package scheduler

import (
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// call is one leasing call for a shard, with the slots reserved for it.
type call struct {
	shard     *shard
	lockValue string
	lanes     []*lane
	quotas    []job.LaneQuota // by lane
	slots     []Reservation   // by lane
	limited   []bool          // by lane: the quota was granted by Limits; nil is none
	total     int
	// advance: all lanes may be leased from before something is due.
	advance bool
	outlook outlook
	clock   reading // as it was known when the call was put together
}

const (
	// maxRoundShards and maxRoundSlots bound one pipeline: its first answer is
	// not seen before its last.
	maxRoundShards = 64
	maxRoundSlots  = 400
	// heldRetry is how long a shard rests whose lock cannot be trusted just now.
	heldRetry = 100 * time.Millisecond
)

// round is what one pick puts together.
type round struct {
	now   time.Time
	calls []*call
	slots int
}

// pick reserves slots for due lanes and returns the calls to make; permits for
// peers are sent on the way. It also returns when to pick again if nothing
// happens before: now when there is more than fits, zero for never. The caller
// holds mu.
func (s *Scheduler) pick(now time.Time) ([]*call, time.Time) {
	if ready := s.pace.ready(); now.Before(ready) {
		return nil, ready
	}
	s.dropExpired(now)
	if s.promote(now, 0); s.backlog.next() != nil {
		s.promote(now, s.outlook.lead)
	}
	s.backlog.rouseDue(now)
	r := round{now: now}
	l := s.backlog.next()
	for l != nil && len(r.calls) < maxRoundShards && r.slots < maxRoundSlots {
		s.serve(l, &r)
		l = s.backlog.next()
	}
	for _, c := range r.calls {
		c.shard.call, c.outlook = nil, s.outlook
		s.flying[c.shard.id] = struct{}{}
	}
	if len(r.calls) > 0 {
		s.pace.called(now, r.slots)
		s.outlook = outlookOf(len(r.calls))
	}
	if l != nil {
		return r.calls, now
	}
	return r.calls, s.nextDue()
}

// promote moves the lanes that are to be looked at by now to the backlog. Further ahead than
// that it looks for those that may be leased from in advance.
func (s *Scheduler) promote(now time.Time, further time.Duration) {
	for _, sh := range s.shards {
		if len(sh.later) == 0 || !s.usable(sh) || now.Before(sh.rest) {
			continue
		}
		until := sh.clock.show(now.Add(further)) / 1000
		for len(sh.later) > 0 && sh.later.Top().at <= until && (further == 0 || sh.later.Top().advance) {
			l := sh.later.Top()
			sh.later.Remove(l)
			s.backlog.add(l)
		}
	}
}

// usable is false while nothing can be leased from the shard.
func (s *Scheduler) usable(sh *shard) bool {
	_, flying := s.flying[sh.id]
	return !flying && !sh.clock.at.IsZero()
}

// nextDue is when the next lane becomes due, the next permit runs out, or the next
// queue has rested.
func (s *Scheduler) nextDue() (next time.Time) {
	for _, sh := range s.shards {
		if len(sh.later) == 0 || !s.usable(sh) {
			continue
		}
		t := sh.clock.when(sh.later.Top().at)
		if t.Before(sh.rest) {
			t = sh.rest
		}
		next = earlier(next, t)
	}
	return earlier(earlier(next, s.permits.nextExpiry()), s.backlog.nextRouse())
}

// earlier is the earlier of two instants of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// serve finds slots for the lane that is next, here or with a peer. In any case
// the backlog shrinks: the lane leaves it, or its queue runs dry.
func (s *Scheduler) serve(l *lane, r *round) {
	sh := l.shard
	if !s.usable(sh) || r.now.Before(sh.rest) || sh.call.full() {
		s.park(l)
		return
	}
	lockValue, held := s.o.Held(sh.id)
	if !held {
		sh.rest = r.now.Add(heldRetry)
		s.park(l)
		return
	}
	soon := l.due > sh.clock.show(r.now)/1000
	if soon && !s.mayAdvance(l) {
		s.park(l)
		return
	}
	n := min(l.want, maxRoundSlots-r.slots)
	if sh.call != nil {
		n = min(n, job.MaxLeasesPerCall-sh.call.total)
	}
	if slots := s.o.Slots.Reserve(l.key.Namespace, l.key.Queue, n); slots != nil && slots.Count() > 0 {
		l.advance = slots.Advance() && !s.limited(l.key)
		r.add(l, slots, lockValue)
		l.asked = true
		s.served(l, slots.Count(), r.now)
		return
	}
	if l.advance = false; soon {
		s.park(l)
		return
	}
	if n := s.permit(l, lockValue, r.now, false); n > 0 {
		s.served(l, n, r.now)
		return
	}
	if slots := s.o.Slots.Prefetch(l.key.Namespace, l.key.Queue, n); slots != nil && slots.Count() > 0 {
		r.add(l, slots, lockValue)
		l.asked = true
		s.served(l, slots.Count(), r.now)
		return
	}
	if n := s.permit(l, lockValue, r.now, true); n > 0 {
		s.served(l, n, r.now)
		return
	}
	s.backlog.parch(l)
}

// served takes a lane that was promised n slots out of the backlog.
func (s *Scheduler) served(l *lane, n int, now time.Time) {
	l.hot = now.Add(hotFor)
	l.shard.heat(l)
	s.backlog.remove(l)
	s.backlog.charge(l.key, n)
	l.touched = s.scans
}

// park puts a lane aside until its shard can be leased from.
func (s *Scheduler) park(l *lane) {
	s.backlog.remove(l)
	s.putOff(l)
}

// add puts a lane into the shard's call.
func (r *round) add(l *lane, slots Reservation, lockValue string) {
	c := l.shard.call
	if c == nil {
		c = &call{shard: l.shard, lockValue: lockValue, advance: true, clock: l.shard.clock}
		l.shard.call = c
		r.calls = append(r.calls, c)
	}
	n := slots.Count()
	c.lanes = append(c.lanes, l)
	c.quotas = append(c.quotas, job.LaneQuota{Lane: l.key, N: n})
	c.slots = append(c.slots, slots)
	c.advance = c.advance && l.advance
	c.total += n
	r.slots += n
}

func (c *call) full() bool {
	return c != nil && (len(c.lanes) >= job.MaxLanesPerCall || c.total >= job.MaxLeasesPerCall)
}
