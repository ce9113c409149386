package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

// Start is when the virtual clocks of all tests start.
const Start = int64(1_800_000_000_000)

const (
	lockTTL   = 30 * time.Second
	lockValue = "token-of-the-holder-xx|node-1|10.0.0.1:7000"
)

var prefixes atomic.Int64

// World is a keyspace of its own with what a test needs around it.
type World struct {
	T      testing.TB
	Client redis.UniversalClient
	Prefix string
	Store  *redisstore.Store
	Clock  atomic.Int64 // Unix ms
	audits bool
}

// NewWorld opens a store in a fresh keyspace with a virtual clock and a held lock
// for every shard. The keyspace is audited when the test ends.
func NewWorld(t testing.TB, client redis.UniversalClient, adjust ...func(*redisstore.Options)) *World {
	t.Helper()
	return NewWorldAt(t, client, fmt.Sprintf("t%d", prefixes.Add(1)), Start, adjust...)
}

// NewWorldAt is NewWorld for a keyspace that may be there already, and whose clocks
// are at an instant.
func NewWorldAt(t testing.TB, client redis.UniversalClient, prefix string,
	atMS int64, adjust ...func(*redisstore.Options)) *World {
	t.Helper()
	w := &World{T: t, Client: client, Prefix: prefix, audits: true}
	w.Clock.Store(atMS)
	w.Store = w.Open(adjust...)
	for shard := range w.Store.Shards() {
		w.SetLock(shard, lockValue)
	}
	t.Cleanup(func() {
		if w.audits && !t.Failed() {
			w.CheckConsistency()
		}
	})
	return w
}

// now is the time of the virtual clock.
func (w *World) now() unixtime.Milli { return unixtime.Milli(w.Clock.Load()) }

// Open opens another store on the same keyspace.
func (w *World) Open(adjust ...func(*redisstore.Options)) *redisstore.Store {
	w.T.Helper()
	// A machine that stands still for some seconds is not what is tested.
	o := redisstore.Options{Client: w.Client, Prefix: w.Prefix, Shards: 4, Virtual: w.now, OpTimeout: time.Minute}
	for _, f := range adjust {
		f(&o)
	}
	s, err := redisstore.Open(w.T.Context(), o)
	if err != nil {
		w.T.Fatalf("open: %v", err)
	}
	return s
}

// Damaged spares the keyspace the audit: the test breaks it on purpose.
func (w *World) Damaged() { w.audits = false }

// SetLock makes the shard's lock have a value.
func (w *World) SetLock(shard int, value string) {
	w.T.Helper()
	if err := w.Client.Set(w.T.Context(), w.Store.LockKey(shard), value, 0).Err(); err != nil {
		w.T.Fatalf("set lock: %v", err)
	}
}

// Advance moves the clock.
func (w *World) Advance(d time.Duration) int64 { return w.Clock.Add(d.Milliseconds()) }

// Key is one of a shard's keys, by its last part.
func (w *World) Key(shard int, name string) string {
	lockKey := w.Store.LockKey(shard)
	return lockKey[:len(lockKey)-len("lock")] + name
}

// Definition is a recurring job, every minute.
func Definition(id string) job.Definition {
	return job.Definition{
		Key: job.Key{Namespace: "ns", ID: id}, Queue: "mail", Priority: 5, Handler: "send",
		Payload:  []byte("payload of " + id),
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
		Retry:    backoff.Retry{Strategy: backoff.Fixed, Base: time.Second, MaxAttempts: 2},
		Backoff:  backoff.DefaultRecurring(), Timeout: 30 * time.Second, TimeoutGrace: 5 * time.Second,
		HistoryLimit: 3, Retention: time.Hour, DeadLetterTTL: 24 * time.Hour,
		Generation: 1, AnchorMS: unixtime.Milli(Start), Revision: 1,
		CreatedMS: unixtime.Milli(Start), CreateRequestID: "create-" + id,
	}
}

// Once makes it a job that runs once, at an offset from Start.
func Once(id string, at time.Duration) job.Definition {
	d := Definition(id)
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.UnixMilli(Start).Add(at).UTC()}
	return d
}

// Record is the first record of a definition.
func (w *World) Record(d job.Definition) job.Record {
	w.T.Helper()
	decision := job.New(w.compileDefinition(&d), unixtime.Milli(w.Clock.Load()))
	return job.Record{Definition: &d, State: decision.State, IndexMS: decision.IndexMS}
}

func (w *World) compileDefinition(d *job.Definition) *job.Compiled {
	w.T.Helper()
	c, err := job.Compile(d)
	if err != nil {
		w.T.Fatalf("compile %s: %v", d.ID, err)
	}
	return c
}

// Create stores new records of one shard.
func Create(ctx context.Context, s *redisstore.Store, shard int, records []job.Record) job.CreateReply {
	return s.Create(ctx, []job.CreateBatch{{Shard: shard, Records: records}})[0]
}

// Add creates jobs, each in its shard.
func (w *World) Add(definitions ...job.Definition) {
	w.T.Helper()
	byShard := map[int][]job.Record{}
	for _, d := range definitions {
		shard := w.Store.ShardOf(d.Key)
		byShard[shard] = append(byShard[shard], w.Record(d))
	}
	for shard, records := range byShard {
		reply := Create(w.T.Context(), w.Store, shard, records)
		if reply.Err != nil {
			w.T.Fatalf("create: %v", reply.Err)
		}
		for i, r := range reply.Results {
			if r.Code != job.Created {
				w.T.Fatalf("create %s: code %d", records[i].Definition.ID, r.Code)
			}
		}
	}
}

// InShard returns n ids whose jobs are in the shard.
func (w *World) InShard(shard, n int) []string {
	var ids []string
	for i := 0; len(ids) < n; i++ {
		id := fmt.Sprintf("job-%d", i)
		if w.Store.ShardOf(job.Key{Namespace: "ns", ID: id}) == shard {
			ids = append(ids, id)
		}
	}
	return ids
}

// Lane is the lane of Definition.
func Lane() job.Lane { return job.Lane{Namespace: "ns", Queue: "mail", Priority: 5} }

// LeaseRequest asks for n leases from a lane, or from Definition's.
func LeaseRequest(shard, n int, batch string, lanes ...job.Lane) job.LeaseRequest {
	r := job.LeaseRequest{Shard: shard, LockValue: lockValue, TTL: lockTTL, Batch: batch}
	if len(lanes) == 0 {
		lanes = []job.Lane{Lane()}
	}
	for _, l := range lanes {
		r.Quotas = append(r.Quotas, job.LaneQuota{Lane: l, N: n})
	}
	return r
}

// Lease leases up to n jobs of a shard from Definition's lane.
func (w *World) Lease(shard, n int) []job.Leased {
	w.T.Helper()
	reply := w.Store.Lease(w.T.Context(), []job.LeaseRequest{LeaseRequest(shard, n, "")})[0]
	if reply.Err != nil {
		w.T.Fatalf("lease: %v", reply.Err)
	}
	return reply.Leased
}

// keptRevisions is how many earlier definitions the jobs of the suite keep.
const keptRevisions = 3

// Decide is the write that an event on a record asks for.
func (w *World) Decide(record job.RecordID, d *job.Definition, s job.State, ev job.Input) job.Write {
	w.T.Helper()
	decision := job.Decide(w.compileDefinition(d), s, ev, unixtime.Milli(w.Clock.Load()))
	return job.Write{
		Record: record, Token: s.Token, Revision: s.Revision, From: s.Lane, Current: d, Revisions: keptRevisions,
		Decision: &decision,
	}
}

// DecideChild are the writes that an event on a run of its own, or on a dead letter,
// asks for: of the record and of its parent, which go together.
func (w *World) DecideChild(record job.RecordID, d *job.Definition, parent, child job.State, ev job.Input) []job.Write {
	w.T.Helper()
	pair := job.DecideChild(w.compileDefinition(d), parent, child, ev, unixtime.Milli(w.Clock.Load()))
	return []job.Write{
		{Record: record, Token: child.Token, Revision: child.Revision, From: child.Lane, Current: d, Decision: &pair.Child},
		{
			Record: record.Job(), Token: parent.Token, Revision: parent.Revision, From: parent.Lane, Current: d,
			Together: true, Decision: &pair.Parent,
		},
	}
}

// changedWrites leaves out what decides nothing.
func changedWrites(writes ...job.Write) []job.Write {
	var out []job.Write
	for _, w := range writes {
		if w.Decision.Changed {
			out = append(out, w)
		}
	}
	return out
}

// finish is the event that a lease ends with a result now.
func (w *World) finish(l job.Leased, outcome job.Outcome) job.FinishAttempt {
	return job.FinishAttempt{
		Token: l.Known.State.Token, Outcome: outcome, StartedMS: unixtime.Milli(w.Clock.Load()),
	}
}

// Settle is the write for the result of a lease.
func (w *World) Settle(l job.Leased, outcome job.Outcome) job.Write {
	w.T.Helper()
	ev := w.finish(l, outcome)
	ev.Worker = "w1"
	if outcome == job.OutcomeFailed {
		ev.Error = "no luck"
	}
	return w.Decide(l.Record, l.Known.Definition, l.Known.State, ev)
}

// Apply applies writes and wants an answer.
func (w *World) Apply(shard int, writes ...job.Write) job.ApplyReply {
	w.T.Helper()
	reply := w.Store.Apply(w.T.Context(), shard, writes)
	if reply.Err != nil {
		w.T.Fatalf("apply: %v", reply.Err)
	}
	return reply
}

// MustWrite applies writes, all of which must succeed.
func (w *World) MustWrite(shard int, writes ...job.Write) job.ApplyReply {
	w.T.Helper()
	reply := w.Apply(shard, writes...)
	for i, r := range reply.Results {
		if r.Code != job.Written {
			w.T.Fatalf("write of %s: code %d", writes[i].Record, r.Code)
		}
	}
	return reply
}

// Records reads records of shard 0; each has to exist.
func (w *World) Records(records ...job.RecordID) []*job.Record {
	w.T.Helper()
	found, err := w.Store.GetRecords(w.T.Context(), 0, records)
	if err != nil {
		w.T.Fatalf("get records: %v", err)
	}
	for i, r := range found {
		if r == nil {
			w.T.Fatalf("%s does not exist", records[i])
		}
	}
	return found
}

// Get reads a job.
func (w *World) Get(id string) *job.Record {
	w.T.Helper()
	records, err := w.Store.Get(w.T.Context(), []job.Key{{Namespace: "ns", ID: id}})
	if err != nil {
		w.T.Fatalf("get: %v", err)
	}
	return records[0]
}
