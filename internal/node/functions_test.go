package node_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/worker"
)

// TestNodesThatCallFunctions: nodes of a user that may bring no script along say what
// they lack, and then do all that nodes do: hold shards, run jobs, give locks back and
// take them over, through it all with nothing refused.
func TestNodesThatCallFunctions(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.WithFunctions())
	functions := func(c *node.Config) { c.RedisFunctions = true }
	if _, err := tryStart(t, redis.URL(), "n", functions); err == nil ||
		!strings.Contains(err.Error(), "fermata redis functions --load") {
		t.Fatalf("without the libraries: %v", err)
	}
	for _, code := range []string{redisstore.Library().Code, shardlock.Library().Code} {
		if err := redis.Client().FunctionLoad(t.Context(), code).Err(); err != nil {
			t.Fatal(err)
		}
	}
	a := startWith(t, redis.URL(), "a", functions)
	b := startWith(t, redis.URL(), "b", functions, a.GossipAddr())
	var ran atomic.Int64
	workWith(t, worker.Options{Addresses: []string{b.GRPCAddr()}, Slots: 4},
		map[string]func(context.Context, *worker.Task) error{
			"ok": func(context.Context, *worker.Task) error { ran.Add(1); return nil },
		})
	c := jobs(t, b)
	for _, id := range []string{"p", "q", "r", "s"} {
		create(t, c, id, intervalJob(200*time.Millisecond, "ok"))
	}
	goesOn := func(what string) {
		t.Helper()
		before := ran.Load()
		redistest.Eventually(t, redistest.Patience, what, func(context.Context) error {
			if ran.Load() < before+8 {
				return errors.New("not enough runs")
			}
			return nil
		})
	}
	goesOn("runs with two nodes")
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	goesOn("runs with one")
	if refused := redis.Refused(); len(refused) > 1 || len(refused) == 1 && !strings.Contains(refused[0], "function") {
		t.Errorf("refused: %v", refused)
	}
}
