package scheduler

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// Scheduler leases the due records of the shards that this node holds. Make one
// with New, run it with Run; the other methods are inputs and never block.
type Scheduler struct {
	o       Options
	metrics *metrics
	// batches numbers the leasing calls. It starts at the time of start, so that a
	// restarted node of the same name does not repeat itself.
	batches atomic.Int64
	unread  chan struct{} // a shard was acquired whose lanes are not known yet

	mu     sync.Mutex
	wake   *sync.Cond
	timer  *time.Timer
	wakeAt time.Time // what timer is set to; zero when it is not
	state
}

// state is guarded by Scheduler.mu.
type state struct {
	closed   bool
	shards   map[int]*shard
	peers    map[string]map[queue]int // free slots that peers stated, less what they were permitted
	fair     fairness
	pace     pacer
	permits  map[int64]*outstanding
	permitID int64
}

type queue struct{ namespace, name string }

// shard is one that this node holds.
type shard struct {
	id        int
	busy      bool // a leasing call is in flight
	lanes     map[job.Lane]*lane
	first     int64     // least due time of the lanes
	notBefore time.Time // after an error
	clock     reading
}

// reading is one sight of a shard's clock.
type reading struct {
	us int64
	at time.Time
}

// lane is one lane of a shard.
type lane struct {
	due    int64 // first due time
	nudged int64 // earliest nudge since the call in flight began; NeverMS is none
	want   int   // how many leases to ask for
	permit *outstanding
}

// outstanding is a permit without result.
type outstanding struct {
	job.Permit
	node    string
	expires time.Time
}

// New returns a scheduler that holds nothing.
func New(o Options) (*Scheduler, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	s := &Scheduler{o: o, metrics: newMetrics(o.Registerer), unread: make(chan struct{}, 1)}
	s.wake = sync.NewCond(&s.mu)
	s.state = state{
		shards: make(map[int]*shard), peers: make(map[string]map[queue]int),
		fair: fairness{ahead: make(map[job.Lane]float64)}, permits: make(map[int64]*outstanding),
	}
	s.batches.Store(time.Now().UnixNano())
	return s, nil
}

// Run leases until ctx ends, then returns when no call is in flight.
func (s *Scheduler) Run(ctx context.Context) error {
	s.mu.Lock()
	s.timer = time.AfterFunc(time.Hour, s.ring)
	s.mu.Unlock()
	var wg sync.WaitGroup
	for range s.o.Leasers {
		wg.Go(func() { s.leaseLoop(ctx) })
	}
	wg.Go(func() { s.scanLoop(ctx) })
	wg.Go(func() { every(ctx, s.o.Reap, s.reap) })
	wg.Go(func() { every(ctx, s.o.Sweep, s.sweep) })
	<-ctx.Done()
	s.mu.Lock()
	s.closed = true
	s.timer.Stop()
	s.wake.Broadcast()
	s.mu.Unlock()
	wg.Wait()
	return nil
}

// every calls f at a fixed period until ctx ends.
func every(ctx context.Context, period time.Duration, f func(context.Context)) {
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f(ctx)
		}
	}
}

// Acquired says that this node has won a shard's lock.
func (s *Scheduler) Acquired(id int) {
	s.mu.Lock()
	if _, held := s.shards[id]; !held {
		s.shards[id] = &shard{id: id, lanes: make(map[job.Lane]*lane), first: job.NeverMS}
	}
	s.mu.Unlock()
	select {
	case s.unread <- struct{}{}:
	default:
	}
}

// Lost says that this node no longer holds a shard.
func (s *Scheduler) Lost(id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.shards, id)
}

// Nudge says that lanes of a shard may have become due earlier.
func (s *Scheduler) Nudge(id int, heads []job.LaneHead) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh, held := s.shards[id]
	if !held {
		return
	}
	for _, h := range heads {
		l := sh.lane(h.Lane)
		if sh.busy || l.permit != nil {
			l.nudged = min(l.nudged, h.DueMS)
		}
		l.due = min(l.due, h.DueMS)
		sh.first = min(sh.first, l.due)
	}
	s.wake.Signal()
}

// DemandChanged says that slots of this node's workers became free.
func (s *Scheduler) DemandChanged() {
	s.mu.Lock()
	s.wake.Signal()
	s.mu.Unlock()
}

// PeerDemand replaces what a peer said of its workers' free slots. An empty list
// forgets the peer.
func (s *Scheduler) PeerDemand(node string, demands []job.QueueDemand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := make(map[queue]int, len(demands))
	for _, d := range demands {
		if d.Free > 0 {
			free[queue{d.Namespace, d.Queue}] = d.Free
		}
	}
	if len(free) == 0 {
		delete(s.peers, node)
		return
	}
	s.peers[node] = free
	s.wake.Signal()
}

// ring is the timer's call.
func (s *Scheduler) ring() {
	s.mu.Lock()
	s.wakeAt = time.Time{}
	s.wake.Signal()
	s.mu.Unlock()
}

// sleepUntil waits for an input or for t, whichever is first. The caller holds mu.
func (s *Scheduler) sleepUntil(t time.Time) {
	if !t.IsZero() && (s.wakeAt.IsZero() || t.Before(s.wakeAt)) {
		s.wakeAt = t
		s.timer.Reset(time.Until(t))
	}
	s.wake.Wait()
}

// lane returns the shard's lane, making it when it is new.
func (sh *shard) lane(l job.Lane) *lane {
	known, ok := sh.lanes[l]
	if !ok {
		known = &lane{due: job.NeverMS, nudged: job.NeverMS, want: 1}
		sh.lanes[l] = known
	}
	return known
}

// settleHead takes the first due time that a script reported.
func (l *lane) settleHead(due int64) {
	l.due = min(due, l.nudged)
	l.nudged = job.NeverMS
}

// recount finds the shard's least due time.
func (sh *shard) recount() {
	sh.first = job.NeverMS
	for _, l := range sh.lanes {
		sh.first = min(sh.first, l.due)
	}
}

// saw takes a sight of the shard's clock. Taking the moment of arrival as the
// moment of the reading makes the estimate late by half a round trip, never early.
func (sh *shard) saw(us int64, at time.Time) {
	if us > 0 {
		sh.clock = reading{us: us, at: at}
	}
}

// nowMS estimates the shard's clock.
func (sh *shard) nowMS(now time.Time) int64 {
	if sh.clock.at.IsZero() {
		return 0
	}
	return (sh.clock.us + now.Sub(sh.clock.at).Microseconds()) / 1000
}

// when is the local instant at which the shard's clock shows ms.
func (sh *shard) when(ms int64) time.Time {
	return sh.clock.at.Add(time.Duration(ms*1000-sh.clock.us) * time.Microsecond)
}
