package redisd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/fermata-io/fermata/bench/internal/proc"
)

// clusterSlots is how many hash slots a Redis Cluster has.
const clusterSlots = 16384

// StartCluster runs masters that share the slots equally, and returns when all of them report that the cluster
// is complete.
func StartCluster(ctx context.Context, dir string, masters int) (servers []*Server, err error) {
	defer func() {
		if err != nil {
			for _, s := range servers {
				s.Stop()
			}
			servers = nil
		}
	}()
	buses, err := proc.FreePorts(masters)
	if err != nil {
		return nil, err
	}
	for i := range masters {
		s, err := Start(ctx, Options{Dir: filepath.Join(dir, fmt.Sprint(i)), Args: []string{
			"--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(buses[i]),
		}})
		if err != nil {
			return servers, err
		}
		servers = append(servers, s)
		from, to := i*clusterSlots/masters, (i+1)*clusterSlots/masters-1
		if err := s.Client.Do(ctx, "cluster", "addslotsrange", from, to).Err(); err != nil {
			return servers, err
		}
		_, port, _ := strings.Cut(s.Addr, ":")
		if err := servers[0].Client.Do(ctx, "cluster", "meet", "127.0.0.1", port, buses[i]).Err(); i > 0 && err != nil {
			return servers, err
		}
	}
	for _, s := range servers {
		info := func() (string, error) { return s.Client.ClusterInfo(ctx).Result() }
		if err := s.waitFor(ctx, "cluster", info, "cluster_state:ok"); err != nil {
			return servers, err
		}
	}
	return servers, nil
}

// StartReplica runs a copy of a server, which writes to disk, and returns when it has caught up
// and the server knows it.
func StartReplica(ctx context.Context, dir string, of *Server) (*Server, error) {
	host, port, _ := strings.Cut(of.Addr, ":")
	s, err := Start(ctx, Options{Dir: dir, AOF: true, Args: []string{"--replicaof", host, port}})
	if err != nil {
		return nil, err
	}
	info := func() (string, error) { return of.Client.Info(ctx, "replication").Result() }
	err = of.waitFor(ctx, "primary", info, "state=online")
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// waitFor waits until an answer holds a text.
func (s *Server) waitFor(ctx context.Context, what string, ask func() (string, error), want string) error {
	for since := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		answer, err := ask()
		if err == nil && strings.Contains(answer, want) {
			return nil
		}
		err = errors.Join(err, s.Failed(), ctx.Err())
		if err != nil {
			return err
		}
		if time.Since(since) > 30*time.Second {
			return fmt.Errorf("%s at %s: no %s within 30s", what, s.Addr, want)
		}
	}
}
