package node_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/internal/cluster/reachability"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// slowCluster is three nodes, each with a way of its own to Redis.
func slowCluster(t *testing.T) (nodes [3]*node.Node, ways [3]*faultproxy.Proxy) {
	t.Helper()
	redis := redistest.Start(t)
	var join []string
	for i := range nodes {
		ways[i] = faultproxy.New(t, redis.Addr())
		nodes[i] = startWith(t, fmt.Sprintf("redis://%s/0", ways[i].Addr()), string(rune('a'+i)),
			func(*node.Config) {}, join...)
		join = []string{nodes[0].GossipAddr()}
	}
	holdShards(t, nodes, "a third of the shards on each", func(n int) bool { return n >= 21 }, 0, 1, 2)
	return nodes, ways
}

// holdShards waits until these nodes hold all shards, and each so many as fits.
func holdShards(t *testing.T, nodes [3]*node.Node, what string, fits func(int) bool, which ...int) {
	t.Helper()
	redistest.Eventually(t, redistest.Patience, what, func(context.Context) error {
		sum := 0
		var held []int
		for _, n := range nodes {
			held = append(held, n.Describe().ShardsHeld)
		}
		for _, i := range which {
			sum += held[i]
			if !fits(held[i]) {
				return fmt.Errorf("%v", held)
			}
		}
		if sum != 64 {
			return fmt.Errorf("%v", held)
		}
		return nil
	})
}

// TestNodeWithSlowRedisGivesItsShardsAway, while its calls succeed all the same, and has them again
// when Redis answers it as fast as the others.
func TestNodeWithSlowRedisGivesItsShardsAway(t *testing.T) {
	t.Parallel()
	nodes, ways := slowCluster(t)
	workWith(t, worker.Options{Addresses: []string{nodes[2].GRPCAddr()}, Slots: 2, ID: "moves"},
		map[string]func(context.Context, *worker.Task) error{"none": func(context.Context, *worker.Task) error { return nil }})
	awaitWorkerAt(t, nodes[0], "moves", "c")
	ways[2].Latency(200 * time.Millisecond) // each way
	holdShards(t, nodes, "all shards on the two quick ones", func(n int) bool { return n == 32 }, 0, 1)
	for _, n := range nodes {
		isReady(t, n)
	}
	ways[1].Latency(250 * time.Millisecond)
	holdShards(t, nodes, "all shards on the quick one", func(n int) bool { return n == 64 }, 0)
	awaitWorkerAt(t, nodes[0], "moves", "a")
	ways[1].Pass()
	ways[2].Pass()
	holdShards(t, nodes, "a third of the shards on each again", func(n int) bool { return n >= 21 }, 0, 1, 2)
}

// awaitWorkerAt waits until a worker is connected to a node.
func awaitWorkerAt(t *testing.T, asked *node.Node, worker, name string) {
	t.Helper()
	cluster := fermatav1.NewClusterServiceClient(dialWith(t, asked.GRPCAddr(), insecure.NewCredentials()))
	redistest.Eventually(t, redistest.Patience, "worker at node "+name, func(ctx context.Context) error {
		answer, err := cluster.ListWorkers(ctx, &fermatav1.ListWorkersRequest{})
		for _, w := range answer.GetWorkers() {
			if w.GetWorkerId() == worker && w.GetNode() == name {
				return nil
			}
		}
		return fmt.Errorf("workers %v (%v)", answer.GetWorkers(), err)
	})
}

// TestSlowRedisMovesNoShard: where it is slow for all nodes, nobody has better ones.
func TestSlowRedisMovesNoShard(t *testing.T) {
	t.Parallel()
	nodes, ways := slowCluster(t)
	before := holders(t, nodes[0])
	for _, w := range ways {
		w.Latency(150 * time.Millisecond)
	}
	keepsHolders(t, nodes[0], before, func() {
		holdShards(t, nodes, "a third of the shards on each", func(n int) bool { return n >= 21 }, 0, 1, 2)
	})
}

// TestReconnectingNodeIsNotFast: each call that times out closes its connection, and the next one is made. What
// that takes is no latency of Redis: a node that cannot complete one call looked faster than the others.
func TestReconnectingNodeIsNotFast(t *testing.T) {
	t.Parallel()
	way := faultproxy.New(t, redistest.Start(t).Addr())
	client, err := conn.NewClient(conn.ClientOptions{URL: fmt.Sprintf("redis://%s/0", way.Addr()), ClientName: "slow"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	meter := reachability.NewLatencyMeter(6*time.Second, time.Second)
	meter.MeasureClient(client)
	way.Latency(100 * time.Millisecond) // each way
	before := way.Counters().Connections
	redistest.Eventually(t, redistest.Patience, "connections are replaced", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		if err := client.Get(ctx, "x").Err(); err == nil {
			t.Fatal("a call has succeeded")
		}
		if got := meter.Current(time.Now()); got < 100*time.Millisecond {
			t.Fatalf("latency %v while no call succeeds", got)
		}
		if n := way.Counters().Connections - before; n < 10 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
}
