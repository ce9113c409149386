package scheduler

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/eventrate"
	"github.com/fermata-io/fermata/internal/lib/roundrobin"
)

// Scheduler leases the due records of the shards that this node holds. Call New, then Run, once. Apart from Run
// only [AcceptedPermits.Lease] blocks.
type Scheduler struct {
	o       Options
	metrics *metrics
	// batches numbers the leasing calls. It starts at the time of start, so that a
	// restarted node of the same name does not repeat itself.
	batches     atomic.Int64
	shardUnread chan struct{} // a shard was acquired whose lanes are not known yet
	// repeaters repeat calls without answer.
	repeaters sync.WaitGroup

	mu     sync.Mutex
	wake   *sync.Cond
	timer  *time.Timer
	wakeAt time.Time // what timer is set to; zero when it is not
	state
}

// state is guarded by Scheduler.mu.
type state struct {
	stopping      bool
	shards        map[int]*shard
	callsInFlight map[int]struct{} // shards with a leasing call in flight
	// unansweredCalls is how many calls of a shard under peers' permits are repeated.
	unansweredCalls map[int]int
	backlog         backlog
	limitChanges    uint64 // how often LimitsChanged was called
	pacer           pacer
	outlook         leadTimes
	leaseRate       eventrate.Meter // of this node's own calls
	permitRate      eventrate.Meter // of leases by this node's permits
	peers           map[string]*peerSlots
	peerQueues      map[string][]job.QueueDemand // the queues that each peer serves, also without free slots
	permits         permitTable
	scanCount       int64             // rescans begun
	scanTurns       roundrobin.Picker // of the shards to be listed by one of them
	reapCount       uint64            // periods of reaping
	sweepCount      uint64            // and of sweeping
}

type queueKey struct{ namespace, name string }

// New returns a scheduler that holds nothing.
func New(o Options) (*Scheduler, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	s := &Scheduler{o: o, metrics: newMetrics(o.Registerer), shardUnread: make(chan struct{}, 1)}
	s.wake = sync.NewCond(&s.mu)
	s.state = state{
		shards: make(map[int]*shard), callsInFlight: make(map[int]struct{}), unansweredCalls: make(map[int]int),
		backlog: newBacklog(), outlook: shortLead,
		peers: make(map[string]*peerSlots), peerQueues: make(map[string][]job.QueueDemand),
		permits: permitTable{byID: make(map[int64]*openPermit)},
	}
	s.batches.Store(time.Now().UnixNano())
	return s, nil
}

// Run leases until ctx ends, then returns when no call is in flight: at once, or
// after 3 s if Redis does not answer. It returns nil.
func (s *Scheduler) Run(ctx context.Context) error {
	s.mu.Lock()
	s.timer = time.AfterFunc(time.Hour, s.onTimer)
	s.mu.Unlock()
	var wg sync.WaitGroup
	for range s.o.MaxLeasingCalls {
		wg.Go(func() { s.leaseLoop(ctx) })
	}
	wg.Go(func() { s.callEvery(ctx, s.o.Rescan, func(ctx context.Context) { s.rescan(ctx, true) }) })
	wg.Go(func() { s.readLoop(ctx) })
	wg.Go(func() { s.callEvery(ctx, s.o.Reap, s.reapLeases) })
	wg.Go(func() { s.callEvery(ctx, s.o.Sweep, s.sweepRecords) })
	wg.Go(func() { s.callEvery(ctx, s.o.Reap, s.countLateRuns) })
	if s.o.FinishRenames != nil {
		wg.Go(func() { s.callEvery(ctx, s.o.Sweep, s.finishRenames) })
	}
	<-ctx.Done()
	s.mu.Lock()
	s.stopping = true
	s.timer.Stop()
	s.wake.Broadcast()
	s.mu.Unlock()
	wg.Wait()
	s.repeaters.Wait()
	return nil
}

// callEvery calls f once a period until ctx ends.
func (s *Scheduler) callEvery(ctx context.Context, period time.Duration, f func(context.Context)) {
	until := func() time.Duration { return s.o.Alignment.UntilNext(time.Now(), period) }
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

// awaitCalls waits until there are calls to make; false when the scheduler stops.
//
// Every leaser can do any work, and each picks before it sleeps. So it is enough to wake
// one, and a wake-up that finds all of them busy is not lost.
func (s *Scheduler) awaitCalls() ([]*call, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopping {
		now := time.Now()
		calls, next := s.pickCalls(now)
		if len(calls) > 0 {
			if next.Equal(now) {
				s.wake.Signal() // another leaser takes what this one left
			} else {
				s.armTimer(next)
			}
			return calls, true
		}
		s.armTimer(next)
		s.wake.Wait()
	}
	return nil, false
}

// armTimer sets the timer, unless it is set to an earlier instant.
func (s *Scheduler) armTimer(t time.Time) {
	if t.IsZero() || (!s.wakeAt.IsZero() && !t.Before(s.wakeAt)) {
		return
	}
	s.wakeAt = t
	s.timer.Reset(time.Until(t))
}

// onTimer wakes a leaser.
func (s *Scheduler) onTimer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeAt = time.Time{}
	s.wake.Signal()
}
