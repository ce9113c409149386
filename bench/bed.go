package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/bench/internal/fermata"
	"github.com/fermata-io/fermata/bench/internal/load"
	"github.com/fermata-io/fermata/bench/internal/proc"
	"github.com/fermata-io/fermata/bench/internal/record"
	"github.com/fermata-io/fermata/bench/internal/redisd"
)

// patience is how long a measurement may go on without progress.
const patience = 30 * time.Second

// bed is what one measurement runs on: a fresh redis-server, a worker process that
// is not connected yet, and for Fermata a cluster.
type bed struct {
	dir     string
	redis   *redisd.Server
	masters []*redisd.Server // redis, and the further ones of a Redis Cluster
	replica *redisd.Server
	cluster *fermata.Cluster
	worker  *load.Worker
}

// bedOptions selects what a bed starts.
type bedOptions struct {
	aof       bool
	masters   int  // of a Redis Cluster; 0 or 1 is a single server
	replica   bool // of the single server, which has to confirm what is written
	redisArgs []string
	nodes     int // of Fermata; 0 starts none
	flags     []string
	worker    load.Config // no Kind starts none
}

// newBed starts all parts. Its caller closes it.
func (r *runner) newBed(ctx context.Context, o bedOptions) (b *bed, err error) {
	dir, err := os.MkdirTemp(r.dir, "bed")
	if err != nil {
		return nil, err
	}
	b = &bed{dir: dir}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	err = b.startRedis(ctx, o)
	if err != nil {
		return b, err
	}
	addresses := []string{b.redis.Addr}
	if o.nodes > 0 {
		durability := "memory"
		switch {
		case o.replica:
			durability = "replica"
		case o.aof:
			durability = "local"
		}
		b.cluster, err = fermata.Start(ctx, fermata.Options{
			Binary: r.scheduler, Dir: filepath.Join(dir, "nodes"), RedisURL: b.redisURL(), Nodes: o.nodes,
			Durability: durability, Flags: slices.Concat(o.flags, r.p.Flags), Profiling: r.p.Profile != "",
		})
		if err != nil {
			return b, err
		}
		addresses = b.cluster.Addresses()
	}
	if o.worker.Kind != "" {
		o.worker.Addresses = addresses
		b.worker, err = load.Start(dir, o.worker)
	}
	return b, err
}

func (b *bed) startRedis(ctx context.Context, o bedOptions) (err error) {
	dir := filepath.Join(b.dir, "redis")
	if o.masters > 1 {
		b.masters, err = redisd.StartCluster(ctx, dir, o.masters)
	} else {
		args := o.redisArgs
		if o.replica {
			args = append(slices.Clone(args), "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
		}
		b.masters = make([]*redisd.Server, 1)
		b.masters[0], err = redisd.Start(ctx, redisd.Options{Dir: dir, AOF: o.aof || o.replica, Args: args})
	}
	if err != nil {
		b.masters = nil
		return err
	}
	b.redis = b.masters[0]
	if o.replica {
		b.replica, err = redisd.StartReplica(ctx, filepath.Join(b.dir, "replica"), b.redis)
	}
	return err
}

// redisURL names the server, or the cluster by one of its masters.
func (b *bed) redisURL() string {
	if len(b.masters) > 1 {
		return "redis+cluster://" + b.redis.Addr
	}
	return b.redis.URL()
}

func (b *bed) close() {
	if b.worker != nil {
		b.worker.Stop()
	}
	if b.cluster != nil {
		b.cluster.Stop()
	}
	if b.replica != nil {
		b.replica.Stop()
	}
	for _, s := range b.masters {
		s.Stop()
	}
	_ = os.RemoveAll(b.dir) // in a folder that is removed in the end
}

// alive is an error if a process has ended.
func (b *bed) alive() error {
	for _, p := range b.processes() {
		if err := p.Failed(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) processes() []*proc.Process {
	out := b.redisProcesses()
	if b.replica != nil {
		out = append(out, b.replica.Process)
	}
	if b.worker != nil {
		out = append(out, b.worker.Process)
	}
	if b.cluster != nil {
		out = append(out, b.cluster.Processes()...)
	}
	return out
}

// redisProcesses are the servers that are written to.
func (b *bed) redisProcesses() (out []*proc.Process) {
	for _, s := range b.masters {
		out = append(out, s.Process)
	}
	return out
}

// waitExecuted waits until handlers were entered so often in all.
func (b *bed) waitExecuted(ctx context.Context, want int) error {
	last, since := -1, time.Now()
	for {
		n, err := b.worker.Executed()
		err = errors.Join(err, ctx.Err(), b.alive())
		if err != nil || n >= want {
			return err
		}
		if n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) > patience {
			return fmt.Errorf("%d of %d executions, and no further one for %v\n%s", n, want, patience, b.worker.Tail())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// waitSettled waits until nothing is open any more.
func (b *bed) waitSettled(ctx context.Context, open func(context.Context) (int, error)) error {
	for since := time.Now(); ; {
		n, err := open(ctx)
		err = errors.Join(err, b.alive())
		if err != nil || n == 0 {
			return err
		}
		if time.Since(since) > patience {
			return fmt.Errorf("%d jobs are not settled %v after the last one ran", n, patience)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// verify takes the worker's log; a job that did not run as often as expected makes
// the measurement void.
func (b *bed) verify(expect, shards int) ([]record.Report, error) {
	reports, err := b.worker.Reports(expect, shards)
	if err != nil {
		return nil, err
	}
	for c, p := range reports {
		if p.Wrong > 0 {
			return nil, fmt.Errorf("class %d: %d of %d jobs did not run %d times (%d never); %d executions in all",
				c, p.Wrong, p.Jobs, expect, p.Missing, p.Executions)
		}
	}
	return reports, nil
}

func (b *bed) redisClients() (out []*redis.Client) {
	for _, s := range b.masters {
		out = append(out, s.Client)
	}
	return out
}

// redisReads is how often the servers have read from a connection: about the number of
// round trips.
func (b *bed) redisReads(ctx context.Context) (n int64, err error) {
	for _, s := range b.masters {
		fields, err := s.Info(ctx, "stats")
		if err != nil {
			return 0, err
		}
		reads, err := strconv.ParseInt(fields["total_reads_processed"], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("total_reads_processed %q: %w", fields["total_reads_processed"], err)
		}
		n += reads
	}
	return n, nil
}
