package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// Latest is an upper bound of a shard's clock, for which Now was called.
	Latest(shard int) lease.ClockBound
	GetRecords(ctx context.Context, shard int, records []job.RecordID) ([]*job.Record, error)
	// Apply keeps nothing of the writes: their memory is used again.
	Apply(ctx context.Context, shard int, writes []job.Write) job.ApplyReply
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
}

// ErrClosed answers changes that arrive after Stop. Another node can take them.
var ErrClosed = fmt.Errorf("ledger is closed: %w", job.ErrUnavailable)

// Ledger commits changes. Call New, and Stop at the end.
type Ledger struct {
	o       Options
	metrics *metrics
	cache   *compiledCache

	mu struct {
		sync.Mutex
		queues []shardQueue
		ready  []int // shards with pending changes and no batch in flight
		closed bool
	}
	wake *sync.Cond
	wg   sync.WaitGroup
}

// shardQueue has the changes for the shard's next batch.
type shardQueue struct {
	pending []*changeEntry
	busy    bool
}

// changeEntry is one change in progress.
type changeEntry struct {
	job.Change
	jobRecord job.RecordID // record of the job: of its parent, if there is one
	answer    func(job.ChangeResult)
	group     *changeGroup // takes the answer if there is no done
	index     int          // in the group's submission
	tries     int
	deadline  time.Time // it expires then; zero: it has had no round
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
func (l *Ledger) Submit(c job.Change, done func(job.ChangeResult)) {
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
		needsParent: needsParent(c.Record, c.Input)})
	l.mu.Unlock()
}

// enqueue queues an entry. The caller holds the mutex.
func (l *Ledger) enqueue(shard int, e *changeEntry) {
	q := &l.mu.queues[shard]
	q.pending = append(q.pending, e)
	if !q.busy && len(q.pending) == 1 {
		l.mu.ready = append(l.mu.ready, shard)
		l.wake.Signal()
	}
}

// SubmitAndWait submits changes and waits for their results, which come in the order of the
// changes. When ctx ends first, the changes still on their way answer its error;
// they may take effect all the same, unless their Begin refuses.
func (l *Ledger) SubmitAndWait(ctx context.Context, changes ...job.Change) []job.ChangeResult {
	type indexed struct {
		i int
		r job.ChangeResult
	}
	answers := make(chan indexed, len(changes))
	for i, c := range changes {
		l.Submit(c, func(r job.ChangeResult) { answers <- indexed{i, r} })
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

// commitLoop commits one shard's batch after the other until the ledger is closed and empty.
//
// A Redis server that is down may block a committer for Timeout. After slowBatch another one
// takes its place, so that the shards of other servers need not wait; it retires when it is
// done. A shard has one batch in flight, so there are never more committers than Committers
// and shards together.
func (l *Ledger) commitLoop() {
	c := committer{Ledger: l, seen: make(map[job.RecordID]struct{}, l.o.MaxBatch)}
	for {
		shard, batch, ok := l.nextBatch()
		if !ok {
			return
		}
		replaced := make(chan struct{})
		standIn := time.AfterFunc(slowBatch, func() {
			l.wg.Go(l.commitLoop)
			close(replaced)
		})
		l.releaseShard(shard, c.commitRound(shard, batch))
		if !standIn.Stop() {
			<-replaced
			return
		}
	}
}

func (l *Ledger) nextBatch() (int, []*changeEntry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.mu.ready) == 0 {
		if l.mu.closed && l.isIdle() {
			return 0, nil, false
		}
		l.wake.Wait()
	}
	shard := l.mu.ready[0]
	l.mu.ready = l.mu.ready[1:]
	q := &l.mu.queues[shard]
	q.busy = true
	n := min(len(q.pending), l.o.MaxBatch)
	batch := q.pending[:n:n]
	q.pending = q.pending[n:]
	return shard, batch, true
}

// isIdle reports whether no batch can follow: no change waits behind one in flight.
func (l *Ledger) isIdle() bool {
	for i := range l.mu.queues {
		if len(l.mu.queues[i].pending) > 0 {
			return false
		}
	}
	return true
}

// releaseShard ends a shard's batch; left are its unanswered changes.
func (l *Ledger) releaseShard(shard int, left []*changeEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := &l.mu.queues[shard]
	q.busy = false
	if len(left) > 0 {
		q.pending = append(left, q.pending...)
	}
	switch {
	case len(q.pending) > 0:
		l.mu.ready = append(l.mu.ready, shard)
		l.wake.Signal()
	default:
		q.pending = nil
		if l.mu.closed {
			l.wake.Broadcast()
		}
	}
}
