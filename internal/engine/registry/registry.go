package registry

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Store is what the registry needs of the store.
type Store interface {
	ShardOf(job.Key) int
	// Now is the clock of a shard, Unix milliseconds.
	Now(ctx context.Context, shard int) (int64, error)
	Create(ctx context.Context, batches []job.CreateBatch) []job.CreateReply
	Get(ctx context.Context, keys []job.Key) ([]*job.Record, error)
	List(ctx context.Context, namespace, cursor string, budget int) ([]job.Record, string, error)
	// GetRecords reads records of one shard, children too; nil is none.
	GetRecords(ctx context.Context, shard int, records []job.RecordID) ([]*job.Record, error)
	Runs(ctx context.Context, key job.Key, historyLimit int) ([]job.Run, error)
	// Snapshots reads jobs of one shard with all that belongs to them; nil is none.
	Snapshots(ctx context.Context, shard int, jobs []job.Record) ([]*job.Snapshot, error)
	// Restore writes jobs of one shard with all that belongs to them.
	Restore(ctx context.Context, shard int, jobs []job.Restoration) job.CreateReply
	// ListLetters walks the dead letters of a namespace as List does its jobs.
	ListLetters(ctx context.Context, namespace, cursor string, budget int) ([]job.Letter, string, error)
	// Worst and Overdue list the worst of some shards, as far as indexes know; Unrank
	// takes off what is out of date.
	Worst(ctx context.Context, shards []int, which job.Worst, namespace string, n int) ([]job.Ranked, error)
	Overdue(ctx context.Context, shards []int, namespace string, n int) ([]job.Ranked, error)
	Unrank(ctx context.Context, which job.Worst, entries []job.Ranked) error
	Shards() int
	// DefinitionBytes is how many bytes a definition takes when it is stored.
	DefinitionBytes(d *job.Definition) int
	Limits
}

// Limits is what shards share: settings of queues, circuits of targets, units.
type Limits interface {
	ReadCells(ctx context.Context, names []string) []job.CellReply
	// Room is how many units of a limit are free.
	Room(ctx context.Context, name string, limit int) (int, error)
	// ReadQueueSettings reads the settings of one queue; zero where it has none.
	ReadQueueSettings(ctx context.Context, q job.QueueKey) (job.QueueSettings, error)
	PutQueueSettings(ctx context.Context, q job.QueueKey, s job.QueueSettings) error
	// SwapQueueSettings replaces settings that are still old.
	SwapQueueSettings(ctx context.Context, q job.QueueKey, old, s job.QueueSettings) error
}

// Cluster tells what an explanation needs to know beside what is stored: who holds
// a shard, and the workers that serve a queue.
type Cluster interface {
	Facts(ctx context.Context, shard int, q job.QueueKey) job.Facts
}

// Ledger takes changes and answers when they are stored.
type Ledger interface {
	Do(ctx context.Context, changes ...job.Change) []job.ChangeResult
}

// Observer hears of what happened. It must not block.
type Observer interface{ Observe([]job.Notice) }

// Nudger tells the holder of a shard that lanes became due earlier. It must not
// block.
type Nudger interface {
	Nudge(shard int, heads []job.LaneHead, holder string)
}

// Canceller tells the node of the worker that runs an attempt to cancel it. It
// must not block and may be wrong about where that is: the state carries the
// wish as well.
type Canceller interface {
	CancelAttempt(record job.RecordID, token uint64)
}

// Options configure a Registry. Store and Ledger are required.
type Options struct {
	Store  Store
	Ledger Ledger
	// Limits that are not set are those of [job.DefaultLimits].
	Limits    job.Limits
	Observer  Observer
	Nudger    Nudger
	Canceller Canceller
	// Cluster may be nil: explanations then say nothing of holders and workers.
	Cluster Cluster
	// Quota bounds the jobs of namespaces, and ByteQuota the bytes of these; nil bounds none.
	Quota, ByteQuota Quota
	// Queues are those that the caller of a context may reach. What is done for that caller is
	// done to jobs of these queues, as they are at the instant of the change; others are missing.
	// May be nil: everybody may reach all.
	Queues func(context.Context) job.QueueScope
	// Sealer seals payloads; nil leaves them as they are.
	Sealer Sealer
	// CheckPayload finds what is wrong with a payload of a handler; paths are within the payload, "" is
	// all of it. It may be nil: payloads are the business of handlers alone.
	CheckPayload func(handler string, payload []byte) []job.Violation
	// Caller is the sampled trace context of a call; nil: it has none. May be nil:
	// nobody traces.
	Caller func(context.Context) *job.Trace
	// TraceID is the trace of a job's run, nil if it is not traced. May be nil: nobody
	// traces.
	TraceID func(*job.Definition, *job.Run) *job.TraceID
	// BeginWrite is asked before anything is stored for a call. It answers false when the call has
	// been answered that nothing was stored: then nothing is. It may be nil, and must not block.
	BeginWrite func(context.Context) bool
	// SettingsChanged hears that settings of a queue were stored. It may be nil, and
	// must not block.
	SettingsChanged func()
	// ScanTime is how long one page looks for records before it ends as it is. Default
	// 50 ms.
	ScanTime time.Duration
	// BulkTime is after how long a call that changes many jobs begins no more of them.
	// Default 500 ms.
	BulkTime time.Duration
	Logger   *slog.Logger
}

// Registry manages jobs. It has no goroutines of its own beyond those of a call.
type Registry struct{ o Options }

// New makes a registry.
func New(o Options) (*Registry, error) {
	if o.Store == nil || o.Ledger == nil {
		return nil, errors.New("registry: Store and Ledger are required")
	}
	o.Limits = o.Limits.WithDefaults()
	o.ScanTime, o.BulkTime = cmp.Or(o.ScanTime, defaultScanTime), cmp.Or(o.BulkTime, defaultBulkTime)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Registry{o: o}, nil
}

func (r *Registry) observe(notices []job.Notice) {
	if r.o.Observer != nil && len(notices) > 0 {
		r.o.Observer.Observe(notices)
	}
}

// caller is the trace context that what a call leads to remembers.
func (r *Registry) caller(ctx context.Context) *job.Trace {
	if r.o.Caller == nil {
		return nil
	}
	return r.o.Caller(ctx)
}

// traced notes the traces of a job's runs.
func (r *Registry) traced(d *job.Definition, views ...job.RunView) []job.RunView {
	if r.o.TraceID != nil {
		for i := range views {
			views[i].TraceID = r.o.TraceID(d, &views[i].Run)
		}
	}
	return views
}

func (r *Registry) nudge(shard int, heads []job.LaneHead, holder string) {
	if r.o.Nudger != nil && len(heads) > 0 {
		r.o.Nudger.Nudge(shard, heads, holder)
	}
}

// reach is the queues that the caller may reach; nil: all.
func (r *Registry) reach(ctx context.Context) job.QueueScope {
	if r.o.Queues == nil {
		return nil
	}
	return r.o.Queues(ctx)
}

// Get returns a job that the caller may reach, or a [job.MissingError].
func (r *Registry) Get(ctx context.Context, key job.Key) (job.Record, error) {
	if v := job.ValidateKey(key); len(v) > 0 {
		return job.Record{}, &job.InvalidError{Violations: v}
	}
	records, err := r.o.Store.Get(ctx, []job.Key{key})
	if err != nil {
		return job.Record{}, err
	}
	if len(records) != 1 || records[0] == nil || records[0].State.Deleting || !r.reach(ctx).Holds(records[0].Definition) {
		return job.Record{}, &job.MissingError{Key: key}
	}
	return *records[0], nil
}

// change hands one event to the ledger. known, when set, saves a read.
func (r *Registry) change(ctx context.Context, key job.Key, ev job.Event, known *job.Record) (job.ChangeResult, error) {
	if v := job.ValidateKey(key); len(v) > 0 {
		return job.ChangeResult{}, &job.InvalidError{Violations: v}
	}
	return r.submit(ctx, key, job.Change{Record: key.Record(), Event: ev, Known: known})
}

// submit hands a change of the job or of one of its parts to the ledger, if the caller may reach
// the job.
func (r *Registry) submit(ctx context.Context, key job.Key, c job.Change) (job.ChangeResult, error) {
	c.Covers = r.reach(ctx)
	result := r.commit(ctx, c)[0]
	switch {
	case errors.Is(result.Err, job.ErrNotFound):
		return result, &job.MissingError{Key: key}
	case result.Err != nil:
		return result, result.Err
	case !result.Deleted && result.Record.State.Deleting && !isDelete(c.Event):
		return result, &job.MissingError{Key: key}
	}
	return result, nil
}

// commit hands the changes of a call to the ledger and waits for the results.
func (r *Registry) commit(ctx context.Context, changes ...job.Change) []job.ChangeResult {
	begin := func() bool { return r.beginWrite(ctx) }
	for i := range changes {
		changes[i].Begin = begin
	}
	return r.o.Ledger.Do(ctx, changes...)
}

// beginWrite notes that something is about to be stored for a call.
func (r *Registry) beginWrite(ctx context.Context) bool {
	return r.o.BeginWrite == nil || r.o.BeginWrite(ctx)
}

// now is the clock of the job's shard.
func (r *Registry) now(ctx context.Context, key job.Key) (int64, error) {
	return r.o.Store.Now(ctx, r.o.Store.ShardOf(key))
}

func isDelete(ev job.Event) bool {
	_, ok := ev.(job.Delete)
	return ok
}
