package registry

import (
	"context"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/schedule"
)

const fakeShards = 4

// fake is a store and a ledger in memory. It orders its records by id, so that
// its cursors are stable.
type fake struct {
	mu      sync.Mutex
	now     int64
	records map[job.Key]job.Record
	history map[job.Key][]job.Run
	// meddle runs before the next change is decided, as a concurrent client.
	meddle func()
	err    error
	calls  []int // records of each Create
	// unconfirmed: Create stores everything and answers with ErrDurability.
	// vanishing: it answers that ids are taken, by jobs that are gone again.
	unconfirmed, vanishing bool

	notices   []job.Notice
	nudged    []job.LaneHead
	cancelled []uint64
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newFake(t *testing.T) (*fake, *Registry) {
	t.Helper()
	f := &fake{now: start.UnixMilli(), records: map[job.Key]job.Record{}, history: map[job.Key][]job.Run{}}
	r, err := New(Options{Store: f, Ledger: f, Observer: f, Nudger: f, Canceller: f})
	if err != nil {
		t.Fatal(err)
	}
	return f, r
}

func (f *fake) ShardOf(k job.Key) int {
	h := fnv.New32a()
	h.Write([]byte(k.Record()))
	return int(h.Sum32() % fakeShards)
}

func (f *fake) Now(context.Context, int) (int64, error) { return f.now, f.err }

func (f *fake) Create(_ context.Context, shard int, records []job.Record) job.CreateReply {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return job.CreateReply{Err: f.err}
	}
	f.calls = append(f.calls, len(records))
	var reply job.CreateReply
	if f.unconfirmed {
		reply.Err = job.ErrDurability
	}
	for _, r := range records {
		key := r.Definition.Key
		if f.ShardOf(key) != shard {
			panic("record in the wrong shard")
		}
		old, ok := f.records[key]
		switch {
		case f.vanishing:
			reply.Results = append(reply.Results, job.CreateResult{Code: job.Exists})
		case ok && old.State.Deleting:
			reply.Results = append(reply.Results, job.CreateResult{Code: job.Tombstone})
		case ok:
			reply.Results = append(reply.Results, job.CreateResult{Code: job.Exists, Existing: &old})
		default:
			f.records[key] = r
			reply.Results = append(reply.Results, job.CreateResult{Code: job.Created})
			reply.Earlier = append(reply.Earlier, job.LaneHead{Lane: r.State.Lane, DueMS: r.IndexMS})
		}
	}
	return reply
}

func (f *fake) Get(_ context.Context, keys []job.Key) ([]*job.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*job.Record, len(keys))
	for i, k := range keys {
		if r, ok := f.records[k]; ok {
			out[i] = &r
		}
	}
	return out, f.err
}

func (f *fake) List(_ context.Context, namespace, cursor string, budget int) ([]job.Record, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []job.Record
	for _, r := range f.records {
		if r.Definition.Namespace == namespace {
			all = append(all, r)
		}
	}
	// By the reversed id, so that chunks are not sorted by id.
	slices.SortFunc(all, func(a, b job.Record) int { return strings.Compare(reversed(a), reversed(b)) })
	from, _ := strconv.Atoi(cursor)
	to := min(from+budget, len(all))
	next := ""
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	return all[from:to], next, f.err
}

func reversed(r job.Record) string {
	b := []byte(r.Definition.ID)
	slices.Reverse(b)
	return string(b)
}

func (f *fake) Runs(_ context.Context, key job.Key, limit int) ([]job.Run, error) {
	h := f.history[key]
	return h[:min(len(h), limit)], f.err
}

func (f *fake) Do(_ context.Context, changes ...job.Change) []job.ChangeResult {
	var out []job.ChangeResult
	for _, c := range changes {
		if m := f.meddle; m != nil {
			f.meddle = nil
			m()
		}
		out = append(out, f.do(c))
	}
	return out
}

func (f *fake) do(c job.Change) job.ChangeResult {
	f.mu.Lock()
	defer f.mu.Unlock()
	key, _, _ := job.ParseRecord(c.Record)
	r, ok := f.records[key]
	if f.err != nil || !ok {
		return job.ChangeResult{Err: firstOf(f.err, job.ErrNotFound)}
	}
	compiled, err := job.Compile(r.Definition)
	if err != nil {
		return job.ChangeResult{Err: err}
	}
	d := job.Decide(compiled, r.State, c.Event, f.now)
	f.notices = append(f.notices, d.Notices...)
	if d.Delete {
		delete(f.records, key)
		return job.ChangeResult{Answer: d.Answer, Deleted: true}
	}
	r.State = d.State
	if d.Definition != nil {
		r.Definition = *d.Definition
	}
	if d.Ended != nil {
		f.history[key] = append([]job.Run{*d.Ended}, f.history[key]...)
	}
	f.records[key] = r
	return job.ChangeResult{Answer: d.Answer, Record: r}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// lease makes the record live, as a leasing script does.
func (f *fake) lease(key job.Key, token uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.records[key]
	r.State = r.State.Leased(token)
	f.records[key] = r
}

func (f *fake) Observe(n []job.Notice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notices = append(f.notices, n...)
}

func (f *fake) Nudge(_ int, heads []job.LaneHead, _ string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nudged = append(f.nudged, heads...)
}

func (f *fake) CancelAttempt(_ string, token uint64) { f.cancelled = append(f.cancelled, token) }

func definition(id string) job.Definition {
	d := job.WithDefaults(job.Definition{
		Key:      job.Key{Namespace: "default", ID: id},
		Handler:  "http",
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
	})
	d.Priority, d.HistoryLimit = job.DefaultPriority, job.DefaultHistoryLimit
	return d
}
