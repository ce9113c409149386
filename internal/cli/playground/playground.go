package playground

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/console"
	"github.com/fermata-io/fermata/internal/api/gateway"
	"github.com/fermata-io/fermata/internal/cli/httpapi"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/observe/logs"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/worker"
	"github.com/fermata-io/fermata/worker/httphandler"
)

const (
	workerSlots = 16
	// shardCount are few, for one node needs no spreading.
	shardCount = 8
)

// playground is everything that runs, in one process.
type playground struct {
	options  Options
	dir      string // of this run alone
	facts    connectionFacts
	logger   *slog.Logger
	level    *logs.Level
	commands chan targetMode // modes that the target was switched to

	target      *target
	client      *client.Client
	worker      *worker.Worker
	drainWorker context.CancelFunc
	workerEnded chan struct{}
	workerErr   error // valid once workerEnded is closed
	// foreignRuns are live runs of workers outside the playground, which the end waits for.
	foreignRuns []string

	undo []func(context.Context) error // of start, in order
}

// startAll builds one part after the other. What was built is undone by stop, also
// when start fails.
func (p *playground) startAll(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		p.makeDir, p.openLog, p.startTarget, p.startNode, p.startREST, p.startWorker, p.registerSamples,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stopAll undoes start in reverse. The directory of a run that failed is kept, for
// the log in it.
func (p *playground) stopAll(failure error) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-p.options.Abort:
			cancel()
		case <-ctx.Done():
		}
	})
	defer watch.Wait()
	defer cancel()
	var errs []error
	for i := len(p.undo) - 1; i >= 0; i-- {
		errs = append(errs, p.undo[i](ctx))
	}
	p.undo = nil
	switch {
	case p.dir == "":
	case failure != nil && !p.facts.keepLog:
		errs = append(errs, errors.New("see "+p.facts.log))
	default:
		errs = append(errs, os.RemoveAll(p.dir))
	}
	return errors.Join(errs...)
}

func (p *playground) onStop(f func(context.Context) error) { p.undo = append(p.undo, f) }

func (p *playground) makeDir(context.Context) (err error) {
	p.dir, err = os.MkdirTemp("", "fermata-dev-")
	return err
}

func (p *playground) openLog(context.Context) error {
	p.facts.log, p.facts.keepLog = p.options.LogFile, p.options.LogFile != ""
	if !p.facts.keepLog {
		p.facts.log = filepath.Join(p.dir, "fermata.log")
	}
	f, err := os.OpenFile(p.facts.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log file: %w", err)
	}
	p.onStop(func(context.Context) error { return f.Close() })
	p.logger, p.level, err = logs.New(f, logs.Options{Format: "text", Level: "info"})
	return err
}

func (p *playground) startTarget(context.Context) (err error) {
	p.target, err = startTarget(func(m targetMode) {
		select {
		case p.commands <- m:
		default: // the view shows the mode in any case
		}
	}, p.logger)
	if err != nil {
		return err
	}
	p.facts.target = p.target.targetURL()
	p.onStop(func(context.Context) error { return p.target.stopServer() })
	return nil
}

func (p *playground) startNode(ctx context.Context) error {
	redis, err := startRedis(p.options.Redis, p.dir)
	if err != nil {
		return err
	}
	p.facts.redis = redis.kind
	p.onStop(func(context.Context) error { redis.stop(); return nil })
	limits := job.DefaultLimits()
	limits.MinInterval = minInterval
	registry := prometheus.NewRegistry()
	n, err := node.New(node.Config{
		Name: "dev", GRPCAddr: p.options.GRPCAddr, HTTPAddr: p.options.HTTPAddr,
		PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
		Redis: conn.ClientOptions{URL: redis.url}, Durability: conn.DurabilityMemory,
		Reflection: true, AllowUnsafeRedis: true, Shards: shardCount, Limits: limits,
		EventsKeep: 10_000, JobRevisions: job.DefaultRevisions,
		Logger: p.logger, LogLevel: p.level, Registerer: registry, Gatherer: registry,
	})
	if err != nil {
		return err
	}
	if err := n.Start(ctx); err != nil {
		return fmt.Errorf("start the node: %w", explainTakenAddress(err))
	}
	p.onStop(func(ctx context.Context) error { return p.reportForeignRuns(n.Stop(ctx)) })
	p.facts.grpc, p.facts.metrics = n.GRPCAddr(), "http://"+n.HTTPAddr()+"/metrics"
	return nil
}

// startREST serves the API over HTTP.
func (p *playground) startREST(context.Context) error {
	s, err := httpapi.Start(httpapi.Options{
		Address: p.options.RESTAddr, Flag: "rest-addr", Logger: p.logger,
		Gateway: gateway.Options{
			Dial:    httpapi.Dialer([]string{p.facts.grpc}, client.Options{}),
			Console: &gateway.ConsoleOptions{Files: console.Files(), Version: "dev"},
		},
	})
	if err != nil {
		return explainTakenAddress(err)
	}
	p.onStop(s.Stop)
	p.facts.rest = s.URL()
	return nil
}

func (p *playground) startWorker(ctx context.Context) (err error) {
	p.worker, err = worker.New(worker.Options{
		Addresses: []string{p.facts.grpc}, Slots: workerSlots, ID: "dev", Version: "dev",
		DrainTimeout: p.options.DrainTimeout, Logger: p.logger,
	})
	if err != nil {
		return err
	}
	p.worker.Handle("http", httphandler.New(httphandler.Options{Allow: localNetworks(), Version: "dev",
		Logger: p.logger}))
	p.worker.Handle("greet", greetHandler)
	var running context.Context
	running, p.drainWorker = context.WithCancel(context.WithoutCancel(ctx))
	p.workerEnded = make(chan struct{})
	go func() {
		defer close(p.workerEnded)
		p.workerErr = p.worker.Run(running)
	}()
	p.onStop(func(context.Context) error {
		p.drainWorker()
		p.worker.Abort() // has no effect on one that has drained
		<-p.workerEnded
		return nil
	})
	return nil
}

// localNetworks are the networks that jobs of a playground may reach beside the public
// ones: this host, for the target, and those where one's own services are.
func localNetworks() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range []string{"127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"} {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

func (p *playground) registerSamples(ctx context.Context) (err error) {
	if p.client, err = client.Dial([]string{p.facts.grpc}, client.Options{}); err != nil {
		return err
	}
	p.onStop(func(context.Context) error { return p.client.Close() })
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return registerJobs(ctx, p.client, sampleJobs(p.facts.target, time.Now()))
}
