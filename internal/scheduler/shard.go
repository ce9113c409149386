package scheduler

import (
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/minheap"
)

// shard is one that this node holds.
type shard struct {
	id    int
	lanes map[job.Lane]*lane
	// later has the lanes that are due at some time and do not wait for slots.
	// Lanes that are due but cannot be leased from just now are here as well.
	later minheap.Heap[*lane]
	rest  time.Time // no leasing before, after an error
	clock reading
	call  *call // being put together by pick
	born  int64 // the rescan after whose start the shard was acquired
	read  bool  // a rescan has read its lanes
	// warm are the lanes in which something may be leased: no look since has shown the
	// opposite. See reap.
	warm   map[*lane]struct{}
	reaped uint64 // the period of reaping in which its lanes were looked at last
	// firstObjective is the instant of the first entry of the index of objectives, as it was
	// read last; 0: it was not read.
	firstObjective int64
}

// newShard is one that is acquired after a rescan has begun.
func newShard(id int, scan int64) *shard {
	return &shard{id: id, lanes: make(map[job.Lane]*lane), warm: make(map[*lane]struct{}), born: scan}
}

// lane is one lane of one shard. It is in the shard's later, or in a flow, or,
// while it is pending or never due, in neither.
type lane struct {
	key     job.Lane
	shard   *shard
	due     int64 // first due time
	at      int64 // when to look at it, see advance.go; of one in a flow that is when it is due
	advance bool  // it may be leased from before something is due, as far as is known
	nudged  int64 // earliest nudge while pending; NeverMS is none
	want    int   // how many leases to ask for
	asked   bool  // a leasing call for it is in flight
	permit  *outstanding
	vain    uint      // permits in a row by which nothing was found due, see putOffFurther
	touched int64     // the rescan after whose start something was learnt of it
	hot     time.Time // until then no look shows that nothing is leased
	// What sweeping has to know, see toSweep.
	ran      bool  // something was leased since the last look, so that it may have ended
	firstEnd int64 // when the first record is to be deleted, as the last look showed it; NeverMS is none
	flow     *flow // where it waits for slots
	pos      int   // in later or in flow.due
}

func (l *lane) Before(other *lane) bool { return l.at < other.at }
func (l *lane) Place() *int             { return &l.pos }

// pending lanes learn their first due time from the answer they wait for.
func (l *lane) pending() bool { return l.asked || l.permit != nil }

// lane returns the shard's lane, making it when it is new.
func (sh *shard) lane(key job.Lane) *lane {
	l, ok := sh.lanes[key]
	if !ok {
		l = &lane{key: key, shard: sh, due: job.NeverMS, nudged: job.NeverMS, want: 1, advance: true}
		sh.lanes[key] = l
		sh.heat(l)
	}
	return l
}

// forget drops a lane that is in no flow and not in later.
func (sh *shard) forget(l *lane) {
	delete(sh.lanes, l.key)
	delete(sh.warm, l)
}

// heat notes that something may be leased in a lane.
func (sh *shard) heat(l *lane) {
	l.ran = true
	sh.warm[l] = struct{}{}
}

// mostGrowth bounds how much more is asked for than was given: what is reserved in vain
// is missed elsewhere for a round trip.
const mostGrowth = 16

// learn adapts how much is asked for to what the lane gave, and to when the next one of it is
// due. A lane that has more is asked for twice as much, or for all that it has, as far as that
// can be guessed. Another one is asked for one more than it gave, but for no less than half of
// what was asked, as what it gives varies. All times are in ms.
func (l *lane) learn(asked, got int, next, now int64) {
	if got < asked || next > now {
		l.want = min(max(l.want/2, got+1), job.MaxLeasesPerCall)
		return
	}
	more := min(max(2*asked, l.left(got, next, now)), mostGrowth*asked)
	l.want = min(max(l.want, more), job.MaxLeasesPerCall)
}

// left guesses how much more is due in a lane that gave so much: as much a time as from its
// first due time to the next one.
func (l *lane) left(got int, next, now int64) int {
	if next <= l.due {
		return job.MaxLeasesPerCall
	}
	return int(min(int64(got)*(now-next)/(next-l.due), job.MaxLeasesPerCall))
}

// reading is one sight of a shard's clock.
type reading struct {
	us int64
	at time.Time
}

// clockFresh is how long a reading is preferred to later ones that show less.
const clockFresh = 2 * time.Second

// saw takes a sight of the shard's clock. Taking the moment of arrival as that of
// the reading makes the estimate late by the answer's trip, never early, so of two
// readings the one that shows more is the better one. Two things make an estimate
// run ahead: drift, which is why it ages, and a shard clock at half speed, which
// shows in a call that came too early (doubt).
func (sh *shard) saw(us int64, at time.Time, doubt bool) {
	if us <= 0 {
		return
	}
	if doubt || sh.clock.at.IsZero() || us > sh.clock.show(at) || at.Sub(sh.clock.at) > clockFresh {
		sh.clock = reading{us: us, at: at}
	}
}

// show estimates what the clock shows now, in microseconds.
func (r reading) show(now time.Time) int64 { return r.us + now.Sub(r.at).Microseconds() }

// when is the local instant at which the clock shows ms.
func (r reading) when(ms int64) time.Time {
	return r.at.Add(time.Duration(ms*1000-r.us) * time.Microsecond)
}
