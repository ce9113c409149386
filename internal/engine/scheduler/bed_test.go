package scheduler

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is one node's scheduler with fakes around it.
type bed struct {
	t      *testing.T
	name   string
	s      *Scheduler
	store  *fakeStore
	slots  *fakeSlots
	peers  *fakePeers
	ledger *fakeLedger

	mu   sync.Mutex
	held map[int]string
	lost []job.Ending
	stop func()
}

// lane is the lane of queue q, or of another.
func laneOf(priority uint8, name ...string) job.Lane {
	q := "q"
	if len(name) > 0 {
		q = name[0]
	}
	return job.Lane{Namespace: "ns", Queue: q, Priority: priority}
}

func newBed(t *testing.T, name string, store *fakeStore) *bed {
	b := &bed{
		t: t, name: name, store: store, peers: &fakePeers{down: make(map[string]bool)}, ledger: &fakeLedger{},
		held: make(map[int]string),
	}
	b.slots = newFakeSlots(func() { b.demandChanged() })
	b.slots.started = store.started
	s, err := New(Options{
		Node: name, Store: store, Ledger: b.ledger, Slots: b.slots, Peers: b.peers,
		OnLost: func(e job.Ending) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.lost = append(b.lost, e)
		},
		Held: func(shard int) (string, bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			v, ok := b.held[shard]
			return v, ok
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.s = s
	return b
}

// start runs the scheduler until stop, which checks that no slot is lost.
func (b *bed) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.s.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("Run: %v", err)
		}
		b.slots.check(b.t)
	})
}

// run runs test in a bubble, with a node that holds shard 0.
func run(t *testing.T, test func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, "a", newFakeStore())
		b.acquire(0)
		b.start()
		defer b.stop()
		synctest.Wait()
		test(b)
		b.stop()
	})
}

// acquire gives the shard's lock to the node.
func (b *bed) acquire(shards ...int) {
	for _, shard := range shards {
		b.store.mu.Lock()
		value := fmt.Sprintf("%s-%d-%s", b.name, shard, time.Now().Format(time.StampNano))
		b.store.locks[shard] = value
		b.store.mu.Unlock()
		b.mu.Lock()
		b.held[shard] = value
		b.mu.Unlock()
		b.s.ShardAcquired(shard)
	}
}

// lose takes the shard's lock from the node.
func (b *bed) lose(shard int) {
	b.mu.Lock()
	delete(b.held, shard)
	b.mu.Unlock()
	b.s.ShardLost(shard)
}

// create adds records that are due after some time and nudges the node.
func (b *bed) create(shard int, lane job.Lane, after time.Duration, n int) {
	for range n {
		if heads := b.store.put(shard, lane, unixtime.MilliOf(time.Now().Add(after))); heads != nil {
			b.s.LanesDueEarlier(shard, heads)
		}
	}
}

// look looks at the scheduler's state, or changes it.
func (b *bed) look(f func()) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	f()
}

// freeOf is what a peer is believed to have free for queue q.
func (b *bed) freeOf(node string) (free int) {
	b.look(func() { free = b.s.peers[node].free[queueKey{"ns", "q"}] })
	return free
}

// permitOf is the permit that is out for a lane of shard 0.
func (b *bed) permitOf(l job.Lane) (out *openPermit) {
	b.look(func() { out = b.s.shards[0].lanes[l].permit })
	return out
}

// startOf is the start of a flow's next service.
func (b *bed) startOf(l job.Lane) (start float64) {
	b.look(func() { start = b.s.backlog.flows[l].start })
	return start
}

// trips sets how long calls to the store take.
func (b *bed) trips(d time.Duration) {
	b.store.set(func() { b.store.trip = func() time.Duration { return d } })
}

// handlers sets how long handlers run.
func (b *bed) handlers(d time.Duration) {
	b.slots.set(func() { b.slots.handler = func() time.Duration { return d } })
}

// after waits in the bubble's time, then until nothing moves.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *bed) wantServed(n int) {
	b.t.Helper()
	if got := b.slots.count(); got != n {
		b.t.Fatalf("%d leases are delivered, want %d", got, n)
	}
}

func (b *bed) wantCalls(n int) []leaseCall {
	b.t.Helper()
	calls := b.store.leasing()
	if len(calls) != n {
		b.t.Fatalf("%d leasing calls, want %d", len(calls), n)
	}
	return calls
}

func (b *bed) wantPermits(n int) []sentPermit {
	b.t.Helper()
	permits := b.peers.sent()
	if len(permits) != n {
		b.t.Fatalf("%d permits, want %d: %+v", len(permits), n, permits)
	}
	return permits
}

// demandChanged reports for all queues that slots became free.
func (b *bed) demandChanged() {
	b.s.mu.Lock()
	names := map[string][]string{}
	for q := range b.s.backlog.queues {
		names[q.namespace] = append(names[q.namespace], q.name)
	}
	b.s.mu.Unlock()
	for namespace, queues := range names {
		b.s.DemandChanged(namespace, queues)
	}
}

// permitted uses permits, if they may be used.
func (b *bed) permitted(ctx context.Context, node string, permits ...job.Permit) {
	for _, a := range b.s.Accept(node, permits) {
		a.Lease(ctx)
	}
}
