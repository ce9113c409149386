package redistest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	slotCount          = 16384
	clusterNodeTimeout = 2 * time.Second
)

// Cluster is a Redis Cluster. Its slots are split evenly, in order, over the
// masters: range i is what the i-th master began with.
type Cluster struct {
	t      testing.TB
	nodes  []*Server // masters first, then the replicas of each in turn
	owners []string  // address that serves range i
}

// StartCluster runs a cluster and returns when all nodes report cluster_state
// ok and every replica follows its master. A failover needs at least three
// masters and one replica each; a node counts as failed after two seconds.
func StartCluster(t testing.TB, masters, replicasPerMaster int, opts ...Option) *Cluster {
	t.Helper()
	if masters < 1 || replicasPerMaster < 0 {
		t.Fatalf("redistest: a cluster of %d masters with %d replicas each", masters, replicasPerMaster)
	}
	c := &Cluster{t: t}
	for range masters * (1 + replicasPerMaster) {
		o := newOptions(opts)
		o.cluster = true
		c.nodes = append(c.nodes, startServer(t, o))
	}
	c.owners = serverAddrs(c.nodes[:masters])
	c.assignSlots()
	c.joinNodes()
	c.addReplicas(replicasPerMaster)
	Eventually(t, topologyDeadline, "cluster", func(ctx context.Context) error {
		return c.checkSettled(ctx)
	})
	return c
}

// assignSlots also gives every node its own epoch: equal ones would have to be
// told apart by a round of collisions.
func (c *Cluster) assignSlots() {
	c.t.Helper()
	ctx := c.t.Context()
	for i, n := range c.nodes {
		if err := n.Client().Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			c.t.Fatalf("redistest: cluster set-config-epoch: %v", err)
		}
	}
	for i := range c.owners {
		first, last := c.slotRange(i)
		if err := c.nodes[i].Client().ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			c.t.Fatalf("redistest: cluster addslotsrange: %v", err)
		}
	}
}

// joinNodes introduces all nodes and waits until each knows every other.
func (c *Cluster) joinNodes() {
	c.t.Helper()
	first := c.nodes[0].Client()
	for _, n := range c.nodes[1:] {
		host, port, _ := net.SplitHostPort(n.Addr()) // made by Addr
		if err := first.ClusterMeet(c.t.Context(), host, port).Err(); err != nil {
			c.t.Fatalf("redistest: cluster meet: %v", err)
		}
	}
	Eventually(c.t, topologyDeadline, "cluster meet", func(ctx context.Context) error {
		for _, n := range c.nodes {
			text, err := n.Client().ClusterNodes(ctx).Result()
			if err != nil {
				return err
			}
			known := strings.Count(text, "\n") - strings.Count(text, "handshake")
			if known != len(c.nodes) {
				return fmt.Errorf("%s knows %d of %d nodes", n.Addr(), known, len(c.nodes))
			}
		}
		return nil
	})
}

func (c *Cluster) addReplicas(perMaster int) {
	c.t.Helper()
	masters := len(c.owners)
	for i, replica := range c.nodes[masters:] {
		id, err := c.nodes[i/perMaster].Client().Do(c.t.Context(), "cluster", "myid").Text()
		if err != nil {
			c.t.Fatalf("redistest: cluster myid: %v", err)
		}
		Eventually(c.t, topologyDeadline, "cluster replicate", func(ctx context.Context) error {
			return replica.Client().ClusterReplicate(ctx, id).Err()
		})
	}
	for i := range masters {
		Eventually(c.t, topologyDeadline, "replicas", func(ctx context.Context) error {
			return replicasOnline(ctx, c.nodes[i], perMaster)
		})
	}
}

// Addrs are the host:port of all nodes, the first masters first.
func (c *Cluster) Addrs() []string { return serverAddrs(c.nodes) }

// Nodes are all nodes, in the order of Addrs.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// Node is the server at addr.
func (c *Cluster) Node(addr string) *Server {
	c.t.Helper()
	return findServer(c.t, c.nodes, addr)
}

// Master is the server that serves range i.
func (c *Cluster) Master(i int) *Server {
	c.t.Helper()
	return c.Node(c.owners[i])
}

// KillMaster crashes the server of range i and returns its address.
func (c *Cluster) KillMaster(i int) string {
	c.t.Helper()
	m := c.Master(i)
	m.Kill()
	return m.Addr()
}

// WaitFailover waits until the range that old served has another master, all
// running nodes agree, and all report cluster_state ok. It returns the new
// master's address.
func (c *Cluster) WaitFailover(old string) string {
	c.t.Helper()
	i := slices.Index(c.owners, old)
	if i < 0 {
		c.t.Fatalf("redistest: %s is not the master of any range", old)
	}
	Eventually(c.t, topologyDeadline, "failover from "+old, func(ctx context.Context) error {
		owner, err := c.agreedOwner(ctx, i)
		if err != nil {
			return err
		}
		if owner == old {
			return fmt.Errorf("%s still owns range %d", old, i)
		}
		previous := c.owners[i]
		c.owners[i] = owner
		if err := c.checkSettled(ctx); err != nil {
			c.owners[i] = previous
			return err
		}
		return nil
	})
	return c.owners[i]
}

// Client is the harness's own: a cluster client with full access that never repeats
// a command by itself. It does follow redirections.
func (c *Cluster) Client() *redis.ClusterClient { return c.newClient(adminUser, adminPassword) }

// Granted is a cluster client as the product's; see [Server.Granted].
func (c *Cluster) Granted() *redis.ClusterClient {
	return c.newClient(productUser, cmp.Or(c.nodes[0].opts.password, "any"))
}

func (c *Cluster) newClient(user, password string) *redis.ClusterClient {
	o := c.nodes[0].clientOptions()
	o.Username, o.Password = user, password
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    c.Addrs(),
		Username:                 o.Username,
		Password:                 o.Password,
		MaxRetries:               o.MaxRetries,
		DisableIdentity:          o.DisableIdentity,
		ContextTimeoutEnabled:    o.ContextTimeoutEnabled,
		MaintNotificationsConfig: o.MaintNotificationsConfig,
	})
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// checkSettled is nil when every running node is content and names the owners that
// we know.
func (c *Cluster) checkSettled(ctx context.Context) error {
	for _, n := range c.nodes {
		if !n.Running() {
			continue
		}
		info, err := n.Client().ClusterInfo(ctx).Result()
		if err != nil {
			return fmt.Errorf("%s: %w", n.Addr(), err)
		}
		if !strings.Contains(info, "cluster_state:ok\r\n") {
			return fmt.Errorf("%s reports a cluster that is not ok", n.Addr())
		}
	}
	for i, want := range c.owners {
		got, err := c.agreedOwner(ctx, i)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("range %d belongs to %s, not %s", i, got, want)
		}
	}
	return nil
}

// agreedOwner asks every running node who serves range i and wants one answer.
func (c *Cluster) agreedOwner(ctx context.Context, i int) (string, error) {
	first, _ := c.slotRange(i)
	agreed := ""
	for _, n := range c.nodes {
		if !n.Running() {
			continue
		}
		table, err := n.Client().ClusterNodes(ctx).Result()
		if err != nil {
			return "", fmt.Errorf("%s: %w", n.Addr(), err)
		}
		owner := slotOwner(table, first)
		if owner == "" || agreed != "" && owner != agreed {
			return "", fmt.Errorf("range %d: %s names %q, others %q", i, n.Addr(), owner, agreed)
		}
		agreed = owner
	}
	return agreed, nil
}

// slotOwner finds who serves a slot in the answer of CLUSTER NODES. Its lines
// are: id, host:port@bus, flags, and from the ninth field on slots as "first-last"
// or one number. Only masters have any.
func slotOwner(table string, slot int) string {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		for _, part := range f[min(8, len(f)):] {
			from, to, isRange := strings.Cut(part, "-")
			if !isRange {
				to = from
			}
			first, err1 := strconv.Atoi(from)
			last, err2 := strconv.Atoi(to)
			if err1 == nil && err2 == nil && first <= slot && slot <= last {
				addr, _, _ := strings.Cut(f[1], "@")
				return addr
			}
		}
	}
	return ""
}

func (c *Cluster) slotRange(i int) (first, last int) {
	n := len(c.owners)
	return i * slotCount / n, (i+1)*slotCount/n - 1
}
