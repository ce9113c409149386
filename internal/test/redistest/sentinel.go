package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const masterName = "fermata"

// Sentinel is a replicated Redis whose master is chosen by Sentinel processes.
type Sentinel struct {
	t         testing.TB
	nodes     []*Server // the first began as the master
	sentinels []*Server
	front     string // where all others find the first; its own address, or a proxy's
}

// StartSentinel runs one master, the given number of replicas and sentinels,
// and returns when every sentinel knows all of them. A failover needs quorum
// sentinels to agree and a majority of them alive; a master counts as down
// after one second. Data servers have an append-only file (everysec unless an
// option says otherwise); the options go to the data servers.
func StartSentinel(t testing.TB, replicas, sentinels, quorum int, opts ...Option) *Sentinel {
	t.Helper()
	return StartSentinelBehind(t, func(addr string) string { return addr }, replicas, sentinels, quorum, opts...)
}

// StartSentinelBehind is [StartSentinel] with a proxy before the first master: front
// is given its address and returns that by which replicas, sentinels and, through
// these, clients know it for good.
func StartSentinelBehind(t testing.TB, front func(addr string) string,
	replicas, sentinels, quorum int, opts ...Option) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	opts = append([]Option{WithAOF("everysec")}, opts...)
	master := Start(t, opts...)
	s.front = front(master.Addr())
	if s.front != master.Addr() {
		s.setMaster(master)
	}
	s.nodes = append(s.nodes, master)
	for range replicas {
		s.nodes = append(s.nodes, Start(t, append(opts, WithConfig("replicaof", hostSpacePort(s.front)))...))
	}
	Eventually(t, topologyDeadline, "replicas", func(ctx context.Context) error {
		return replicasOnline(ctx, master, replicas)
	})
	for range sentinels {
		s.sentinels = append(s.sentinels, startSentinel(t, s.front, quorum))
	}
	Eventually(t, topologyDeadline, "sentinels", func(ctx context.Context) error {
		return s.checkDiscovered(ctx, replicas)
	})
	return s
}

// setMaster makes the first master keep its address when it has become a replica.
func (s *Sentinel) setMaster(master *Server) {
	host, port, err := net.SplitHostPort(s.front)
	for _, set := range [][2]string{{"replica-announce-ip", host}, {"replica-announce-port", port}} {
		if err == nil {
			err = master.Client().ConfigSet(s.t.Context(), set[0], set[1]).Err()
		}
	}
	if err != nil {
		s.t.Fatalf("redistest: announce %q: %v", s.front, err)
	}
}

func startSentinel(t testing.TB, master string, quorum int) *Server {
	t.Helper()
	o := &options{sentinel: true}
	o.addLine("sentinel", fmt.Sprintf("monitor %s %s %d", masterName, hostSpacePort(master), quorum))
	o.addLine("sentinel", fmt.Sprintf("down-after-milliseconds %s 2000", masterName))
	o.addLine("sentinel", fmt.Sprintf("failover-timeout %s 3000", masterName))
	o.addLine("sentinel", fmt.Sprintf("auth-user %s %s", masterName, adminUser))
	o.addLine("sentinel", fmt.Sprintf("auth-pass %s %s", masterName, adminPassword))
	// Among themselves.
	o.addLine("sentinel", "sentinel-user "+adminUser)
	o.addLine("sentinel", "sentinel-pass "+adminPassword)
	return startServer(t, o)
}

// SentinelAddrs are the host:port of the sentinels.
func (s *Sentinel) SentinelAddrs() []string { return serverAddrs(s.sentinels) }

// MasterName is the name under which the sentinels watch the master.
func (s *Sentinel) MasterName() string { return masterName }

// Nodes are the data servers; the first began as the master.
func (s *Sentinel) Nodes() []*Server { return s.nodes }

// Sentinels are the sentinel processes.
func (s *Sentinel) Sentinels() []*Server { return s.sentinels }

// MasterAddr is the address that the live sentinels now give for the master.
func (s *Sentinel) MasterAddr() string {
	s.t.Helper()
	var addr string
	Eventually(s.t, topologyDeadline, "master address", func(ctx context.Context) (err error) {
		addr, err = s.agreedMaster(ctx)
		return err
	})
	return addr
}

// Master is the server at MasterAddr.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	return findServer(s.t, s.nodes, s.MasterAddr())
}

// KillMaster crashes the present master and returns its address.
func (s *Sentinel) KillMaster() string {
	s.t.Helper()
	m := s.Master()
	m.Kill()
	return m.Addr()
}

// WaitFailover waits until all live sentinels name a master other than old and
// that server says so itself, and returns its address.
func (s *Sentinel) WaitFailover(old string) string {
	s.t.Helper()
	var addr string
	Eventually(s.t, topologyDeadline, "failover from "+old, func(ctx context.Context) (err error) {
		addr, err = s.agreedMaster(ctx)
		if err != nil {
			return err
		}
		if addr == old {
			return fmt.Errorf("%s is still the master", old)
		}
		return hasInfo(ctx, findServer(s.t, s.nodes, addr), "replication", "role:master")
	})
	return addr
}

// agreedMaster asks every live sentinel and wants one answer.
func (s *Sentinel) agreedMaster(ctx context.Context) (string, error) {
	agreed := ""
	for _, sentinel := range s.sentinels {
		if !sentinel.Running() {
			continue
		}
		reply, err := sentinel.Client().Do(ctx, "sentinel", "get-master-addr-by-name", masterName).StringSlice()
		if err != nil {
			return "", fmt.Errorf("sentinel %s: %w", sentinel.Addr(), err)
		}
		if len(reply) != 2 {
			return "", fmt.Errorf("sentinel %s answers %q", sentinel.Addr(), reply)
		}
		addr := net.JoinHostPort(reply[0], reply[1])
		if agreed != "" && addr != agreed {
			return "", fmt.Errorf("sentinels name both %s and %s", agreed, addr)
		}
		agreed = addr
	}
	switch agreed {
	case "":
		return "", errors.New("no sentinel is running")
	case s.front:
		return s.nodes[0].Addr(), nil
	}
	return agreed, nil
}

// checkDiscovered is nil when every sentinel knows all the others and of all
// replicas: before that a failover may have no majority and no replica to promote.
func (s *Sentinel) checkDiscovered(ctx context.Context, replicas int) error {
	for _, sentinel := range s.sentinels {
		m, err := sentinel.Client().Do(ctx, "sentinel", "master", masterName).Result()
		if err != nil {
			return fmt.Errorf("sentinel %s: %w", sentinel.Addr(), err)
		}
		got := replyFields(m)
		if got["num-other-sentinels"] != strconv.Itoa(len(s.sentinels)-1) ||
			got["num-slaves"] != strconv.Itoa(replicas) || got["flags"] != "master" {
			return fmt.Errorf("sentinel %s sees %s others, %s replicas, master flags %s",
				sentinel.Addr(), got["num-other-sentinels"], got["num-slaves"], got["flags"])
		}
	}
	return nil
}

// Client is the harness's own: a failover client with full access that never repeats a command by itself.
func (s *Sentinel) Client() *redis.Client {
	o := s.nodes[0].clientOptions()
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:            masterName,
		SentinelAddrs:         s.SentinelAddrs(),
		Username:              o.Username,
		Password:              o.Password,
		MaxRetries:            o.MaxRetries,
		DisableIdentity:       o.DisableIdentity,
		ContextTimeoutEnabled: o.ContextTimeoutEnabled,
	})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// replicasOnline is nil when the master streams to n replicas.
func replicasOnline(ctx context.Context, master *Server, n int) error {
	info, err := master.Client().Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	if got := strings.Count(info, "state=online"); got != n {
		return fmt.Errorf("%s has %d of %d replicas online", master.Addr(), got, n)
	}
	return nil
}

// hasInfo is nil when a section of INFO has the line want.
func hasInfo(ctx context.Context, s *Server, section, want string) error {
	info, err := s.Client().Info(ctx, section).Result()
	if err != nil {
		return fmt.Errorf("%s: %w", s.Addr(), err)
	}
	if !strings.Contains(info, want+"\r\n") {
		return fmt.Errorf("%s does not report %s", s.Addr(), want)
	}
	return nil
}
