package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
)

// Owner is the master that serves a slot now.
func (c *Cluster) Owner(slot int) *Server {
	c.t.Helper()
	var addr string
	Eventually(c.t, topologyDeadline, fmt.Sprintf("owner of slot %d", slot), func(ctx context.Context) error {
		addr = ""
		for _, n := range c.nodes {
			if !n.Running() {
				continue
			}
			table, err := n.Client().ClusterNodes(ctx).Result()
			if err != nil {
				return fmt.Errorf("%s: %w", n.Addr(), err)
			}
			owner := slotOwner(table, slot)
			if owner == "" || addr != "" && owner != addr {
				return fmt.Errorf("%s names %q, others %q", n.Addr(), owner, addr)
			}
			addr = owner
		}
		return nil
	})
	return c.Node(addr)
}

// MoveSlot moves a slot to another master with all its keys, one key after the
// other, as resharding does while clients are at work. between, unless it is nil, is
// called after each key. The first slot of a range must stay where it is.
func (c *Cluster) MoveSlot(slot int, to *Server, between func()) {
	c.t.Helper()
	for i := range c.owners {
		if first, _ := c.slotRange(i); first == slot {
			c.t.Fatalf("redistest: slot %d stands for its range", slot)
		}
	}
	from := c.Owner(slot)
	if from == to {
		return
	}
	fromID, toID := c.runCommand(from, "cluster", "myid"), c.runCommand(to, "cluster", "myid")
	c.runCommand(to, "cluster", "setslot", slot, "importing", fromID)
	c.runCommand(from, "cluster", "setslot", slot, "migrating", toID)
	for c.moveKeys(slot, from, to, between) > 0 {
	}
	// The new owner first, so that the slot is never without one.
	c.runCommand(to, "cluster", "setslot", slot, "node", toID)
	c.runCommand(from, "cluster", "setslot", slot, "node", toID)
	Eventually(c.t, topologyDeadline, fmt.Sprintf("slot %d at its new master", slot), func(ctx context.Context) error {
		for _, n := range c.nodes {
			if !n.Running() {
				continue
			}
			table, err := n.Client().ClusterNodes(ctx).Result()
			if err != nil {
				return err
			}
			if owner := slotOwner(table, slot); owner != to.Addr() {
				return fmt.Errorf("%s names %s", n.Addr(), owner)
			}
		}
		return nil
	})
}

// moveKeys moves the keys that a slot has now, and returns how many. One that was
// deleted meanwhile is none.
func (c *Cluster) moveKeys(slot int, from, to *Server, between func()) int {
	c.t.Helper()
	keys, err := from.Client().ClusterGetKeysInSlot(c.t.Context(), slot, 100).Result()
	if err != nil {
		c.t.Fatalf("redistest: keys of slot %d: %v", slot, err)
	}
	host, port, _ := net.SplitHostPort(to.Addr()) // made by Addr
	for _, key := range keys {
		c.runCommand(from, "migrate", host, port, key, 0, 5000, "auth2", adminUser, adminPassword)
		if between != nil {
			between()
		}
	}
	return len(keys)
}

// runCommand sends a command to one server of the cluster.
func (c *Cluster) runCommand(s *Server, args ...any) string {
	c.t.Helper()
	text, err := s.Client().Do(c.t.Context(), args...).Text()
	if err != nil {
		c.t.Fatalf("redistest: %s: %v: %v", s.Addr(), strings.ToLower(fmt.Sprint(args...)), err)
	}
	return text
}
