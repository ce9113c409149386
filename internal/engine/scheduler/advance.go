package scheduler

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Where workers have slots to spare, records are leased a little before they are due, and
// the workers start them on time. So the round trip to Redis and the way to the worker do
// not add to the lag. Records that fall due within some milliseconds of each other share one
// pipeline, one script call a shard and one message, where each needed its own otherwise.
//
// A lane is looked at margin before it is due, together with all others that would be looked
// at within lead, so that the next look is about lead away. The price: a change of a job
// less than horizon before it is due comes too late for that run, as for a run that has
// started. Nothing is leased in advance from queues with limits, or where a slot could be
// missed.
//
// Where this node has no free slots for a queue, and a peer has slots to spare, the same is
// done by permits: those of all lanes that are due soon are one message, and one pipeline at
// the peer, whose workers start the runs on time.
type leadTimes struct {
	margin time.Duration // what a look, its pipeline and the way to the worker take
	lead   time.Duration
}

// horizon is how long before it is due a record is leased at the earliest.
func (o leadTimes) horizon() time.Duration { return o.margin + o.lead }

var (
	shortLead = leadTimes{margin: 4 * time.Millisecond, lead: 8 * time.Millisecond}
	// longLead is the outlook while each pipeline has calls for manyShards: it takes longer, and
	// its calls carry little if there are many of them.
	longLead = leadTimes{margin: 10 * time.Millisecond, lead: 16 * time.Millisecond}
	// wideLead is the outlook at frequentLeases and more, where the slots that it needs are few of those that are
	// free: half as many pipelines, each with twice the records.
	wideLead = leadTimes{margin: 4 * time.Millisecond, lead: 20 * time.Millisecond}
	// shortPermitLead and widePermitLead are the same for leases by permits, which have one more way to go.
	shortPermitLead = leadTimes{margin: 6 * time.Millisecond, lead: 8 * time.Millisecond}
	widePermitLead  = leadTimes{margin: 6 * time.Millisecond, lead: 20 * time.Millisecond}
)

const (
	manyShards = 24
	// frequentLeases is a number of leases a second. A message and its answer cost more than a pipeline, so that for
	// permits it is less.
	frequentLeases        = 250
	frequentPermitsLeases = 50
	// clockTrust is how long a sight of a shard's clock counts on its own.
	clockTrust = 200 * time.Millisecond
	// clockDrift is one over how much faster the clocks of nodes and workers may count than that of
	// Redis: clocks are slewed by less.
	clockDrift = 1000
)

// leadTimesAfterRound is the outlook after a round.
func (s *Scheduler) leadTimesAfterRound(r *pickRound) leadTimes {
	switch {
	case len(r.calls) > 0:
		return s.leadTimesAfter(r.calls)
	case len(r.permits) > 0 && s.peersHaveRoomFor(r, widePermitLead.lead):
		return widePermitLead
	case len(r.permits) > 0:
		return shortPermitLead
	}
	return s.outlook
}

// leadTimesAfter is the outlook after a pipeline of these calls.
func (s *Scheduler) leadTimesAfter(calls []*call) leadTimes {
	switch {
	case len(calls) >= manyShards:
		return longLead
	case s.hasRoomFor(calls, wideLead.lead):
		return wideLead
	}
	return shortLead
}

// hasRoomFor reports whether leases are frequent, and those of the given time would not make calls for manyShards and
// take less than a quarter of the slots that are free for each queue of the calls.
func (s *Scheduler) hasRoomFor(calls []*call, lead time.Duration) bool {
	rate := s.leaseRate.PerSecond()
	leases := rate * lead.Seconds()
	if rate < frequentLeases || s.makesManyCalls(leases) {
		return false
	}
	var known queueKey
	for _, c := range calls {
		for _, l := range c.lanes {
			q := queueKey{l.key.Namespace, l.key.Queue}
			if q == known {
				continue
			}
			known = q
			if 4*leases >= float64(s.o.Slots.FreeSlots(q.namespace, q.name)) {
				return false
			}
		}
	}
	return true
}

// makesManyCalls reports whether that many leases may make calls for manyShards.
func (s *Scheduler) makesManyCalls(leases float64) bool {
	return leases >= manyShards && len(s.shards) >= manyShards
}

// peersHaveRoomFor reports the same as hasRoomFor for leases by permits and the slots of the peers that have them.
func (s *Scheduler) peersHaveRoomFor(r *pickRound, lead time.Duration) bool {
	rate := s.permitRate.PerSecond()
	leases := rate * lead.Seconds()
	if rate < frequentPermitsLeases || s.makesManyCalls(leases) {
		return false
	}
	for node, permits := range r.permits {
		p := s.peers[node]
		for _, out := range permits {
			if p == nil || 4*leases >= float64(p.inAdvance[queueKeyOf(out.Lane)]) {
				return false
			}
		}
	}
	return true
}

// pushLater puts a lane among those that are to be looked at later.
func (s *Scheduler) pushLater(l *lane) {
	l.lookAt = l.due
	if l.mayAdvance {
		l.lookAt = l.lookAt.Add(-s.outlook.margin)
	}
	l.shard.laterLanes.Push(l)
}

// mayAdvance reports whether records of the lane may be leased before they are due: by this node's workers, or, if they
// have no free slots, by those of a peer.
func (s *Scheduler) mayAdvance(l *lane) bool {
	q := queueKeyOf(l.key)
	l.mayAdvance = !s.hasLimits(l.key) && (s.o.Slots.MayAdvance(q.namespace, q.name) ||
		s.peersMayAdvance(q) && s.o.Slots.FreeSlots(q.namespace, q.name) == 0)
	return l.mayAdvance
}

// horizon is how long before they are due the call leases records at the earliest.
func (c *call) horizon() time.Duration {
	if c.advance {
		return c.outlook.horizon()
	}
	return 0
}

// setStartTimes sets StartAt of the leases that are not due yet, if they are due within horizon. Sent and arrived are
// when the request left and the answer arrived. The clock in the answer was read in between, so an estimate from its
// arrival is late by the answer's trip. An earlier estimate (known) may be better, or wrong; that of a clock with a lag
// may be early.
func setStartTimes(r job.LeaseReply, horizon time.Duration, known clockReading, sent, arrived time.Time) {
	clock := clockReading{us: r.NowUS, at: arrived}
	if known.lag == 0 && arrived.Sub(known.at) < clockTrust &&
		known.estimateUS(arrived) > r.NowUS && known.estimateUS(sent) <= r.NowUS {
		clock = known
	}
	for i := range r.Leased {
		if l := &r.Leased[i]; l.Known.State.Due.Micro() > r.NowUS &&
			l.Known.State.Due.Micro() <= r.NowUS.Add(horizon) {
			l.StartAt = clock.localTimeOf(l.Known.State.Due)
			l.StartAt = l.StartAt.Add(max(0, l.StartAt.Sub(clock.at)) / clockDrift)
		}
	}
}
