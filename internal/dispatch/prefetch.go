package dispatch

import "time"

// A worker's slots stand empty from a result until the next lease arrives. While
// handlers are short, a session is therefore given attempts that wait at the worker
// for a slot there, so that a round trip costs nobody's time.
const (
	// atHand is how much work a worker has at hand, in its slots and waiting for one: enough
	// for the trips of a permit, so that a peer's shards keep it as busy as those of its own
	// node. What comes meanwhile, of another queue or a higher priority, waits for so long.
	atHand = 10 * time.Millisecond
	// maxAheadPerSlot bounds what waits however short handlers are: enough that with few
	// slots a message of results and one of leases are about as large as with many.
	maxAheadPerSlot = 32
	// paceOver is how long results are counted to tell how fast they come.
	paceOver = 20 * time.Millisecond
)

// pace is how fast the results of a session come. It counts them, rather than ask how long
// handlers take: what waits has to wait for whatever is scarce, be it slots or processors.
type pace struct {
	since time.Time // when the count began, zero: with the next result
	count int
	last  float64 // results a second, by the count before
}

func (p *pace) note(now time.Time) {
	if p.since.IsZero() {
		p.since = now
	}
	p.count++
	if now.Sub(p.since) >= paceOver {
		*p = pace{since: now, last: p.perSecond(now)}
	}
}

// forget makes handlers count as slow until results show otherwise.
func (p *pace) forget() { *p = pace{} }

// perSecond is how many results a second there are. Where none come any more, it falls.
func (p *pace) perSecond(now time.Time) float64 {
	if over := now.Sub(p.since); !p.since.IsZero() && over >= paceOver {
		return float64(p.count) / over.Seconds()
	}
	return p.last
}

// ahead is how many attempts may wait behind so many slots, all of which are taken: none where
// the slots are work enough.
func (p *pace) ahead(slots int, now time.Time) int {
	return max(0, min(maxAheadPerSlot*slots, int(p.perSecond(now)*atHand.Seconds())-slots))
}

// ahead is how many attempts more the session takes, if some wait for a slot. It is none
// until half of what may wait is gone: they come in batches.
func (s *Session) ahead() int {
	waiting := min(s.hello.Prefetch, s.pace.ahead(s.hello.Slots, time.Now()))
	if room := s.room(waiting) - s.promised; room > 0 && 2*room >= waiting {
		return room
	}
	return 0
}

// Prefetch reserves up to n places of attempts that wait at workers for a slot. It
// is for when no slot is free: what waits could run elsewhere at once otherwise.
// Like Reserve it always returns a reservation to be delivered.
func (d *Dispatcher) Prefetch(namespace, queue string, n int) *Reservation {
	return d.reserve(&Reservation{d: d, queue: queueKey{namespace, queue}, ahead: true}, n)
}
