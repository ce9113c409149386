package scheduler

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// demandInAdvance is that of workers that start runs on time.
func demandInAdvance(free int) []job.QueueDemand {
	return []job.QueueDemand{{Namespace: "ns", Queue: "q", Free: free, InAdvance: true}}
}

// runWithPeer runs test in a bubble, with node a, which holds some shards and has no slots, and a peer b with slots.
// Messages take a while.
func runWithPeer(t *testing.T, shards, slots int, test func(a, b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const trip = 300 * time.Microsecond
		store := newFakeStore()
		a, b := newBed(t, "a", store), newBed(t, "b", store)
		b.slots.advance = true
		a.peers.onPermits = func(_ string, permits []job.Permit) {
			time.AfterFunc(trip, func() { b.permitted(context.Background(), "a", permits...) })
		}
		b.peers.onResults = func(_ string, results []job.PermitResult) {
			time.AfterFunc(trip, func() { a.s.HandlePermitResults("b", results) })
		}
		for shard := range shards {
			a.acquire(shard)
		}
		a.start()
		b.start()
		defer b.stop()
		defer a.stop()
		b.slots.done("q", slots)
		a.s.SetPeerDemand("b", demandInAdvance(slots))
		a.trips(time.Millisecond)
		synctest.Wait()
		test(a, b)
		after(time.Second)
		a.stop()
		b.stop()
	})
}

// What falls due soon in the shards of a node without workers is leased together by a peer: one message of permits, one
// pipeline, one message of results. Its workers start it on time.
func TestPermitsInAdvance(t *testing.T) {
	runWithPeer(t, 4, 400, func(a, b *bed) {
		for i := range 100 { // which shows how many there are
			a.create(i%4, laneOf(1), time.Duration(i)*10*time.Millisecond, 1)
		}
		after(time.Second)
		messages, pipelines := a.peers.messages+b.peers.messages, a.pipelines()
		for i := range 40 {
			a.create(i%4, laneOf(1), 100*time.Millisecond+time.Duration(i)*5*time.Millisecond, 1)
		}
		after(400 * time.Millisecond)
		b.wantServed(140)
		if n := a.peers.messages + b.peers.messages - messages; n > 2*14 {
			t.Errorf("%d messages for 40 runs in 200 ms, want at most 14 and as many answers", n)
		}
		if n := a.pipelines() - pipelines; n > 14 {
			t.Errorf("%d pipelines for 40 runs in 200 ms, want at most 14", n)
		}
		for id, r := range a.store.records {
			if r.lag < 0 || r.lag > 5*time.Millisecond {
				t.Errorf("%s started %v after it was due", id, r.lag)
			}
		}
		if used := a.peers.sent(); used[len(used)-1].Advance > job.MaxAdvance {
			t.Errorf("permit %+v", used[len(used)-1])
		}
	})
}

// A peer whose workers cannot start runs on time, or that does not say whether they can, gets permits when something is
// due; so does one while the queue has limits.
func TestPermitsAreNotInAdvance(t *testing.T) {
	for name, prepare := range map[string]func(a *bed){
		"an earlier build": func(a *bed) { a.s.SetPeerDemand("b", demand(400)) },
		"own slots":        func(a *bed) { a.slots.done("q", 1); a.handlers(time.Hour) },
		"limits":           func(a *bed) { a.look(func() { a.s.o.Limits = &fakeLimits{left: map[string]int{"q": 99}} }) },
	} {
		t.Run(name, func(t *testing.T) {
			runWithPeer(t, 1, 400, func(a, b *bed) {
				prepare(a)
				due := time.Now().Add(100 * time.Millisecond)
				a.create(0, laneOf(1), 100*time.Millisecond, 1)
				after(99 * time.Millisecond)
				a.wantPermits(0)
				after(10 * time.Millisecond)
				if n := a.slots.count() + b.slots.count(); n != 1 {
					t.Fatalf("%d runs have started", n)
				}
				for _, p := range a.peers.sent() {
					if p.Advance != 0 && name != "own slots" || p.at.Before(due) {
						t.Errorf("permit %+v is sent %v before something is due", p, due.Sub(p.at))
					}
				}
			})
		})
	}
}

// A peer that has fewer slots to spare than it stated leases nothing in advance. The run is asked for once more, when it
// is due.
func TestPermitInAdvanceWithoutRoom(t *testing.T) {
	runWithPeer(t, 1, 9, func(a, b *bed) {
		b.slots.set(func() { b.slots.narrow = true })
		a.create(0, laneOf(1), 100*time.Millisecond, 1)
		after(99 * time.Millisecond)
		b.wantServed(0)
		a.wantPermits(1)
		after(5 * time.Millisecond)
		b.wantServed(1)
		a.wantPermits(2)
		if lag := a.store.records["ns/j0"].lag; lag < 0 {
			t.Errorf("it started %v early", -lag)
		}
	})
}

// Permits that cannot be sent go to the next peer in the same round. None is counted as sent.
func TestPermitsThatAreNotSentGoElsewhere(t *testing.T) {
	run(t, func(b *bed) {
		b.acquire(1, 2)
		b.peers.down["b"] = true
		b.s.SetPeerDemand("b", demand(9))
		b.s.SetPeerDemand("c", demand(5))
		for shard := range 3 {
			b.create(shard, laneOf(4), 50*time.Millisecond, 1)
		}
		after(51 * time.Millisecond)
		for _, p := range b.wantPermits(3) {
			if p.node != "c" {
				t.Errorf("a permit went to %s", p.node)
			}
		}
		if n := b.peers.messages; n != 1 {
			t.Errorf("%d messages, want 1", n)
		}
		if free := b.freeOf("b"); free != 9 {
			t.Errorf("b is believed to have %d slots free, want 9", free)
		}
		b.look(func() {
			if n := len(b.s.permits.byID); n != 3 {
				t.Errorf("%d permits are open, want 3", n)
			}
			if start := b.s.backlog.flows[laneOf(4)].start; math.Abs(start-3.0/5) > 1e-9 {
				t.Errorf("the lane was charged up to %v, want 3 slots", start)
			}
		})
	})
}

// One message has at most 64 permits, and no more leases than one pipeline of this node.
func TestMessagesOfPermitsAreBounded(t *testing.T) {
	permitsOf := func(n int, leases ...int) (list []*openPermit) {
		for i := range n {
			list = append(list, &openPermit{Permit: job.Permit{N: leases[i%len(leases)]}})
		}
		return list
	}
	for _, c := range []struct {
		list []*openPermit
		want int
	}{
		{permitsOf(1, 200), 1}, {permitsOf(2, 200), 2}, {permitsOf(3, 200), 2}, {permitsOf(3, 201, 200), 1},
		{permitsOf(64, 1), 64}, {permitsOf(100, 1), 64}, {permitsOf(70, 7), 57},
	} {
		if got := messageLength(c.list); got != c.want {
			t.Errorf("%d permits of %d leases: %d in a message, want %d", len(c.list), c.list[0].N, got, c.want)
		}
	}
}

// Permits of one message are leased in one pipeline, with one call for each shard; lanes of queues with limits have calls
// of their own, so that no other permit waits for their grants. Each permit has one result.
func TestPermitsOfOneMessageAreLeasedTogether(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 20)
		b.slots.done("limited", 20)
		b.look(func() { b.s.o.Limits = &fakeLimits{left: map[string]int{"limited": 1}} })
		b.trips(time.Millisecond)
		holder := newBed(t, "h", b.store)
		holder.acquire(1, 2)
		lanes := []job.Lane{laneOf(1), laneOf(2), laneOf(3, "limited"), laneOf(1), laneOf(9, "none")}
		var permits []job.Permit
		for i, l := range lanes {
			shard := 1 + i/3
			for range 2 {
				b.store.put(shard, l, unixtime.MilliOf(time.Now()))
			}
			permits = append(permits, job.Permit{ID: int64(i), Shard: shard, Lane: l, N: 2, LockValue: b.store.locks[shard],
				ValidFor: job.PermitValidity})
		}
		permits = append(permits, job.Permit{ID: 99, Shard: 1, Lane: laneOf(1), N: 2}) // it has expired
		accepted := b.s.Accept("h", permits)
		if len(accepted) != 2 || len(b.peers.results) != 1 || b.peers.results[0].ID != 4 {
			t.Fatalf("%d calls are accepted, and results sent %+v", len(accepted), b.peers.results)
		}
		for _, a := range accepted {
			a.Lease(context.Background())
		}
		results := make(map[int64]int)
		for _, r := range b.peers.results {
			results[r.ID] = r.Leased
		}
		for id, want := range []int{2, 2, 1, 2, 0} {
			if got, answered := results[int64(id)]; got != want || !answered {
				t.Errorf("permit %d: %d leases, want %d (answered: %v)", id, got, want, answered)
			}
		}
		calls := b.wantCalls(2)
		if n, m := len(calls[0].requests), len(calls[1].requests); n != 2 || m != 1 || len(calls[0].requests[0].Quotas) != 2 {
			t.Errorf("pipelines %+v: want one for two shards, and another for the limited queue", calls)
		}
		if len(results) != 5 || b.peers.messages != 3 {
			t.Errorf("%d results in %d messages", len(results), b.peers.messages)
		}
	})
}

// A call of a message whose answer is lost is repeated; the others are answered. No slot is lost.
func TestLostAnswerOfOneOfSeveralPermits(t *testing.T) {
	run(t, func(b *bed) {
		b.slots.done("q", 20)
		holder := newBed(t, "h", b.store)
		holder.acquire(1, 2)
		var permits []job.Permit
		for shard := 1; shard <= 2; shard++ {
			b.store.put(shard, laneOf(1), unixtime.MilliOf(time.Now()))
			permits = append(permits, job.Permit{ID: int64(shard), Shard: shard, Lane: laneOf(1), N: 2,
				LockValue: b.store.locks[shard], ValidFor: job.PermitValidity})
		}
		b.store.set(func() { b.store.lose = func(shard int) bool { return shard == 2 } })
		b.permitted(context.Background(), "h", permits...)
		if r := b.peers.results; len(r) != 1 || r[0].ID != 1 || r[0].Leased != 1 {
			t.Errorf("results %+v", r)
		}
		b.wantServed(1)
		b.permitted(context.Background(), "h", permits[1]) // it is left to expire
		if n := len(b.peers.results); n != 1 {
			t.Errorf("%d results", n)
		}
		b.store.set(func() { b.store.lose = func(int) bool { return false } })
		after(time.Second)
		b.wantServed(2)
	})
}
