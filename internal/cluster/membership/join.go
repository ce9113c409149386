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
	// maxTries bounds the nodes contacted in one round: meeting one is enough,
	// as it tells of all it knows.
	maxTries       = 16
	resolveTimeout = 3 * time.Second
)

// keepJoining tries to meet nodes that are not members, now and then and when this node
// is back, until ctx ends. It closes first after the first round.
func (c *Cluster) keepJoining(ctx context.Context, first chan<- struct{}) {
	c.join(ctx)
	close(first)
	for {
		pause := time.NewTimer(c.o.RejoinEvery*3/4 + rand.N(c.o.RejoinEvery/2+1))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		case <-c.back:
			pause.Stop()
		}
		c.join(ctx)
	}
}

// join makes one round.
func (c *Cluster) join(ctx context.Context) {
	met, tried := 0, 0
	for _, addr := range c.strangers(ctx) {
		if c.left.Load() || ctx.Err() != nil {
			return
		}
		tried++
		list := c.begin()
		if list == nil {
			return
		}
		n, err := list.Join([]string{addr})
		met += n
		if err != nil {
			c.o.Logger.Debug("cannot join", "address", addr, "error", err)
		}
	}
	if tried > 0 && met == 0 {
		c.o.Logger.Info("met none of the nodes to join", "tried", tried, "members", len(c.View().Members))
	}
}

// strangers are the gossip addresses to try: the configured ones and those of
// nodes that departed lately, without those of members, in random order.
func (c *Cluster) strangers(ctx context.Context) []string {
	candidates := map[string]bool{}
	for _, target := range c.o.Join {
		for _, addr := range c.resolve(ctx, target) {
			candidates[addr] = true
		}
	}
	infos := c.nodes.list(time.Now())
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
	return addrs[:min(len(addrs), maxTries)]
}

// resolve looks a target up afresh: names of pods come and go with them. It is
// done here because memberlist would first ask the name server by TCP for any
// record there is.
func (c *Cluster) resolve(ctx context.Context, target string) []string {
	host, port := splitTarget(target, c.defaultPort())
	if net.ParseIP(host) != nil {
		return []string{net.JoinHostPort(host, port)}
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		c.o.Logger.Debug("cannot resolve a node to join", "host", host, "error", err)
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

// splitTarget takes "host:port", "[ip6]:port", or either without the port.
func splitTarget(target, defaultPort string) (host, port string) {
	if host, port, err := net.SplitHostPort(target); err == nil {
		return host, port
	}
	return strings.Trim(target, "[]"), defaultPort
}
