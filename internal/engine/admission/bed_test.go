package admission

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func typeName(v any) string { return fmt.Sprintf("%T", v) }

const ttl = 30 * time.Second

var queueQ = job.QueueKey{Namespace: "ns", Queue: "q"}

// bed is an admission with everything around it.
type bed struct {
	t      *testing.T
	a      *Admission
	limits *fakeLimits
	store  *fakeStore
	slots  *fakeSlots
	tokens uint64

	mu     sync.Mutex
	rooms  []string
	pauses []string
}

// run runs test in a bubble.
func run(t *testing.T, test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, newFakeLimits())
		synctest.Wait()
		test(b)
		b.a.Stop()
		b.slots.mu.Lock()
		defer b.slots.mu.Unlock()
		if b.slots.open != 0 {
			t.Errorf("%d slots stay reserved", b.slots.open)
		}
	})
}

func newBed(t *testing.T, limits *fakeLimits) *bed {
	b := &bed{t: t, limits: limits, store: &fakeStore{records: map[job.RecordID]*job.Record{}, refuse: map[job.RecordID]error{}}}
	b.slots = &fakeSlots{ledger: b.store}
	a, err := New(Options{
		Store: b.store, Limits: limits, Ledger: b.store, Slots: b.slots, Canceller: b.slots, LeaseTTL: ttl, Latency: limits.latency,
		OnRoom: func(namespace, queue string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.rooms = append(b.rooms, namespace+"/"+queue)
		},
		OnPaused: func(q job.QueueKey, paused bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.pauses = append(b.pauses, fmt.Sprintf("%s/%s %v", q.Namespace, q.Queue, paused))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.a = a
	return b
}

// recurring is a job of an hourly schedule.
func recurring(id string, change ...func(*job.Definition)) job.Definition {
	d := job.Definition{
		Key: job.Key{Namespace: "ns", ID: id}, Queue: "q", Handler: "h",
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Hour},
		Retry:    backoff.Retry{MaxAttempts: 3}, Timeout: time.Minute, TimeoutGrace: time.Second,
		Generation: 1, Revision: 1, AnchorMS: unixtime.MilliOf(time.Now()),
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

func locks(keys ...string) func(*job.Definition) {
	return func(d *job.Definition) {
		for _, k := range keys {
			d.Locks = append(d.Locks, job.Lock{Key: k, Limit: 1})
		}
	}
}

func target(name string) func(*job.Definition) {
	return func(d *job.Definition) { d.Target = name }
}

func overlap(o job.Overlap) func(*job.Definition) {
	return func(d *job.Definition) { d.Overlap = o }
}

// put stores jobs whose runs are due now.
func (b *bed) put(definitions ...job.Definition) {
	for _, d := range definitions {
		now := unixtime.MilliOf(time.Now())
		s := job.State{Revision: 1, Lane: d.Lane(), Generation: 1, Nominal: now, Due: now}
		b.store.set(func() { b.store.records[d.Record()] = &job.Record{Definition: &d, State: s} })
	}
}

// lease takes leases on stored records, whatever their due time.
func (b *bed) lease(records ...job.RecordID) []job.Leased {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	var out []job.Leased
	for _, r := range records {
		rec := b.store.records[r]
		if rec == nil || rec.State.Region != job.RegionDue {
			b.t.Fatalf("%s cannot be leased: %+v", r, rec)
		}
		b.tokens = max(b.tokens+1, uint64(time.Now().UnixMicro()))
		rec.State = rec.State.Leased(b.tokens)
		out = append(out, job.Leased{Record: r, Known: &job.Record{
			Definition: rec.Definition, State: rec.State, IndexMS: unixtime.MilliOf(time.Now().Add(ttl)),
		}})
	}
	return out
}

// deliver leases records and delivers them, and waits until nothing moves.
func (b *bed) deliver(records ...job.RecordID) []job.Leased {
	leases := b.lease(records...)
	b.a.Reserve("ns", "q", len(leases)).Deliver(leases)
	synctest.Wait()
	return leases
}

// end settles a delivered run and notifies the admission.
func (b *bed) end(record job.RecordID, settle job.FinishAttempt) {
	b.t.Helper()
	state := b.store.state(record)
	if !state.Live() {
		b.t.Fatalf("%s is not live", record)
	}
	settle.Token = state.Token
	d := b.definition(record)
	b.a.submitAndWait(b.t.Context(), []job.Change{{Record: record, Input: settle}})
	b.a.Ended(job.Ending{Record: record, Token: state.Token, Definition: &d, Settle: settle, Over: true})
	synctest.Wait()
}

func (b *bed) definition(record job.RecordID) job.Definition {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	return *b.store.records[record].Definition
}

var (
	success = job.FinishAttempt{Outcome: job.OutcomeSucceeded}
	failure = job.FinishAttempt{Outcome: job.OutcomeFailed, Error: "HTTP 503"}
)

func (b *bed) wantGot(want ...job.RecordID) {
	b.t.Helper()
	if got := b.slots.got(); !slices.Equal(got, want) {
		b.t.Errorf("delivered %q, want %q", got, want)
	}
}

func (b *bed) wantHeld(record job.RecordID, reason job.HoldReason, key, by string) {
	b.t.Helper()
	s := b.store.state(record)
	if s.Region != job.RegionDue || s.Held.Reason != reason || s.Held.Key != key || s.Held.By != by {
		b.t.Errorf("%s: %v, held %+v; want held by %v at %q by %q", record, s.Region, s.Held, reason, key, by)
	}
}

func (b *bed) wantHolders(name string, want ...string) {
	b.t.Helper()
	if got := b.limits.holders(name); !slices.Equal(got, want) {
		b.t.Errorf("holders of %s: %q, want %q", name, got, want)
	}
}

func (b *bed) wantEvents(record job.RecordID, want ...string) {
	b.t.Helper()
	if got := b.store.events(record); !slices.Equal(got, want) {
		b.t.Errorf("events of %s: %q, want %q", record, got, want)
	}
}

func dueIn(s job.State) time.Duration { return time.Until(s.Due.Time()) }

// after waits in the bubble's time, then until nothing moves.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func idOf(l job.Leased) string { return job.LeaseID(l.Record.Job(), l.Known.State.Token) }
