package dispatch

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// sessionReservation is a number of slots of certain sessions, held until Deliver.
type sessionReservation struct {
	d         *Dispatcher
	queue     queueKey
	toWait    bool // not of slots but of places to wait for one
	count     int
	parts     []sessionPart
	nextPart  int  // index in parts of the next lease's session
	isOpen    bool // counted among those that a drain waits for
	delivered bool
	grantedAt uint64 // value of grants when the slots were reserved
	// advance: all sessions have room ahead, see hasRoomAhead.
	advance bool
}

// sessionPart is a reservation's part of one session.
type sessionPart struct {
	session *Session
	n, left int // left is used by distributeSlots only
}

// Reserve reserves up to n free slots of workers that serve the queue, those of the least loaded ones first. It
// always returns a reservation, which may be empty. Each must be delivered, with the leases taken for it.
func (d *Dispatcher) Reserve(namespace, queue string, n int) slots.Reservation {
	return d.reserveSlots(&sessionReservation{d: d, queue: queueKey{namespace, queue}}, n)
}

func (d *Dispatcher) reserveSlots(r *sessionReservation, n int) *sessionReservation {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.distributeSlots(r, n)
	if r.count < n {
		d.mu.lastShortGrant = d.mu.grants
	}
	d.countReservation(r)
	return r
}

// countReservation makes a drain wait for the leases of this reservation.
func (d *Dispatcher) countReservation(r *sessionReservation) {
	if r.count > 0 {
		r.isOpen = true
		d.mu.openReservations++
	}
}

// distributeSlots reserves up to n slots, each from the session that is least loaded then.
func (d *Dispatcher) distributeSlots(r *sessionReservation, n int) {
	c := d.sessionsOf(r.queue)
	if c == nil || d.mu.draining {
		return
	}
	h, room := &c.bySlots, (*Session).freeSlots
	if r.toWait {
		h, room = &c.byPlaces, (*Session).placesToWait
	}
	if len(*h) == 1 { // most often there is one worker, or one that has slots
		s := h.Top().s
		r.parts = []sessionPart{{session: s, n: min(max(0, n), room(s))}}
		n = 0
	}
	for ; n > 0 && len(*h) > 0; n-- {
		t := h.Top()
		p := r.partOfSession(t, room)
		if p.left <= 0 { // fewer attempts may wait there than at the last refresh
			h.Remove(t)
			continue
		}
		p.n, p.left = p.n+1, p.left-1
		if p.left == 0 {
			h.Remove(t)
			continue
		}
		t.load = float64(t.s.takenSlots()+p.n) / float64(t.s.hello.Slots)
		h.Fix(t)
	}
	d.mu.grants++
	r.grantedAt = d.mu.grants
	r.advance = !r.toWait
	for _, p := range r.parts {
		p.session.addReserved(r, p.n)
		p.session.lastGrant = d.mu.grants
		p.session.markOutdated()
		r.count += p.n
		r.advance = r.advance && p.session.hasRoomAhead()
	}
}

// hasRoomAhead reports whether the session may have leases that are not due yet: its worker starts them on time,
// and the slots that they take until then are not needed. Most reservations take more than they will use.
func (s *Session) hasRoomAhead() bool {
	return s.hello.StartsAfter && 2*s.busySlots <= s.hello.Slots && 4*s.takenSlots() <= 3*s.hello.Slots
}

// addReserved adds n to the session's reserved slots, or places; n may be negative.
func (s *Session) addReserved(r *sessionReservation, n int) {
	if r.toWait {
		s.reservedPlaces += n
	} else {
		s.reservedSlots += n
	}
}

// MayAdvance reports whether slots reserved now may take leases that are not due yet; see [slots.Reservation].
func (d *Dispatcher) MayAdvance(namespace, queue string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.sessionsOf(queueKey{namespace, queue})
	return c != nil && !d.mu.draining && len(c.bySlots) > 0 && c.bySlots.Top().s.hasRoomAhead()
}

// FreeSlots is the number of free slots of the workers that serve the queue.
func (d *Dispatcher) FreeSlots(namespace, queue string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.sessionsOf(queueKey{namespace, queue})
	if c == nil {
		return 0
	}
	return c.freeSlots
}

// partOfSession returns the session's part of the reservation; a new one has the session's current room.
func (r *sessionReservation) partOfSession(t *heapEntry, room func(*Session) int) *sessionPart {
	if t.partIndex >= len(r.parts) || r.parts[t.partIndex].session != t.s {
		t.partIndex = len(r.parts)
		r.parts = append(r.parts, sessionPart{session: t.s, left: room(t.s)})
	}
	return &r.parts[t.partIndex]
}

// Count is the number of slots reserved.
func (r *sessionReservation) Count() int { return r.count }

// Advance reports whether leases may be delivered that are not due yet. Their workers start them on time, at
// most half of their slots are taken, and a quarter is free beside what is reserved.
func (r *sessionReservation) Advance() bool { return r.advance }

// Split moves up to n of the reserved slots to a reservation of their own.
func (r *sessionReservation) Split(n int) slots.Reservation {
	other := &sessionReservation{d: r.d, queue: r.queue, toWait: r.toWait, grantedAt: r.grantedAt, advance: r.advance}
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	for i := range r.parts {
		p := &r.parts[i]
		if moved := min(p.n, n-other.count); moved > 0 && !r.delivered {
			other.parts = append(other.parts, sessionPart{session: p.session, n: moved})
			p.n -= moved
			other.count += moved
		}
	}
	r.count -= other.count
	r.d.countReservation(other)
	return other
}

// Deliver hands the leases to the reserved sessions and releases unused slots. A lease is returned if it finds
// no session any more, if it comes too late to be worth starting, or if it is not due and its worker would start
// it at once. A lease that is here already is left alone. Only the first call has an effect, and it must have
// all the leases.
func (r *sessionReservation) Deliver(leases []job.Leased) {
	d := r.d
	clocks := make(map[int]unixtime.Milli)
	for i := range leases {
		clocks[leases[i].Shard] = 0
	}
	d.readClocks(clocks)
	var fx pendingEffects
	d.mu.Lock()
	if r.delivered {
		d.mu.Unlock()
		return
	}
	r.delivered = true
	if r.isOpen {
		d.mu.openReservations--
	}
	for _, p := range r.parts {
		p.session.addReserved(r, -p.n)
		p.session.markOutdated()
	}
	now := time.Now()
	batches := make(map[*Session]job.Assignments, len(r.parts))
	used := 0
	for i := range leases {
		if a := d.deliverLease(r, &leases[i], now, clocks, &fx); a != nil {
			batch := batches[a.session]
			if batch == nil {
				batch = make(job.Assignments, 0, len(leases))
			}
			batches[a.session] = append(batch,
				job.Assignment{LeaseID: a.id, Record: a.known, Opened: leases[i].Opened, StartAt: leases[i].StartAt})
			used++
		}
	}
	for s, batch := range batches {
		d.sendAssignments(s, batch, &fx)
	}
	if used < r.count && r.missedByOthers() {
		fx.demandChanged = true
		for _, p := range r.parts {
			if p.n > 0 && p.session.acceptsLeases() {
				fx.addFreed(p.session, r.slotCount(p.n))
			}
		}
	}
	d.mu.Unlock()
	d.runEffects(&fx)
}

// deliverLease makes the attempt of one lease and finds its session. It returns nil if nothing is to be sent.
func (d *Dispatcher) deliverLease(r *sessionReservation, l *job.Leased, now time.Time, clocks map[int]unixtime.Milli,
	fx *pendingEffects) *attempt {
	a := newAttempt(l, now)
	if d.mu.attempts[a.id] != nil {
		return nil
	}
	left := d.o.LeaseTTL
	nowMS, ok := clocks[l.Shard]
	if ok {
		left = min(left, l.Known.IndexMS.Sub(nowMS))
	}
	a.trustedUntil = d.trustedUntil(now, left, now)
	late := a.trustedUntil.Sub(now) < d.o.minLeaseLife()
	s := r.nextSession(d)
	taken := s
	if s != nil && !s.hello.StartsAfter && l.StartAt.After(now) {
		s = nil
	}
	if s == nil || late {
		why := "late"
		if s == nil {
			why = "closed"
		}
		d.addAttempt(a, nil)
		d.returnLease(a, why, fx)
		if taken != nil && r.missedByOthers() { // its slot is as free as it was
			fx.addFreed(taken, r.slotCount(1))
		}
		return nil
	}
	a.takesSlot = true
	if !ok {
		nowMS = a.earliestStartMS()
	}
	a.watchObjective(now, nowMS)
	d.addAttempt(a, s)
	d.scheduleAttempt(a)
	return a
}

func newAttempt(l *job.Leased, now time.Time) *attempt {
	return &attempt{
		id: job.LeaseID(l.Record, l.Known.State.Token), record: l.Record, token: l.Known.State.Token, shard: l.Shard,
		born:  now,
		known: l.Known,
	}
}

// missedByOthers reports whether a short count of slots was returned since these were reserved.
func (r *sessionReservation) missedByOthers() bool { return r.grantedAt <= r.d.mu.lastShortGrant }

// slotCount returns how many slots n of the reservation are: a place to wait for one is none.
func (r *sessionReservation) slotCount(n int) int {
	if r.toWait {
		return 0
	}
	return n
}

// nextSession finds the session of the next lease: the reserved ones in turn, then any other with a free slot.
// Workers that were sent away get none: they may have closed their side of the stream, and could not return it.
func (r *sessionReservation) nextSession(d *Dispatcher) *Session {
	if d.mu.draining {
		return nil
	}
	for len(r.parts) > 0 {
		r.nextPart %= len(r.parts)
		p := &r.parts[r.nextPart]
		if p.n == 0 {
			r.parts = slices.Delete(r.parts, r.nextPart, r.nextPart+1)
			continue
		}
		p.n--
		r.nextPart++
		if p.session.canUseReserved() {
			return p.session
		}
	}
	if c := d.sessionsOf(r.queue); c != nil && len(c.bySlots) > 0 {
		return c.bySlots.Top().s
	}
	return nil
}
