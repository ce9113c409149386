package scheduler

import (
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// Where workers have slots to spare, records are leased a little before they are due, and
// the workers start them when they are. So the way to Redis and to the worker is no part
// of the lag, and what falls due within some milliseconds goes in one pipeline, one script
// a shard and one message, where each record had its own else.
//
// A lane is looked at margin before it is due; with it all others are that would be looked
// at within lead, so that the next look is about lead away. The price is that what is
// decided about a job less than horizon before it is due comes too late for that run, as it
// does for one that has started. Nothing is leased in advance from queues with limits, under
// permits, or where a slot could be missed.
type outlook struct {
	margin time.Duration // what a look, its pipeline and the way to the worker take
	lead   time.Duration
}

// horizon is how long before it is due a record is leased at the earliest.
func (o outlook) horizon() time.Duration { return o.margin + o.lead }

var (
	near = outlook{margin: 4 * time.Millisecond, lead: 8 * time.Millisecond}
	// far is the outlook while each pipeline has calls for manyShards: it takes longer, and
	// its calls carry little if there are many of them.
	far = outlook{margin: 10 * time.Millisecond, lead: 16 * time.Millisecond}
)

const (
	manyShards = 24
	// sureFor is how long a sight of a shard's clock counts on its own.
	sureFor = 200 * time.Millisecond
	// drift is one over how much faster the clocks of nodes and workers may count than that of
	// Redis: clocks are slewed by less.
	drift = 1000
)

// outlookOf is the outlook after a pipeline with so many calls.
func outlookOf(calls int) outlook {
	if calls >= manyShards {
		return far
	}
	return near
}

// putOff puts a lane among those that are to be looked at later.
func (s *Scheduler) putOff(l *lane) {
	l.at = l.due
	if l.advance {
		l.at -= s.outlook.margin.Milliseconds()
	}
	l.shard.later.Push(l)
}

// mayAdvance tells whether something could be leased from the lane before it is due.
func (s *Scheduler) mayAdvance(l *lane) bool {
	l.advance = s.o.Slots.MayAdvance(l.key.Namespace, l.key.Queue) && !s.limited(l.key)
	return l.advance
}

// horizon is how long before they are due the call leases records at the earliest.
func (c *call) horizon() time.Duration {
	if c.advance {
		return c.outlook.horizon()
	}
	return 0
}

// startAt tells of leases that are not due when they are. Sent and arrived are when
// the request left and the answer was here: the clock that it shows was read in between, so
// an estimate from its arrival is late by the answer's trip, and one that was known before
// may be better, or wrong.
func (c *call) startAt(r job.LeaseReply, sent, arrived time.Time) {
	clock := reading{us: r.NowUS, at: arrived}
	known := c.clock
	if arrived.Sub(known.at) < sureFor && known.show(arrived) > r.NowUS && known.show(sent) <= r.NowUS {
		clock = known
	}
	for i := range r.Leased {
		if l := &r.Leased[i]; l.Known.State.Due*1000 > r.NowUS && l.Known.State.Due*1000 <= r.NowUS+c.horizon().Microseconds() {
			l.StartAt = clock.when(l.Known.State.Due)
			l.StartAt = l.StartAt.Add(max(0, l.StartAt.Sub(clock.at)) / drift)
		}
	}
}
