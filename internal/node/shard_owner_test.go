package node_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/cluster/membership"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestMembersByGossipAloneHoldNothingUp has a holder of the gossip key join as one member, and
// then as twelve, without Redis: the nodes keep all shards where they are.
func TestMembersByGossipAloneHoldNothingUp(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := start(t, redis.URL(), "a")
	b := start(t, redis.URL(), "b", a.GossipAddr())
	sharedByTwo(t, a, b)
	before := holders(t, a)
	for i := range 12 {
		joinByGossipAlone(t, fmt.Sprint("evil", i), a.GossipAddr())
		if i == 0 || i == 11 {
			keepsHolders(t, a, before, func() { sharedByTwo(t, a, b) })
			before = holders(t, a)
		}
	}
	for _, n := range []*node.Node{a, b} {
		isReady(t, n)
	}
}

// TestNodeOnAnotherDatabaseHoldsNothingUp: an honest node with a wrong database is refused by both
// others, owns none of their shards, and has its own keyspace to itself.
func TestNodeOnAnotherDatabaseHoldsNothingUp(t *testing.T) {
	t.Parallel()
	redis, log := redistest.Start(t), &lines{}
	logged := func(c *node.Config) { c.Logger = log.logger() }
	a := startWith(t, redis.URL(), "a", logged)
	b := startWith(t, redis.URL(), "b", logged, a.GossipAddr())
	sharedByTwo(t, a, b)
	before := holders(t, a)
	elsewhere := startWith(t, redistest.Start(t).URL(), "elsewhere", logged, a.GossipAddr())
	keepsHolders(t, a, before, func() { sharedByTwo(t, a, b) })
	if n := elsewhere.Describe().ShardsHeld; n != 64 {
		t.Errorf("it holds %d of its own 64 shards", n)
	}
	if n := log.count("node uses another keyspace"); n != 4 {
		t.Errorf("it is logged %d times, want once for each of four refusals", n)
	}
	for _, n := range []*node.Node{a, b} {
		isReady(t, n)
	}
}

// joinByGossipAlone has a member join that has neither Redis nor a peer address.
func joinByGossipAlone(t *testing.T, name, addr string) {
	t.Helper()
	c, err := membership.New(membership.Options{
		Name: name, BindAddr: "127.0.0.1", Join: []string{addr}, Label: "fermata",
		GRPCAddr: "127.0.0.1:1", PeerAddr: "127.0.0.1:1", Process: "AAAAAAAAAAAAAAAAAAAAAA",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	redistest.Eventually(t, redistest.Patience, name+" is a member", func(context.Context) error {
		if n := len(c.View().Members); n < 3 {
			return fmt.Errorf("it sees %d", n)
		}
		return nil
	})
}

// sharedByTwo waits until two nodes hold half of the shards each.
func sharedByTwo(t *testing.T, a, b *node.Node) {
	t.Helper()
	redistest.Eventually(t, redistest.Patience, "half of the shards on each", func(context.Context) error {
		if x, y := a.Describe().ShardsHeld, b.Describe().ShardsHeld; x != 32 || y != 32 {
			return fmt.Errorf("%d and %d", x, y)
		}
		return nil
	})
}

// keepsHolders fails if shards move within ten seconds, which is more than the ring needs to settle and locks to expire.
// On a busy machine a node of the test can stop for as long as its lock lives, which moves its shards rightly: then
// they have to settle again, and to stay at the latest the third time.
func keepsHolders(t *testing.T, n *node.Node, before string, settle func()) {
	t.Helper()
	for range 3 {
		now := watchHolders(t, n, before)
		if now == before {
			return
		}
		t.Logf("shards moved:\n%s\n%s", before, now)
		settle()
		before = holders(t, n)
	}
	t.Fatal("shards moved three times")
}

// watchHolders returns the holders after ten seconds, or at once if they change.
func watchHolders(t *testing.T, n *node.Node, before string) (now string) {
	t.Helper()
	end := time.Now().Add(10 * time.Second) // the lock's life is 6 s
	redistest.Eventually(t, redistest.Patience, "ten seconds", func(context.Context) error {
		now = holders(t, n)
		if now == before && time.Now().Before(end) {
			return fmt.Errorf("until %v", end)
		}
		return nil
	})
	return now
}

func isReady(t *testing.T, n *node.Node) {
	t.Helper()
	answer, err := http.Get("http://" + n.HTTPAddr() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("%s is not ready: %d", n.Name(), answer.StatusCode)
	}
}

// TestNodeThatHoldsNoneOfItsShardsIsNotReady: Redis refuses its calls on locks, and it goes on being a member that
// writes heartbeats. It is not ready. The other one stays ready, and takes the abandoned shards.
func TestNodeThatHoldsNoneOfItsShardsIsNotReady(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := start(t, redis.URL(), "a")
	way := faultproxy.NewAnswerer(t, redis.Addr())
	b := start(t, "redis://"+way.Addr()+"/0", "b", a.GossipAddr())
	sharedByTwo(t, a, b)
	way.FailNext(0, 1<<30, "ERR broken", "evalsha", "eval")
	redistest.Eventually(t, redistest.Patience, "b is not ready", func(context.Context) error {
		missing := b.UnreadyReasons() // a look at Redis fails as well
		if len(missing) != 1 || !strings.HasPrefix(missing[0], "shards: 32 that this node should hold") {
			return fmt.Errorf("%q", missing)
		}
		return nil
	})
	isReady(t, a)
	redistest.Eventually(t, redistest.Patience, "all shards on a", func(context.Context) error {
		if n := a.Describe().ShardsHeld; n != 64 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	way.FailNext(0, 0, "")
	redistest.Eventually(t, redistest.Patience, "b is ready", func(ctx context.Context) error {
		if missing := b.Missing(ctx); len(missing) > 0 {
			return fmt.Errorf("%q", missing)
		}
		return nil
	})
}

// TestNodeThatRedisRefusesStandsAside: its user has lost its rights, and those of the others have not.
func TestNodeThatRedisRefusesStandsAside(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := start(t, redis.URL(), "a")
	way := faultproxy.NewAnswerer(t, redis.Addr())
	b := start(t, "redis://"+way.Addr()+"/0", "b", a.GossipAddr())
	sharedByTwo(t, a, b)
	way.FailNext(0, 1<<30, "NOPERM this user has no permissions", "evalsha", "eval")
	redistest.Eventually(t, redistest.Patience, "all shards on a", func(context.Context) error {
		if n := a.Describe().ShardsHeld; n != 64 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	way.FailNext(0, 0, "")
	sharedByTwo(t, a, b)
}
