package dispatch

import "time"

// A worker's slots stand empty from a result until the next lease arrives. While
// handlers are short, a session is therefore given attempts that wait at the worker
// for a slot there, so that a round trip costs nobody's time.
const (
	// maxWait is the work that may wait behind a session's slots: about two round
	// trips' worth.
	maxWait = 5 * time.Millisecond
	// maxAheadPerSlot bounds what waits however short handlers are: enough that with few
	// slots a message of results and one of leases are about as large as with many.
	maxAheadPerSlot = 32
	// knownAfter is how many results show how long handlers take.
	knownAfter = 16
	// longest is the duration beyond which handlers are all the same.
	longest = time.Second
)

// pace is how long the handlers of a session take.
type pace struct {
	results int // up to knownAfter
	mean    time.Duration
}

func (p *pace) note(took time.Duration) {
	p.results = min(p.results+1, knownAfter)
	p.mean += (min(max(0, took), longest) - p.mean) / time.Duration(p.results)
}

// forget makes handlers count as slow until results show otherwise.
func (p *pace) forget() { *p = pace{} }

// ahead is how many attempts may wait behind so many slots.
func (p *pace) ahead(slots int) int {
	if p.results < knownAfter {
		return 0
	}
	most := maxAheadPerSlot * slots
	return min(most, int(time.Duration(slots)*maxWait/max(p.mean, time.Microsecond)))
}

// ahead is how many more attempts the session takes although its slots are taken.
// It is none until half of what may wait is gone: they come in batches.
func (s *Session) ahead() int {
	waiting := min(s.hello.Prefetch, s.pace.ahead(s.hello.Slots))
	if room := s.room(waiting); room > 0 && 2*room >= waiting {
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
