package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/simnet"
	"github.com/fermata-io/fermata/worker"
)

const (
	grpcPort   = "7070"
	gossipPort = 7946
	slots      = 12
	// redisPool is so large that no caller waits for a connection: go-redis keeps timers for that across
	// bubbles.
	redisPool = 256
)

// nodeProcess is a scheduler node.
type nodeProcess struct {
	world *world
	name  string
	join  []string // gossip addresses
}

func (p *nodeProcess) run(ctx context.Context, h *simnet.Host, crashed func() bool) {
	logger := p.world.story.newLogger(p.name)
	for ctx.Err() == nil {
		n, err := p.startNode(ctx, h)
		if err != nil {
			logger.Warn("node does not start", "error", err)
			if h.Pause(ctx, 300*time.Millisecond) != nil {
				return
			}
			continue
		}
		<-ctx.Done()
		limit := 8 * time.Second
		if crashed() {
			limit = 0
		}
		stop, cancel := context.WithTimeout(context.Background(), limit)
		if err := n.Stop(stop); err != nil && !crashed() {
			logger.Warn("node did not stop in good order", "error", err)
		}
		cancel()
	}
}

func (p *nodeProcess) startNode(ctx context.Context, h *simnet.Host) (*node.Node, error) {
	gossip, err := h.Gossip(gossipPort)
	if err != nil {
		return nil, err
	}
	limits := job.DefaultLimits()
	limits.MinInterval = time.Second
	n, err := node.New(node.Config{
		Name: p.name, GRPCAddr: h.IP() + ":" + grpcPort, PeerAddr: h.IP() + ":7071", HTTPAddr: h.IP() + ":7072",
		GossipAddr: fmt.Sprintf("%s:%d", h.IP(), gossipPort), Join: p.join,
		Network: node.Network{Listen: h.Listen, Dial: h.Dial, Gossip: gossip},
		Redis: conn.ClientOptions{
			URL: "redis://" + redisIP + ":6379", Dialer: p.world.dialRedis(h), PoolSize: redisPool,
			ReadTimeout: redisTimeout,
		},
		Keyspace: p.world.keyspace, Shards: shards, AllowUnsafeRedis: true, Virtual: !p.world.steady, Now: p.world.redisNow,
		LockTTL: lockTTL, LeaseTTL: leaseTTL, SessionTTL: sessionTTL, Limits: limits,
		Logger: p.world.story.newLogger(p.name),
	})
	if err == nil {
		err = n.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, gossip.Shutdown())
	}
	return n, nil
}

// workerProcess is a worker.
type workerProcess struct {
	world *world
	name  string
	nodes []string // gRPC addresses
	boots int
}

func (p *workerProcess) run(ctx context.Context, h *simnet.Host, crashed func() bool) {
	p.boots++
	logger := p.world.story.newLogger(p.name)
	w, err := worker.New(worker.Options{
		Addresses: p.nodes, ID: fmt.Sprintf("%s-%d", p.name, p.boots), Slots: slots, DrainTimeout: 4 * time.Second,
		Dialer: h.Dial, Logger: logger,
	})
	if err != nil {
		panic(err) // the options are constants
	}
	w.Handle(handlerName, func(ctx context.Context, t *worker.Task) error { return p.runTask(ctx, h, t) })
	p.world.background.Go(func() {
		select {
		case <-h.Ended():
			w.Abort()
		case <-p.world.ended:
		}
	})
	if err := w.Run(ctx); err != nil && !crashed() {
		logger.Warn("worker did not drain", "error", err)
	}
}

// handlerName is the one handler of the simulation.
const handlerName = "sim"

// behaviour is a job's payload: the behaviour of its handler.
type behaviour struct {
	Sleep        time.Duration `json:"sleep,omitempty"`
	Fail         bool          `json:"fail,omitempty"`
	FailAttempts int           `json:"fail_attempts,omitempty"`
}

func (b behaviour) encodePayload() []byte {
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // it is a struct of plain fields
	}
	return text
}

// runTask does what the job's payload demands and records it. A handler on a dead machine records nothing; on a
// frozen one it stops. It has begun when it is called, also if its machine freezes in that instant: no worker
// can prevent that.
func (p *workerProcess) runTask(ctx context.Context, h *simnet.Host, t *worker.Task) error {
	var b behaviour
	if err := t.Decode(&b); err != nil {
		return err
	}
	began := p.world.nowNS()
	if h.Running() == nil {
		p.recordAt(began, historycheck.Start, t, "")
	}
	told := context.AfterFunc(ctx, func() { p.recordIfRunning(h, historycheck.ContextCancelled, t, "") })
	err := h.Pause(ctx, b.Sleep)
	if up := h.Running(); up != nil {
		err = up
	}
	told()
	switch {
	case err != nil:
		p.recordIfRunning(h, historycheck.End, t, historycheck.Cancelled)
		return err
	case b.Fail || t.Attempt <= b.FailAttempts:
		p.recordIfRunning(h, historycheck.End, t, historycheck.Failed)
		return errors.New("told to fail")
	}
	p.recordIfRunning(h, historycheck.End, t, historycheck.OK)
	return nil
}

func (p *workerProcess) recordIfRunning(h *simnet.Host, kind historycheck.EventKind, t *worker.Task, outcome string) {
	if h.Running() == nil {
		p.recordAt(p.world.nowNS(), kind, t, outcome)
	}
}

func (p *workerProcess) recordAt(atNS int64, kind historycheck.EventKind, t *worker.Task, outcome string) {
	p.world.recordEvent(historycheck.Event{
		AtNS: atNS, Kind: kind, Worker: p.name, Job: t.Job, Run: t.Run, Attempt: t.Attempt, Token: t.Token,
		NominalMS: t.NominalTime.UnixMilli(), DueMS: t.DueTime.UnixMilli(), Outcome: outcome,
	})
}
