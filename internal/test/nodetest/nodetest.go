// Package nodetest runs one scheduler node on an embedded Redis inside a test process. Examples of the public
// packages use it: they have no testing.T.
package nodetest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/conn"
)

// Runner is a [testing.M] with a node that starts when it is first needed and stops after the tests.
type Runner struct {
	M interface{ Run() int }

	once sync.Once
	addr string
	stop func()
}

// Address returns the address of the node. It panics if the node does not start.
func (r *Runner) Address() string {
	r.once.Do(func() {
		addr, stop, err := startNode()
		if err != nil {
			panic(err)
		}
		r.addr, r.stop = addr, stop
	})
	return r.addr
}

// Run runs the tests and stops the node.
func (r *Runner) Run() int {
	defer func() {
		if r.stop != nil {
			r.stop()
		}
	}()
	return r.M.Run()
}

func startNode() (addr string, stop func(), err error) {
	redis := miniredis.NewMiniRedis()
	redis.ClockTTL(true)
	if err := redis.Start(); err != nil {
		return "", nil, fmt.Errorf("start the embedded Redis: %w", err)
	}
	limits := job.DefaultLimits()
	limits.MinInterval = 10 * time.Millisecond
	n, err := node.New(node.Config{
		Name: "test", GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
		Redis: conn.ClientOptions{URL: "redis://" + redis.Addr()}, Durability: conn.DurabilityMemory,
		AllowUnsafeRedis: true, Shards: 4, Limits: limits, EventsKeep: 10_000, JobRevisions: job.DefaultRevisions,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = n.Start(context.Background())
	}
	if err != nil {
		redis.Close()
		return "", nil, fmt.Errorf("start the node: %w", err)
	}
	return n.GRPCAddr(), func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = n.Stop(ctx) // the process ends
		redis.Close()
	}, nil
}
