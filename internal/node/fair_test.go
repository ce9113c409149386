package node_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// TestShardsOfANodeWithoutWorkersGetTheirPart: one of two nodes has the only worker, and both
// have more that is due than it has slots. Neither waits until the other has nothing left.
func TestShardsOfANodeWithoutWorkersGetTheirPart(t *testing.T) {
	t.Parallel()
	const shards, due = 8, 300
	redis := redistest.Start(t)
	sharded := func(c *node.Config) { c.Shards = shards }
	a := startWith(t, redis.URL(), "a", sharded)
	b := startWith(t, redis.URL(), "b", sharded, a.GossipAddr())
	holders := shared(t, a)
	calls := jobs(t, a)
	all := map[string]int{}
	for i := range due {
		id := fmt.Sprint("j", i)
		create(t, calls, id, &fermatav1.Job{Handler: "h",
			Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.Now()}}})
		all[holders[sharding.ShardOf("default", id, shards)]]++
	}
	var mu sync.Mutex
	began, done := map[string]int{}, make(chan struct{})
	atEnd := map[string]int{} // how many of each node had begun when one of them had nothing left
	workWith(t, worker.Options{Addresses: []string{b.GRPCAddr()}, Slots: 4},
		map[string]func(context.Context, *worker.Task) error{
			"h": func(ctx context.Context, task *worker.Task) error {
				defer busy(ctx)
				mu.Lock()
				defer mu.Unlock()
				holder := holders[sharding.ShardOf("default", task.Job, shards)]
				began[holder]++
				if began[holder] == all[holder] && len(atEnd) == 0 {
					maps.Copy(atEnd, began)
				}
				if began["a"]+began["b"] == due {
					close(done)
				}
				return nil
			},
		})
	select {
	case <-done:
	case <-time.After(redistest.Patience):
		t.Fatal("not all have run")
	}
	mu.Lock()
	defer mu.Unlock()
	for _, n := range []string{"a", "b"} {
		if part := float64(atEnd[n]) / float64(all[n]); part < 0.2 {
			t.Errorf("%v of %v had begun when one node had nothing left: %.2f of those of %s", atEnd, all, part, n)
		}
	}
}

// shared waits until the nodes a and b both hold shards, and all of them, and returns who
// holds which.
func shared(t *testing.T, a *node.Node) map[int]string {
	t.Helper()
	holders := map[int]string{}
	redistest.Eventually(t, redistest.Patience, "both nodes to hold shards", func(ctx context.Context) error {
		all, err := dial(t, a).Admin().Shards(ctx)
		held := map[string]int{}
		for i, s := range all {
			holders[i] = s.GetHolder()
			held[s.GetHolder()]++
		}
		if err == nil && (held["a"] < 2 || held["b"] < 2 || held[""] > 0) {
			err = fmt.Errorf("%v", held)
		}
		return err
	})
	return holders
}

// busy is the time that an attempt takes.
func busy(ctx context.Context) {
	select {
	case <-time.After(40 * time.Millisecond):
	case <-ctx.Done():
	}
}
