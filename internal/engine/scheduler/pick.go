package scheduler

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
)

// call is one leasing call for a shard, with the slots reserved for it.
type call struct {
	shard     *shard
	lockValue string
	lanes     []*lane
	quotas    []job.LaneQuota     // by lane
	slots     []slots.Reservation // by lane
	limited   []bool              // by lane: the quota was granted by Limits; nil is none
	total     int
	// advance: all lanes may be leased from before something is due.
	advance bool
	outlook leadTimes
	clock   clockReading // as it was known when the call was put together
}

const (
	// maxRoundShards and maxRoundSlots bound one pipeline: its first answer is
	// not seen before its last.
	maxRoundShards = 64
	maxRoundSlots  = 400
	// lockRetryPause is how long a shard rests if its lock cannot be trusted just now.
	lockRetryPause = 100 * time.Millisecond
)

// pickRound has the calls of one pickCalls.
type pickRound struct {
	now     time.Time
	calls   []*call
	slots   int
	permits map[string][]*openPermit // to be sent, by peer
}

// pickCalls reserves slots for due lanes and returns the calls to make; it sends permits to peers itself. It
// also returns when to pick again if nothing happens before: now if there is more than fits, zero for never. The
// caller holds mu.
func (s *Scheduler) pickCalls(now time.Time) ([]*call, time.Time) {
	if ready := s.pacer.nextCallAt(); now.Before(ready) {
		return nil, ready
	}
	s.dropExpired(now)
	s.moveDueLanes(now, 0)
	if s.backlog.nextLane() != nil {
		s.moveDueLanes(now, s.outlook.lead)
	}
	s.backlog.endRestsDue(now)
	r := pickRound{now: now}
	l := s.backlog.nextLane()
	for l != nil && len(r.calls) < maxRoundShards && r.slots < maxRoundSlots {
		s.serveLane(l, &r)
		l = s.backlog.nextLane()
	}
	for _, c := range r.calls {
		c.shard.nextCall, c.outlook = nil, s.outlook
		s.callsInFlight[c.shard.id] = struct{}{}
	}
	if len(r.calls) > 0 {
		s.pacer.noteCall(now, r.slots)
	}
	s.outlook = s.leadTimesAfterRound(&r)
	if allSent := s.sendPermits(&r); l != nil || !allSent {
		return r.calls, now
	}
	return r.calls, s.nextDue()
}

// moveDueLanes moves the lanes that are to be looked at by now to the backlog. With further it also moves lanes
// within that time from which may be leased in advance.
func (s *Scheduler) moveDueLanes(now time.Time, further time.Duration) {
	for _, sh := range s.shards {
		if len(sh.laterLanes) == 0 || !s.canLeaseFrom(sh) || now.Before(sh.restUntil) {
			continue
		}
		until := sh.clock.estimateUS(now.Add(further)).Milli()
		for len(sh.laterLanes) > 0 && sh.laterLanes.Top().lookAt <= until &&
			(further == 0 || sh.laterLanes.Top().mayAdvance) {
			l := sh.laterLanes.Top()
			sh.laterLanes.Remove(l)
			s.backlog.addLane(l)
		}
	}
}

// canLeaseFrom is false while nothing can be leased from the shard.
func (s *Scheduler) canLeaseFrom(sh *shard) bool {
	_, flying := s.callsInFlight[sh.id]
	return !flying && !sh.clock.at.IsZero()
}

// nextDue is when the next lane becomes due, the next permit runs out, or the next
// queue has rested.
func (s *Scheduler) nextDue() (next time.Time) {
	for _, sh := range s.shards {
		if len(sh.laterLanes) == 0 || !s.canLeaseFrom(sh) {
			continue
		}
		t := sh.clock.localTimeOf(sh.laterLanes.Top().lookAt)
		if t.Before(sh.restUntil) {
			t = sh.restUntil
		}
		next = earlierOf(next, t)
	}
	return earlierOf(earlierOf(next, s.permits.nextExpiry()), s.backlog.nextRestEnd())
}

// earlierOf returns the earlier of two instants; zero means never.
func earlierOf(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

// serveLane finds slots for the next lane, here or with a peer. In any case the backlog shrinks: the lane leaves
// it, or its queue is marked as starved.
func (s *Scheduler) serveLane(l *lane, r *pickRound) {
	sh := l.shard
	if !s.canLeaseFrom(sh) || r.now.Before(sh.restUntil) || sh.nextCall.isFull() {
		s.parkLane(l)
		return
	}
	lockValue, held := s.o.Held(sh.id)
	if !held {
		sh.restUntil = r.now.Add(lockRetryPause)
		s.parkLane(l)
		return
	}
	soon := l.due > sh.clock.estimateUS(r.now).Milli()
	if soon && !s.mayAdvance(l) {
		s.parkLane(l)
		return
	}
	n := min(l.wantedLeases, maxRoundSlots-r.slots)
	if sh.nextCall != nil {
		n = min(n, job.MaxLeasesPerCall-sh.nextCall.total)
	}
	if slots := s.o.Slots.Reserve(l.key.Namespace, l.key.Queue, n); slots != nil && slots.Count() > 0 {
		l.mayAdvance = slots.Advance() && !s.hasLimits(l.key)
		r.addToCall(l, slots, lockValue)
		l.callInFlight = true
		s.markServed(l, slots.Count(), r.now)
		return
	}
	if n := s.addPermit(l, lockValue, r, permitKind{soon: soon}); n > 0 {
		s.markServed(l, n, r.now)
		return
	}
	l.mayAdvance = false
	if soon {
		s.parkLane(l)
		return
	}
	if slots := s.o.Slots.Prefetch(l.key.Namespace, l.key.Queue, n); slots != nil && slots.Count() > 0 {
		r.addToCall(l, slots, lockValue)
		l.callInFlight = true
		s.markServed(l, slots.Count(), r.now)
		return
	}
	if n := s.addPermit(l, lockValue, r, permitKind{toWait: true}); n > 0 {
		s.markServed(l, n, r.now)
		return
	}
	s.backlog.markStarved(l)
}

// markServed takes a lane that was given n slots out of the backlog.
func (s *Scheduler) markServed(l *lane, n int, now time.Time) {
	l.leasableUntil = now.Add(leasableFor)
	l.shard.markMaybeLeased(l)
	s.backlog.removeLane(l)
	s.backlog.chargeFlow(l.key, n)
	l.touchedInScan = s.scanCount
}

// parkLane removes a lane from the backlog until its shard can be leased from.
func (s *Scheduler) parkLane(l *lane) {
	s.backlog.removeLane(l)
	s.pushLater(l)
}

// addToCall puts a lane into the shard's call.
func (r *pickRound) addToCall(l *lane, slots slots.Reservation, lockValue string) {
	c := l.shard.nextCall
	if c == nil {
		c = &call{shard: l.shard, lockValue: lockValue, advance: true, clock: l.shard.clock}
		l.shard.nextCall = c
		r.calls = append(r.calls, c)
	}
	n := slots.Count()
	c.lanes = append(c.lanes, l)
	c.quotas = append(c.quotas, job.LaneQuota{Lane: l.key, N: n})
	c.slots = append(c.slots, slots)
	c.advance = c.advance && l.mayAdvance
	c.total += n
	r.slots += n
}

func (c *call) isFull() bool {
	return c != nil && (len(c.lanes) >= job.MaxLanesPerCall || c.total >= job.MaxLeasesPerCall)
}
