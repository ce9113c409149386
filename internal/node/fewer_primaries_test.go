package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestANodeThatReachesFewerPrimariesStandsAside: its shards on the primary that only it
// cannot reach would be nobody's otherwise.
func TestANodeThatReachesFewerPrimariesStandsAside(t *testing.T) {
	t.Parallel()
	redis := redistest.StartCluster(t, 3, 0)
	url := "redis+cluster://" + strings.Join(redis.Addrs(), ",")
	path := &path{open: map[net.Conn]string{}}
	a := startWith(t, url, "a", func(*node.Config) {})
	b := startWith(t, url, "b", func(c *node.Config) { c.Redis.Dialer = path.dial }, a.GossipAddr())
	holding := func(what string, fits func(a, b int) bool) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, what, func(context.Context) error {
			if x, y := a.Describe().ShardsHeld, b.Describe().ShardsHeld; x+y != 64 || !fits(x, y) {
				return fmt.Errorf("%d and %d", x, y)
			}
			return nil
		})
	}
	shared := func(a, b int) bool { return a == b }
	holding("shards on both", shared)
	path.cut(redis.Master(1).Addr())
	holding("all shards at the node that reaches all primaries", func(a, b int) bool { return b == 0 })
	path.cut("")
	holding("shards on both again", shared)
}

// TestNodesThatMissDifferentPrimariesShareTheRest: neither node reaches more primaries than the other, so that none
// withdraws. Each takes the shards that the other one cannot hold.
func TestNodesThatMissDifferentPrimariesShareTheRest(t *testing.T) {
	t.Parallel()
	redis := redistest.StartCluster(t, 3, 0)
	url := "redis+cluster://" + strings.Join(redis.Addrs(), ",")
	paths := []*path{{open: map[net.Conn]string{}}, {open: map[net.Conn]string{}}}
	a := startWith(t, url, "a", func(c *node.Config) { c.Redis.Dialer = paths[0].dial })
	b := startWith(t, url, "b", func(c *node.Config) { c.Redis.Dialer = paths[1].dial }, a.GossipAddr())
	sharedByTwo(t, a, b)
	t.Cleanup(func() { // a node that cannot reach Redis drains for long
		paths[0].cut("")
		paths[1].cut("")
	})
	// Heartbeats have to stay where both nodes can write them.
	meta := int(sharding.Slot("meta")) * 3 / sharding.Slots
	paths[0].cut(redis.Master((meta + 1) % 3).Addr())
	paths[1].cut(redis.Master((meta + 2) % 3).Addr())
	redistest.Eventually(t, 2*time.Minute, "all shards held", func(context.Context) error {
		x, y := a.Describe().ShardsHeld, b.Describe().ShardsHeld
		if x+y != 64 || x < 20 || y < 20 || x == y {
			return fmt.Errorf("%d and %d", x, y)
		}
		return nil
	})
}

// path is the way of one node to Redis, which may be cut to one address.
type path struct {
	mu   sync.Mutex
	gone string
	open map[net.Conn]string
}

func (p *path) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if address == p.gone {
		_ = c.Close()
		return nil, errors.New("no route")
	}
	p.open[c] = address
	return c, nil
}

func (p *path) cut(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = address
	for c, to := range p.open {
		if to == address {
			_ = c.Close()
		}
	}
}
