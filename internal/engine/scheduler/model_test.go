package scheduler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// cluster is some nodes that share a store and are linked to each other.
type cluster struct {
	t     *testing.T
	rnd   *rand.Rand
	store *fakeStore
	nodes map[string]*bed
	// owner of each shard
	owner []string
	mu    sync.Mutex
	loss  float64                     // how likely a message between nodes is lost
	links map[[2]string]chan struct{} // of a link, closed when its last message has arrived
	wg    sync.WaitGroup
}

func newCluster(t *testing.T, rnd *rand.Rand, shards int, names ...string) *cluster {
	c := &cluster{
		t: t, rnd: rnd, store: newFakeStore(), nodes: make(map[string]*bed), links: make(map[[2]string]chan struct{}),
	}
	advance := rnd.IntN(2) == 0
	for _, name := range names {
		b := newBed(t, name, c.store)
		b.slots.advance = advance
		b.peers.onPermits = func(node string, permits []job.Permit) {
			c.carry(name, node, func() {
				c.wg.Go(func() { c.nodes[node].permitted(context.Background(), name, permits...) })
			})
		}
		b.peers.onResults = func(node string, results []job.PermitResult) {
			c.carry(name, node, func() { c.nodes[node].s.HandlePermitResults(name, results) })
		}
		b.slots.onDemand = func() {
			b.demandChanged()
			c.tellDemand(b)
		}
		b.slots.set(func() { b.slots.handler = func() time.Duration { return c.upTo(40 * time.Millisecond) } })
		c.nodes[name] = b
	}
	for shard := range shards {
		c.owner = append(c.owner, names[shard%len(names)])
		c.nodes[c.owner[shard]].acquire(shard)
	}
	for _, b := range c.nodes {
		b.start()
	}
	return c
}

// upTo draws a duration. Goroutines share the source.
func (c *cluster) upTo(most time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.rnd.Int64N(int64(most)))
}

// drop reports whether a message is lost.
func (c *cluster) drop() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.Float64() < c.loss
}

func (c *cluster) setLoss(loss float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loss = loss
}

// carry brings a message to another node, after its trip. A link keeps the order
// of its messages.
func (c *cluster) carry(from, to string, arrive func()) {
	if c.drop() {
		return
	}
	arrives := time.Now().Add(c.upTo(3 * time.Millisecond))
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.links[[2]string{from, to}]
	done := make(chan struct{})
	c.links[[2]string{from, to}] = done
	c.wg.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		time.Sleep(time.Until(arrives))
		arrive()
	})
}

func (c *cluster) tellDemand(from *bed) {
	from.slots.mu.Lock()
	var d []job.QueueDemand
	for q, n := range from.slots.free {
		d = append(d, job.QueueDemand{Namespace: "ns", Queue: q, Free: n, InAdvance: from.slots.advance})
	}
	from.slots.mu.Unlock()
	for _, to := range c.nodes {
		if to != from {
			c.carry(from.name, to.name, func() { to.s.SetPeerDemand(from.name, d) })
		}
	}
}

// move hands a shard to another node.
func (c *cluster) move(shard int, to string) {
	c.mu.Lock()
	from := c.owner[shard]
	c.owner[shard] = to
	c.mu.Unlock()
	c.nodes[from].lose(shard)
	c.nodes[to].acquire(shard)
}

// create adds a record; who created it nudges the holder, unless that is lost.
func (c *cluster) create(shard int, lane job.Lane, in time.Duration) {
	heads := c.store.put(shard, lane, unixtime.MilliOf(time.Now().Add(in)))
	if heads == nil || c.drop() {
		return
	}
	c.mu.Lock()
	holder := c.nodes[c.owner[shard]]
	c.mu.Unlock()
	holder.s.LanesDueEarlier(shard, heads)
}

// end stops all and checks that each record was leased and delivered once, none
// early.
func (c *cluster) end() {
	for _, b := range c.nodes {
		b.stop()
	}
	c.wg.Wait()
	delivered := make(map[job.RecordID]int)
	for _, b := range c.nodes {
		b.slots.check(c.t)
		for _, l := range b.slots.served {
			delivered[l.Record]++
		}
	}
	for id, r := range c.store.records {
		if r.leases != 1 || delivered[id] != 1 || r.lag < 0 {
			c.t.Errorf("%s of shard %d, lane %v: %d leases, %d delivered, lag %v", id, r.shard, r.lane, r.leases, delivered[id], r.lag)
		}
	}
}

const modelShards = 7

// addWork creates records over some seconds: soon, in a while, long ago.
func (c *cluster) addWork(n int) {
	queues := []string{"x", "y", "z"}
	for range n {
		after(c.upTo(8 * time.Millisecond))
		c.mu.Lock()
		shard, lane := c.rnd.IntN(modelShards), laneOf(uint8(c.rnd.IntN(10)), queues[c.rnd.IntN(3)])
		in := time.Duration(c.rnd.IntN(2500)-500) * time.Millisecond
		c.mu.Unlock()
		c.create(shard, lane, in)
	}
}

func eachSeed(t *testing.T, n uint64, test func(t *testing.T, rnd *rand.Rand)) {
	for seed := range n {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

// With slots for all and every message delivered, each record is leased within a
// few trips of its due time: nothing waits for a rescan.
func TestModelNothingWaitsForAPoll(t *testing.T) {
	eachSeed(t, 12, func(t *testing.T, rnd *rand.Rand) {
		c := newCluster(t, rnd, modelShards, "a", "b")
		c.store.set(func() { c.store.trip = func() time.Duration { return c.upTo(2 * time.Millisecond) } })
		c.nodes["a"].slots.done("x", 500)
		c.nodes["a"].slots.done("z", 500)
		c.nodes["b"].slots.done("x", 500)
		c.nodes["b"].slots.done("y", 500)
		after(10 * time.Millisecond)
		c.addWork(600)
		after(3 * time.Second)
		for id, r := range c.store.records {
			if r.wait > 40*time.Millisecond {
				t.Errorf("%s of lane %v: lag %v, wait %v", id, r.lane, r.lag, r.wait)
			}
		}
		c.end()
	})
}

// With nudges, permits and answers lost, shards moving, errors and too few slots,
// each record is leased once, and none is forgotten.
func TestModelChaos(t *testing.T) {
	eachSeed(t, 25, func(t *testing.T, rnd *rand.Rand) {
		c := newCluster(t, rnd, modelShards, "a", "b", "c")
		c.setLoss(0.08)
		c.store.set(func() { c.store.trip = func() time.Duration { return c.upTo(6 * time.Millisecond) } })
		c.store.set(func() {
			c.store.fail = func(int) error {
				if c.drop() {
					return job.ErrUnavailable
				}
				return nil
			}
		})
		c.nodes["a"].slots.done("x", 3)
		c.nodes["b"].slots.done("y", 4)
		c.nodes["b"].slots.done("x", 1)
		c.nodes["c"].slots.done("z", 6)
		moving := make(chan struct{})
		c.wg.Go(func() {
			names := []string{"a", "b", "c"}
			for {
				select {
				case <-moving:
					return
				case <-time.After(c.upTo(200 * time.Millisecond)):
				}
				c.mu.Lock()
				shard, to := c.rnd.IntN(modelShards), names[c.rnd.IntN(3)]
				c.mu.Unlock()
				c.move(shard, to)
			}
		})
		c.addWork(500)
		close(moving)
		c.setLoss(0)
		// Nodes whose notification of free slots was lost repeat it.
		for _, b := range c.nodes {
			c.tellDemand(b)
		}
		for waited := 0; c.store.unleased() > 0; waited++ {
			if waited > 20 {
				t.Fatalf("%d records are left", c.store.unleased())
			}
			after(time.Second)
		}
		after(time.Second)
		c.end()
	})
}
