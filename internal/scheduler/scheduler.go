package scheduler

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/turns"
)

// Scheduler leases the due records of the shards that this node holds. Make one
// with New, run it with Run, once. Besides it only [Accepted.Lease] blocks.
type Scheduler struct {
	o       Options
	metrics *metrics
	// batches numbers the leasing calls. It starts at the time of start, so that a
	// restarted node of the same name does not repeat itself.
	batches atomic.Int64
	unread  chan struct{} // a shard was acquired whose lanes are not known yet
	// collectors repeat calls without answer.
	collectors sync.WaitGroup

	mu     sync.Mutex
	wake   *sync.Cond
	timer  *time.Timer
	wakeAt time.Time // what timer is set to; zero when it is not
	state
}

// state is guarded by Scheduler.mu.
type state struct {
	closed bool
	shards map[int]*shard
	flying map[int]struct{} // shards with a leasing call in flight
	// doubtful is how many calls of a shard under peers' permits are repeated.
	doubtful map[int]int
	backlog  backlog
	rooms    uint64 // how often LimitsChanged was called
	pace     pacer
	outlook  outlook
	peers    map[string]*peer
	permits  permits
	scans    int64       // rescans begun
	turns    turns.Turns // of the shards to be listed by one of them
	reaps    uint64      // periods of reaping
	sweeps   uint64      // and of sweeping
}

type queue struct{ namespace, name string }

// New returns a scheduler that holds nothing.
func New(o Options) (*Scheduler, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	s := &Scheduler{o: o, metrics: newMetrics(o.Registerer), unread: make(chan struct{}, 1)}
	s.wake = sync.NewCond(&s.mu)
	s.state = state{
		shards: make(map[int]*shard), flying: make(map[int]struct{}), doubtful: make(map[int]int), backlog: newBacklog(), outlook: near,
		peers: make(map[string]*peer), permits: permits{open: make(map[int64]*outstanding)},
	}
	s.batches.Store(time.Now().UnixNano())
	return s, nil
}

// Run leases until ctx ends, then returns when no call is in flight: at once, or
// after 3 s if Redis does not answer. It returns nil.
func (s *Scheduler) Run(ctx context.Context) error {
	s.mu.Lock()
	s.timer = time.AfterFunc(time.Hour, s.ring)
	s.mu.Unlock()
	var wg sync.WaitGroup
	for range s.o.Leasers {
		wg.Go(func() { s.leaseLoop(ctx) })
	}
	wg.Go(func() { s.every(ctx, s.o.Rescan, func(ctx context.Context) { s.rescan(ctx, true) }) })
	wg.Go(func() { s.readLoop(ctx) })
	wg.Go(func() { s.every(ctx, s.o.Reap, s.reap) })
	wg.Go(func() { s.every(ctx, s.o.Sweep, s.sweep) })
	wg.Go(func() { s.every(ctx, s.o.Reap, s.findLate) })
	<-ctx.Done()
	s.mu.Lock()
	s.closed = true
	s.timer.Stop()
	s.wake.Broadcast()
	s.mu.Unlock()
	wg.Wait()
	s.collectors.Wait()
	return nil
}

// every calls f once a period until ctx ends.
func (s *Scheduler) every(ctx context.Context, period time.Duration, f func(context.Context)) {
	until := func() time.Duration { return s.o.Cadence.Until(time.Now(), period) }
	t := time.NewTimer(until())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f(ctx)
			t.Reset(until())
		}
	}
}

// await waits until there are calls to make; false when the scheduler closes.
//
// Any leaser can do anything, and each looks at everything before it sleeps. So it
// is enough to wake one, and a wake-up that finds all of them at work is not lost.
func (s *Scheduler) await() ([]*call, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed {
		now := time.Now()
		calls, next := s.pick(now)
		if len(calls) > 0 {
			if next.Equal(now) {
				s.wake.Signal() // another leaser takes what this one left
			} else {
				s.arm(next)
			}
			return calls, true
		}
		s.arm(next)
		s.wake.Wait()
	}
	return nil, false
}

// arm sets the timer, unless it is set to an earlier instant.
func (s *Scheduler) arm(t time.Time) {
	if t.IsZero() || (!s.wakeAt.IsZero() && !t.Before(s.wakeAt)) {
		return
	}
	s.wakeAt = t
	s.timer.Reset(time.Until(t))
}

// ring is the timer's call.
func (s *Scheduler) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeAt = time.Time{}
	s.wake.Signal()
}
