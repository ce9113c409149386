package dispatch

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/lease"
	"github.com/fermata-io/fermata/internal/minheap"
)

// Dispatcher owns the sessions of a node's workers. Make one with New and keep
// Run going for as long as workers may connect.
type Dispatcher struct {
	o       Options
	metrics *metrics
	start   time.Time

	mu struct {
		sync.Mutex
		workers  map[workerKey]*Session // latest sessions, closed ones while they have attempts
		crews    map[queueKey]*crew     // of the queues that somebody serves
		sorted   []*crew                // the same; nil after a crew has come or gone
		fleets   map[string]*Fleet      // by their queues
		turns    uint64                 // grants of slots so far
		attempts map[string]*attempt    // by lease id
		timers   minheap.Heap[*attempt]
		beating  list.List  // *Session of workers with heartbeats that are open, the one that ends first in front
		armed    time.Time  // what the clock sleeps until
		io       []*attempt // wait for the store
		pending  int        // events that the ledger has not answered for good
		short    uint64     // the turn in which somebody was last told of too few slots: those reserved until then are news if they come back unused
		reserved int        // reservations with slots that are not delivered
		draining bool
		failing  bool // the last call to the store failed
		news     []news
		// announced are the addresses that workers were last told of.
		announced []string
	}
	// telling is held while Attempts is told; it is taken before mu.
	telling           sync.Mutex
	spareNews         []news // guarded by telling
	clockWake, ioWake chan struct{}
	addressWake       chan struct{}
}

type queueKey struct{ namespace, queue string }

func (k queueKey) compare(other queueKey) int {
	return cmp.Or(cmp.Compare(k.namespace, other.namespace), cmp.Compare(k.queue, other.queue))
}

// New makes a Dispatcher. It fails on impossible options and on metrics that are
// already registered.
func New(o Options) (*Dispatcher, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Dispatcher{
		o: o, start: time.Now(),
		clockWake: make(chan struct{}, 1), ioWake: make(chan struct{}, 1), addressWake: make(chan struct{}, 1),
	}
	d.mu.workers = make(map[workerKey]*Session)
	d.mu.crews = make(map[queueKey]*crew)
	d.mu.fleets = make(map[string]*Fleet)
	d.mu.attempts = make(map[string]*attempt)
	if d.metrics, err = newMetrics(o.Registerer, d); err != nil {
		return nil, err
	}
	return d, nil
}

// Run keeps the time of attempts and renews leases until ctx ends. It then ends
// all sessions and returns nil. Call it once; see [Dispatcher.Drain] for leaving
// in order.
func (d *Dispatcher) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { d.clockLoop(ctx) })
	loops.Go(func() { d.ioLoop(ctx) })
	loops.Go(func() { d.announceLoop(ctx) })
	loops.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.draining = true
	d.stopAll()
	return nil
}

// stopAll ends every open session. The caller holds the mutex.
func (d *Dispatcher) stopAll() {
	for _, s := range d.mu.workers {
		if !s.closed {
			s.stop(job.ErrDraining)
		}
	}
}

// effects are what has to be done after the mutex is released.
type effects struct {
	// submitted are the attempts of changes.
	submitted []*attempt
	changes   []job.Change
	// judged are the attempts of judgements, see judge.
	judged     []*attempt
	judgements []job.Change
	notices    []job.Notice
	room       *[]job.Notice // of notices, to be used again; nil: their own
	slots      []Freed
	demand     bool // what is offered has changed otherwise
	news       bool // Attempts has to be told

	// What is done under the mutex, but once for many attempts.
	at   time.Time // see now
	acks job.ResultAcks
	to   *Session // of acks
}

// noticeRooms have the memory of notices that have been told.
var noticeRooms = sync.Pool{New: func() any { return new([]job.Notice) }}

// expect makes room for so many notices.
func (fx *effects) expect(n int) {
	fx.room = noticeRooms.Get().(*[]job.Notice)
	fx.notices = slices.Grow(*fx.room, n)
}

func (fx *effects) submit(a *attempt) {
	fx.submitted, fx.changes = append(fx.submitted, a), append(fx.changes, a.change())
}

// now is about now.
func (fx *effects) now() time.Time {
	if fx.at.IsZero() {
		fx.at = time.Now()
	}
	return fx.at
}

// finish does what was collected under the mutex.
func (d *Dispatcher) finish(fx *effects) {
	if len(fx.notices) > 0 {
		d.o.Observer.Observe(fx.notices)
	}
	if fx.room != nil {
		clear(fx.notices)
		*fx.room = fx.notices[:0]
		noticeRooms.Put(fx.room)
	}
	if attempts := fx.submitted; len(attempts) > 0 {
		d.o.Ledger.SubmitAll(fx.changes, func(answers []job.Answered) { d.settled(attempts, answers) })
	}
	if attempts := fx.judged; len(attempts) > 0 {
		d.o.Ledger.SubmitAll(fx.judgements, func(answers []job.Answered) { d.judged(attempts, answers) })
	}
	if fx.news {
		d.tell()
	}
	if fx.demand || len(fx.slots) > 0 {
		d.o.OnDemand(fx.slots)
	}
}

// add makes an attempt known. The caller holds the mutex.
func (d *Dispatcher) add(a *attempt, s *Session) {
	d.mu.attempts[a.id] = a
	d.bind(a, s)
}

// bind makes the attempt one of the session's. The slot it takes goes with it.
func (d *Dispatcher) bind(a *attempt, s *Session) {
	if old := a.session; old != nil {
		old.changed()
		if a.busy {
			old.busy--
		}
		if a.pending != nil && !a.byNode {
			old.pending--
		}
		old.drop(a)
		d.dropEmpty(old)
	}
	a.session = s
	if s == nil {
		a.busy = false
		return
	}
	s.keep(a)
	s.changed()
	if a.busy {
		s.busy++
	}
	if a.pending != nil && !a.byNode {
		s.pending++
	}
}

// free gives the attempt's slot back.
func (d *Dispatcher) free(a *attempt, fx *effects) {
	if !a.busy {
		return
	}
	a.busy = false
	a.session.busy--
	a.session.changed()
	if a.live() {
		fx.freed(a.session, 1)
	}
}

// forget ends what this node does about an attempt.
func (d *Dispatcher) forget(a *attempt, fx *effects) {
	if a.gone {
		return
	}
	d.ended(a, nil, false, fx)
	d.free(a, fx)
	d.bind(a, nil)
	a.gone = true
	d.wakeAt(a, time.Time{})
	delete(d.mu.attempts, a.id)
}

// dropEmpty forgets a closed session that has no attempts left.
func (d *Dispatcher) dropEmpty(s *Session) {
	if s.closed && len(s.attempts) == 0 && d.mu.workers[s.key] == s {
		delete(d.mu.workers, s.key)
	}
}

// lose ends the trust in a lease: its worker is told to stop and the slot waits
// for its answer. over: the store has said that the lease has ended.
func (d *Dispatcher) lose(a *attempt, over bool, fx *effects) {
	d.ended(a, nil, over, fx)
	if !a.live() {
		d.forget(a, fx)
		return
	}
	a.over = true
	if !over { // a result may be stored all the same, which is told as well
		a.foreign, a.told = true, false
	}
	a.session.cancel(a, job.CancelLeaseLost)
}

// trust is until when this node relies on a lease that was granted or prolonged
// for ttl by a call that started at that time.
func (d *Dispatcher) trust(start time.Time, ttl time.Duration, now time.Time) time.Time {
	return now.Add(lease.NewWindow(start, ttl, d.o.margin()).Remaining(now))
}

// clocks reads the clocks of shards. Shards that cannot be asked in time are left
// out.
func (d *Dispatcher) clocks(shards map[int]int64) {
	if len(shards) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), clockTimeout)
	defer cancel()
	for shard := range shards {
		now, err := d.o.Store.Now(ctx, shard)
		if err != nil {
			delete(shards, shard)
			continue
		}
		shards[shard] = now
	}
}

// clockTimeout bounds the wait for clocks, which are known without asking as long
// as Redis answers.
const clockTimeout = 250 * time.Millisecond

// nowMS is the shard's clock from a reading, or else counted on from the lease. It is
// asked when the handler has started.
func (a *attempt) nowMS(clocks map[int]int64) int64 {
	if now, ok := clocks[a.shard]; ok {
		return a.atLeastDue(now)
	}
	return a.leasedMS() + time.Since(a.born).Milliseconds()
}
