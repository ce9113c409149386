package scheduler

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// fakeLimits grants a number of starts for each limited queue.
type fakeLimits struct {
	mu    sync.Mutex
	left  map[string]int // by queue
	again time.Duration
	trip  time.Duration
	takes int
	// taken is what was granted and not given back.
	taken int
}

func (f *fakeLimits) Limited(_, queue string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, limited := f.left[queue]
	return limited
}

func (f *fakeLimits) TakeStarts(_ context.Context, asks []job.QueueRequest) []job.QueueGrant {
	time.Sleep(f.trip)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.takes++
	grants := make([]job.QueueGrant, len(asks))
	for i, a := range asks {
		if grants[i].N = min(a.N, f.left[a.Queue.Queue]); grants[i].N < a.N {
			grants[i].Again = f.again
		}
		f.left[a.Queue.Queue] -= grants[i].N
		f.taken += grants[i].N
	}
	return grants
}

func (f *fakeLimits) ReturnStarts(unused []job.QueueRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range unused {
		f.left[u.Queue.Queue] += u.N
		f.taken -= u.N
	}
}

func (f *fakeLimits) allow(queue string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left[queue] += n
}

func (f *fakeLimits) counts() (takes, taken int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takes, f.taken
}

// limited gives the node limits of queue q, which has n starts.
func (b *bed) limited(n int) *fakeLimits {
	f := &fakeLimits{left: map[string]int{"q": n}, again: 400 * time.Millisecond, trip: time.Millisecond}
	b.s.o.Limits = f
	return f
}

func TestLimitedQueueRests(t *testing.T) {
	run(t, func(b *bed) {
		f := b.limited(3)
		b.acquire(1)
		b.slots.done("q", 100)
		b.slots.done("other", 100)
		b.create(0, laneOf(1), 0, 10)
		b.create(0, laneOf(5), 0, 10)
		b.create(1, laneOf(1), 0, 10)
		after(50 * time.Millisecond)
		b.wantServed(3)
		takes, _ := f.counts()
		b.create(0, laneOf(3, "other"), 0, 20)
		after(50 * time.Millisecond)
		b.wantServed(23)
		b.slots.mu.Lock()
		if free := b.slots.free["q"]; free != 97 || b.slots.open != 0 {
			t.Errorf("%d slots are free, %d reservations open", free, b.slots.open)
		}
		b.slots.mu.Unlock()
		b.create(1, laneOf(1), 0, 1) // a nudge
		b.slots.done("q", 1)         // free slots
		after(50 * time.Millisecond)
		if now, _ := f.counts(); now != takes {
			t.Errorf("asked %d times while the queue rests", now-takes)
		}
		f.allow("q", 4)
		after(400 * time.Millisecond)
		b.wantServed(27)
		f.allow("q", 100)
		b.s.LimitsChanged("ns", "q")
		after(50 * time.Millisecond)
		b.wantServed(51)
		if _, taken := f.counts(); taken != 31 {
			t.Errorf("%d starts are taken for 31 leases", taken)
		}
	})
}

// Nothing is leased ahead of a slot either while limits grant nothing, and what waited
// comes in its order when they do.
func TestLimitsHoldForPrefetch(t *testing.T) {
	run(t, func(b *bed) {
		f := b.limited(0)
		b.slots.done("ahead of q", 3)
		for i := range 6 {
			b.create(0, laneOf(1), time.Duration(i)*time.Millisecond, 1)
		}
		after(2 * time.Second)
		b.wantServed(0)
		b.slots.set(func() {
			if free := b.slots.free["ahead of q"]; free != 3 || b.slots.open != 0 {
				t.Errorf("%d places are free, %d reservations open", free, b.slots.open)
			}
		})
		f.allow("q", 100)
		b.s.LimitsChanged("ns", "q")
		after(50 * time.Millisecond)
		b.wantServed(3)
		b.slots.done("q", 3)
		after(50 * time.Millisecond)
		b.wantServed(6)
		b.slots.set(func() {
			for i := 1; i < len(b.slots.served); i++ {
				if b.slots.served[i].Known.State.Due < b.slots.served[i-1].Known.State.Due {
					t.Errorf("%s came after what was due later", b.slots.served[i].Record)
				}
			}
		})
	})
}

// However short the pause that is answered: it is no busy loop.
func TestLimitedQueueIsNotPolled(t *testing.T) {
	run(t, func(b *bed) {
		f := b.limited(0)
		f.again = time.Millisecond
		b.slots.done("q", 100)
		b.create(0, laneOf(1), 0, 10)
		after(time.Second)
		if takes, _ := f.counts(); takes > 25 {
			t.Errorf("asked %d times in a second", takes)
		}
		if start := b.startOf(laneOf(1)); start != 0 {
			t.Errorf("the lane has had %v of its share for nothing", start)
		}
	})
}

// What was granted and not leased is given back, whatever became of the call.
func TestUnusedStartsAreGivenBack(t *testing.T) {
	run(t, func(b *bed) {
		f := b.limited(1000)
		b.trips(2 * time.Millisecond)
		b.slots.done("q", 1000)
		b.create(0, laneOf(1), 0, 100)
		b.store.set(func() { b.store.lose = func(int) bool { return time.Now().UnixMilli()%3 == 0 } })
		after(5 * time.Second)
		b.store.set(func() { b.store.lose = func(int) bool { return false } })
		after(5 * time.Second)
		b.create(0, laneOf(1), 0, 10)
		b.store.set(func() { b.store.fail = func(int) error { return job.ErrNoMemory } })
		after(time.Second)
		b.store.set(func() { b.store.fail = func(int) error { return nil } })
		after(5 * time.Second)
		if n := b.store.unleased(); n != 0 {
			t.Errorf("%d records are left", n)
		}
		if _, taken := f.counts(); taken != 110 {
			t.Errorf("%d starts are taken for 110 leases", taken)
		}
	})
}

func TestShardLostWhileLimitsAreAsked(t *testing.T) {
	run(t, func(b *bed) {
		f := b.limited(0)
		f.trip = 10 * time.Millisecond
		b.slots.done("q", 5)
		b.create(0, laneOf(1), 0, 3)
		after(5 * time.Millisecond)
		b.lose(0)
		after(10 * time.Millisecond)
		f.allow("q", 9)
		b.acquire(0)
		after(time.Second)
		b.wantServed(3)
	})
}

// A peer sends the holder the time at which the queue may start again; the holder does not ask before.
func TestPermitOfALimitedQueue(t *testing.T) {
	run(t, func(b *bed) {
		f := b.limited(2)
		b.slots.done("q", 9)
		b.lose(0)
		for range 5 {
			b.store.put(0, laneOf(1), unixtime.MilliOf(time.Now()))
		}
		permit := job.Permit{ID: 1, Shard: 0, Lane: laneOf(1), N: 5, LockValue: b.store.locks[0], ValidFor: job.PermitValidity}
		b.permitted(t.Context(), "h", permit)
		b.wantServed(2)
		permit.ID = 2
		b.permitted(t.Context(), "h", permit)
		b.wantServed(2)
		results := b.peers.results
		if len(results) != 2 || results[0].Leased != 2 || results[1].Leased != 0 {
			t.Fatalf("answers %+v", results)
		}
		if in := int64(results[1].DueMS - unixtime.MilliOf(time.Now())); in < 390 || in > 401 {
			t.Errorf("asked to come back in %d ms", in)
		}
		// A permit that ran out while the limits were asked is not used.
		f.allow("q", 5)
		f.trip = time.Second
		permit.ID = 3
		b.permitted(t.Context(), "h", permit)
		b.wantServed(2)
		if _, taken := f.counts(); taken != 2 || len(b.peers.results) != 2 {
			t.Errorf("%d taken, answers %+v", taken, b.peers.results)
		}
		b.slots.check(t)
	})
}

// TestLimitsThatBeginUnderAPermit: a lease that took no starts, because its queue had no limits yet, gives none back.
func TestLimitsThatBeginUnderAPermit(t *testing.T) {
	run(t, func(b *bed) {
		f := &fakeLimits{left: map[string]int{}}
		b.s.o.Limits = f
		b.slots.done("q", 9)
		b.lose(0)
		b.store.put(0, laneOf(1), unixtime.MilliOf(time.Now()))
		b.trips(10 * time.Millisecond)
		time.AfterFunc(5*time.Millisecond, func() { f.allow("q", 3) })
		b.permitted(t.Context(), "h", job.Permit{ID: 1, Shard: 0, Lane: laneOf(1), N: 5, LockValue: b.store.locks[0],
			ValidFor: job.PermitValidity})
		b.wantServed(1)
		if _, taken := f.counts(); taken != 0 || !f.Limited("ns", "q") {
			t.Errorf("%d starts are taken, none was", taken)
		}
		b.slots.check(t)
	})
}

func TestHolderKeepsToThePeersWord(t *testing.T) {
	run(t, func(b *bed) {
		b.s.SetPeerDemand("b", demand(9))
		b.create(0, laneOf(1), 0, 3)
		synctest.Wait()
		b.answer(b.wantPermits(1)[0], 0, unixtime.MilliOf(time.Now().Add(300*time.Millisecond)))
		after(290 * time.Millisecond)
		b.wantPermits(1)
		after(20 * time.Millisecond)
		b.wantPermits(2)
	})
}

// A call under a permit begins while that is valid, counted from its acceptance, whatever it waits for.
func TestLimitsAreNotWaitedForLongerThanThePermitIsValid(t *testing.T) {
	run(t, func(b *bed) {
		f := b.limited(9)
		b.slots.done("q", 9)
		b.lose(0)
		b.store.put(0, laneOf(1), unixtime.MilliOf(time.Now()))
		a := b.s.Accept("h", []job.Permit{{ID: 1, Shard: 0, Lane: laneOf(1), N: 1, LockValue: b.store.locks[0], ValidFor: job.PermitValidity}})[0]
		accepted := time.Now()
		after(job.PermitValidity * 9 / 10) // it waits for one of the leasers
		f.trip = job.PermitValidity * 9 / 10
		a.Lease(t.Context())
		for _, c := range b.store.leasing() {
			if at := c.at.Sub(accepted); at > job.PermitValidity {
				t.Errorf("a call under a permit of %v began after %v", job.PermitValidity, at)
			}
		}
	})
}

// slowLimits answers as it was when it was asked.
type slowLimits struct{ *fakeLimits }

func (s slowLimits) TakeStarts(ctx context.Context, asks []job.QueueRequest) []job.QueueGrant {
	grants := s.fakeLimits.TakeStarts(ctx, asks)
	time.Sleep(200 * time.Millisecond) // for another queue, whose server is slow
	return grants
}

// A queue without room is asked for again early if LimitsChanged is called, also while the answer that there is
// none is in flight.
func TestRoomReportedDuringAnAskIsNotMissed(t *testing.T) {
	run(t, func(b *bed) {
		f := b.limited(0)
		f.again = 5 * time.Second
		b.s.o.Limits = slowLimits{f}
		b.slots.done("q", 9)
		b.create(0, laneOf(1), 0, 1)
		after(100 * time.Millisecond) // it is asked for
		f.allow("q", 9)
		b.s.LimitsChanged("ns", "q") // e.g. it is resumed
		after(time.Second)
		if n := b.slots.count(); n != 1 {
			t.Errorf("%d leases a second after there is room", n)
		}
	})
}

// Where Redis answers late, what has limits starts all the same: the wait for grants grows with it.
func TestLimitedQueueStartsWhereRedisIsLate(t *testing.T) {
	run(t, func(b *bed) {
		const late = 600 * time.Millisecond
		f := b.limited(5)
		f.trip = late
		b.s.o.Limits = lateLimits{f}
		b.s.o.Latency = func() time.Duration { return late }
		b.trips(late)
		b.slots.done("q", 100)
		b.create(0, laneOf(1), 0, 5)
		after(6 * late) // the first goes alone
		b.wantServed(5)
	})
}

// A call under a permit has as many answers of Redis as one of the node's own.
func TestPermitOfALimitedQueueWhereRedisIsLate(t *testing.T) {
	run(t, func(b *bed) {
		const late = 400 * time.Millisecond
		f := b.limited(5)
		f.trip = late
		b.s.o.Limits = lateLimits{f}
		b.s.o.Latency = func() time.Duration { return late }
		b.trips(late)
		b.slots.done("q", 5)
		b.lose(0)
		for range 5 {
			b.store.put(0, laneOf(1), unixtime.MilliOf(time.Now()))
		}
		b.permitted(t.Context(), "h", job.Permit{
			ID: 1, Shard: 0, Lane: laneOf(1), N: 5, LockValue: b.store.locks[0], ValidFor: b.s.permitValidity(),
		})
		b.wantServed(5)
	})
}

// A shard without limits does not wait for the grants to another one, where these come late.
func TestShardsWithoutLimitsDoNotWaitForGrants(t *testing.T) {
	run(t, func(b *bed) {
		const late = 600 * time.Millisecond
		f := b.limited(5)
		f.trip = late
		b.s.o.Latency = func() time.Duration { return late }
		b.slots.done("q", 100)
		b.slots.done("other", 100)
		b.acquire(1)
		now := unixtime.MilliOf(time.Now().Add(100 * time.Millisecond))
		b.store.put(0, laneOf(1), now)
		b.store.put(1, laneOf(1, "other"), now)
		b.s.LanesDueEarlier(0, []job.LaneHead{{Lane: laneOf(1), DueMS: now}})
		b.s.LanesDueEarlier(1, []job.LaneHead{{Lane: laneOf(1, "other"), DueMS: now}})
		after(150 * time.Millisecond)
		b.wantServed(1)
		after(late)
		b.wantServed(2)
	})
}

func TestTimesGrowWithLatency(t *testing.T) {
	for _, tt := range []struct{ latency, grants, permit time.Duration }{
		{0, 250 * time.Millisecond, 250 * time.Millisecond},
		{time.Millisecond, 250 * time.Millisecond, 250 * time.Millisecond},
		{300 * time.Millisecond, 900 * time.Millisecond, 600 * time.Millisecond},
		{2 * time.Second, leaseTimeout / 2, time.Second},
	} {
		s := &Scheduler{o: Options{Latency: func() time.Duration { return tt.latency }}}
		if got := s.limitTimeout(); got != tt.grants {
			t.Errorf("latency %v: grants are waited for %v, want %v", tt.latency, got, tt.grants)
		}
		if got := s.permitValidity(); got != tt.permit {
			t.Errorf("latency %v: a permit is valid for %v, want %v", tt.latency, got, tt.permit)
		}
	}
}

// lateLimits grants nothing to who does not wait for the answer.
type lateLimits struct{ *fakeLimits }

func (l lateLimits) TakeStarts(ctx context.Context, asks []job.QueueRequest) []job.QueueGrant {
	grants := l.fakeLimits.TakeStarts(ctx, asks)
	if ctx.Err() != nil {
		return make([]job.QueueGrant, len(asks))
	}
	return grants
}
