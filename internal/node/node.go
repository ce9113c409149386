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
	"github.com/fermata-io/fermata/internal/cluster/reachability"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/engine/admission"
	"github.com/fermata-io/fermata/internal/engine/audittrail"
	"github.com/fermata-io/fermata/internal/engine/defaults"
	"github.com/fermata-io/fermata/internal/engine/dispatch"
	"github.com/fermata-io/fermata/internal/engine/events"
	"github.com/fermata-io/fermata/internal/engine/forecast"
	"github.com/fermata-io/fermata/internal/engine/ledger"
	"github.com/fermata-io/fermata/internal/engine/queuestats"
	"github.com/fermata-io/fermata/internal/engine/quota"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/engine/scheduler"
	"github.com/fermata-io/fermata/internal/engine/slotshare"
	"github.com/fermata-io/fermata/internal/engine/webhook"
	"github.com/fermata-io/fermata/internal/lib/ticks"
	"github.com/fermata-io/fermata/internal/observe/telemetry"
	"github.com/fermata-io/fermata/internal/observe/tracing"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// Node is one scheduler node. New makes it, Start starts it, Stop drains it.
type Node struct {
	cfg       Config
	security  security
	startedAt time.Time
	failed    chan error
	status
	addresses
	connections
	observability
	parts
	lifecycle
}

// status is what other goroutines read about the node as a whole.
type status struct {
	draining        atomic.Bool
	started         atomic.Bool            // Start has returned: the fields of the node may be read concurrently
	redisWaitReason atomic.Pointer[string] // why Start waits for Redis; nil: it does not
	report          atomic.Pointer[conn.Report]
	// shardHolders are the holders of the shards whose locks could be read last.
	shardHolders atomic.Pointer[[]shardlock.Holder]
	redisClock   sharedClock
	reports      reportFilter
	refusedRight atomic.Pointer[error] // the latest command refused for lack of a right, since the last round
	unheld       *unheldShards
}

// addresses are the listeners of the node, and their addresses as advertised.
type addresses struct {
	clientListener, peerListener net.Listener
	grpcAddr, peerAddr           string
}

// connections lead to Redis, in three pools.
type connections struct {
	lockConns   redis.UniversalClient
	store       *redisstore.Store // of the engines
	clientStore *redisstore.Store // of calls by clients
	latency     *reachability.LatencyMeter
}

// observability is what operators see of the node.
type observability struct {
	telemetry *telemetry.Telemetry
	tracer    *tracing.Tracer // nil: nothing is traced
	gauges    *gauges
	counts    *queuestats.ShardCounts // only statsLoop uses them
	overview  *queuestats.Overview
	health    *health.Server
	http      *telemetry.Server
}

// parts are the engines and adapters that the node connects. Optional ones may be nil.
type parts struct {
	alignment  ticks.Alignment   // of periodic work
	defaults   *backoff.Defaults // of policies that jobs do not set
	access     *authn.Source     // nil: every caller may do anything
	keys       *payloadkeys.Ring // nil: payloads are not encrypted
	ledger     *ledger.Ledger
	registry   *registry.Registry
	quota      *quota.Quota
	byteQuota  *quota.Quota
	trail      *audittrail.Recorder
	feed       *events.Feed
	hooks      *webhook.Deliverer // nil: there are no webhooks
	stopHooks  func()
	dispatcher *dispatch.Dispatcher
	admission  *admission.Admission
	scheduler  *scheduler.Scheduler
	slotShare  *slotshare.Allocator
	lookout    *queuestats.Sampler
	served     servedQueues
	spread     workerSpread
	locks      *shardlock.Manager
	peers      *peer.Peer
	gossip     *membership.Cluster
	reach      *reachability.Monitor
	forecaster *forecast.Forecaster
}

// lifecycle ends the node.
type lifecycle struct {
	ctx      context.Context // cancelled to end the engines
	cancel   context.CancelFunc
	engines  sync.WaitGroup
	serving  sync.WaitGroup
	cleanups []cleanup // run in reverse order
	stop     sync.Once
	stopErr  error
}

// cleanup undoes one step of Start.
type cleanup struct {
	name string
	run  func(context.Context) error
}

// New validates the configuration and the files that it names. It opens no port and no connection.
func New(cfg Config) (*Node, error) {
	cfg.setDefaults()
	security, filesErr := openSecurity(cfg)
	policies, defaultsErr := defaults.Load(cfg.DefaultsFile, cfg.Defaults)
	err := errors.Join(cfg.validate(), filesErr, defaultsErr, authn.Check(cfg.AccessFile),
		webhook.Check(cfg.WebhooksFile))
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, security: security, startedAt: time.Now(), failed: make(chan error, 1)}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.keys, n.defaults = security.payloads, policies
	n.latency = reachability.NewLatencyMeter(cfg.LockTTL, cfg.Redis.ReadTimeout)
	n.unheld = newUnheldShards(cfg.Name, cfg.LockTTL)
	return n, nil
}

// Start serves health, waits for Redis up to RedisStartupTimeout, opens it, listens, joins the cluster and starts to
// schedule. If it fails, it closes everything that it opened.
func (n *Node) Start(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		n.openAccess, n.serveHTTP, n.awaitRedis, n.openRedis, n.openListeners, n.buildEngines, n.startServers,
		n.joinGossip, n.run,
	} {
		if err := step(ctx); err != nil {
			stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			return errors.Join(err, n.Stop(stopCtx))
		}
	}
	n.started.Store(true)
	n.warnOfExposure()
	n.cfg.Logger.Info("node is up", "node", n.cfg.Name, "version", n.cfg.Version,
		"grpc", n.grpcAddr, "peer", n.peerAddr, "gossip", n.gossip.LocalAddr(), "http", n.http.Addr(),
		"keyspace", n.cfg.Keyspace, "shards", n.cfg.Shards, "durability", n.durabilityClass())
	return nil
}

// Stop drains the node and closes everything. Steps that depend on others are bounded by ctx. It may be called
// more than once.
func (n *Node) Stop(ctx context.Context) error {
	n.stop.Do(func() {
		n.draining.Store(true)
		var errs []error
		for i := len(n.cleanups) - 1; i >= 0; i-- {
			c := n.cleanups[i]
			if err := c.run(ctx); err != nil {
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

// addCleanup registers f for Stop, which calls the last one first.
func (n *Node) addCleanup(name string, f func(context.Context) error) {
	n.cleanups = append(n.cleanups, cleanup{name, f})
}

// GRPCAddr is where clients and workers connect.
func (n *Node) GRPCAddr() string { return n.grpcAddr }

// PeerAddr is where other nodes connect.
func (n *Node) PeerAddr() string { return n.peerAddr }

// GossipAddr is the address that other nodes join.
func (n *Node) GossipAddr() string { return n.gossip.LocalAddr() }

// HTTPAddr is the address of metrics and health.
func (n *Node) HTTPAddr() string { return n.http.Addr() }

// Name is the node's name.
func (n *Node) Name() string { return n.cfg.Name }
