package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/health"

	"github.com/fermata-io/fermata/internal/auth/authn"
	"github.com/fermata-io/fermata/internal/auth/payloadkeys"
	"github.com/fermata-io/fermata/internal/cluster/membership"
	"github.com/fermata-io/fermata/internal/cluster/peer"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/engine/admission"
	"github.com/fermata-io/fermata/internal/engine/audittrail"
	"github.com/fermata-io/fermata/internal/engine/defaults"
	"github.com/fermata-io/fermata/internal/engine/dispatch"
	"github.com/fermata-io/fermata/internal/engine/events"
	"github.com/fermata-io/fermata/internal/engine/ledger"
	"github.com/fermata-io/fermata/internal/engine/queuestats"
	"github.com/fermata-io/fermata/internal/engine/quota"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/engine/scheduler"
	"github.com/fermata-io/fermata/internal/engine/webhook"
	"github.com/fermata-io/fermata/internal/lib/ticks"
	"github.com/fermata-io/fermata/internal/observe/telemetry"
	"github.com/fermata-io/fermata/internal/observe/tracing"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// Node is one scheduler node. Make it with New, run it from Start to Stop.
type Node struct {
	cfg       Config
	security  security
	startedAt time.Time
	cadence   ticks.Cadence // of what is done once a period
	draining  atomic.Bool
	up        atomic.Bool            // Start is through: what it sets may be read by anybody
	waitsFor  atomic.Pointer[string] // why Start waits for Redis; nil: it does not
	dark      atomic.Bool            // Redis has not answered this node for long
	report    atomic.Pointer[redisstore.Report]
	refusal   atomic.Pointer[error] // what Redis has refused since the tick before, for want of a right
	latency   *latency              // of calls on locks and by the engines
	unheld    *unheld
	defaults  *backoff.Defaults // of policies that jobs do not set

	clients, others    net.Listener
	grpcAddr, peerAddr string // as advertised

	lockConns   redis.UniversalClient
	store       *redisstore.Store // of the engines
	clientStore *redisstore.Store // of calls by clients
	access      *authn.Source     // nil: everybody may do anything
	telemetry   *telemetry.Telemetry
	tracer      *tracing.Tracer // nil: nothing is traced
	gauges      *gauges
	counts      queueCounts
	shares      shares
	ledger      *ledger.Ledger
	registry    *registry.Registry
	quota       *quota.Quota
	byteQuota   *quota.Quota
	trail       *audittrail.Recorder
	feed        *events.Feed
	hooks       *webhook.Courier // nil: there are no webhooks
	stopHooks   func()
	keys        *payloadkeys.Ring // nil: payloads are not sealed
	dispatcher  *dispatch.Dispatcher
	admission   *admission.Admission
	scheduler   *scheduler.Scheduler
	lookout     *queuestats.Lookout
	locks       *shardlock.Manager
	peers       *peer.Peer
	gossip      *membership.Cluster
	health      *health.Server
	http        *telemetry.Server

	demand  chan struct{}
	permits chan permit
	failed  chan error

	ctx      context.Context // ends the engines
	cancel   context.CancelFunc
	engines  sync.WaitGroup
	serving  sync.WaitGroup
	cleanups []cleanup // undone in reverse
	stop     sync.Once
	stopErr  error
}

// cleanup undoes one step of Start.
type cleanup struct {
	name string
	do   func(context.Context) error
}

// New checks the configuration, with the files that it names. It opens no port and no
// connection.
func New(cfg Config) (*Node, error) {
	cfg.setDefaults()
	security, filesErr := openSecurity(cfg)
	policies, defaultsErr := defaults.Load(cfg.DefaultsFile, cfg.Defaults)
	if err := errors.Join(cfg.validate(), filesErr, defaultsErr); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Node{
		cfg: cfg, security: security, keys: security.payloads, defaults: policies, ctx: ctx, cancel: cancel, startedAt: time.Now(),
		demand: make(chan struct{}, 1), permits: make(chan permit, permitQueue),
		failed: make(chan error, 1), latency: newLatency(cfg.LockTTL, cfg.Redis.ReadTimeout),
		unheld: newUnheld(cfg.Name, cfg.LockTTL),
	}, nil
}

// Start serves health, waits for Redis as long as the configuration says, opens it,
// listens, joins the cluster and begins to schedule. When it fails, what was opened is
// closed again.
func (n *Node) Start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		n.openAccess, n.serveHTTP, n.awaitRedis, n.openRedis, n.listen, n.build, n.serve, n.join, n.run,
	} {
		if err := step(ctx); err != nil {
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			return errors.Join(err, n.Stop(stopCtx))
		}
	}
	n.up.Store(true)
	n.warnOfExposure()
	n.cfg.Logger.Info("node is up", "node", n.cfg.Name, "version", n.cfg.Version,
		"grpc", n.grpcAddr, "peer", n.peerAddr, "gossip", n.gossip.LocalAddr(), "http", n.http.Addr(),
		"keyspace", n.cfg.Keyspace, "shards", n.cfg.Shards, "durability", n.durability())
	return nil
}

// Stop drains the node and closes everything, within ctx as far as it depends on
// others. It may be called more than once.
func (n *Node) Stop(ctx context.Context) error {
	n.stop.Do(func() {
		n.draining.Store(true)
		var errs []error
		for i := len(n.cleanups) - 1; i >= 0; i-- {
			c := n.cleanups[i]
			if err := c.do(ctx); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", c.name, err))
			}
		}
		n.cancel()
		n.engines.Wait()
		n.serving.Wait()
		n.stopErr = errors.Join(errs...)
	})
	return n.stopErr
}

// onStop has f called by Stop, before what was registered earlier.
func (n *Node) onStop(name string, f func(context.Context) error) {
	n.cleanups = append(n.cleanups, cleanup{name, f})
}

// GRPCAddr is where clients and workers connect.
func (n *Node) GRPCAddr() string { return n.grpcAddr }

// PeerAddr is where other nodes connect.
func (n *Node) PeerAddr() string { return n.peerAddr }

// GossipAddr is what other nodes join.
func (n *Node) GossipAddr() string { return n.gossip.LocalAddr() }

// HTTPAddr is where metrics and health are.
func (n *Node) HTTPAddr() string { return n.http.Addr() }

// Name is the node's name.
func (n *Node) Name() string { return n.cfg.Name }
