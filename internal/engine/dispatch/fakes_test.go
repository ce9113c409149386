package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/minheap"
)

// fakeStore keeps leases as the renewing script would: token, epoch, acked and
// deadline decide. Its clock is the time of the test's bubble.
type fakeStore struct {
	mu      sync.Mutex
	leases  map[job.RecordID]*fakeLease
	fail    error
	renewed []job.Renewal
	calls   int
	// clockSkew is added to Now for leases that are handed in late.
	clockSkew time.Duration
	// during is called inside Renew, before the leases are looked at.
	during func()
	// stall is how long GetRecords takes.
	stall time.Duration
}

type fakeLease struct {
	rec      job.Record
	deadline unixtime.Milli
}

func (s *fakeStore) ShardOf(k job.Key) int { return len(k.ID) % 4 }

func (s *fakeStore) Now(context.Context, int) (unixtime.Milli, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return unixtime.MilliOf(time.Now().Add(s.clockSkew)), s.fail
}

func (s *fakeStore) Latest(int) lease.ClockBound {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lease.ClockBound{MS: unixtime.MilliOf(time.Now().Add(s.clockSkew))}
}

func (s *fakeStore) GetRecords(_ context.Context, _ int, records []job.RecordID) ([]*job.Record, error) {
	s.mu.Lock()
	stall := s.stall
	s.mu.Unlock()
	time.Sleep(stall)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return nil, s.fail
	}
	out := make([]*job.Record, len(records))
	for i, r := range records {
		if l := s.leases[r]; l != nil {
			rec := l.rec
			out[i] = &rec
		}
	}
	return out, nil
}

func (s *fakeStore) Renew(_ context.Context, requests []job.RenewRequest) []job.RenewReply {
	s.mu.Lock()
	during := s.during
	s.during = nil
	s.mu.Unlock()
	if during != nil {
		during()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	replies := make([]job.RenewReply, len(requests))
	for i, r := range requests {
		replies[i] = job.RenewReply{NowUS: unixtime.MicroOf(time.Now()), Err: s.fail}
		if s.fail != nil {
			continue
		}
		for _, n := range r.Renewals {
			s.renewed = append(s.renewed, n)
			replies[i].Results = append(replies[i].Results, s.renew(n, r.TTL))
		}
	}
	return replies
}

func (s *fakeStore) renew(n job.Renewal, ttl time.Duration) job.RenewResult {
	l := s.leases[n.Record]
	switch {
	case l == nil || !l.rec.State.Live() || l.rec.State.Token != n.Token:
		return job.RenewResult{Code: job.LeaseLost}
	case l.rec.State.Epoch > n.Epoch:
		return job.RenewResult{Code: job.Moved}
	}
	l.rec.State.Epoch = n.Epoch
	l.rec.State.Acked = l.rec.State.Acked || n.Acked
	l.deadline = unixtime.MilliOf(time.Now().Add(ttl))
	if n.HardStopMS > 0 {
		l.deadline = min(l.deadline, n.HardStopMS)
	}
	return job.RenewResult{Code: job.Renewed, Revision: l.rec.State.Revision}
}

// update changes a stored lease.
func (s *fakeStore) update(record job.RecordID, f func(*fakeLease)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.leases[record])
}

func (s *fakeStore) setFail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// lease returns a copy of a stored lease.
func (s *fakeStore) lease(record job.RecordID) fakeLease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.leases[record]
}

func (s *fakeStore) callCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *fakeStore) setClockSkew(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clockSkew = d
}

// took returns the renewals since the last call.
func (s *fakeStore) took() []job.Renewal {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.renewed
	s.renewed = nil
	return r
}

// fakeLedger answers every change with answer, on a goroutine of its own.
type fakeLedger struct {
	mu      sync.Mutex
	answer  func(job.Change) job.ChangeResult
	changes []job.Change
}

func (l *fakeLedger) SubmitAll(changes []job.Change, done func([]job.ChangeSummary)) {
	l.mu.Lock()
	l.changes = append(l.changes, changes...)
	answer := l.answer
	l.mu.Unlock()
	if answer == nil {
		return
	}
	for i, c := range changes {
		go func() {
			r := answer(c)
			a := job.ChangeSummary{Nth: i, Answer: r.Answer, Definition: r.Record.Definition, Err: r.Err}
			if a.Definition == nil && r.Parent != nil {
				a.Definition = r.Parent.Definition
			}
			done([]job.ChangeSummary{a})
		}()
	}
}

func (l *fakeLedger) set(answer func(job.Change) job.ChangeResult) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

func (l *fakeLedger) took() []job.Change {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.changes
	l.changes = nil
	return c
}

func answering(a job.Answer, err error) func(job.Change) job.ChangeResult {
	return func(job.Change) job.ChangeResult { return job.ChangeResult{Answer: a, Err: err} }
}

// fakeStream records what a worker is sent.
type fakeStream struct {
	mu       sync.Mutex
	messages []job.WorkerMessage
	stopped  error
	full     bool
}

func (s *fakeStream) Send(m job.WorkerMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full {
		return errors.New("queue is full")
	}
	s.messages = append(s.messages, m)
	return nil
}

func (s *fakeStream) Stop(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = reason
}

func (s *fakeStream) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// welcomed takes the first message, which is to be the welcome, and leaves the others:
// a lease that the worker named may be lost already.
func (s *fakeStream) welcomed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.messages) == 0 {
		return false
	}
	_, ok := s.messages[0].(job.Welcome)
	s.messages = s.messages[1:]
	return ok
}

// took returns, as text, what was sent since the last call: "lease a", "ack a
// stale", "cancel a timed_out", "elsewhere", "welcome".
func (s *fakeStream) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, m := range s.messages {
		switch m := m.(type) {
		case job.Welcome:
			out = append(out, "welcome")
		case job.Assignments:
			for _, l := range m {
				out = append(out, "lease "+l.Definition.ID)
			}
		case job.ResultAcks:
			for _, a := range m {
				out = append(out, fmt.Sprintf("ack %s %s", jobOf(a.LeaseID), a.Status))
			}
		case job.Cancellation:
			for _, id := range m.LeaseIDs {
				out = append(out, fmt.Sprintf("cancel %s %s", jobOf(id), [...]string{"requested", "lease_lost", "timed_out"}[m.Reason]))
			}
		case job.Redirect:
			out = append(out, "elsewhere")
		case job.Relocation:
			out = append(out, "move to "+strings.Join(m.Addresses, " "))
		case job.Addresses:
			out = append(out, "addresses "+strings.Join(m, " "))
		case job.HeartbeatAck:
			out = append(out, fmt.Sprintf("heartbeat %d confirmed %v", m.Seq, m.Confirmed))
		}
	}
	s.messages = nil
	return out
}

func jobOf(leaseID string) string {
	record, _, _ := job.ParseLeaseID(leaseID)
	key := record.Key()
	return key.ID
}

// notices collects what was observed.
type notices struct {
	mu   sync.Mutex
	list []job.Notice
}

func (n *notices) Observe(list []job.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, list...)
}

func (n *notices) all() []job.Notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list
}

// heard collects the reports to Attempts.
type heard struct {
	mu      sync.Mutex
	list    []string
	endings []job.Ending
	adopted map[string]int
	ended   map[string]int
}

func (h *heard) Adopted(l job.Leased) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, string("adopted "+l.Record))
	h.adopted[job.LeaseID(l.Record, l.Known.State.Token)]++
}

func (h *heard) Ended(e job.Ending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what := "gone "
	if s, ok := e.Settle.(job.FinishAttempt); ok {
		what = s.Outcome.String() + " "
	} else if e.Over {
		what = "over "
	}
	h.list = append(h.list, what+string(e.Record))
	h.endings = append(h.endings, e)
	h.ended[job.LeaseID(e.Record, e.Token)]++
}

// took returns the reports since the last call.
func (h *heard) took() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.list
	h.list = nil
	slices.Sort(l)
	return l
}

// audit checks that no end was reported twice, except one after the stream was cut.
func (h *heard) audit(t testing.TB) {
	h.mu.Lock()
	defer h.mu.Unlock()
	over := map[string]int{}
	for _, e := range h.endings {
		if e.Over {
			over[job.LeaseID(e.Record, e.Token)]++
		}
	}
	for id, n := range h.ended {
		if over[id] > 1 || n-over[id] > 1+h.adopted[id] {
			t.Errorf("the end of %s was told %d times, %d times for good; it was adopted %d times", id, n, over[id], h.adopted[id])
		}
	}
}

// bench is a dispatcher with everything around it.
type bench struct {
	t       *testing.T
	d       *Dispatcher
	store   *fakeStore
	ledger  *fakeLedger
	seen    *notices
	heard   *heard
	demands atomic.Int64
	freed   atomic.Pointer[func([]FreedSlots)] // is called for freed slots; nil: none
	others  atomic.Pointer[func() []string]    // addresses of other nodes
	tokens  uint64
	maxLag  time.Duration // of the jobs
	payload int           // bytes in that of each job
}

const ttl = 30 * time.Second

// newBench makes a dispatcher that runs until the test ends. It must be called
// in a bubble.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{
		t: t, store: &fakeStore{leases: map[job.RecordID]*fakeLease{}},
		ledger: &fakeLedger{answer: answering(job.Applied, nil)}, seen: &notices{},
		heard: &heard{adopted: map[string]int{}, ended: map[string]int{}},
	}
	b.areOthers("n2:7000")
	d, err := New(Options{
		Node: "n1", LeaseTTL: ttl, Store: b.store, Ledger: b.ledger, Observer: b.seen, Attempts: b.heard,
		OnDemand: b.onDemand, Addresses: func() []string { return (*b.others.Load())() },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.d = d
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		d.audit(t)
		b.heard.audit(t)
	})
	return b
}

// areOthers sets the other nodes.
func (b *bench) areOthers(addresses ...string) {
	f := func() []string { return slices.Clone(addresses) }
	b.others.Store(&f)
}

func (b *bench) onDemand(slots []FreedSlots) {
	b.demands.Add(1)
	if hear := b.freed.Load(); hear != nil {
		(*hear)(slots)
	}
}

// connect opens a session of worker "w" for queue "q" of namespace "ns".
func (b *bench) connect(worker string, slots int, epoch uint32, live ...string) (*Session, *fakeStream) {
	b.t.Helper()
	return b.greet(job.Hello{Slots: slots, WorkerID: worker, Epoch: epoch, Live: live})
}

// beats opens a session like connect, of a worker that sends heartbeats.
func (b *bench) beats(worker string, slots int, epoch uint32, live ...string) (*Session, *fakeStream) {
	b.t.Helper()
	return b.greet(job.Hello{Slots: slots, WorkerID: worker, Epoch: epoch, Live: live, Heartbeats: true})
}

func (b *bench) greet(h job.Hello) (*Session, *fakeStream) {
	b.t.Helper()
	out := &fakeStream{}
	h.Namespace, h.Queues = "ns", []string{"q"}
	s, err := b.d.Connect(h, out)
	if err != nil {
		b.t.Fatal(err)
	}
	if !out.welcomed() {
		b.t.Fatalf("messages: %v, want a welcome first", out.took())
	}
	return s.(*Session), out
}

// lease takes a lease in the fake store, as the leasing script would.
func (b *bench) lease(id string) job.Leased {
	now := time.Now()
	b.tokens = max(b.tokens+1, uint64(now.UnixMilli())*1000)
	record := job.RecordID("ns/" + id)
	key := record.Key()
	def := job.Definition{
		Key: key, Queue: "q", Handler: "h",
		Timeout: job.DefaultTimeout, TimeoutGrace: job.DefaultTimeoutGrace, MaxLag: b.maxLag,
		Payload: make([]byte, b.payload),
	}
	state := job.State{Revision: 3, Lane: def.Lane(), Nominal: unixtime.MilliOf(now), Due: unixtime.MilliOf(now)}.Leased(b.tokens)
	deadline := unixtime.MilliOf(now.Add(ttl))
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.store.leases[record] = &fakeLease{rec: job.Record{Definition: &def, State: state}, deadline: deadline}
	return job.Leased{Shard: b.store.ShardOf(key), Record: record, Known: &job.Record{Definition: &def, State: state, IndexMS: deadline}}
}

// deliver leases the jobs, hands them to the queue's workers and returns their
// lease ids.
func (b *bench) deliver(ids ...string) []string {
	b.t.Helper()
	r := b.d.Reserve("ns", "q", len(ids))
	if r.Count() != len(ids) {
		b.t.Fatalf("reserved %d slots, want %d", r.Count(), len(ids))
	}
	leases := make([]job.Leased, len(ids))
	names := make([]string, len(ids))
	for i, id := range ids {
		leases[i] = b.lease(id)
		names[i] = job.LeaseID(leases[i].Record, leases[i].Known.State.Token)
	}
	r.Deliver(leases)
	return names
}

// remembered is the number of attempts that the dispatcher knows.
func (b *bench) remembered() int {
	synctest.Wait()
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	return len(b.d.mu.attempts)
}

func (b *bench) free() int {
	for _, q := range b.d.Demand() {
		if q.Queue == "q" {
			return q.Free
		}
	}
	return 0
}

func (b *bench) wantFree(want int) {
	b.t.Helper()
	synctest.Wait()
	if got := b.free(); got != want {
		b.t.Errorf("free slots: %d, want %d", got, want)
	}
	b.d.audit(b.t)
}

func (b *bench) wantSent(out *fakeStream, want ...string) {
	b.t.Helper()
	synctest.Wait()
	if got := out.took(); !slices.Equal(got, want) {
		b.t.Errorf("worker was sent %q, want %q", got, want)
	}
}

// wantEvents compares what the ledger was asked for, by type and token's job.
func (b *bench) wantEvents(want ...string) []job.Change {
	b.t.Helper()
	synctest.Wait()
	changes := b.ledger.took()
	var got []string
	for _, c := range changes {
		key := c.Record.Key()
		name := fmt.Sprintf("%T %s", c.Input, key.ID)[len("job."):]
		if s, ok := c.Input.(job.FinishAttempt); ok {
			name += " " + s.Outcome.String()
		}
		got = append(got, name)
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("ledger was asked for %q, want %q", got, want)
	}
	return changes
}

func ok(id string) []job.Result {
	return []job.Result{{LeaseID: id, Outcome: job.OutcomeSucceeded, Duration: 5 * time.Millisecond}}
}

// audit checks that every count agrees with what it counts.
func (d *Dispatcher) audit(t testing.TB) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	pending, payloads := 0, 0
	for id, a := range d.mu.attempts {
		payloads += a.memoryBytes
		if a.forgotten || a.id != id {
			t.Errorf("attempt %s: gone %v, id %s", id, a.forgotten, a.id)
		}
		if a.pendingEvent != nil {
			pending++
		}
		if a.session != nil {
			if all := a.session.attempts; a.sessionIndex >= len(all) || all[a.sessionIndex] != a {
				t.Errorf("attempt %s is not among its session's", id)
			}
		}
		if at := a.nextDeadline(); (a.timerPlace > 0) != !at.IsZero() {
			t.Errorf("attempt %s: next %v, place %d", id, at, a.timerPlace)
		}
	}
	ofIdentities := 0
	for _, i := range d.mu.memory.identities {
		ofIdentities += i.bytes
	}
	if payloads != ofIdentities || payloads != d.mu.memory.used {
		t.Errorf("payloads of attempts: %d bytes, of identities %d, in all %d", payloads, ofIdentities, d.mu.memory.used)
	}
	if pending != d.mu.pendingEvents {
		t.Errorf("pending: %d, counted %d", d.mu.pendingEvents, pending)
	}
	for i, a := range d.mu.timers {
		if a.timerPlace != i+1 || i > 0 && a.nextAt.Before(d.mu.timers[(i-1)/2].nextAt) {
			t.Errorf("heap is out of order at %d", i)
		}
	}
	sessions := 0
	for key, f := range d.mu.workerGroups {
		if sessions += f.sessions; f.sessions <= 0 || f.key != key {
			t.Errorf("group %q: %+v", key, f)
		}
	}
	for _, s := range d.mu.workers {
		if !s.closed {
			sessions--
		}
	}
	if sessions != 0 {
		t.Errorf("groups count %d sessions too many", sessions)
	}
	if n := len(d.mu.queues); n != len(d.mu.sortedQueues) || n != d.mu.queueShares.TakenSlots() {
		t.Errorf("%d queues, %d sorted ones, %d places", n, len(d.mu.sortedQueues), d.mu.queueShares.TakenSlots())
	}
	for _, c := range d.sessionsByQueue() {
		k := c.queue
		free := 0
		for i, x := range c.entries {
			free += x.s.freeSlots()
			if x.index != i || x.sessions != c || (x.slotEntry.heapPlace > 0) != (x.s.freeSlots() > 0) || (x.placeEntry.heapPlace > 0) != (x.s.placesToWait() > 0) {
				t.Errorf("seat %d of %s: %+v", i, k.queue, x)
			}
		}
		if free != c.freeSlots || len(c.entries) == 0 {
			t.Errorf("queue %s: %d slots are free, counted %d; %d seats", k.queue, free, c.freeSlots, len(c.entries))
		}
		for _, h := range []minheap.Heap[*heapEntry]{c.bySlots, c.byPlaces} {
			for i, x := range h {
				if x.heapPlace != i+1 || x.load != x.s.loadRatio() || x.lastGrant != x.s.lastGrant || x.Before(h[0]) {
					t.Errorf("turn %d of queue %s: %+v", i, k.queue, x)
				}
			}
		}
	}
	for key, s := range d.mu.workers {
		busy, results := 0, 0
		for _, a := range s.attempts {
			if a.takesSlot {
				busy++
			}
			if a.pendingEvent != nil && !a.ownEvent {
				results++
			}
			if d.mu.attempts[a.id] != a {
				t.Errorf("session %s has a forgotten attempt %s", key, a.id)
			}
		}
		if busy != s.busySlots || results != s.pendingResults || s.reservedSlots < 0 || s.reservedPlaces < 0 {
			t.Errorf("session %s: busy %d, counted %d; pending %d, counted %d; reserved %d, promised %d", key, s.busySlots, busy, s.pendingResults, results, s.reservedSlots, s.reservedPlaces)
		}
		if len(s.upToDateEntries) != len(s.queueEntries) {
			t.Errorf("session %s: %d of %d seats are looked at", key, len(s.upToDateEntries), len(s.queueEntries))
		}
		if s.closed && len(s.attempts) == 0 {
			t.Errorf("session %s is closed, empty and still known", key)
		}
	}
}
