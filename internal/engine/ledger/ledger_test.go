package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const now = unixtime.Milli(1_800_000_000_000)

// fakeStore is one shard of records with the store's compare-and-set.
type fakeStore struct {
	mu      sync.Mutex
	records map[job.RecordID]*job.Record
	batches [][]job.Write
	before  func(writes []job.Write) // called with mu held, before a batch is applied
	delay   time.Duration
	err     error
	refuse  func(job.Write) error // an error is that of the whole batch
	// unconfirmed: everything is stored, and answered with ErrDurability.
	unconfirmed bool
}

func (f *fakeStore) Shards() int         { return 4 }
func (f *fakeStore) ShardOf(job.Key) int { return 3 }

func (f *fakeStore) Now(context.Context, int) (unixtime.Milli, error) { return now, nil }
func (f *fakeStore) NowIsKnown(int) bool                              { return true }
func (f *fakeStore) Latest(int) lease.ClockBound                      { return lease.ClockBound{MS: now} }

func (f *fakeStore) GetRecords(_ context.Context, _ int, names []job.RecordID) ([]*job.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*job.Record, len(names))
	for i, n := range names {
		if r := f.records[n]; r != nil {
			c := *r
			out[i] = &c
		}
	}
	return out, nil
}

func (f *fakeStore) Confirm(context.Context, int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unconfirmed {
		return job.ErrDurability
	}
	return nil
}

func (f *fakeStore) ApplyMany(ctx context.Context, requests []job.ShardWrites, done func(int, job.ApplyReply)) {
	applyEach(ctx, f.Apply, requests, done)
}

// applyEach is ApplyMany by calls of apply, all at once.
func applyEach(ctx context.Context, apply func(context.Context, int, []job.Write) job.ApplyReply,
	requests []job.ShardWrites, done func(int, job.ApplyReply)) {
	var calls sync.WaitGroup
	for i, r := range requests {
		calls.Go(func() { done(i, apply(ctx, r.Shard, r.Writes)) })
	}
	calls.Wait()
}

func (f *fakeStore) Apply(_ context.Context, _ int, writes []job.Write) job.ApplyReply {
	if f.delay > 0 {
		time.Sleep(f.delay)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before != nil {
		f.before(writes)
	}
	f.batches = append(f.batches, slices.Clone(writes))
	if f.err != nil {
		return job.ApplyReply{Err: f.err}
	}
	for _, w := range writes {
		if f.refuse == nil {
			break
		}
		if err := f.refuse(w); err != nil {
			return job.ApplyReply{Err: err}
		}
	}
	reply := job.ApplyReply{Results: make([]job.WriteResult, len(writes))}
	if f.unconfirmed {
		reply.Err = job.ErrDurability
	}
	for i := 0; i < len(writes); {
		n := 1
		if i+1 < len(writes) && writes[i+1].Together {
			n = 2
		}
		f.applyTogether(writes[i:i+n], reply.Results[i:i+n], &reply)
		i += n
	}
	return reply
}

// applyTogether writes all, or none.
func (f *fakeStore) applyTogether(writes []job.Write, results []job.WriteResult, reply *job.ApplyReply) {
	good := true
	for i, w := range writes {
		switch r := f.records[w.Record]; {
		case r == nil:
			results[i].Code = job.NotFound
		case r.State.Token != w.Token || r.State.Revision != w.Revision:
			results[i] = job.WriteResult{Code: job.Conflict, Current: &r.State}
		}
		good = good && results[i].Code == job.Written
	}
	if !good {
		for i := range results {
			if results[i].Code == job.Written {
				results[i].Code = job.Conflict
			}
		}
		return
	}
	for _, w := range writes {
		r := f.records[w.Record]
		if w.Decision.Delete {
			delete(f.records, w.Record)
			continue
		}
		r.State = w.Decision.State
		if d := w.Decision.Definition; d != nil {
			r.Definition = d
		}
		if run := w.Decision.Spawn; run != nil {
			f.records[w.Record.Run(run.Slot)] = &job.Record{Definition: r.Definition, State: run.State}
		}
		reply.Earlier = []job.LaneHead{{Lane: r.State.Lane, DueMS: r.State.Due}}
		reply.Holder = "holder"
	}
}

type recorder struct {
	mu      sync.Mutex
	notices []job.Notice
	nudges  int
}

func (r *recorder) Observe(n []job.Notice) {
	r.mu.Lock()
	r.notices = append(r.notices, n...)
	r.mu.Unlock()
}

func (r *recorder) Nudge(int, []job.LaneHead, string) {
	r.mu.Lock()
	r.nudges++
	r.mu.Unlock()
}

func record(id string) *job.Record {
	d := job.Definition{
		Key: job.Key{Namespace: "ns", ID: id}, Queue: "q", Handler: "h",
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
		Retry:    backoff.DefaultRetry(), Backoff: backoff.DefaultRecurring(), Generation: 1, Revision: 1,
	}
	c, err := job.Compile(&d)
	if err != nil {
		panic(err)
	}
	return &job.Record{Definition: &d, State: job.New(c, now).State}
}

func setup(t *testing.T, o Options, ids ...string) (*Ledger, *fakeStore, *recorder) {
	t.Helper()
	store := &fakeStore{records: map[job.RecordID]*job.Record{}}
	for _, id := range ids {
		store.records[job.RecordID("ns/"+id)] = record(id)
	}
	rec := &recorder{}
	o.Store, o.Observer, o.Nudger = store, rec, rec
	l := New(o)
	t.Cleanup(l.Stop)
	return l, store, rec
}

func TestAChangeIsDecidedStoredAndAnswered(t *testing.T) {
	l, store, rec := setup(t, Options{}, "a")
	r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.Pause{Note: "why"}})[0]
	if r.Err != nil || r.Record.State.Region != job.RegionPaused || store.records["ns/a"].State.PauseNote != "why" {
		t.Fatalf("%+v", r)
	}
	if len(rec.notices) != 1 || rec.notices[0].Kind != job.JobPaused || rec.nudges != 1 {
		t.Errorf("notices %+v, nudges %d", rec.notices, rec.nudges)
	}
	again := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.Pause{Note: "why"}})[0]
	if again.Err != nil || len(store.batches) != 1 {
		t.Errorf("a change without effect was written: %+v", again)
	}
}

// TestNothingIsWrittenForAnEndedCall: what waits when its caller has been answered that nothing
// was written is not. Who finds nothing to change, or no record, does not begin.
func TestNothingIsWrittenForAnEndedCall(t *testing.T) {
	l, store, rec := setup(t, Options{}, "a", "b")
	asked := 0
	ask := func(answer bool) func() bool {
		return func() bool { asked++; return answer }
	}
	results := l.SubmitAndWait(t.Context(),
		job.Change{Record: "ns/a", Input: job.Pause{}, Begin: ask(false)}, job.Change{Record: "ns/b", Input: job.Pause{}, Begin: ask(true)},
		job.Change{Record: "ns/none", Input: job.Pause{}, Begin: ask(true)}, job.Change{Record: "ns/a", Input: job.Resume{}, Begin: ask(true)})
	if results[0].Err == nil || results[1].Err != nil || !errors.Is(results[2].Err, job.ErrNotFound) || results[3].Err != nil {
		t.Errorf("%+v", results)
	}
	if results[0].Changed || !results[1].Changed || results[2].Changed || results[3].Changed {
		t.Errorf("what was stored: %+v", results)
	}
	if asked != 2 || store.records["ns/a"].State.Paused || !store.records["ns/b"].State.Paused || len(rec.notices) != 1 {
		t.Errorf("asked %d times, notices %+v", asked, rec.notices)
	}
}

func TestConflictsAreDecidedAgainOnWhatIsStored(t *testing.T) {
	l, store, _ := setup(t, Options{}, "a", "b")
	races := 5
	store.before = func(writes []job.Write) {
		if races > 0 && writes[0].Record == "ns/a" {
			races--
			store.records["ns/a"].State.Revision++
		}
	}
	first := store.records["ns/a"].State.Revision
	results := l.SubmitAndWait(t.Context(),
		job.Change{Record: "ns/a", Input: job.Pause{}}, job.Change{Record: "ns/b", Input: job.Pause{}})
	for _, r := range results {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if rev := store.records["ns/a"].State.Revision - first; rev != 5+1 {
		t.Errorf("%d revisions", rev)
	}
}

func TestAnEverChangingRecordIsGivenUp(t *testing.T) {
	l, store, _ := setup(t, Options{}, "a")
	store.before = func([]job.Write) { store.records["ns/a"].State.Revision++ }
	r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.Pause{}})[0]
	if !errors.Is(r.Err, job.ErrConflict) {
		t.Errorf("%+v", r)
	}
}

func TestKnownRecordDoesNotProveARefusal(t *testing.T) {
	l, store, _ := setup(t, Options{}, "a")
	known := *store.records["ns/a"]
	leased := known.State.Leased(7)
	store.records["ns/a"].State = leased
	r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.FinishAttempt{Token: 7, Outcome: job.OutcomeSucceeded}, Known: &known})[0]
	if r.Err != nil || r.Answer != job.Applied || store.records["ns/a"].State.Succeeded != 1 {
		t.Errorf("%+v", r)
	}
}

func TestErrorsReachTheirCallers(t *testing.T) {
	l, store, rec := setup(t, Options{}, "a")
	if r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/none", Input: job.Delete{}})[0]; !errors.Is(r.Err, job.ErrNotFound) {
		t.Errorf("missing: %+v", r)
	}
	if r := l.SubmitAndWait(t.Context(), job.Change{Record: "garbage", Input: job.Delete{}})[0]; !errors.Is(r.Err, job.ErrNotFound) {
		t.Errorf("unparsable: %+v", r)
	}
	store.err = job.ErrUnavailable
	if r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.Delete{}})[0]; !errors.Is(r.Err, job.ErrUnavailable) {
		t.Errorf("unavailable: %+v", r)
	}
	if len(rec.notices) != 0 {
		t.Errorf("told of what was not stored: %+v", rec.notices)
	}
}

func TestChangesOfARecordKeepTheirOrder(t *testing.T) {
	l, store, _ := setup(t, Options{}, "a")
	changes := []job.Change{}
	for i := range 50 {
		changes = append(changes, job.Change{Record: "ns/a", Input: job.Pause{Note: fmt.Sprint(i)}})
	}
	for _, r := range l.SubmitAndWait(t.Context(), changes...) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if note := store.records["ns/a"].State.PauseNote; note != "49" {
		t.Errorf("the last change left %q", note)
	}
}

// TestRoundsDecideForAShortTime checks that a round writes what it has decided when its time for decisions is over, and
// that the changes left to the next rounds keep their order.
func TestRoundsDecideForAShortTime(t *testing.T) {
	l, store, _ := setup(t, Options{decisionTime: time.Nanosecond}, "a", "b", "c")
	var changes []job.Change
	for i := range 5 {
		for _, id := range []string{"a", "b", "c"} {
			changes = append(changes, job.Change{Record: job.RecordID("ns/" + id), Input: job.Pause{Note: fmt.Sprint(i)}})
		}
	}
	for _, r := range l.SubmitAndWait(t.Context(), changes...) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for id, r := range store.records {
		if r.State.PauseNote != "4" {
			t.Errorf("the last change of %s left %q", id, r.State.PauseNote)
		}
	}
	for _, batch := range store.batches {
		if len(batch) != 1 {
			t.Errorf("a round wrote %d changes", len(batch))
		}
	}
}

func TestChangesDuringABatchFormTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := make([]string, 60)
		for i := range ids {
			ids[i] = fmt.Sprint("j", i)
		}
		l, store, _ := setup(t, Options{}, ids...)
		store.delay = time.Millisecond
		var wg sync.WaitGroup
		submit := func(id string) {
			wg.Add(1)
			l.Submit(job.Change{Record: job.RecordID("ns/" + id), Input: job.Delete{}}, func(job.ChangeResult) { wg.Done() })
		}
		submit(ids[0])
		synctest.Wait() // the first batch is on its way
		for _, id := range ids[1:] {
			submit(id)
		}
		wg.Wait()
		if len(store.batches) != 2 || len(store.batches[1]) != 59 {
			t.Errorf("%d batches", len(store.batches))
		}
		l.Stop()
	})
}

// A change waits for one round of those before it, not for all: many of one job have a round each.
func TestAChangeWaitsForOneRoundOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store, _ := setup(t, Options{}, "a", "b")
		store.delay = 600 * time.Millisecond
		var all sync.WaitGroup
		for i := range 5 {
			all.Add(1)
			l.Submit(job.Change{Record: "ns/a", Input: job.RequestManualRun{RequestID: fmt.Sprint(i)}}, func(job.ChangeResult) { all.Done() })
		}
		time.Sleep(store.delay * 3 / 2) // the first is stored, the others have a batch
		began := time.Now()
		if r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/b", Input: job.Pause{}})[0]; r.Err != nil {
			t.Error(r.Err)
		}
		if took := time.Since(began); took > 2*store.delay {
			t.Errorf("it took %v, an answer takes %v", took, store.delay)
		}
		all.Wait()
	})
}

// What is left of a batch is given up when its time is over, also if others go on.
func TestRoundsOfAChangeEndWithItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store, _ := setup(t, Options{Timeout: time.Second}, "a")
		store.delay = 600 * time.Millisecond
		changes := make([]job.Change, 9)
		for i := range changes {
			changes[i] = job.Change{Record: "ns/a", Input: job.RequestManualRun{RequestID: fmt.Sprint(i)}}
		}
		began, stored := time.Now(), 0
		for _, r := range l.SubmitAndWait(t.Context(), changes...) {
			switch {
			case r.Err == nil:
				stored++
			case !errors.Is(r.Err, job.ErrUnavailable):
				t.Error(r.Err)
			}
		}
		if took := time.Since(began); stored == 0 || stored > 4 || took > 4*time.Second {
			t.Errorf("%d are stored, the last answer came after %v", stored, took)
		}
	})
}

func TestStopCommitsWhatWaitsAndRefusesMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store, _ := setup(t, Options{}, "a", "b")
		store.delay = time.Second
		answered := 0
		for _, id := range []string{"a", "b"} {
			l.Submit(job.Change{Record: job.RecordID("ns/" + id), Input: job.Delete{}}, func(r job.ChangeResult) {
				if r.Err == nil && r.Deleted {
					answered++
				}
			})
		}
		l.Stop()
		if answered != 2 || len(store.records) != 0 {
			t.Errorf("answered %d, left %d", answered, len(store.records))
		}
		if r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.Delete{}})[0]; !errors.Is(r.Err, ErrClosed) {
			t.Errorf("%+v", r)
		}
	})
}

func TestDoEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store, _ := setup(t, Options{}, "a")
		store.delay = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := l.SubmitAndWait(ctx, job.Change{Record: "ns/a", Input: job.Pause{}})[0]
		if !errors.Is(r.Err, context.DeadlineExceeded) {
			t.Errorf("%+v", r)
		}
		l.Stop()
	})
}

// TestRoundsReadFewLargeRecords: what a round reads is bounded by the sizes of records, whatever its changes name.
func TestRoundsReadFewLargeRecords(t *testing.T) {
	const jobs, payload = 300, 250_000
	ids := make([]string, jobs)
	for i := range ids {
		ids[i] = fmt.Sprint("j", i)
	}
	l, store, _ := setup(t, Options{}, ids...)
	for _, r := range store.records {
		d := *r.Definition
		d.Payload = make([]byte, payload)
		r.Definition = &d
	}
	pauseAll := func(note string) {
		store.mu.Lock()
		store.batches = nil
		store.mu.Unlock()
		changes := make([]job.Change, jobs)
		for i, id := range ids {
			changes[i] = job.Change{Record: job.RecordID("ns/" + id), Input: job.Pause{Note: note}}
		}
		for _, r := range l.SubmitAndWait(t.Context(), changes...) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	most := func() (n int) {
		for _, batch := range store.batches {
			n = max(n, len(batch))
		}
		return n
	}
	pauseAll("sizes are unknown")
	if n := most(); n > maxUnknown {
		t.Errorf("a round reads %d records of unknown size", n)
	}
	pauseAll("sizes are known")
	if n := most(); n != readBytes/payload {
		t.Errorf("a round reads %d large records", n)
	}
}
