package dispatch

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/slots"
)

// A worker's slots are empty from a result until the next lease arrives. While handlers are short, a session is
// therefore given attempts that wait at the worker for a slot, which hides the round trip.
const (
	// workAhead is how much work a worker has, in its slots and waiting for one: enough for the round trip of a
	// permit, so that a peer's shards keep it as busy as those of its own node. A run of another queue or a
	// higher priority waits for that long.
	workAhead = 10 * time.Millisecond
	// maxAheadPerSlot bounds the waiting attempts however short handlers are: enough that with few slots a
	// message of results and one of leases are about as large as with many.
	maxAheadPerSlot = 32
	// pacePeriod is how long results are counted to measure their rate.
	pacePeriod = 20 * time.Millisecond
)

// resultPace measures the rate of a session's results. It counts results rather than handler times: attempts
// wait for whatever is scarce, be it slots or processors.
type resultPace struct {
	countedSince time.Time // when the count began, zero: with the next result
	count        int
	lastRate     float64 // results a second, by the count before
}

func (p *resultPace) countResult(now time.Time) {
	if p.countedSince.IsZero() {
		p.countedSince = now
	}
	p.count++
	if now.Sub(p.countedSince) >= pacePeriod {
		*p = resultPace{countedSince: now, lastRate: p.perSecond(now)}
	}
}

// reset makes handlers count as slow until results show otherwise.
func (p *resultPace) reset() { *p = resultPace{} }

// perSecond returns the number of results a second. It falls while none come.
func (p *resultPace) perSecond(now time.Time) float64 {
	if over := now.Sub(p.countedSince); !p.countedSince.IsZero() && over >= pacePeriod {
		return float64(p.count) / over.Seconds()
	}
	return p.lastRate
}

// waitingPlaces returns how many attempts may wait behind that many taken slots: none if the slots are enough
// work.
func (p *resultPace) waitingPlaces(slots int, now time.Time) int {
	return max(0, min(maxAheadPerSlot*slots, int(p.perSecond(now)*workAhead.Seconds())-slots))
}

// placesToWait returns how many more attempts the session takes, if some wait for a slot. It is 0 until half of
// the waiting ones are gone, so that they come in batches.
func (s *Session) placesToWait() int {
	waiting := min(s.hello.Prefetch, s.resultPace.waitingPlaces(s.hello.Slots, time.Now()))
	if room := s.roomFor(waiting) - s.reservedPlaces; room > 0 && 2*room >= waiting {
		return room
	}
	return 0
}

// ReserveWaiting reserves up to n places of attempts that wait at workers for a slot. It is meant for when no slot is
// free: otherwise a waiting attempt could run elsewhere at once. Like Reserve it always returns a reservation to
// be delivered.
func (d *Dispatcher) ReserveWaiting(namespace, queue string, n int) slots.Reservation {
	return d.reserveSlots(&sessionReservation{d: d, queue: queueKey{namespace, queue}, toWait: true}, n)
}
