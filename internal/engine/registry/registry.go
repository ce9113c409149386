package registry

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Store is what the registry needs of the store.
type Store interface {
	ShardOf(job.Key) int
	// Now returns the time of a shard, in Unix milliseconds.
	Now(ctx context.Context, shard int) (unixtime.Milli, error)
	Create(ctx context.Context, batches []job.CreateBatch) []job.CreateReply
	Get(ctx context.Context, keys []job.Key) ([]*job.Record, error)
	List(ctx context.Context, namespace, cursor string, budget int) ([]job.Record, string, error)
	// GetRecords reads records of one shard, also those of runs and dead letters; nil: there is no such record.
	GetRecords(ctx context.Context, shard int, records []job.RecordID) ([]*job.Record, error)
	Runs(ctx context.Context, key job.Key, historyLimit int) ([]job.Run, error)
	RecentRuns(ctx context.Context, records []job.Record, most int) ([][]job.Run, error)
	// RunPayloads reads the payloads that runs and dead letters of one shard have of their own; nil: it is not there. It
	// is called for records whose payload may be another one, too.
	RunPayloads(ctx context.Context, shard int, records []job.RecordID) ([]*job.RunPayload, error)
	// Snapshots reads jobs of one shard with their runs and dead letters; nil: there is no such job.
	Snapshots(ctx context.Context, shard int, jobs []job.Record) ([]*job.Snapshot, error)
	// Revisions reads the stored revisions of jobs of one shard, newest first: of the first jobs, at least of one.
	Revisions(ctx context.Context, shard int, jobs []job.RecordID) ([][]*job.Definition, error)
	// Restore writes jobs of one shard with their runs and dead letters.
	Restore(ctx context.Context, shard int, jobs []job.Restoration) job.CreateReply
	// ListDeadLetters lists the dead letters of a namespace as List does its jobs. It also returns how many bytes it
	// has read: of definitions, also of jobs without dead letters, and of results.
	ListDeadLetters(ctx context.Context, namespace, cursor string, budget int) ([]job.DeadLetter, string, int, error)
	// ReadDeadLetters reads the dead letters among some entries, and returns how many bytes it has read.
	ReadDeadLetters(ctx context.Context, entries []job.IndexEntry) (letters []job.DeadLetter, bytes int, err error)
	// RemoveRanked removes outdated entries of a ranking.
	RemoveRanked(ctx context.Context, which job.Ranking, entries []job.Ranked) error
	Shards() int
	// DefinitionBytes is how many bytes a definition takes when it is stored.
	DefinitionBytes(d *job.Definition) int
	// WrittenBytes and StoredBytes are how many bytes of a write, and of a stored job that has no live runs, a census
	// counts for the limit of a namespace.
	WrittenBytes(w *job.Restoration) job.WrittenBytes
	StoredBytes(j *job.StoredJob) int
	Index
	EndedRuns
	Renames
}

// Rankings list the n worst jobs, of some shards or, with a namespace, of all shards. Entries may be outdated.
type Rankings interface {
	ListRanked(ctx context.Context, shards []int, which job.Ranking, namespace string, n int) ([]job.Ranked, error)
	ListOverdue(ctx context.Context, shards []int, namespace string, n int) ([]job.Ranked, error)
	// ListFailing lists all failing jobs of a namespace, or of all. isFull: jobs may be missing.
	ListFailing(ctx context.Context, namespace string) (list []job.Ranked, isFull bool, err error)
}

// Lanes lists the lanes of the keyspace, and shares what it reads of them among callers.
type Lanes interface {
	// FindLanes lists lanes in the order of their due times. isCurrent: the list has all that were there when the call
	// began; otherwise lanes that are new may be missing.
	FindLanes(ctx context.Context, q job.LaneQuery) (lanes []job.ShardLane, isCurrent bool, err error)
}

// Limits is the state that shards share: settings of queues, circuits of targets, and units of limits.
type Limits interface {
	ReadCells(ctx context.Context, names []string) []job.CellReply
	SwapCells(ctx context.Context, swaps []job.CellSwap) []job.CellReply
	// ViewUnits reads the holders and waiters of limits, at most so many of each.
	ViewUnits(ctx context.Context, names []string, most int) []job.UnitsView
	// FreeUnits returns how many units of a limit are free.
	FreeUnits(ctx context.Context, name string, limit int) (int, error)
	// ReadQueueSettings reads the settings of one queue; zero where it has none.
	ReadQueueSettings(ctx context.Context, q job.QueueKey) (job.QueueSettings, error)
	// PutQueueSettings replaces the settings of a queue. New ones are part of the share of an identity; "": of none.
	PutQueueSettings(ctx context.Context, q job.QueueKey, s job.QueueSettings, identity string) error
	// SwapQueueSettings replaces the settings of a queue if they are still the old ones.
	SwapQueueSettings(ctx context.Context, q job.QueueKey, old, s job.QueueSettings, identity string) error
}

// Cluster returns the facts for an explanation that are not in the job's records: the holder of a shard, and
// the workers that serve a queue.
type Cluster interface {
	JobFacts(ctx context.Context, shard int, q job.QueueKey) job.Facts
}

// Ledger stores changes of jobs. Do returns when they are stored.
type Ledger interface {
	SubmitAndWait(ctx context.Context, changes ...job.Change) []job.ChangeResult
}

// Observer receives notices of what happened. It must not block.
type Observer interface{ Observe([]job.Notice) }

// LaneNotifier notifies the holder of a shard that lanes became due earlier. It must not block.
type LaneNotifier interface {
	Nudge(shard int, heads []job.LaneHead, holder string)
}

// AttemptCanceller notifies the node of the worker that runs an attempt to cancel it. It must not block. It may
// notify the wrong node: the cancellation is in the stored state as well.
type AttemptCanceller interface {
	CancelAttempt(record job.RecordID, token uint64)
}

// Options configure a Registry. Store, SharedLimits and Ledger are required.
type Options struct {
	Store        Store
	SharedLimits Limits
	Ledger       Ledger
	// Limits that are not set are those of [job.DefaultLimits].
	Limits    job.Limits
	Observer  Observer
	Nudger    LaneNotifier
	Canceller AttemptCanceller
	// WorkerOf returns the worker of this node that runs an attempt, or "". It may be nil: workers are unknown.
	WorkerOf func(record job.RecordID, token uint64) string
	// Rankings are required for TopJobs, and for lists of failing jobs.
	Rankings Rankings
	// Lanes are required for lists in an order. Without them other lists walk the jobs of all namespaces.
	Lanes Lanes
	// Cluster may be nil: explanations then have no holders and workers.
	Cluster Cluster
	// Quota limits the jobs of namespaces, and ByteQuota their bytes; nil: no limit.
	Quota, ByteQuota Quota
	// Queues returns the queues that the caller of a context may reach. Jobs that are in other queues at the
	// instant of a change are missing for that caller. It may be nil: all callers may reach all queues.
	Queues func(context.Context) job.QueueScope
	// QueueOwner returns the identity whose share the settings are part of that the caller of a context gives a queue; "":
	// of none. It may be nil: they are part of no share.
	QueueOwner func(context.Context) string
	// QueuePaused reports whether a whole queue is paused. It may be nil: none is.
	QueuePaused func(job.QueueKey) bool
	// Sealer seals payloads; nil leaves them as they are.
	Sealer Sealer
	// CheckPayload validates a payload of a handler; paths are within the payload, "" is the whole payload. It may
	// be nil: payloads are not validated.
	CheckPayload func(handler string, payload []byte) []job.Violation
	// NodesWithoutRunPayloads returns the nodes that would not deliver the payload that a run has of its own. It may be
	// nil: there are none.
	NodesWithoutRunPayloads func() []string
	// Caller returns the sampled trace context of a call; nil: it has none. Caller may be nil: there is no tracing.
	Caller func(context.Context) *job.Trace
	// TraceID returns the trace of a job's run, nil if it is not traced. TraceID may be nil: there is no tracing.
	TraceID func(*job.Definition, *job.Run) *job.TraceID
	// Edit describes the call of a context, for the revisions that it stores. It may be nil: calls are unknown.
	Edit func(context.Context) job.Edit
	// Revisions is how many earlier definitions a job that is replaced by a backup keeps; 0: none.
	Revisions int
	// BeginWrite is called before anything is stored for a call. It returns false if the caller was answered
	// already that nothing was stored: then nothing is stored. It may be nil, and must not block.
	BeginWrite func(context.Context) bool
	// NoteStored is called when changes were stored for a call, which may fail nevertheless: of these jobs, runs or
	// dead letters; none: something else was, or it is unknown which. It may be nil, and must not block.
	NoteStored func(ctx context.Context, changed []job.BulkTarget)
	// TokenKey signs the tokens of changes of many jobs; all nodes have the same. Default: a random one.
	TokenKey []byte
	// SettingsChanged is called when settings of a queue were stored. It may be nil, and must not block.
	SettingsChanged func()
	// ScanTime is the time after which a page ends early. Default 50 ms.
	ScanTime time.Duration
	// BulkTime is the time after which a call that changes many jobs submits no more changes. Default 500 ms.
	BulkTime time.Duration
	Logger   *slog.Logger
}

// Registry manages jobs. It has no goroutines except during a call.
type Registry struct {
	o                  Options
	schedules, lookups *namespaceTurns
}

// New makes a registry.
func New(o Options) (*Registry, error) {
	if o.Store == nil || o.SharedLimits == nil || o.Ledger == nil {
		return nil, errors.New("registry: Store, SharedLimits and Ledger are required")
	}
	o.Limits = o.Limits.WithDefaults()
	o.ScanTime, o.BulkTime = cmp.Or(o.ScanTime, defaultScanTime), cmp.Or(o.BulkTime, defaultBulkTime)
	if len(o.TokenKey) == 0 {
		o.TokenKey = []byte(rand.Text())
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Registry{o: o, schedules: newScheduleTurns(), lookups: newLookupTurns()}, nil
}

// observeNotices passes notices to the observer.
func (r *Registry) observeNotices(notices []job.Notice) {
	if r.o.Observer != nil && len(notices) > 0 {
		r.o.Observer.Observe(notices)
	}
}

// callerTrace returns the trace context of a call, which is stored with what the call causes.
func (r *Registry) callerTrace(ctx context.Context) *job.Trace {
	if r.o.Caller == nil {
		return nil
	}
	return r.o.Caller(ctx)
}

// addTraceIDs sets the trace ids of a job's runs.
func (r *Registry) addTraceIDs(d *job.Definition, views ...job.RunView) []job.RunView {
	if r.o.TraceID != nil {
		for i := range views {
			views[i].TraceID = r.o.TraceID(d, &views[i].Run)
		}
	}
	return views
}

// nudgeHolder notifies the holder of a shard that lanes became due earlier.
func (r *Registry) nudgeHolder(shard int, heads []job.LaneHead, holder string) {
	if r.o.Nudger != nil && len(heads) > 0 {
		r.o.Nudger.Nudge(shard, heads, holder)
	}
}

// reachableQueues returns the queues that the caller may reach; nil: all.
func (r *Registry) reachableQueues(ctx context.Context) job.QueueScope {
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
	if err == nil && len(records) == 1 && records[0] != nil && records[0].State.Rename != nil {
		if err := r.finishRenameOf(ctx, records[0]); err != nil {
			return job.Record{}, err
		}
		records, err = r.o.Store.Get(ctx, []job.Key{key})
	}
	if err != nil {
		return job.Record{}, err
	}
	if len(records) != 1 || records[0] == nil || records[0].State.Deleting ||
		!r.reachableQueues(ctx).Holds(records[0].Definition) {
		return job.Record{}, &job.MissingError{Key: key}
	}
	return *records[0], nil
}

// changeJob submits one event of a job to the ledger. known, if set, saves a read.
func (r *Registry) changeJob(ctx context.Context, key job.Key, ev job.Input, known *job.Record) (job.ChangeResult,
	error) {
	if v := job.ValidateKey(key); len(v) > 0 {
		return job.ChangeResult{}, &job.InvalidError{Violations: v}
	}
	return r.submitChange(ctx, key, job.Change{Record: key.Record(), Input: ev, Known: known})
}

// submitChange submits a change of the job, or of one of its runs, to the ledger. A job that the caller may
// not reach is missing.
func (r *Registry) submitChange(ctx context.Context, key job.Key, c job.Change) (job.ChangeResult, error) {
	c.Covers = r.reachableQueues(ctx)
	result := r.commitChanges(ctx, c)[0]
	switch {
	case errors.Is(result.Err, job.ErrNotFound):
		return result, &job.MissingError{Key: key}
	case result.Err != nil:
		return result, result.Err
	case result.Record.State.Rename != nil:
		return result, r.explainRename(ctx, &result.Record)
	case !result.Deleted && result.Record.State.Deleting && !isDelete(c.Input):
		return result, &job.MissingError{Key: key}
	}
	return result, nil
}

// commitChanges submits the changes of a call to the ledger and waits for their results.
func (r *Registry) commitChanges(ctx context.Context, changes ...job.Change) []job.ChangeResult {
	begin := func() bool { return r.beginWrite(ctx) }
	for i := range changes {
		changes[i].Begin = begin
	}
	results := r.o.Ledger.SubmitAndWait(ctx, changes...)
	r.noteResults(ctx, changes, results)
	return results
}

// noteResults notes what the ledger has stored for a call, or may have.
func (r *Registry) noteResults(ctx context.Context, changes []job.Change, results []job.ChangeResult) {
	var stored []job.BulkTarget
	mayBe := false
	for i := range results {
		switch result := &results[i]; {
		case result.Err != nil:
			mayBe = mayBe || mayBeStored(result.Err)
		case result.Changed:
			stored = append(stored, targetOf(&changes[i]))
		}
	}
	if len(stored) > 0 || mayBe {
		r.noteStored(ctx, stored...)
	}
}

// targetOf returns what a change is of: a job, a dead letter, or a run that is cancelled.
func targetOf(c *job.Change) job.BulkTarget {
	target := job.BulkTarget{Record: c.Record}
	if cancel, ok := c.Input.(job.CancelRun); ok {
		target.RunID = cancel.RunID
	}
	return target
}

// noteStored notes what was stored for a call; without a target: something else, or something that may be stored.
func (r *Registry) noteStored(ctx context.Context, changed ...job.BulkTarget) {
	if r.o.NoteStored != nil {
		r.o.NoteStored(ctx, changed)
	}
}

// beginWrite reports whether something may be stored for a call, and marks that it will be.
func (r *Registry) beginWrite(ctx context.Context) bool {
	return r.o.BeginWrite == nil || r.o.BeginWrite(ctx)
}

// shardNow returns the time of the job's shard, in Unix milliseconds.
func (r *Registry) shardNow(ctx context.Context, key job.Key) (unixtime.Milli, error) {
	return r.o.Store.Now(ctx, r.o.Store.ShardOf(key))
}

func isDelete(ev job.Input) bool {
	switch ev.(type) {
	case job.Delete, job.Discard:
		return true
	}
	return false
}
