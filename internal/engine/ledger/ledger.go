package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Store has the methods of the store that the ledger needs.
type Store interface {
	Shards() int
	ShardOf(job.Key) int
	Now(ctx context.Context, shard int) (unixtime.Milli, error)
	// NowIsKnown reports whether Now answers without asking Redis.
	NowIsKnown(shard int) bool
	// Latest is an upper bound of a shard's clock, for which Now was called.
	Latest(shard int) lease.ClockBound
	GetRecords(ctx context.Context, shard int, records []job.RecordID) ([]*job.Record, error)
	// Apply keeps nothing of the writes: their memory is used again.
	Apply(ctx context.Context, shard int, writes []job.Write) job.ApplyReply
	// ApplyMany is Apply for several shards together. It calls done once for each request, with its index, as soon as
	// its reply is known, on any goroutines, and then returns.
	ApplyMany(ctx context.Context, requests []job.ShardWrites, done func(int, job.ApplyReply))
	// Confirm returns nil when everything that the shard holds by now is as durable as the current class
	// demands.
	Confirm(ctx context.Context, shard int) error
}

// Observer receives notices of what happened. It must not block, and must not keep the slice, whose memory is
// reused.
type Observer interface{ Observe([]job.Notice) }

// Tracer makes the spans of ended attempts and runs, and notes the trace in the notices. It must not block.
type Tracer interface {
	RecordDecision(d *job.Definition, before *job.State, ev job.Input, ended *job.Run, notices []job.Notice)
}

// LaneNotifier notifies the holder of a shard that lanes became due earlier. It must not block.
type LaneNotifier interface {
	Nudge(shard int, heads []job.LaneHead, holder string)
}

// Options configure a Ledger. Store, Observer and Nudger are required.
type Options struct {
	Store    Store
	Observer Observer
	Nudger   LaneNotifier
	// Tracer receives decisions before Observer does; nil: no run is traced.
	Tracer Tracer
	// Full reports whether a namespace has used up its bytes: the runs of its jobs are then
	// kept in no history, and as no dead letters. It is asked for each change, and has to be
	// cheap. May be nil: none is ever full.
	Full func(namespace string) bool
	// Revisions is how many earlier definitions a job keeps, up to job.MaxRevisions; 0: none. A job of a full namespace
	// gets no further ones.
	Revisions int
	// Committers is the number of batches in flight at once, without those that
	// take long. Default 8.
	Committers int
	// MaxBatch bounds the changes of one batch. Default 200.
	MaxBatch int
	// Timeout bounds the rounds of a change from its first one on, retries of the store included. Default 5 s.
	Timeout    time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	decisionTime time.Duration // default: maxDecisionTime
}

// ErrClosed answers changes that arrive after Stop. Another node can take them.
var ErrClosed = fmt.Errorf("ledger is closed: %w", job.ErrUnavailable)

// Ledger commits changes. Call New, and Stop at the end.
type Ledger struct {
	o       Options
	metrics *metrics
	cache   *compiledCache
	sizes   definitionSizes

	mu struct {
		sync.Mutex
		queues []shardQueue
		ready  []int // shards with pending changes and no batch in flight
		// waking: a committer was woken, and none has taken a batch since. The one that does wakes the next one if
		// it leaves something.
		waking   bool
		inFlight int // batches
		closed   bool
	}
	wake *sync.Cond
	wg   sync.WaitGroup
}

// shardQueue has the changes for the shard's next batch.
type shardQueue struct {
	pending []*changeEntry
	busy    bool
	// repeats is how many changes were left by the last batch, or passed over for it, because they wait for another
	// change of their job.
	repeats int
}

// changeEntry is one change in progress.
type changeEntry struct {
	job.Change
	jobRecord job.RecordID // record of the job: of its parent, if there is one
	answer    func(job.ChangeResult)
	group     *changeGroup // takes the answer if there is no done
	index     int          // in the group's submission
	tries     int
	deadline  time.Time       // it expires then; zero: it has had no round
	callEnded <-chan struct{} // closed when nobody waits for the answer any more; nil: somebody does
	// knownFresh: Known was read in this commit.
	knownFresh bool
	// needsParent: it is decided on the record and its parent, which is always read.
	needsParent bool
	parent      *job.Record
}

// forgetKnown makes the next round read the record again.
func (e *changeEntry) forgetKnown() { e.Known, e.parent = nil, nil }

// New starts a ledger.
func New(o Options) *Ledger {
	if o.Committers <= 0 {
		o.Committers = 8
	}
	if o.MaxBatch <= 0 {
		o.MaxBatch = 200
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	if o.decisionTime <= 0 {
		o.decisionTime = maxDecisionTime
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Ledger{o: o, metrics: newMetrics(o.Registerer), cache: newCompiledCache(cacheSize)}
	l.mu.queues = make([]shardQueue, o.Store.Shards())
	l.wake = sync.NewCond(&l.mu)
	for range o.Committers {
		l.wg.Go(l.commitLoop)
	}
	return l
}

// Submit queues a change. done is called once, on a goroutine of the ledger, and
// must not block. A change of a record with an invalid id answers ErrNotFound.
func (l *Ledger) Submit(c job.Change, done func(job.ChangeResult)) { l.submit(c, nil, done) }

func (l *Ledger) submit(c job.Change, callEnded <-chan struct{}, done func(job.ChangeResult)) {
	key := c.Record.Key()
	if key == (job.Key{}) {
		done(job.ChangeResult{Err: job.ErrNotFound})
		return
	}
	shard := l.o.Store.ShardOf(key)
	l.mu.Lock()
	if l.mu.closed {
		l.mu.Unlock()
		done(job.ChangeResult{Err: ErrClosed})
		return
	}
	l.enqueue(shard, &changeEntry{Change: c, jobRecord: c.Record.Job(), answer: done,
		needsParent: needsParent(c.Record, c.Input), callEnded: callEnded})
	l.mu.Unlock()
}

// enqueue queues an entry. The caller holds the mutex.
func (l *Ledger) enqueue(shard int, e *changeEntry) {
	q := &l.mu.queues[shard]
	q.pending = append(q.pending, e)
	if !q.busy && len(q.pending) == 1 {
		l.mu.ready = append(l.mu.ready, shard)
		l.wakeCommitter()
	}
}

// wakeCommitter wakes a committer if any shard is ready. The caller holds the mutex.
func (l *Ledger) wakeCommitter() {
	if len(l.mu.ready) > 0 && !l.mu.waking {
		l.mu.waking = true
		l.wake.Signal()
	}
}

// SubmitAndWait submits changes and waits for their results, which come in the order of the
// changes. When ctx ends first, the changes still on their way answer its error. Those in the present round may take
// effect all the same, unless their Begin refuses; the others are dropped, so that calls that have ended delay nobody.
func (l *Ledger) SubmitAndWait(ctx context.Context, changes ...job.Change) []job.ChangeResult {
	type indexed struct {
		i int
		r job.ChangeResult
	}
	answers := make(chan indexed, len(changes))
	for i, c := range changes {
		l.submit(c, ctx.Done(), func(r job.ChangeResult) { answers <- indexed{i, r} })
	}
	results := make([]job.ChangeResult, len(changes))
	for i := range results {
		results[i].Err = context.Canceled
	}
	for range changes {
		select {
		case a := <-answers:
			results[a.i] = a.r
		case <-ctx.Done():
			for i := range results {
				if errors.Is(results[i].Err, context.Canceled) {
					results[i].Err = context.Cause(ctx)
				}
			}
			return results
		}
	}
	return results
}

// Stop refuses new changes, commits the waiting ones, and returns when all are answered.
func (l *Ledger) Stop() {
	l.mu.Lock()
	l.mu.closed = true
	l.wake.Broadcast()
	l.mu.Unlock()
	l.wg.Wait()
}

// slowBatch is the time after which a committer no longer counts as available.
const slowBatch = 100 * time.Millisecond

// shardBatch are the changes of a shard that are committed together.
type shardBatch struct {
	shard   int
	entries []*changeEntry
}

// commitLoop commits one batch of a shard, or of several, after the other until the ledger is closed and empty.
//
// A Redis server that is down may block a committer for Timeout. After slowBatch another one
// takes its place, so that the shards of other servers need not wait; it retires when it is
// done. A shard has one batch in flight, so there are never more committers than Committers
// and shards together.
func (l *Ledger) commitLoop() {
	c := committer{Ledger: l, seen: make(map[job.RecordID]struct{}, l.o.MaxBatch)}
	for {
		batches := l.nextBatches()
		if len(batches) == 0 {
			return
		}
		replaced := make(chan struct{})
		standIn := time.AfterFunc(slowBatch, func() {
			l.wg.Go(l.commitLoop)
			close(replaced)
		})
		if len(batches) == 1 {
			l.releaseShard(batches[0].shard, c.commitRound(batches[0]))
		} else {
			c.commitTogether(batches)
		}
		if !standIn.Stop() {
			<-replaced
			return
		}
	}
}

// nextBatches takes the batch of the first shard that is ready. If that batch is small, it also takes those of the
// other ready shards that are, and that are decided as fast. It returns none when the ledger is closed and no batch can
// follow.
func (l *Ledger) nextBatches() []shardBatch {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.mu.ready) == 0 {
		if l.mu.closed && l.mu.inFlight == 0 {
			return nil
		}
		l.wake.Wait()
	}
	batches := []shardBatch{l.takeBatch(l.mu.ready[0])}
	rest := l.mu.ready[1:]
	if l.isSmall(batches[0].entries, batches[0].shard) {
		batches, rest = l.takeSmallBatches(batches, rest)
	}
	l.mu.ready = rest
	l.mu.inFlight += len(batches)
	l.mu.waking = false // also if the signal found all committers busy
	l.wakeCommitter()
	return batches
}

// takeSmallBatches takes the small batches of the shards, and returns the shards that have others. Changes that may
// take long to decide do not go together with those that do not.
func (l *Ledger) takeSmallBatches(batches []shardBatch, ready []int) ([]shardBatch, []int) {
	left := ready[:0]
	long := mayTakeLong(batches[0].entries)
	for _, shard := range ready {
		pending := l.mu.queues[shard].pending
		if len(batches) < maxTogether && l.isSmall(pending, shard) && mayTakeLong(pending) == long {
			batches = append(batches, l.takeBatch(shard))
		} else {
			left = append(left, shard)
		}
	}
	return batches, left
}

func (l *Ledger) takeBatch(shard int) shardBatch {
	q := &l.mu.queues[shard]
	q.busy = true
	if q.repeats > l.o.MaxBatch/2 {
		return shardBatch{shard, q.takeOfEachJob(l.o.MaxBatch)}
	}
	q.repeats = 0
	n := min(len(q.pending), l.o.MaxBatch)
	batch := shardBatch{shard, q.pending[:n:n]}
	q.pending = q.pending[n:]
	return batch
}

// maxPassedOver bounds the changes that are passed over for a batch.
const maxPassedOver = 4096

// takeOfEachJob takes the first change of each job, up to n: the changes of a job that wait for one another leave no
// room for those of other jobs otherwise.
func (q *shardQueue) takeOfEachJob(n int) (batch []*changeEntry) {
	seen := make(map[job.RecordID]struct{}, n)
	var left []*changeEntry
	q.repeats = 0
	for i, e := range q.pending {
		if len(batch) == n || q.repeats == maxPassedOver {
			left = append(left, q.pending[i:]...)
			break
		}
		if _, found := seen[e.jobRecord]; found {
			left, q.repeats = append(left, e), q.repeats+1
			continue
		}
		seen[e.jobRecord] = struct{}{}
		batch = append(batch, e)
	}
	q.pending = left
	return batch
}

const (
	// smallBatch is the number of changes of a shard up to which they are committed together with those of other
	// shards. A larger batch has a pipeline of its own, so that several are on their way at once.
	smallBatch = 8
	// maxTogether bounds the shards whose batches are committed together.
	maxTogether = 64
)

// isSmall reports whether changes of a shard may be committed together with those of other shards: they are few, and
// nothing has to be read before they are decided, which would delay the others. None has had a round yet, so that all
// have the same deadline.
func (l *Ledger) isSmall(changes []*changeEntry, shard int) bool {
	if len(changes) > smallBatch || !l.o.Store.NowIsKnown(shard) {
		return false
	}
	for _, e := range changes {
		if e.Known == nil || e.needsParent || !e.deadline.IsZero() {
			return false
		}
	}
	return true
}

// mayTakeLong reports whether a change of a small batch needs a search over excluded times: its job has a schedule with
// exclusions.
func mayTakeLong(changes []*changeEntry) bool {
	return slices.ContainsFunc(changes, func(e *changeEntry) bool {
		update, edits := e.Input.(job.Update)
		return !e.Known.Definition.Schedule.Exclude.Empty() || edits && !update.New.Schedule.Exclude.Empty()
	})
}

// releaseShard ends a shard's batch; left are its unanswered changes.
func (l *Ledger) releaseShard(shard int, left []*changeEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.mu.queues[shard]
	q.busy = false
	q.repeats += len(left)
	l.mu.inFlight--
	if len(left) > 0 {
		q.pending = append(left, q.pending...)
	}
	if len(q.pending) > 0 {
		l.mu.ready = append(l.mu.ready, shard)
		l.wakeCommitter()
	} else {
		q.pending = nil
	}
	if l.mu.closed {
		l.wake.Broadcast()
	}
}
