package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// fakeStore has records in lanes of shards, and leases them as the script does.
type fakeStore struct {
	mu      sync.Mutex
	lanes   map[int]map[job.Lane][]*record // due ones first, oldest first
	records map[job.RecordID]*record
	locks   map[int]string
	calls   []leaseCall
	scans   int
	// pageSize is how many lanes a page lists; 0 is all. lookups are the numbers of lanes that were looked up.
	pageSize int
	lookups  []int
	// trip is how long a call takes, half of it before it has its effect.
	trip func() time.Duration
	// clock is a shard's clock in microseconds.
	clock func(shard int) unixtime.Micro
	// clockLag is how far the clock may run ahead of passing time.
	clockLag func() time.Duration
	// fail, when it returns an error, has a request of a shard fail without effect.
	fail func(shard int) error
	// away are the shards whose server does not answer when they are listed.
	away map[int]bool
	// lose, if true, makes the answer of a shard's request get lost. The same batch is then answered as the
	// script answers a repetition.
	lose    func(shard int) bool
	batches map[string]job.LeaseReply
	// refuse, when it returns an error, refuses a request before its batch is looked up.
	refuse func(shard int) error
	// executed and scanned run after a call had its effect, before it returns.
	executed, scanned func()
	expired           [][]job.Overdue
	sweeps            []int
	swept             int
	leaseless         bool           // nothing is leased
	punctual          bool           // nor in advance
	looks             int            // at lanes, for ended leases
	endLooks          int            // at lanes, for records to delete
	firstEnd          unixtime.Milli // of these; NeverMS is none
	unread            bool           // they fail
	upkeepErr         error
	objectives        map[int]map[string]job.Objective
	objectiveLooks    int   // at first entries
	objectiveMoves    []int // entries of each call
}

type record struct {
	id     job.RecordID
	shard  int
	lane   job.Lane
	due    unixtime.Milli
	leases int
	made   unixtime.Micro
	lag    time.Duration // from due to lease, or start if that was in advance, by the shard's clock
	wait   time.Duration // from when it was both there and due
}

type leaseCall struct {
	at       time.Time
	requests []job.LeaseRequest
	leased   int
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		lanes: make(map[int]map[job.Lane][]*record), records: make(map[job.RecordID]*record), locks: make(map[int]string),
		trip: func() time.Duration { return 0 }, fail: func(int) error { return nil },
		refuse: func(int) error { return nil },
		lose:   func(int) bool { return false }, batches: make(map[string]job.LeaseReply),
		clock:    func(int) unixtime.Micro { return unixtime.MicroOf(time.Now()) },
		clockLag: func() time.Duration { return 0 },
		executed: func() {}, scanned: func() {},
	}
}

// set changes what the store does.
func (st *fakeStore) set(change func()) {
	st.mu.Lock()
	defer st.mu.Unlock()
	change()
}

// travel is how long the next call takes.
func (st *fakeStore) travel() time.Duration {
	st.mu.Lock()
	trip := st.trip
	st.mu.Unlock()
	return trip()
}

// hook returns something that the test may have set meanwhile.
func (st *fakeStore) hook(which *func()) func() {
	st.mu.Lock()
	defer st.mu.Unlock()
	return *which
}

// put adds a record and returns its lane's head if that became earlier.
func (st *fakeStore) put(shard int, lane job.Lane, due unixtime.Milli) []job.LaneHead {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.lanes[shard] == nil {
		st.lanes[shard] = make(map[job.Lane][]*record)
	}
	before := st.head(shard, lane)
	r := &record{id: job.RecordID(fmt.Sprintf("ns/j%d", len(st.records))), shard: shard, lane: lane, due: due, made: st.clock(shard)}
	st.records[r.id] = r
	rs := append(st.lanes[shard][lane], r)
	slices.SortStableFunc(rs, func(a, b *record) int { return cmp.Compare(a.due, b.due) })
	st.lanes[shard][lane] = rs
	if after := st.head(shard, lane); after < before {
		return []job.LaneHead{{Lane: lane, DueMS: after}}
	}
	return nil
}

func (st *fakeStore) head(shard int, lane job.Lane) unixtime.Milli {
	for _, r := range st.lanes[shard][lane] {
		if r.leases == 0 {
			return r.due
		}
	}
	return job.NeverMS
}

func (st *fakeStore) Lease(ctx context.Context, requests []job.LeaseRequest) []job.LeaseReply {
	begun := time.Now()
	trip := st.travel()
	if !sleep(ctx, trip/2) {
		return unanswered(len(requests))
	}
	replies := make([]job.LeaseReply, len(requests))
	st.mu.Lock()
	total := 0
	for i, q := range requests {
		if err := st.refuse(q.Shard); err != nil {
			replies[i].Err = err
			continue
		}
		answer, again := st.batches[q.Batch]
		if !again {
			if answer = st.lease(ctx, q); answer.Err == nil {
				st.batches[q.Batch] = answer
			}
		}
		if replies[i] = answer; answer.Err == nil && st.lose(q.Shard) {
			replies[i] = job.LeaseReply{Err: job.ErrUnavailable}
		}
		total += len(replies[i].Leased)
	}
	st.calls = append(st.calls, leaseCall{at: begun, requests: requests, leased: total})
	st.mu.Unlock()
	st.hook(&st.executed)()
	if !sleep(ctx, trip-trip/2) {
		return unanswered(len(requests))
	}
	return replies
}

// sleep is false if ctx ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	return sleepContext(ctx, d)
}

func unanswered(n int) []job.LeaseReply {
	replies := make([]job.LeaseReply, n)
	for i := range replies {
		replies[i].Err = job.ErrUnavailable
	}
	return replies
}

func (st *fakeStore) lease(ctx context.Context, q job.LeaseRequest) (r job.LeaseReply) {
	if err := cmp.Or(ctx.Err(), st.fail(q.Shard)); err != nil {
		return job.LeaseReply{Err: err}
	}
	if st.locks[q.Shard] != q.LockValue {
		return job.LeaseReply{Err: job.ErrNotHolder}
	}
	us := st.clock(q.Shard)
	r.NowUS = us
	for _, quota := range q.Quotas {
		left := quota.N
		for _, rec := range st.lanes[q.Shard][quota.Lane] {
			if left == 0 || rec.due > us.Milli()+unixtime.Milli(st.advance(q)) {
				break
			}
			if rec.leases > 0 {
				continue
			}
			rec.leases++
			rec.begins(us)
			left--
			r.Leased = append(r.Leased, job.Leased{
				Shard: q.Shard, Record: rec.id,
				Known: &job.Record{State: job.State{Lane: quota.Lane, Due: rec.due}, IndexMS: us.Milli().Add(q.TTL)},
			})
		}
		r.Heads = append(r.Heads, job.LaneHead{Lane: quota.Lane, DueMS: st.head(q.Shard, quota.Lane)})
	}
	return r
}

// advance is how many ms before it is due a record may be leased by a request.
func (st *fakeStore) advance(q job.LeaseRequest) int64 {
	if st.punctual {
		return 0
	}
	return q.Advance.Milliseconds()
}

// begins notes that the record may start, at an instant of its shard's clock.
func (r *record) begins(us unixtime.Micro) {
	r.lag = us.Sub(r.due.Micro())
	r.wait = us.Sub(max(r.due.Micro(), r.made))
}

// started is for what was leased in advance.
func (st *fakeStore) started(l job.Leased) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.records[l.Record].begins(st.clock(l.Shard))
}

// LanePages lists pageSize lanes of each shard, or all of them.
func (st *fakeStore) LanePages(ctx context.Context, from map[int]job.LaneCursor) (map[int]job.LanePage, error) {
	all, err := st.list(ctx, slices.Collect(maps.Keys(from)), func(int, job.LaneHead) bool { return true })
	pages := make(map[int]job.LanePage, len(all))
	for id, heads := range all {
		page := job.LanePage{Heads: heads[min(from[id].Ties, len(heads)):]} // the fake's cursor is a number of lanes
		if page.More = st.pageSize > 0 && len(page.Heads) >= st.pageSize; page.More {
			page.Heads = page.Heads[:st.pageSize]
			page.Next.Ties = from[id].Ties + st.pageSize
		}
		pages[id] = page
	}
	return pages, err
}

// FindLanes finds the lanes that have records.
func (st *fakeStore) FindLanes(_ context.Context, lanes map[int][]job.Lane) (map[int][]job.LaneHead, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	found := make(map[int][]job.LaneHead, len(lanes))
	for id, names := range lanes {
		found[id] = nil
		st.lookups = append(st.lookups, len(names))
		for _, l := range names {
			if _, there := st.lanes[id][l]; there {
				found[id] = append(found[id], job.LaneHead{Lane: l, DueMS: st.head(id, l)})
			}
		}
	}
	return found, nil
}

func (st *fakeStore) DueLanes(ctx context.Context, shards []int, within time.Duration) (map[int][]job.LaneHead, error) {
	return st.list(ctx, shards, func(shard int, h job.LaneHead) bool { return h.DueMS <= st.clock(shard).Milli().Add(within) })
}

// list answers with the lanes that are wanted of the shards that are not away, and not before
// those that are have used up the caller's time.
func (st *fakeStore) list(ctx context.Context, shards []int, wanted func(int, job.LaneHead) bool) (map[int][]job.LaneHead, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	trip := st.travel()
	time.Sleep(trip / 2)
	st.mu.Lock()
	st.scans++
	away := false
	all := make(map[int][]job.LaneHead)
	for _, shard := range shards {
		if st.away[shard] {
			away = true
			continue
		}
		all[shard] = nil
		for lane := range st.lanes[shard] {
			if h := (job.LaneHead{Lane: lane, DueMS: st.head(shard, lane)}); wanted(shard, h) {
				all[shard] = append(all[shard], h)
			}
		}
		slices.SortFunc(all[shard], func(a, b job.LaneHead) int {
			return cmp.Or(cmp.Compare(a.DueMS, b.DueMS), cmp.Compare(a.Lane.String(), b.Lane.String()))
		})
	}
	st.mu.Unlock()
	st.hook(&st.scanned)()
	time.Sleep(trip - trip/2)
	if away {
		<-ctx.Done()
	}
	return all, ctx.Err()
}

func (st *fakeStore) Latest(int) lease.ClockBound {
	st.mu.Lock()
	defer st.mu.Unlock()
	return lease.ClockBound{LagMS: st.clockLag().Milliseconds()}
}

func (st *fakeStore) Now(_ context.Context, shard int) (unixtime.Milli, error) {
	return st.clock(shard).Milli(), nil
}

// FirstEnds finds something in all lanes, but for those of a store without leases.
func (st *fakeStore) FirstEnds(_ context.Context, lanes map[int][]job.Lane, regions ...job.Region) (map[int][]job.LaneHead, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	heads := make(map[int][]job.LaneHead, len(lanes))
	for id, list := range lanes {
		heads[id] = nil
		if regions[0] == job.RegionLeased {
			st.looks += len(list)
		} else {
			st.endLooks += len(list)
		}
		if st.unread {
			delete(heads, id)
			continue
		}
		for _, l := range list {
			switch {
			case regions[0] == job.RegionLeased && !st.leaseless:
				heads[id] = append(heads[id], job.LaneHead{Lane: l, DueMS: 1})
			case regions[0] != job.RegionLeased && st.firstEnd < job.NeverMS:
				heads[id] = append(heads[id], job.LaneHead{Lane: l, DueMS: max(1, st.firstEnd)})
			}
		}
	}
	return heads, nil
}

func (st *fakeStore) Expired(_ context.Context, _ int, _ string, _ []job.Lane, _ int) ([]job.Overdue, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.upkeepErr != nil || len(st.expired) == 0 {
		return nil, st.upkeepErr
	}
	next := st.expired[0]
	st.expired = st.expired[1:]
	return next, nil
}

// FirstObjectives, Objectives and MoveObjectives keep the index that a test has set.
func (st *fakeStore) FirstObjectives(_ context.Context, shards []int) (map[int]unixtime.Milli, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.objectiveLooks += len(shards)
	first := make(map[int]unixtime.Milli, len(shards))
	for _, shard := range shards {
		first[shard] = job.NeverMS
		for _, o := range st.objectives[shard] {
			first[shard] = min(first[shard], o.AtMS)
		}
	}
	return first, st.upkeepErr
}

func (st *fakeStore) Objectives(_ context.Context, shard int, upToMS unixtime.Milli, limit int) ([]job.Objective, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	var due []job.Objective
	for _, o := range st.objectives[shard] {
		if o.AtMS <= upToMS {
			due = append(due, o)
		}
	}
	slices.SortFunc(due, func(a, b job.Objective) int { return cmp.Compare(a.AtMS, b.AtMS) })
	return due[:min(limit, len(due))], st.upkeepErr
}

func (st *fakeStore) MoveObjectives(_ context.Context, shard int, moves []job.ObjectiveMove) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.objectiveMoves = append(st.objectiveMoves, len(moves))
	for _, m := range moves {
		if m.AtMS = m.ToMS; m.ToMS == 0 {
			delete(st.objectives[shard], string(m.Record))
			continue
		}
		st.objectives[shard][string(m.Record)] = m.Objective
	}
	return st.upkeepErr
}

func (st *fakeStore) Sweep(_ context.Context, _ int, _ string, _ []job.Lane, limit int) (int, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := min(st.swept, limit)
	st.swept -= n
	st.sweeps = append(st.sweeps, n)
	return n, st.upkeepErr
}

// leasing returns the calls made so far.
func (st *fakeStore) leasing() []leaseCall {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Clone(st.calls)
}

// unleased counts the records that are not leased.
func (st *fakeStore) unleased() (n int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, r := range st.records {
		if r.leases == 0 {
			n++
		}
	}
	return n
}

// fakeSlots has free slots in pools. A handler takes a while, or until done.
type fakeSlots struct {
	mu       sync.Mutex
	pool     func(queueKey) string
	free     map[string]int
	queues   []job.QueueKey
	onDemand func()
	// handler is how long one runs; below zero it runs until done is called.
	handler func() time.Duration
	served  []job.Leased
	// returned are the leases that found no slot.
	returned []job.Leased
	// advance is the result of MayAdvance and, unless narrow is set, of the reservations' Advance.
	advance, narrow bool
	// started is called for leases taken in advance, when they are started.
	started func(job.Leased)
	// accounts
	reserved, delivered, released, open, holds int
	unheld                                     int // leases that were delivered while no assignments were held
}

func newFakeSlots(onDemand func()) *fakeSlots {
	return &fakeSlots{
		pool: func(q queueKey) string { return q.name }, free: make(map[string]int), onDemand: onDemand,
		handler: func() time.Duration { return -1 },
	}
}

func (f *fakeSlots) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeSlots) Reserve(namespace, name string, n int) slots.Reservation {
	return f.reserve("", queueKey{namespace, name}, n)
}

// Prefetch has the free places of a pool of their own.
func (f *fakeSlots) Prefetch(namespace, name string, n int) slots.Reservation {
	return f.reserve("ahead of ", queueKey{namespace, name}, n)
}

func (f *fakeSlots) reserve(kind string, q queueKey, n int) slots.Reservation {
	f.mu.Lock()
	defer f.mu.Unlock()
	pool := kind + f.pool(q)
	n = max(0, min(n, f.free[pool]))
	if n == 0 {
		return &fakeReservation{f: f, pool: pool, done: true}
	}
	f.free[pool] -= n
	f.reserved += n
	f.open++
	return &fakeReservation{f: f, pool: pool, n: n}
}

type fakeReservation struct {
	f    *fakeSlots
	pool string
	n    int
	done bool
}

// Queues are those of the test.
func (f *fakeSlots) Queues() []job.QueueKey {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.queues
}

func (f *fakeSlots) FreeSlots(namespace, name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.free[f.pool(queueKey{namespace, name})]
}

// HoldAssignments: leases that are held are delivered all the same; the test counts that each hold is released.
func (f *fakeSlots) HoldAssignments()    { f.set(func() { f.holds++ }) }
func (f *fakeSlots) ReleaseAssignments() { f.set(func() { f.holds-- }) }

func (f *fakeSlots) MayAdvance(string, string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.advance
}

func (r *fakeReservation) Count() int { return r.n }

func (r *fakeReservation) Split(int) slots.Reservation {
	panic("the scheduler splits no reservation")
}

func (r *fakeReservation) Advance() bool {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	return r.f.advance && !r.f.narrow
}

func (r *fakeReservation) Deliver(leases []job.Leased) {
	f := r.f
	f.mu.Lock()
	if r.n == 0 && len(leases) == 0 {
		f.mu.Unlock()
		return
	}
	if r.n > 0 && r.done {
		panic("a reservation is delivered twice")
	}
	f.returned = append(f.returned, leases[min(len(leases), r.n):]...)
	if leases = leases[:min(len(leases), r.n)]; r.n == 0 {
		f.mu.Unlock()
		return
	}
	r.done = true
	f.open--
	f.delivered += len(leases)
	if f.holds == 0 {
		f.unheld += len(leases)
	}
	f.released += r.n - len(leases)
	f.free[r.pool] += r.n - len(leases)
	f.served = append(f.served, leases...)
	handler := f.handler
	f.mu.Unlock()
	if len(leases) < r.n {
		f.onDemand()
	}
	for _, l := range leases {
		wait := max(0, time.Until(l.StartAt))
		if !l.StartAt.IsZero() {
			time.AfterFunc(wait, func() { f.started(l) })
		}
		if d := handler(); d >= 0 {
			time.AfterFunc(wait+d, func() { f.done(r.pool, 1) })
		}
	}
}

// done frees slots, as new workers do, or handlers that return.
func (f *fakeSlots) done(pool string, n int) {
	f.mu.Lock()
	f.free[pool] += n
	f.mu.Unlock()
	f.onDemand()
}

func (f *fakeSlots) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.served)
}

func (f *fakeSlots) check(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reserved != f.delivered+f.released || f.open != 0 || f.holds != 0 {
		t.Errorf("slots: %d reserved, %d delivered, %d released, %d reservations and %d holds open", f.reserved, f.delivered,
			f.released, f.open, f.holds)
	}
}

// fakePeers notes what is sent.
type fakePeers struct {
	mu       sync.Mutex
	down     map[string]bool
	permits  []sentPermit
	results  []sentResult
	messages int
	// onPermits and onResults carry them on, when set.
	onPermits func(node string, permits []job.Permit)
	onResults func(node string, results []job.PermitResult)
}

type sentPermit struct {
	at   time.Time
	node string
	job.Permit
}

type sentResult struct {
	node string
	lane job.Lane
	job.PermitResult
}

func (p *fakePeers) SendPermits(node string, permits []job.Permit) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down[node] {
		return 0
	}
	p.messages++
	for _, permit := range permits {
		p.permits = append(p.permits, sentPermit{time.Now(), node, permit})
	}
	if p.onPermits != nil {
		p.onPermits(node, permits)
	}
	return len(permits)
}

func (p *fakePeers) SendPermitResults(node string, results []job.LanePermitResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.messages++
	plain := make([]job.PermitResult, len(results))
	for i, r := range results {
		plain[i] = r.PermitResult
		p.results = append(p.results, sentResult{node, r.Lane, r.PermitResult})
	}
	if p.onResults != nil {
		p.onResults(node, plain)
	}
}

func (p *fakePeers) sent() []sentPermit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.permits)
}

// fakeLedger answers each change on a goroutine of its own.
type fakeLedger struct {
	mu      sync.Mutex
	changes []job.Change
	answer  func(job.Change) error
	deaf    bool // never answers
	// record is what is stored after a change; nil: nothing
	record func(job.Change) job.Record
}

func (l *fakeLedger) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
}

func (l *fakeLedger) Submit(c job.Change, done func(job.ChangeResult)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes = append(l.changes, c)
	var err error
	if l.answer != nil {
		err = l.answer(c)
	}
	r := job.ChangeResult{Err: err}
	if l.record != nil {
		r.Record = l.record(c)
	}
	if !l.deaf {
		go done(r)
	}
}
