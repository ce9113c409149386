package dispatch

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
	"github.com/fermata-io/fermata/internal/lib/minheap"
)

// Dispatcher owns the sessions of a node's workers. Call New, and keep Run going for as long as workers may
// connect.
type Dispatcher struct {
	o       Options
	metrics *metrics
	start   time.Time

	mu struct {
		sync.Mutex
		workers       map[workerKey]*Session      // latest sessions, closed ones while they have attempts
		queues        map[queueKey]*queueSessions // of the queues that workers serve
		sessionShares *fairshare.Table            // of the memory that sessions take
		returns       map[string]*identityReturns // by identity: leases that were returned unstarted
		memory        attemptMemory               // of attempts
		sortedQueues  []*queueSessions            // the same, sorted by queue
		queueShares   *fairshare.Table            // of the queues that workers serve
		workerGroups  map[string]*WorkerGroup     // by their queues
		grants        uint64                      // grants of slots so far
		attempts      map[string]*attempt         // by lease id
		timers        minheap.Heap[*attempt]
		heartbeating  list.List  // open *Session with heartbeats, the first to end in front
		clockWakesAt  time.Time  // what the clock sleeps until
		waitingIO     []*attempt // wait for the store
		pendingEvents int        // events that the ledger has not answered for good
		// lastShortGrant is the last grant that was reported or found short: slots reserved until then are
		// announced if they come back unused.
		lastShortGrant   uint64
		openReservations int // reservations with slots that are not delivered
		assignmentHolds  int // calls of HoldAssignments that are not released yet
		holdingSessions  []*Session
		draining         bool
		storeFailing     bool // the last call to the store failed
		reports          []attemptReport
		// announcedAddresses are the addresses that workers were last sent.
		announcedAddresses []string
		relocation         relocation
		spread             map[workerKey]time.Time // workers that SpreadWorker has asked, and when
	}
	// reporting is held while Attempts is called; it is taken before mu.
	reporting         sync.Mutex
	spareReports      []attemptReport // guarded by reporting
	clockWake, ioWake chan struct{}
	addressWake       chan struct{}
}

type queueKey struct{ namespace, queue string }

func (k queueKey) compareTo(other queueKey) int {
	return cmp.Or(cmp.Compare(k.namespace, other.namespace), cmp.Compare(k.queue, other.queue))
}

// New makes a Dispatcher. It returns an error for impossible options and for metrics that are already
// registered.
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
	d.mu.sessionShares, d.mu.returns = newSessionShares(memoryLimit()), make(map[string]*identityReturns)
	d.mu.memory = newAttemptMemory(memoryLimit())
	d.mu.queues, d.mu.queueShares = make(map[queueKey]*queueSessions), newQueueShares()
	d.mu.workerGroups = make(map[string]*WorkerGroup)
	d.mu.attempts, d.mu.spread = make(map[string]*attempt), make(map[workerKey]time.Time)
	d.metrics, err = newMetrics(o.Registerer, d)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Run handles the deadlines of attempts and renews leases until ctx ends. It then ends all sessions and returns
// nil. Call it once; see [Dispatcher.Drain] for an orderly stop.
func (d *Dispatcher) Run(ctx context.Context) error {
	var loops sync.WaitGroup
	loops.Go(func() { d.clockLoop(ctx) })
	loops.Go(func() { d.ioLoop(ctx) })
	loops.Go(func() { d.announceLoop(ctx) })
	loops.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.draining = true
	d.stopSessions()
	return nil
}

// stopSessions ends every open session. The caller holds the mutex.
func (d *Dispatcher) stopSessions() {
	for _, s := range d.mu.workers {
		if !s.closed {
			s.stopStream(job.ErrDraining)
		}
	}
}

// pendingEffects are the calls to make after the mutex is released.
type pendingEffects struct {
	// submitted are the attempts of changes.
	submitted []*attempt
	changes   []job.Change
	// judgedAttempts are the attempts of judgements, see submitJudgement.
	judgedAttempts []*attempt
	judgements     []job.Change
	notices        []job.Notice
	noticeBuffer   *[]job.Notice // memory of notices to be reused; nil: their own
	slots          []FreedSlots
	demandChanged  bool // the demand has changed in another way
	hasReports     bool // there are reports for Attempts

	// State for work under the mutex that is done once for many attempts.
	takenAt    time.Time // see currentTime
	acks       job.ResultAcks
	ackSession *Session // of acks
}

// noticeBuffers have the memory of notices that have been delivered.
var noticeBuffers = sync.Pool{New: func() any { return new([]job.Notice) }}

// reserveNotices makes room for that many notices.
func (fx *pendingEffects) reserveNotices(n int) {
	fx.noticeBuffer = noticeBuffers.Get().(*[]job.Notice)
	fx.notices = slices.Grow(*fx.noticeBuffer, n)
}

func (fx *pendingEffects) submitChange(a *attempt) {
	fx.submitted, fx.changes = append(fx.submitted, a), append(fx.changes, a.pendingChange())
}

// currentTime is the time of the first call.
func (fx *pendingEffects) currentTime() time.Time {
	if fx.takenAt.IsZero() {
		fx.takenAt = time.Now()
	}
	return fx.takenAt
}

// runEffects makes the calls that were collected under the mutex.
func (d *Dispatcher) runEffects(fx *pendingEffects) {
	if len(fx.notices) > 0 {
		d.o.Observer.Observe(fx.notices)
	}
	if fx.noticeBuffer != nil {
		clear(fx.notices)
		*fx.noticeBuffer = fx.notices[:0]
		noticeBuffers.Put(fx.noticeBuffer)
	}
	if attempts := fx.submitted; len(attempts) > 0 {
		d.o.Ledger.SubmitAll(fx.changes, func(answers []job.ChangeSummary) { d.applyAnswers(attempts, answers) })
	}
	if attempts := fx.judgedAttempts; len(attempts) > 0 {
		d.o.Ledger.SubmitAll(fx.judgements, func(answers []job.ChangeSummary) { d.applyJudgements(attempts, answers) })
	}
	if fx.hasReports {
		d.deliverReports()
	}
	if fx.demandChanged || len(fx.slots) > 0 {
		d.o.OnDemand(fx.slots)
	}
}

// addAttempt adds an attempt. The caller holds the mutex.
func (d *Dispatcher) addAttempt(a *attempt, s *Session) {
	d.mu.attempts[a.id] = a
	d.bindToSession(a, s)
}

// bindToSession gives the attempt to a session, with the slot that it takes.
func (d *Dispatcher) bindToSession(a *attempt, s *Session) {
	if old := a.session; old != nil {
		old.markOutdated()
		if a.takesSlot {
			old.busySlots--
		}
		if a.pendingEvent != nil && !a.ownEvent {
			old.pendingResults--
		}
		old.removeAttempt(a)
		d.dropEmptySession(old)
	}
	a.session = s
	if s == nil {
		a.takesSlot = false
		return
	}
	s.addAttempt(a)
	s.markOutdated()
	if a.takesSlot {
		s.busySlots++
	}
	if a.pendingEvent != nil && !a.ownEvent {
		s.pendingResults++
	}
}

// freeSlot gives the attempt's slot back.
func (d *Dispatcher) freeSlot(a *attempt, fx *pendingEffects) {
	if !a.takesSlot {
		return
	}
	a.takesSlot = false
	a.session.busySlots--
	a.session.markOutdated()
	if a.streamOpen() {
		fx.addFreed(a.session, 1)
	}
}

// forgetAttempt removes an attempt.
func (d *Dispatcher) forgetAttempt(a *attempt, fx *pendingEffects) {
	if a.forgotten {
		return
	}
	d.reportEnded(a, nil, false, fx)
	d.freeSlot(a, fx)
	d.bindToSession(a, nil)
	a.forgotten = true
	a.forgetForeignResult()
	d.moveTimer(a, time.Time{})
	delete(d.mu.attempts, a.id)
}

// dropEmptySession removes a closed session that has no attempts left.
func (d *Dispatcher) dropEmptySession(s *Session) {
	if s.closed && len(s.attempts) == 0 && d.mu.workers[s.key] == s {
		delete(d.mu.workers, s.key)
	}
}

// loseLease ends the trust in a lease: its worker is asked to stop, and the slot stays taken until it answers.
// over: the store has answered that the lease has ended.
func (d *Dispatcher) loseLease(a *attempt, over bool, fx *pendingEffects) {
	d.reportEnded(a, nil, over, fx)
	if !a.streamOpen() {
		d.forgetAttempt(a, fx)
		return
	}
	a.over = true
	if !over { // a result may be stored all the same, which is reported as well
		a.unknownToAttempts, a.endReported = true, false
	}
	a.session.cancelAttempt(a, job.CancelLeaseLost)
}

// trustedUntil returns until when this node relies on a lease that was granted or renewed for ttl by a call that
// started at that time.
func (d *Dispatcher) trustedUntil(start time.Time, ttl time.Duration, now time.Time) time.Time {
	return now.Add(lease.NewWindow(start, ttl, d.o.margin()).Remaining(now))
}

// readClocks reads the clocks of shards. Shards that do not answer in time are left out.
func (d *Dispatcher) readClocks(shards map[int]unixtime.Milli) {
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

// clockTimeout bounds the wait for clocks, which are known without a call as long as Redis answers.
const clockTimeout = 250 * time.Millisecond

// nowMS is the shard's clock from a reading, or else computed from the lease. It is called when the handler has
// started.
func (a *attempt) nowMS(clocks map[int]unixtime.Milli) unixtime.Milli {
	if now, ok := clocks[a.shard]; ok {
		return a.atLeastDue(now)
	}
	return a.earliestStartMS().Add(time.Since(a.born))
}
