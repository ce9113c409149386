package dispatch

import (
	"errors"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// Session is one stream of one worker. It is a [job.WorkerSession]; all its
// methods are safe for concurrent use.
type Session struct {
	d     *Dispatcher
	key   workerKey
	fleet *Fleet
	hello job.Hello
	out   job.WorkerStream
	since time.Time
	// addresses of other nodes that the worker was last sent, sorted. Guarded like what follows.
	addresses []string

	// Guarded by the dispatcher's mutex.
	attempts []*attempt
	seats    []*seat // in the crews of its queues
	fresh    []*seat // those of them that are in line with it
	last     uint64  // the dispatcher's turn in which it was last given a slot
	busy     int     // slots taken by attempts
	reserved int     // slots taken by reservations
	promised int     // places to wait for a slot that are reserved; no slot is kept for them
	pending  int     // results on their way to the ledger
	owed     int     // leases of other nodes that were given back here
	pace     pace
	draining bool
	sentAway bool // the worker was asked to connect anew; it may trust its leases for their own life
	left     bool
	stopping bool // the stream was told to end
	closed   bool
	life     life
}

var _ job.WorkerSession = (*Session)(nil)

// workerKey is what makes a worker the same in two sessions. Anybody who may work in a
// namespace can choose an id there, so that workers of two identities with one id are two
// workers: neither can keep the other from a node.
type workerKey struct{ namespace, identity, id string }

func workerKeyOf(h job.Hello) workerKey { return workerKey{h.Namespace, h.Identity, h.WorkerID} }

// Connect begins a session. The first message on out is Welcome. Leases that the
// worker names in hello.Live are taken over, and those that cannot be come back
// as cancelled. Errors: [job.ErrDraining], [job.ErrSuperseded], or that of the stream.
func (d *Dispatcher) Connect(hello job.Hello, out job.WorkerStream) (job.WorkerSession, error) {
	s := &Session{
		d: d, key: workerKeyOf(hello), hello: hello, out: out,
		since: time.Now(),
	}
	addresses := d.o.Addresses()
	slices.Sort(addresses)
	s.addresses = addresses
	var fx effects
	d.mu.Lock()
	if err := d.admit(s, addresses); err != nil {
		d.mu.Unlock()
		return nil, err
	}
	prev := d.mu.workers[s.key]
	d.mu.workers[s.key] = s
	for _, q := range hello.Queues {
		k := queueKey{hello.Namespace, q}
		c := d.mu.crews[k]
		if c == nil {
			c = &crew{queue: k}
			d.mu.crews[k], d.mu.sorted = c, nil
			d.o.OnServed(k.namespace, k.queue, true)
		}
		c.join(s)
	}
	if !slices.Equal(addresses, d.mu.announced) {
		d.AddressesChanged() // before this session was among those that hear of it
	}
	d.enlist(s)
	s.changed()
	d.beginLife(s)
	d.takeOver(s, prev, &fx)
	fx.freed(s, s.free())
	d.mu.Unlock()
	d.finish(&fx)
	d.o.Logger.Info("worker connected", "worker", hello.WorkerID, "namespace", hello.Namespace, "identity", hello.Identity,
		"slots", hello.Slots, "epoch", hello.Epoch, "live", len(hello.Live))
	return s, nil
}

// admit decides whether a session may begin, and welcomes it.
func (d *Dispatcher) admit(s *Session, addresses []string) error {
	if d.mu.draining {
		return job.ErrDraining
	}
	prev := d.mu.workers[s.key]
	if prev != nil && !prev.closed && prev.hello.Epoch >= s.hello.Epoch {
		return job.ErrSuperseded
	}
	welcome := job.Welcome{Node: d.o.Node, LeaseTTL: d.o.LeaseTTL, Addresses: addresses}
	if s.hello.Heartbeats {
		welcome.SessionTTL = d.o.SessionTTL
	}
	return s.out.Send(welcome)
}

// free is how many more attempts the session can start. Results that wait for the
// ledger do not take slots until they are many.
func (s *Session) free() int { return max(0, s.room(0)) }

// room is how many more attempts the session takes if so many may wait there, beside those
// that will. It is negative when more wait.
func (s *Session) room(waiting int) int {
	if !s.open() {
		return 0
	}
	return min(s.hello.Slots+waiting-s.busy, s.hello.Slots+pendingSlack-s.pending) - s.reserved
}

// taken is how many slots and places are, or will be.
func (s *Session) taken() int { return s.busy + s.reserved + s.promised }

// load is the part of the slots that is taken.
func (s *Session) load() float64 { return float64(s.taken()) / float64(s.hello.Slots) }

// holds tells whether the session still takes what it was reserved for. What came
// meanwhile may wait in the slot that was free then, and pending results may be more.
func (s *Session) holds() bool {
	return s.open() && s.taken() < s.hello.Slots+s.hello.Prefetch
}

func (s *Session) open() bool { return !s.closed && !s.stopping && !s.draining }

// Results that may wait for the ledger: beyond slots + pendingSlack a session
// gets no leases, beyond its bound it is closed.
const pendingSlack = 1024

func (s *Session) maxPending() int { return s.hello.MaxLive() + s.hello.Slots + pendingSlack }

// send queues a message; a stream that does not take it ends.
func (s *Session) send(m job.WorkerMessage) bool {
	if s.closed {
		return false
	}
	if err := s.out.Send(m); err != nil {
		s.stop(errors.Join(job.ErrSlowWorker, err))
		return false
	}
	return true
}

// cancel asks the worker to end an attempt.
func (s *Session) cancel(a *attempt, reason job.CancelReason) {
	a.cancelled = true
	s.send(job.Cancellation{LeaseIDs: []string{a.id}, Reason: reason})
}

// stop makes the stream end; Close follows from there.
func (s *Session) stop(reason error) {
	if s.stopping {
		return
	}
	s.stopping = true
	s.changed()
	s.out.Stop(reason)
}

// Draining says that the worker takes no further leases.
func (s *Session) Draining() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.draining = true
	s.changed()
}

// SendAway asks the worker to connect anew, and gives it no further leases.
func (s *Session) SendAway() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.draining = true
	s.changed()
	s.sendAway(nil)
}

// sendAway names the addresses that the worker is to connect to; none: any other.
func (s *Session) sendAway(addresses []string) {
	s.sentAway = s.send(job.GoElsewhere{Addresses: addresses}) || s.sentAway
}

// Left says that the worker drained and has ended the stream.
func (s *Session) Left() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.left = true
}

// Close ends the session. Leases that never left this process are returned, and those
// that met a worker which had left; the others are left to the worker's next session. They
// are renewed once more, of a worker that sent heartbeats for the rest of the session's
// life. Calls after the first do nothing.
func (s *Session) Close(reason string, unsent []job.WorkerMessage) {
	d := s.d
	var fx effects
	d.mu.Lock()
	if s.closed {
		d.mu.Unlock()
		return
	}
	held := len(s.attempts)
	d.detach(s, &fx)
	d.giveBackUnsent(s, unsent, &fx)
	for _, a := range slices.Clone(s.attempts) { // which some of them leave
		if s.left && !a.started && !a.over && a.pending == nil {
			d.giveBack(a, "closed", &fx)
			continue
		}
		d.orphan(a, &fx)
	}
	d.dropEmpty(s)
	d.mu.Unlock()
	d.finish(&fx)
	d.o.Logger.Info("worker disconnected", "worker", s.hello.WorkerID, "namespace", s.hello.Namespace, "identity", s.hello.Identity,
		"reason", reason, "attempts", held)
}

// keep puts an attempt among the session's.
func (s *Session) keep(a *attempt) {
	a.nth = len(s.attempts)
	s.attempts = append(s.attempts, a)
}

// drop undoes keep. The last attempt takes the place.
func (s *Session) drop(a *attempt) {
	last := len(s.attempts) - 1
	s.attempts[a.nth] = s.attempts[last]
	s.attempts[a.nth].nth = a.nth
	s.attempts[last] = nil
	s.attempts = s.attempts[:last]
}

// detach takes a session out of the crews of its queues.
func (d *Dispatcher) detach(s *Session, fx *effects) {
	s.closed = true
	d.endLife(s)
	d.discharge(s)
	for _, x := range s.seats {
		x.crew.leave(x)
		if k := x.crew.queue; len(x.crew.seats) == 0 {
			delete(d.mu.crews, k)
			d.mu.sorted, fx.demand = nil, true
			d.o.OnServed(k.namespace, k.queue, false)
		}
	}
	s.seats, s.fresh = nil, nil
}

// giveBackUnsent returns the leases among messages that never left.
func (d *Dispatcher) giveBackUnsent(s *Session, unsent []job.WorkerMessage, fx *effects) {
	for _, m := range unsent {
		assignments, _ := m.(job.Assignments)
		for _, l := range assignments {
			if a := d.mu.attempts[l.LeaseID]; a != nil && a.session == s && a.pending == nil && !a.started {
				d.giveBack(a, "unsent", fx)
			}
		}
	}
}

// orphan is what becomes of an attempt when its stream is cut.
func (d *Dispatcher) orphan(a *attempt, fx *effects) {
	switch {
	case a.over:
		d.forget(a, fx)
		return
	case a.pending != nil:
		a.renewAt = time.Time{}
	case a.started || a.session.shortens():
		a.renewAt = time.Now()
	default:
		a.renewAt = time.Time{}
	}
	// Whether the worker has one that has not started is unknown: it comes back with it,
	// or the lease ends uncounted.
	a.cancelled = false
	if a.pending == nil {
		// Its worker may go on elsewhere, and end it there. Whoever has it then is told.
		d.ended(a, nil, false, fx)
		a.foreign, a.told = true, false
	}
	d.schedule(a)
}
