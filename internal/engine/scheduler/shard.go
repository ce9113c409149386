package scheduler

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/minheap"
)

// shard is a shard that this node holds.
type shard struct {
	id    int
	lanes map[job.Lane]*lane
	// laterLanes has the lanes that are due at some time and do not wait for slots.
	// Lanes that are due but cannot be leased from just now are here as well.
	laterLanes     minheap.Heap[*lane]
	restUntil      time.Time // no leasing before, after an error
	clock          clockReading
	nextCall       *call // being put together by pick
	acquiredInScan int64 // the rescan after whose start the shard was acquired
	lanesRead      bool  // a rescan has read its lanes, or the first page of them
	// State of reading more lanes than one page lists, see lane_pages.go.
	oversized bool
	nextPage  job.LaneCursor // where the next page begins
	passBegan int64          // the rescan that read the first page
	unlisted  []job.Lane     // known lanes that the last pass did not list, not looked up yet
	nextQueue job.QueueKey   // where the next lookup of queues with workers begins
	// maybeLeased has the lanes in which records may be leased: no look since has shown the opposite. See
	// reapLeases.
	maybeLeased    map[*lane]struct{}
	lastReapPeriod uint64 // the period of reaping in which its lanes were looked at last
	// firstObjective is the instant of the first entry in the index of objectives at the last read; 0: not read
	// yet.
	firstObjective unixtime.Milli
}

// newShard is one that is acquired after a rescan has begun.
func newShard(id int, scan int64) *shard {
	return &shard{id: id, lanes: make(map[job.Lane]*lane), maybeLeased: make(map[*lane]struct{}), acquiredInScan: scan}
}

// lane is one lane of one shard. It is in the shard's later, or in a flow, or,
// while it is pending or never due, in neither.
type lane struct {
	key           job.Lane
	shard         *shard
	due           unixtime.Milli // first due time
	lookAt        unixtime.Milli // when to look at it, see advance.go; in a flow, when it is due
	mayAdvance    bool           // it may be leased from before something is due, as far as is known
	nudgedDue     unixtime.Milli // earliest nudge while pending; NeverMS is none
	wantedLeases  int            // how many leases to ask for
	callInFlight  bool           // a leasing call for it is in flight
	permit        *openPermit
	unusedPermits uint      // permits in a row that found nothing due, see backOffLane
	touchedInScan int64     // the rescan after whose start the lane was updated last
	listedInScan  int64     // the last rescan that found the lane
	leasableUntil time.Time // until then no look shows that nothing is leased
	// State of sweeping, see lanesToSweep.
	leasedSinceSweep bool           // something was leased since the last look, so that it may have ended
	firstEnd         unixtime.Milli // when the first record is to be deleted, as the last look showed it; NeverMS is none
	flow             *flow          // where it waits for slots
	pos              int            // in later or in flow.due
}

func (l *lane) Before(other *lane) bool { return l.lookAt < other.lookAt }
func (l *lane) Place() *int             { return &l.pos }

// isPending lanes learn their first due time from the answer they wait for.
func (l *lane) isPending() bool { return l.callInFlight || l.permit != nil }

// laneOf returns the shard's lane, and creates it if it is new.
func (sh *shard) laneOf(key job.Lane) *lane {
	l, ok := sh.lanes[key]
	if !ok {
		l = &lane{key: key, shard: sh, due: job.NeverMS, nudgedDue: job.NeverMS, wantedLeases: 1, mayAdvance: true}
		sh.lanes[key] = l
		sh.markMaybeLeased(l)
	}
	return l
}

// dropLane drops a lane that is in no flow and in no heap.
func (sh *shard) dropLane(l *lane) {
	delete(sh.lanes, l.key)
	delete(sh.maybeLeased, l)
}

// markMaybeLeased notes that records may be leased in a lane.
func (sh *shard) markMaybeLeased(l *lane) {
	l.leasedSinceSweep = true
	sh.maybeLeased[l] = struct{}{}
}

// maxGrowth bounds how much more is asked for than was given: a slot that is reserved but not used is missing
// elsewhere for a round trip.
const maxGrowth = 16

// adaptWanted adapts the number of leases to ask for to the last answer, and to when the lane is due next. For a
// lane that has more, the number is doubled, or set to the guessed rest if that is larger. Otherwise it becomes
// one more than the lane gave, but at least half of what was asked, because the numbers vary. All times are in
// ms.
func (l *lane) adaptWanted(asked, got int, next, now unixtime.Milli) {
	if got < asked || next > now {
		l.wantedLeases = min(max(l.wantedLeases/2, got+1), job.MaxLeasesPerCall)
		return
	}
	more := min(max(2*asked, l.guessRemaining(got, next, now)), maxGrowth*asked)
	l.wantedLeases = min(max(l.wantedLeases, more), job.MaxLeasesPerCall)
}

// guessRemaining guesses how many more records are due in a lane, at the rate between its first due time and the
// next one.
func (l *lane) guessRemaining(got int, next, now unixtime.Milli) int {
	if next <= l.due {
		return job.MaxLeasesPerCall
	}
	return int(min(int64(got)*int64(now-next)/int64(next-l.due), job.MaxLeasesPerCall))
}

// clockReading is one reading of a shard's clock. A clock that catches up, because Redis's TIME was set back and put
// right, may run at twice the rate of passing time until it has made up for its lag.
type clockReading struct {
	us  unixtime.Micro
	at  time.Time
	lag time.Duration
}

// clockLag is how far the clock of a shard may run ahead of passing time.
func (s *Scheduler) clockLag(shard int) time.Duration {
	return time.Duration(s.o.Store.Latest(shard).LagMS) * time.Millisecond
}

// clockPreference is how long a reading is preferred to later ones that show less.
const clockPreference = 2 * time.Second

// noteClock takes a reading of the shard's clock. An estimate that takes the arrival for the time of the reading
// is late by the answer's trip, never early. So of two readings the one that shows more is better. Three things
// make an estimate run ahead: drift, so readings age, a shard clock at half speed, and one that lags and has not begun
// to catch up. The latter two show in a call that came too early (doubt).
func (sh *shard) noteClock(reading clockReading, doubt bool) {
	if reading.us <= 0 {
		return
	}
	if doubt || sh.clock.at.IsZero() || reading.us > sh.clock.estimateUS(reading.at) ||
		reading.at.Sub(sh.clock.at) > clockPreference {
		sh.clock = reading
	}
}

// estimateUS estimates what the clock shows now, in microseconds; with a lag, the most that it may show.
func (r clockReading) estimateUS(now time.Time) unixtime.Micro {
	passed := now.Sub(r.at)
	return r.us.Add(passed + max(0, min(passed, r.lag)))
}

// localTimeOf returns the first local instant at which the clock may show ms.
func (r clockReading) localTimeOf(ms unixtime.Milli) time.Time {
	left := ms.Micro().Sub(r.us)
	return r.at.Add(left - max(0, min(left/2, r.lag)))
}
