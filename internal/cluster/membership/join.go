package membership

import (
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	// maxJoinTries bounds the nodes contacted in one round. One is enough, because it sends all members that it
	// knows.
	maxJoinTries   = 16
	resolveTimeout = 3 * time.Second
)

// keepJoining tries to join nodes that are not members, periodically and when this node returns, until ctx ends.
// It closes first after the first round.
func (c *Cluster) keepJoining(ctx context.Context, first chan<- struct{}) {
	c.joinOnce(ctx)
	close(first)
	for {
		pause := time.NewTimer(c.o.RejoinEvery*3/4 + rand.N(c.o.RejoinEvery/2+1))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		case <-c.returned:
			pause.Stop()
		}
		c.joinOnce(ctx)
	}
}

// joinOnce makes one round.
func (c *Cluster) joinOnce(ctx context.Context) {
	joined, tried := 0, 0
	for _, addr := range c.joinCandidates(ctx) {
		if c.left.Load() || ctx.Err() != nil {
			return
		}
		tried++
		list := c.startGossip()
		if list == nil {
			return
		}
		n, err := list.Join([]string{addr})
		joined += n
		if err != nil {
			c.o.Logger.Debug("failed to join node", "address", addr, "error", err)
		}
	}
	if tried > 0 && joined == 0 {
		c.o.Logger.Info("failed to join any node", "tried", tried, "members", len(c.View().Members))
	}
}

// joinCandidates are the gossip addresses to try: the configured ones and those of nodes that departed recently,
// except those of members, in random order.
func (c *Cluster) joinCandidates(ctx context.Context) []string {
	candidates := map[string]bool{}
	for _, target := range c.o.Join {
		for _, addr := range c.resolveTarget(ctx, target) {
			candidates[addr] = true
		}
	}
	infos := c.nodes.listNodes(time.Now())
	for _, info := range infos {
		if info.State == StateDeparted {
			candidates[info.Addr] = true
		}
	}
	for _, info := range infos {
		if info.State == StateAlive {
			delete(candidates, info.Addr)
		}
	}
	delete(candidates, c.LocalAddr())
	addrs := make([]string, 0, len(candidates))
	for addr := range candidates {
		addrs = append(addrs, addr)
	}
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs[:min(len(addrs), maxJoinTries)]
}

// resolveTarget resolves a target again in each round, because the names of pods change. It does not leave this
// to memberlist, which would first query the name server over TCP for records of any type.
func (c *Cluster) resolveTarget(ctx context.Context, target string) []string {
	host, port := splitTarget(target, c.defaultPort())
	if net.ParseIP(host) != nil {
		return []string{net.JoinHostPort(host, port)}
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		c.o.Logger.Debug("failed to resolve node to join", "host", host, "error", err)
		return nil
	}
	addrs := make([]string, len(ips))
	for i, ip := range ips {
		addrs[i] = net.JoinHostPort(ip, port)
	}
	return addrs
}

func (c *Cluster) defaultPort() string {
	if c.o.BindPort != 0 {
		return strconv.Itoa(c.o.BindPort)
	}
	_, port, _ := net.SplitHostPort(c.LocalAddr()) // made by memberlist
	return port
}

// splitTarget accepts "host:port", "[ip6]:port", or either without the port.
func splitTarget(target, defaultPort string) (host, port string) {
	if host, port, err := net.SplitHostPort(target); err == nil {
		return host, port
	}
	return strings.Trim(target, "[]"), defaultPort
}
