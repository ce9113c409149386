package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/lease"
)

// Store is what the ledger needs of the store.
type Store interface {
	Shards() int
	ShardOf(job.Key) int
	Now(ctx context.Context, shard int) (int64, error)
	// Latest bounds from above what the clock of a shard shows, which Now was asked for.
	Latest(shard int) lease.Latest
	GetRecords(ctx context.Context, shard int, records []string) ([]*job.Record, error)
	// Apply keeps nothing of the writes: their memory is used again.
	Apply(ctx context.Context, shard int, writes []job.Write) job.ApplyReply
	// Confirm answers nil when what the shard holds by now is as durable as the
	// class in force demands.
	Confirm(ctx context.Context, shard int) error
}

// Observer hears of what happened. It must not block, and keeps nothing of the slice, whose
// memory is used again.
type Observer interface{ Observe([]job.Notice) }

// Tracer makes the spans of what has ended, and notes the trace in the notices. It
// must not block.
type Tracer interface {
	Decided(d *job.Definition, before *job.State, ev job.Event, ended *job.Run, notices []job.Notice)
}

// Nudger tells the holder of a shard that lanes became due earlier. It must not
// block.
type Nudger interface {
	Nudge(shard int, heads []job.LaneHead, holder string)
}

// Options configure a Ledger. Store, Observer and Nudger are required.
type Options struct {
	Store    Store
	Observer Observer
	Nudger   Nudger
	// Tracer hears of decisions before Observer does; nil: nobody traces.
	Tracer Tracer
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

// Ledger commits changes. Make one with New, end it with Stop.
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

// shardQueue holds what waits for the shard's next batch.
type shardQueue struct {
	pending []*entry
	busy    bool
}

// entry is one change on its way.
type entry struct {
	job.Change
	job    string // record of the job: of its parent, if there is one
	answer func(job.ChangeResult)
	group  *group // takes the answer if nobody else does
	nth    int    // in the group's submission
	tries  int
	until  time.Time // it is given up then; zero: it has had no round
	// fresh: Known was read in this commit.
	fresh bool
	// paired: it is decided on the record and its parent, which is always read.
	paired bool
	parent *job.Record
}

// forget asks for a fresh look at what is stored.
func (e *entry) forget() { e.Known, e.parent = nil, nil }

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
// must not block. A change of a record that cannot be parsed answers ErrNotFound.
func (l *Ledger) Submit(c job.Change, done func(job.ChangeResult)) {
	key, child, ok := job.ParseRecord(c.Record)
	if !ok {
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
	l.queue(shard, &entry{Change: c, job: jobOf(c.Record, key), answer: done, paired: paired(child, c.Event)})
	l.mu.Unlock()
}

// queue puts an entry in line. The caller holds the mutex.
func (l *Ledger) queue(shard int, e *entry) {
	q := &l.mu.queues[shard]
	q.pending = append(q.pending, e)
	if !q.busy && len(q.pending) == 1 {
		l.mu.ready = append(l.mu.ready, shard)
		l.wake.Signal()
	}
}

// jobOf is the record of the job that a record belongs to: how it begins.
func jobOf(record string, key job.Key) string { return record[:len(key.Namespace)+1+len(key.ID)] }

// Do submits changes and waits for their results, which come in the order of the
// changes. When ctx ends first, the changes still on their way answer its error;
// they may take effect all the same, unless their Begin refuses.
func (l *Ledger) Do(ctx context.Context, changes ...job.Change) []job.ChangeResult {
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

// Stop refuses new changes, commits what waits and returns when all is answered.
func (l *Ledger) Stop() {
	l.mu.Lock()
	l.mu.closed = true
	l.wake.Broadcast()
	l.mu.Unlock()
	l.wg.Wait()
}

// slowBatch is when a committer is not counted on any more.
const slowBatch = 100 * time.Millisecond

// commitLoop takes one shard's batch after the other until the ledger is closed
// and empty.
//
// A committer may be held up for as long as Timeout by a Redis server that is
// away. After slowBatch another one takes its place, so that the shards of other
// servers need not wait; it retires when it is done. As a shard has one batch in
// flight, there are never more committers than Committers and shards together.
func (l *Ledger) commitLoop() {
	c := committer{Ledger: l, seen: make(map[string]struct{}, l.o.MaxBatch)}
	for {
		shard, batch, ok := l.take()
		if !ok {
			return
		}
		replaced := make(chan struct{})
		standIn := time.AfterFunc(slowBatch, func() {
			l.wg.Go(l.commitLoop)
			close(replaced)
		})
		l.release(shard, c.commit(shard, batch))
		if !standIn.Stop() {
			<-replaced
			return
		}
	}
}

func (l *Ledger) take() (int, []*entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.mu.ready) == 0 {
		if l.mu.closed && l.idle() {
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

// idle tells whether no batch can follow: nothing waits behind one in flight.
func (l *Ledger) idle() bool {
	for i := range l.mu.queues {
		if len(l.mu.queues[i].pending) > 0 {
			return false
		}
	}
	return true
}

// release ends a shard's batch while some of its changes are left.
func (l *Ledger) release(shard int, left []*entry) {
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
