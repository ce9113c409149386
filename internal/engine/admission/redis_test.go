package admission_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/engine/admission"
	"github.com/fermata-io/fermata/internal/engine/ledger"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

const shards = 4

// rig is two nodes' admissions on a real Redis, with a worker that runs whatever is
// delivered.
type rig struct {
	t     *testing.T
	store *redisstore.Store
	book  *ledger.Ledger
	redis redis.UniversalClient
	nodes []*admission.Admission
	batch int

	mu     sync.Mutex
	live   map[job.RecordID]job.Leased // by record
	starts []job.Leased
	// handler runs one attempt; nil ends it at once with success.
	handler func(job.Leased) job.FinishAttempt
	running sync.WaitGroup
}

func newRig(t *testing.T) *rig {
	server := redistest.Start(t)
	c, err := conn.NewClient(conn.ClientOptions{URL: server.URL(), ReadTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	store, err := redisstore.Open(t.Context(), redisstore.Options{Client: c, Shards: shards, AllowUnsafe: true, OpTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: store, redis: c, live: map[job.RecordID]job.Leased{}}
	r.book = ledger.New(ledger.Options{Store: store, Observer: r, Nudger: r})
	t.Cleanup(r.book.Stop)
	for range 2 {
		var a *admission.Admission
		a, err = admission.New(admission.Options{
			Store: store, Limits: store.Limits(), Ledger: r.book, Canceller: r, LeaseTTL: 10 * time.Second,
			Slots: endlessSlots{r, func() *admission.Admission { return a }},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(a.Stop)
		r.nodes = append(r.nodes, a)
	}
	t.Cleanup(r.running.Wait)
	for shard := range shards {
		if err := c.Set(t.Context(), store.LockKey(shard), "v", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *rig) Observe([]job.Notice)                        {}
func (r *rig) Nudge(int, []job.LaneHead, string)           {}
func (r *rig) CancelAttempt(record job.RecordID, _ uint64) {}

// endlessSlots are always free.
type endlessSlots struct {
	*rig
	admission func() *admission.Admission
}

func (s endlessSlots) Reserve(string, string, int) slots.Reservation        { return s }
func (s endlessSlots) ReserveWaiting(string, string, int) slots.Reservation { return s }
func (s endlessSlots) MayAdvance(string, string) bool                       { return false }
func (s endlessSlots) Advance() bool                                        { return false }
func (s endlessSlots) Count() int                                           { return job.MaxLeasesPerCall }
func (s endlessSlots) Split(int) slots.Reservation                          { return s }
func (s endlessSlots) AbandonAttempt(record job.RecordID, _ uint64) bool {
	s.t.Errorf("%s is abandoned", record)
	return true
}

func (s endlessSlots) ReturnLeases(leases []job.Leased) {
	for _, l := range leases {
		s.t.Errorf("%s is returned", l.Record)
	}
}

func (s endlessSlots) Deliver(leases []job.Leased) {
	for _, l := range leases {
		s.running.Go(func() { s.work(l) })
	}
}

// work is the life of an attempt at its node.
func (s endlessSlots) work(l job.Leased) {
	s.mu.Lock()
	s.live[l.Record] = l
	s.starts = append(s.starts, l)
	handler := s.handler
	s.mu.Unlock()
	settle := job.FinishAttempt{Outcome: job.OutcomeSucceeded}
	if handler != nil {
		settle = handler(l)
	}
	settle.Token, settle.StartedMS = l.Known.State.Token, l.Known.State.Due
	s.mu.Lock()
	delete(s.live, l.Record)
	s.mu.Unlock()
	r := s.book.SubmitAndWait(context.Background(), job.Change{Record: l.Record, Input: settle})[0]
	if r.Err != nil || r.Answer != job.Applied {
		s.t.Errorf("settle %s: %v, %v", l.Record, r.Answer, r.Err)
	}
	s.admission().Ended(job.Ending{
		Record: l.Record, Token: l.Known.State.Token, Definition: l.Known.Definition, Settle: settle, Over: true,
	})
}

// create stores jobs that are due now and then every so often.
func (r *rig) create(every time.Duration, definitions ...job.Definition) {
	r.t.Helper()
	for _, d := range definitions {
		d = job.WithDefaults(d)
		d.Schedule = schedule.Spec{Kind: schedule.KindInterval, Every: every}
		shard := r.store.ShardOf(d.Key)
		now, err := r.store.Now(r.t.Context(), shard)
		if err != nil {
			r.t.Fatal(err)
		}
		d.Generation, d.Revision, d.AnchorMS = 1, 1, now-unixtime.Milli(every.Milliseconds())
		s := job.State{Revision: 1, Generation: 1, Lane: d.Lane(), Nominal: now, Due: now}
		reply := r.store.Create(r.t.Context(), []job.CreateBatch{{Shard: shard, Records: []job.Record{{Definition: &d, State: s, IndexMS: now}}}})[0]
		if reply.Err != nil || reply.Results[0].Code != job.Created {
			r.t.Fatalf("create: %+v", reply)
		}
	}
}

func definition(id string) job.Definition {
	return job.Definition{Key: job.Key{Namespace: "ns", ID: id}, Queue: "q", Handler: "h", Priority: 5}
}

// drive leases what is due, for one node after the other, until done or for a while.
func (r *rig) drive(done func() bool) {
	r.t.Helper()
	lane := job.Lane{Namespace: "ns", Queue: "q", Priority: 5}
	for until := time.Now().Add(2 * time.Minute); !done(); {
		if time.Now().After(until) {
			r.t.Fatal("took too long")
		}
		for shard := range shards {
			r.batch++
			n := 5
			node := r.nodes[r.batch%len(r.nodes)]
			if node.Limited("ns", "q") {
				n = node.TakeStarts(r.t.Context(), []job.QueueRequest{{Queue: job.QueueKey{Namespace: "ns", Queue: "q"}, N: n}})[0].N
			}
			if n == 0 {
				continue
			}
			reply := r.store.Lease(r.t.Context(), []job.LeaseRequest{{
				Shard: shard, LockValue: "v", TTL: 10 * time.Second, Batch: strconv.Itoa(r.batch),
				Quotas: []job.LaneQuota{{Lane: lane, N: n}},
			}})[0]
			if reply.Err != nil {
				r.t.Fatal(reply.Err)
			}
			if unused := n - len(reply.Leased); unused > 0 {
				node.ReturnStarts([]job.QueueRequest{{Queue: job.QueueKey{Namespace: "ns", Queue: "q"}, N: unused}})
			}
			node.Reserve("ns", "q", n).Deliver(reply.Leased)
		}
	}
}

func (r *rig) started(which func(job.Leased) bool) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.starts {
		if which == nil || which(l) {
			n++
		}
	}
	return n
}

// Jobs of all shards, leased by two nodes, with one mutex and one semaphore.
func TestLocksOnRedis(t *testing.T) {
	r := newRig(t)
	const jobs = 24
	used := map[string]int{}
	r.handler = func(l job.Leased) job.FinishAttempt {
		for _, lock := range l.Known.Definition.Locks {
			r.mu.Lock()
			if used[lock.Key]++; used[lock.Key] > lock.Limit {
				t.Errorf("%d runs hold %s, at most %d may", used[lock.Key], lock.Key, lock.Limit)
			}
			r.mu.Unlock()
		}
		r.work()
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, lock := range l.Known.Definition.Locks {
			used[lock.Key]--
		}
		return job.FinishAttempt{Outcome: job.OutcomeSucceeded}
	}
	for i := range jobs {
		d := definition(fmt.Sprint("j", i))
		d.Locks = []job.Lock{{Key: "semaphore", Limit: 3}}
		if i%2 == 0 {
			d.Locks = append(d.Locks, job.Lock{Key: "mutex", Limit: 1})
		}
		r.create(time.Hour, d)
	}
	r.drive(func() bool { return r.started(nil) == jobs })
	r.running.Wait()
}

func TestOverlapOnRedis(t *testing.T) {
	r := newRig(t)
	finish := make(chan struct{})
	r.handler = func(job.Leased) job.FinishAttempt {
		<-finish
		return job.FinishAttempt{Outcome: job.OutcomeSucceeded}
	}
	d := definition("a")
	d.Overlap, d.OverlapLimit = job.OverlapAllowAll, 3
	r.create(50*time.Millisecond, d)
	r.drive(func() bool { return r.started(nil) == 3 })
	r.mu.Lock()
	var records []job.RecordID
	for record := range r.live {
		records = append(records, record)
	}
	r.mu.Unlock()
	slices.Sort(records)
	if want := []job.RecordID{"ns/a#r0", "ns/a#r1", "ns/a#r2"}; !slices.Equal(records, want) {
		t.Errorf("live: %q, want %q", records, want)
	}
	close(finish)
	r.drive(func() bool { return r.started(nil) >= 6 })
}

func TestTargetOnRedis(t *testing.T) {
	r := newRig(t)
	first := sync.OnceValue(func() job.FinishAttempt { return job.FinishAttempt{Outcome: job.OutcomeFailed, Error: "HTTP 503"} })
	failed := false
	var opened time.Time // or a little before
	r.handler = func(job.Leased) job.FinishAttempt {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !failed {
			failed, opened = true, time.Now()
			return first()
		}
		return job.FinishAttempt{Outcome: job.OutcomeSucceeded}
	}
	bad := definition("bad")
	bad.Target = "host"
	r.create(time.Hour, bad)
	r.drive(func() bool { return r.started(nil) == 1 })
	r.running.Wait()
	name := job.TargetName("ns", "host")
	cell := func() string { return r.store.Limits().ReadCells(t.Context(), []string{name})[0].Text }
	redistest.Eventually(t, redistest.Patience, "a circuit", isSo(func() bool { return cell() != "" }))
	for i := range 5 {
		d := definition(fmt.Sprint("good", i))
		d.Target = "host"
		r.create(time.Hour, d)
	}
	good := func(l job.Leased) bool { return l.Known.Definition.ID != "bad" }
	r.drive(func() bool { return r.started(good) >= 1 })
	if waited := time.Since(opened); waited < 800*time.Millisecond {
		t.Errorf("the target was left alone for %v, want about a second", waited)
	}
	r.drive(func() bool { return r.started(good) == 5 })
	if text := cell(); text != "" {
		t.Errorf("circuit %s after success", text)
	}
}

func TestConcurrencyLimitOnRedis(t *testing.T) {
	r := newRig(t)
	q := job.QueueKey{Namespace: "ns", Queue: "q"}
	if err := r.store.Limits().PutQueueSettings(t.Context(), q, job.QueueSettings{MaxConcurrency: 2}, ""); err != nil {
		t.Fatal(err)
	}
	for _, n := range r.nodes {
		n.SettingsChanged()
		redistest.Eventually(t, redistest.Patience, "the limit", isSo(func() bool { return n.Limited("ns", "q") && !n.Limited("ns", "other") }))
	}
	running := 0
	r.handler = func(job.Leased) job.FinishAttempt {
		r.mu.Lock()
		if running++; running > 2 {
			t.Errorf("%d runs at once", running)
		}
		r.mu.Unlock()
		r.work()
		r.mu.Lock()
		defer r.mu.Unlock()
		running--
		return job.FinishAttempt{Outcome: job.OutcomeSucceeded}
	}
	for i := range 20 {
		r.create(time.Hour, definition(fmt.Sprint("j", i)))
	}
	r.drive(func() bool { return r.started(nil) == 20 })
}

// isSo is a condition without details.
func isSo(so func() bool) func(context.Context) error {
	return func(context.Context) error {
		if !so() {
			return errors.New("it is not so")
		}
		return nil
	}
}

// work is what a handler does: it waits, so that others can run.
func (r *rig) work() {
	for range 5 {
		if err := r.redis.Ping(context.Background()).Err(); err != nil {
			r.t.Error(err)
		}
	}
}
