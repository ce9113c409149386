package dispatch

import (
	"errors"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Session is one stream of one worker. It is a [job.WorkerSession]; all its
// methods are safe for concurrent use.
type Session struct {
	d           *Dispatcher
	key         workerKey
	group       *WorkerGroup
	hello       job.Hello
	stream      job.WorkerStream
	connectedAt time.Time
	// addresses of other nodes that the worker was last sent, sorted. Guarded like the fields below.
	addresses []string

	// Guarded by the dispatcher's mutex.
	attempts        []*attempt
	queueEntries    []*queueEntry   // in the sessions of its queues
	upToDateEntries []*queueEntry   // those of them that are up to date
	heldAssignments job.Assignments // see HoldAssignments
	lastGrant       uint64          // grant counter when it was last given a slot
	busySlots       int             // slots taken by attempts
	reservedSlots   int             // slots taken by reservations
	reservedPlaces  int             // places to wait for a slot that are reserved; no slot is kept for them
	pendingResults  int             // results on their way to the ledger
	returnedForeign int             // leases of other nodes that were returned here
	resultPace      resultPace
	returns         returnBudget
	ofIdentity      *identityReturns // of all sessions of its identity
	memory          *identityMemory  // of all sessions of its identity
	draining        bool
	sentAway        bool // the worker was asked to reconnect; it may trust its leases for their own life
	drained         bool
	stopping        bool // the stream was asked to end
	closed          bool
	heartbeatState  heartbeatState
}

var _ job.WorkerSession = (*Session)(nil)

// workerKey identifies a worker over its sessions. Any caller that may work in a namespace can choose an id
// there, so workers of two identities with one id are two workers: neither can keep the other from a node.
type workerKey struct{ namespace, identity, id string }

func workerKeyOf(h job.Hello) workerKey { return workerKey{h.Namespace, h.Identity, h.WorkerID} }

// Connect begins a session. The first message on out is Welcome. Leases in hello.Live are adopted; those that
// cannot be are answered as cancelled. Errors: [job.ErrDraining], [job.ErrSuperseded], [job.ErrTooManySessions],
// [job.ErrTooManyServedQueues], or that of the stream.
func (d *Dispatcher) Connect(hello job.Hello, out job.WorkerStream) (job.WorkerSession, error) {
	s := &Session{
		d: d, key: workerKeyOf(hello), hello: hello, stream: out,
		connectedAt: time.Now(),
	}
	addresses := d.o.Addresses()
	slices.Sort(addresses)
	s.addresses = addresses
	var fx pendingEffects
	d.mu.Lock()
	if err := d.admitSession(s, addresses); err != nil {
		d.mu.Unlock()
		return nil, err
	}
	prev := d.mu.workers[s.key]
	d.mu.workers[s.key] = s
	for _, q := range hello.Queues {
		k := queueKey{hello.Namespace, q}
		c := d.mu.queues[k]
		if c == nil {
			c = d.addQueue(k, queueHolder(s))
		}
		c.addSession(s)
	}
	if !slices.Equal(addresses, d.mu.announcedAddresses) {
		d.AddressesChanged() // they changed before this session could be notified
	}
	d.joinGroup(s)
	s.markOutdated()
	d.startHeartbeats(s)
	d.adoptLeases(s, prev, &fx)
	s.hello.Live = nil // they may take more memory than all else of the session
	fx.addFreed(s, s.freeSlots())
	d.relocateWorker(s)
	d.mu.Unlock()
	d.runEffects(&fx)
	d.o.Logger.Info("worker connected", "worker", hello.WorkerID, "namespace", hello.Namespace,
		"identity", hello.Identity, "slots", hello.Slots, "epoch", hello.Epoch, "live", len(hello.Live))
	return s, nil
}

// admitSession decides whether a session may begin, and welcomes it.
func (d *Dispatcher) admitSession(s *Session, addresses []string) error {
	if d.mu.draining {
		return job.ErrDraining
	}
	prev := d.mu.workers[s.key]
	if prev != nil && !prev.closed && prev.hello.Epoch >= s.hello.Epoch {
		return job.ErrSuperseded
	}
	if err := d.takeUnits(s); err != nil {
		return err
	}
	returnQueues, err := d.takeQueues(s)
	if err != nil {
		d.returnUnits(s)
		return err
	}
	welcome := job.Welcome{Node: d.o.Node, LeaseTTL: d.o.LeaseTTL, Addresses: addresses}
	if s.hello.Heartbeats {
		welcome.SessionTTL = d.o.SessionTTL
	}
	err = s.stream.Send(welcome)
	if err != nil {
		d.returnUnits(s)
		returnQueues()
	}
	return err
}

// freeSlots is how many more attempts the session can start. Results that wait for the ledger do not take slots
// until they are many.
func (s *Session) freeSlots() int { return max(0, s.roomFor(0)) }

// roomFor is how many more attempts the session takes if that many may wait there in total. It is negative if
// more wait.
func (s *Session) roomFor(waiting int) int {
	if !s.acceptsLeases() || s.returns.resting || s.memory.full {
		return 0
	}
	return min(s.hello.Slots+waiting-s.busySlots, s.hello.Slots+pendingSlack-s.pendingResults) - s.reservedSlots
}

// takenSlots is how many slots and places are taken or reserved.
func (s *Session) takenSlots() int { return s.busySlots + s.reservedSlots + s.reservedPlaces }

// loadRatio is the part of the slots that is taken.
func (s *Session) loadRatio() float64 { return float64(s.takenSlots()) / float64(s.hello.Slots) }

// canUseReserved reports whether the session still takes an attempt for a reserved slot. An adopted attempt may
// wait in the slot that was free then, and pending results may be more.
func (s *Session) canUseReserved() bool {
	return s.acceptsLeases() && s.takenSlots() < s.hello.Slots+s.hello.Prefetch
}

func (s *Session) acceptsLeases() bool { return !s.closed && !s.stopping && !s.draining }

// Results that may wait for the ledger: beyond slots + pendingSlack a session
// gets no leases, beyond its bound it is closed.
const pendingSlack = 1024

func (s *Session) maxPending() int { return s.hello.MaxLive() + s.hello.Slots + pendingSlack }

// sendMessage queues a message; a stream that does not accept it ends. Assignments that are held go first, because a
// message may be about them.
func (s *Session) sendMessage(m job.WorkerMessage) bool {
	s.sendHeldAssignments()
	return s.queueMessage(m)
}

// queueMessage queues a message that is not about attempts that are held.
func (s *Session) queueMessage(m job.WorkerMessage) bool {
	if s.closed {
		return false
	}
	if err := s.stream.Send(m); err != nil {
		s.stopStream(errors.Join(job.ErrWorkerTooSlow, err))
		return false
	}
	return true
}

// cancelAttempt asks the worker to end an attempt.
func (s *Session) cancelAttempt(a *attempt, reason job.CancelReason) {
	a.cancelled = true
	s.sendMessage(job.Cancellation{LeaseIDs: []string{a.id}, Reason: reason})
}

// stopStream makes the stream end; its end calls Close.
func (s *Session) stopStream(reason error) {
	if s.stopping {
		return
	}
	s.stopping = true
	s.markOutdated()
	s.stream.Stop(reason)
}

// HandleDraining notes that the worker takes no further leases.
func (s *Session) HandleDraining() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.draining = true
	s.markOutdated()
}

// RequestReconnect asks the worker to reconnect, and gives it no further leases.
func (s *Session) RequestReconnect() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.draining = true
	s.markOutdated()
	s.sendAway(nil)
}

// sendAway sends the addresses that the worker is to connect to; none: any other.
func (s *Session) sendAway(addresses []string) {
	s.sentAway = s.sendMessage(job.Redirect{Addresses: addresses}) || s.sentAway
}

// MarkDrained notes that the worker drained and has ended the stream.
func (s *Session) MarkDrained() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.drained = true
}

// addAttempt adds an attempt to the session's.
func (s *Session) addAttempt(a *attempt) {
	a.sessionIndex = len(s.attempts)
	s.attempts = append(s.attempts, a)
	s.countMemory(a, false)
}

// removeAttempt removes an attempt. The last attempt takes its place.
func (s *Session) removeAttempt(a *attempt) {
	last := len(s.attempts) - 1
	s.attempts[a.sessionIndex] = s.attempts[last]
	s.attempts[a.sessionIndex].sessionIndex = a.sessionIndex
	s.attempts[last] = nil
	s.attempts = s.attempts[:last]
	s.countMemory(a, true)
}
