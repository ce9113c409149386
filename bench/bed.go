package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

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
	cluster *fermata.Cluster
	worker  *load.Worker
}

// bedOptions say what is needed.
type bedOptions struct {
	aof       bool
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
	b.redis, err = redisd.Start(ctx, redisd.Options{Dir: filepath.Join(dir, "redis"), AOF: o.aof, Args: o.redisArgs})
	if err != nil {
		return b, err
	}
	addresses := []string{b.redis.Addr}
	if o.nodes > 0 {
		durability := "memory"
		if o.aof {
			durability = "local"
		}
		b.cluster, err = fermata.Start(ctx, fermata.Options{
			Binary: r.scheduler, Dir: filepath.Join(dir, "nodes"), RedisURL: b.redis.URL(), Nodes: o.nodes,
			Durability: durability, Flags: append(o.flags, r.p.Flags...), Profiling: r.p.Profile != "",
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

func (b *bed) close() {
	if b.worker != nil {
		b.worker.Stop()
	}
	if b.cluster != nil {
		b.cluster.Stop()
	}
	if b.redis != nil {
		b.redis.Stop()
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
	out := []*proc.Process{b.redis.Process}
	if b.worker != nil {
		out = append(out, b.worker.Process)
	}
	if b.cluster != nil {
		out = append(out, b.cluster.Processes()...)
	}
	return out
}

// waitExecuted waits until handlers were entered so often in all.
func (b *bed) waitExecuted(ctx context.Context, want int) error {
	last, since := -1, time.Now()
	for {
		n, err := b.worker.Executed()
		if err = errors.Join(err, ctx.Err(), b.alive()); err != nil || n >= want {
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
		if err = errors.Join(err, b.alive()); err != nil || n == 0 {
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
