package dispatch

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// Reservation is a number of slots of certain sessions, held until Deliver.
type Reservation struct {
	d     *Dispatcher
	queue queueKey
	ahead bool // not of slots but of places to wait for one
	count int
	parts []part
	next  int  // of parts, to give a lease to
	open  bool // counted among those that a drain waits for
	done  bool
	turn  uint64 // in which they were reserved
	// advance: the sessions are spacious, see there.
	advance bool
}

// part is what a reservation holds of one session.
type part struct {
	s       *Session
	n, left int // left is only for share
}

// Reserve takes up to n free slots of workers that serve the queue, of the least
// loaded ones first. It always returns a reservation, which may be empty. Each
// must be delivered, with whatever was leased.
func (d *Dispatcher) Reserve(namespace, queue string, n int) *Reservation {
	return d.reserve(&Reservation{d: d, queue: queueKey{namespace, queue}}, n)
}

func (d *Dispatcher) reserve(r *Reservation, n int) *Reservation {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.share(r, n)
	if r.count < n {
		d.mu.short = d.mu.turns
	}
	d.open(r)
	return r
}

// open has a drain wait for what is leased for these slots.
func (d *Dispatcher) open(r *Reservation) {
	if r.count > 0 {
		r.open = true
		d.mu.reserved++
	}
}

// share takes up to n slots for the reservation, each from the session that is least
// loaded then.
func (d *Dispatcher) share(r *Reservation, n int) {
	c := d.crewOf(r.queue)
	if c == nil || d.mu.draining {
		return
	}
	h, room := &c.slots, (*Session).free
	if r.ahead {
		h, room = &c.ahead, (*Session).ahead
	}
	if len(*h) == 1 { // most often there is one worker, or one that has slots
		s := h.Top().s
		r.parts = []part{{s: s, n: min(max(0, n), room(s))}}
		n = 0
	}
	for ; n > 0 && len(*h) > 0; n-- {
		t := h.Top()
		p := r.partOf(t, room)
		if p.left <= 0 { // what may wait there has become less since it was looked at
			h.Remove(t)
			continue
		}
		p.n, p.left = p.n+1, p.left-1
		if p.left == 0 {
			h.Remove(t)
			continue
		}
		t.load = float64(t.s.taken()+p.n) / float64(t.s.hello.Slots)
		h.Fix(t)
	}
	d.mu.turns++
	r.turn = d.mu.turns
	r.advance = !r.ahead
	for _, p := range r.parts {
		p.s.book(r, p.n)
		p.s.last = d.mu.turns
		p.s.changed()
		r.count += p.n
		r.advance = r.advance && p.s.spacious()
	}
}

// spacious tells whether the session may have leases that are not due yet: its worker
// does not start them before they are, and the slots that they take until then are not
// missed. Most reservations take more than they will use.
func (s *Session) spacious() bool {
	return s.hello.StartsAfter && 2*s.busy <= s.hello.Slots && 4*s.taken() <= 3*s.hello.Slots
}

// book has a reservation hold so many slots more, or places, or fewer.
func (s *Session) book(r *Reservation, n int) {
	if r.ahead {
		s.promised += n
	} else {
		s.reserved += n
	}
}

// MayAdvance tells whether slots that are reserved now would be for leases that are not due
// yet as well; see [Reservation.Advance].
func (d *Dispatcher) MayAdvance(namespace, queue string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.crewOf(queueKey{namespace, queue})
	return c != nil && !d.mu.draining && len(c.slots) > 0 && c.slots.Top().s.spacious()
}

// partOf returns the session's part of the reservation; a new one has the room that the
// session has by now.
func (r *Reservation) partOf(t *turn, room func(*Session) int) *part {
	if t.part >= len(r.parts) || r.parts[t.part].s != t.s {
		t.part = len(r.parts)
		r.parts = append(r.parts, part{s: t.s, left: room(t.s)})
	}
	return &r.parts[t.part]
}

// Count is the number of slots reserved.
func (r *Reservation) Count() int { return r.count }

// Advance tells whether leases may be delivered that are not due yet. Their workers start
// them when they are, at most half of their slots are taken, and a quarter is free beside
// what is reserved.
func (r *Reservation) Advance() bool { return r.advance }

// Split moves up to n of the reserved slots to a reservation of their own.
func (r *Reservation) Split(n int) *Reservation {
	other := &Reservation{d: r.d, queue: r.queue, ahead: r.ahead, turn: r.turn, advance: r.advance}
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	for i := range r.parts {
		p := &r.parts[i]
		if moved := min(p.n, n-other.count); moved > 0 && !r.done {
			other.parts = append(other.parts, part{s: p.s, n: moved})
			p.n -= moved
			other.count += moved
		}
	}
	r.count -= other.count
	r.d.open(other)
	return other
}

// Deliver hands the leases to the reserved sessions and gives back the slots
// that are left. A lease that finds no session any more, or that has come too
// late to be worth starting, is returned, and so is one that is not due, and whose worker
// would start it at once; one that is here already is left alone. Only the first call has
// an effect, and it must have all the leases.
func (r *Reservation) Deliver(leases []job.Leased) {
	d := r.d
	clocks := make(map[int]int64)
	for i := range leases {
		clocks[leases[i].Shard] = 0
	}
	d.clocks(clocks)
	var fx effects
	d.mu.Lock()
	if r.done {
		d.mu.Unlock()
		return
	}
	r.done = true
	if r.open {
		d.mu.reserved--
	}
	for _, p := range r.parts {
		p.s.book(r, -p.n)
		p.s.changed()
	}
	now := time.Now()
	batches := make(map[*Session]job.Assignments, len(r.parts))
	used := 0
	for i := range leases {
		if a := d.deliver(r, &leases[i], now, clocks, &fx); a != nil {
			batch := batches[a.session]
			if batch == nil {
				batch = make(job.Assignments, 0, len(leases))
			}
			batches[a.session] = append(batch, job.Assignment{LeaseID: a.id, Record: a.rec, Opened: leases[i].Opened, StartAt: leases[i].StartAt})
			used++
		}
	}
	for s, batch := range batches {
		d.assign(s, batch, &fx)
	}
	if used < r.count && r.missed() {
		fx.demand = true
		for _, p := range r.parts {
			if p.n > 0 && p.s.open() {
				fx.freed(p.s, r.slots(p.n))
			}
		}
	}
	d.mu.Unlock()
	d.finish(&fx)
}

// deliver makes the attempt of one lease and finds its session. It returns nil
// if nothing is to be sent.
func (d *Dispatcher) deliver(r *Reservation, l *job.Leased, now time.Time, clocks map[int]int64, fx *effects) *attempt {
	a := attemptOf(l, now)
	if d.mu.attempts[a.id] != nil {
		return nil
	}
	left := d.o.LeaseTTL
	nowMS, ok := clocks[l.Shard]
	if ok {
		left = min(left, time.Duration(l.Known.IndexMS-nowMS)*time.Millisecond)
	}
	a.until = d.trust(now, left, now)
	late := a.until.Sub(now) < d.o.leastLife()
	s := r.take(d)
	taken := s
	if s != nil && !s.hello.StartsAfter && l.StartAt.After(now) {
		s = nil
	}
	if s == nil || late {
		why := "late"
		if s == nil {
			why = "closed"
		}
		d.add(a, nil)
		d.giveBack(a, why, fx)
		if taken != nil && r.missed() { // its slot is as free as it was
			fx.freed(taken, r.slots(1))
		}
		return nil
	}
	a.busy = true
	if !ok {
		nowMS = a.leasedMS()
	}
	a.watch(now, nowMS)
	d.add(a, s)
	d.schedule(a)
	return a
}

func attemptOf(l *job.Leased, now time.Time) *attempt {
	return &attempt{
		id: job.LeaseID(l.Record, l.Known.State.Token), record: l.Record, token: l.Known.State.Token, shard: l.Shard, born: now,
		rec: l.Known,
	}
}

// missed tells whether somebody has been told of too few slots since these were reserved.
func (r *Reservation) missed() bool { return r.turn <= r.d.mu.short }

// slots is how many slots n of what is reserved are: a place to wait for one is none.
func (r *Reservation) slots(n int) int {
	if r.ahead {
		return 0
	}
	return n
}

// take finds the session of the next lease: the reserved ones in turn, then any
// other with a free slot. Workers that were told to go elsewhere get none: they may
// have closed their side of the stream, and could not give it back.
func (r *Reservation) take(d *Dispatcher) *Session {
	if d.mu.draining {
		return nil
	}
	for len(r.parts) > 0 {
		r.next %= len(r.parts)
		p := &r.parts[r.next]
		if p.n == 0 {
			r.parts = slices.Delete(r.parts, r.next, r.next+1)
			continue
		}
		p.n--
		r.next++
		if p.s.holds() {
			return p.s
		}
	}
	if c := d.crewOf(r.queue); c != nil && len(c.slots) > 0 {
		return c.slots.Top().s
	}
	return nil
}

// assign sends leases to their worker. Those of a stream that does not take them
// were never sent.
func (d *Dispatcher) assign(s *Session, batch job.Assignments, fx *effects) {
	if s.send(batch) {
		d.metrics.delivered.Add(float64(len(batch)))
		return
	}
	for _, l := range batch {
		if a := d.mu.attempts[l.LeaseID]; a != nil {
			d.giveBack(a, "unsent", fx)
		}
	}
}
