package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"

	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/cluster/membership"
	"github.com/fermata-io/fermata/internal/cluster/peer"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/engine/admission"
	"github.com/fermata-io/fermata/internal/engine/audittrail"
	"github.com/fermata-io/fermata/internal/engine/dispatch"
	"github.com/fermata-io/fermata/internal/engine/ledger"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/engine/scheduler"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
	"github.com/fermata-io/fermata/internal/lib/ticks"
	"github.com/fermata-io/fermata/internal/observe/telemetry"
	"github.com/fermata-io/fermata/internal/observe/tracing"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// awaitRedis waits until Redis can be opened: when a whole site comes back, nodes are
// there before Redis has read its data or elected a primary, and a node that ended each
// time would be started again later and later.
func (n *Node) awaitRedis(ctx context.Context) (err error) {
	if n.lockConns, err = n.connect("locks"); err != nil || n.cfg.RedisWait == 0 {
		return err
	}
	within, cancel := context.WithTimeout(ctx, n.cfg.RedisWait)
	defer cancel()
	err = redisstore.Await(within, n.storeOptions(n.lockConns), func(reason error) {
		text := n.atRedis(reason).Error()
		if told := n.waitsFor.Swap(&text); told == nil || *told != text {
			n.cfg.Logger.Warn("node waits for redis", "error", text, "at_most", n.cfg.RedisWait)
		}
	})
	n.waitsFor.Store(nil)
	if err != nil {
		return n.atRedis(err)
	}
	return nil
}

// openRedis connects the other two of three pools and opens the keyspace. Locks never wait behind
// data for a connection, nor leases and results behind the calls of clients.
func (n *Node) openRedis(ctx context.Context) (err error) {
	n.telemetry = telemetry.New(n.cfg.Logger, n.cfg.Registerer, n.cfg.Version)
	n.gauges = newGauges(n)
	if n.keys != nil {
		n.reportFile("payload_keys", n.keys.Fault)
		secretfile.WarnIfExposed(n.cfg.Logger, n.cfg.PayloadKeyFile)
	}
	if n.store, err = n.openStore(ctx, "engines", false); err != nil {
		return n.atRedis(err)
	}
	n.cfg.Shards, n.counts = n.store.Shards(), newQueueCounts(n.store)
	if n.clientStore, err = n.openStore(ctx, clientsPool, true); err != nil {
		return n.atRedis(err)
	}
	if err := n.bindPayloads(); err != nil {
		return err
	}
	if n.keys != nil && !n.keys.Strict() {
		n.cfg.Logger.Warn("payloads that are not sealed are handed out, whoever wrote them to Redis; see --payload-require-sealed")
	}
	return n.checkRedis(ctx)
}

// atRedis says where Redis was looked for, and how to have it looked for elsewhere.
func (n *Node) atRedis(err error) error {
	return fmt.Errorf("redis at %s (set --redis-url if it is elsewhere): %w", n.cfg.Redis.Servers(), err)
}

// clientsPool is the pool of calls by clients. What these ask for says little about Redis: they
// may be many, and large.
const clientsPool = "clients"

// connect opens a pool of connections.
func (n *Node) connect(pool string) (redis.UniversalClient, error) {
	options := n.security.toRedis(n.cfg)
	options.ClientName = "fermata-" + n.cfg.Name + "-" + pool
	client, err := redisstore.NewClient(options)
	if err != nil {
		return nil, err
	}
	n.onStop("redis "+pool, func(context.Context) error { return client.Close() })
	if pool != clientsPool {
		n.latency.watch(client)
	}
	return client, n.cfg.Registerer.Register(redisstore.NewPoolStats(pool, client))
}

// openStore opens the keyspace on a pool of its own. With shed, calls that find the
// pool busy are refused.
func (n *Node) openStore(ctx context.Context, pool string, shed bool) (*redisstore.Store, error) {
	client, err := n.connect(pool)
	if err != nil {
		return nil, err
	}
	o := n.storeOptions(client)
	o.Shed = shed
	o.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"pool": pool}, n.cfg.Registerer)
	return redisstore.Open(ctx, o)
}

// storeOptions are those that all stores of the node have.
func (n *Node) storeOptions(client redis.UniversalClient) redisstore.Options {
	o := redisstore.Options{
		Client: client, Prefix: n.cfg.Keyspace, Shards: n.cfg.Shards, Caller: n.cfg.Name,
		Durability: n.cfg.Durability, Replicas: n.cfg.DurabilityReplicas, WaitTimeout: n.cfg.DurabilityTimeout,
		AllowUnsafe: n.cfg.AllowUnsafe, Functions: n.cfg.RedisFunctions, KeepEvents: n.cfg.EventsKeep, OnEarlier: n.Nudge, Logger: n.cfg.Logger,
	}
	if n.cfg.Virtual {
		o.Virtual = n.cfg.Now
	}
	return o
}

// trace connects to the collector of spans, if there is one.
func (n *Node) trace(ctx context.Context) (err error) {
	if n.cfg.Tracing.Endpoint == "" {
		return nil
	}
	n.tracer, err = tracing.New(ctx, n.cfg.Tracing, tracing.Process{
		Service: "fermata-scheduler", Version: n.cfg.Version, Instance: n.cfg.Name,
		Logger: n.cfg.Logger, Registerer: n.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	n.onStop("traces", func(ctx context.Context) error {
		// What a collector does not take at once is not worth a slow end.
		ctx, cancel := context.WithTimeout(ctx, lastSpans)
		defer cancel()
		if err := n.tracer.Stop(ctx); err != nil {
			n.cfg.Logger.Warn("the last spans were not sent", "error", err)
		}
		return nil
	})
	return nil
}

// lastSpans is how long the last spans may take.
const lastSpans = 3 * time.Second

// listen opens the addresses that others are told.
func (n *Node) listen(context.Context) error {
	for _, l := range []struct {
		what, addr string
		to         *net.Listener
	}{{"grpc-addr", n.cfg.GRPCAddr, &n.clients}, {"peer-addr", n.cfg.PeerAddr, &n.others}} {
		listener, err := n.cfg.Network.listen(l.addr)
		if err != nil {
			return listenError(l.what, err)
		}
		*l.to = listener
		n.onStop(l.what, func(context.Context) error {
			_ = listener.Close() // closed already, unless the start failed
			return nil
		})
	}
	n.grpcAddr = advertised(n.cfg.AdvertiseGRPC, n.clients.Addr())
	n.peerAddr = advertised(n.cfg.AdvertisePeer, n.others.Addr())
	return nil
}

// listenError names the flag of an address that cannot be listened on.
func listenError(flag string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("--%s: %w: another process listens there, perhaps another node; name another address", flag, err)
	}
	return fmt.Errorf("--%s: %w", flag, err)
}

// build connects engines and adapters to one another.
func (n *Node) build(ctx context.Context) (err error) {
	c := n.cfg
	n.cadence = ticks.Since(time.Now())
	n.peers, err = peer.New(peer.Options{
		Self: c.Name, Version: c.Version, Keyspace: n.store.Identity, ClientAddr: n.grpcAddr, Handler: n, Dial: c.Network.Dial, DialOptions: n.security.dialPeers(),
		Logger: c.Logger, Registerer: c.Registerer,
	})
	if err != nil {
		return err
	}
	if err := n.trace(ctx); err != nil {
		return err
	}
	if err := n.buildEvents(); err != nil {
		return err
	}
	if err := n.openQuotas(ctx); err != nil {
		return err
	}
	committed := ledger.Options{
		Store: n.store, Observer: n.telemetry, Nudger: n, Full: n.byteQuota.Full, Logger: c.Logger, Registerer: c.Registerer,
	}
	if n.tracer != nil {
		committed.Tracer = n.tracer
	}
	n.ledger = ledger.New(committed)
	n.onStop("ledger", func(context.Context) error { n.ledger.Stop(); return nil })
	n.trail, err = audittrail.New(audittrail.Options{
		Store: n.clientStore, Node: c.Name, Keep: c.AuditKeep, Age: c.AuditRetention, MaxBytes: c.AuditMaxBytes,
		Key: n.security.auditKey(), Logger: c.Logger, Registerer: c.Registerer,
	})
	if err != nil {
		return err
	}
	if n.security.audit != nil {
		n.reportFile("audit_keys", n.security.audit.Fault)
	}
	n.onStop("audit trail", func(ctx context.Context) error { n.trail.Stop(ctx); return nil })
	managed := registry.Options{
		Quota: n.quota, ByteQuota: n.byteQuota, Queues: rpc.ReachableQueues,
		Store: n.clientStore, Ledger: n.ledger, Limits: c.Limits, Observer: n.telemetry,
		Nudger: n, Canceller: n, Cluster: n, Logger: c.Logger,
		BeginWrite:      rpc.BeginWrite,
		SettingsChanged: func() { n.admission.SettingsChanged() },
	}
	if len(c.ValidatePayloads) > 0 {
		managed.CheckPayload = payloadCheck(c.ValidatePayloads)
	}
	if n.keys != nil {
		managed.Sealer = n.keys
	}
	dispatched := dispatch.Options{
		Node: c.Name, LeaseTTL: c.LeaseTTL, SessionTTL: c.SessionTTL, Store: n.store, Ledger: n.ledger, Observer: observers{n.telemetry, n.feed},
		Attempts: gates{n}, OnDemand: n.demandChanged, OnServed: n.telemetry.QueueServed, Addresses: n.otherNodes, Logger: c.Logger, Registerer: c.Registerer,
	}
	if n.tracer != nil {
		managed.Caller, managed.TraceID, dispatched.TraceID = n.tracer.Caller, n.tracer.RunTraceID, n.tracer.TraceID
	}
	if n.registry, err = registry.New(managed); err != nil {
		return err
	}
	n.dispatcher, err = dispatch.New(dispatched)
	if err != nil {
		return err
	}
	n.scheduler, err = scheduler.New(scheduler.Options{
		Node: c.Name, Store: n.store, Ledger: n.ledger, Slots: gates{n}, Limits: gates{n}, Peers: n.peers,
		Held: n.held, Latency: n.redisLatency, OnLost: func(e job.Ending) { n.admission.Ended(e) }, LeaseTTL: c.LeaseTTL, Rescan: c.Rescan, Cadence: n.cadence, Logger: c.Logger, Registerer: c.Registerer,
	})
	if err != nil {
		return err
	}
	admitted := admission.Options{
		Store: n.store, Limits: n.store, Ledger: n.ledger, Slots: slots{n.dispatcher}, Canceller: n,
		OnRoom: n.scheduler.LimitsChanged, OnPaused: n.telemetry.QueuePaused, LeaseTTL: c.LeaseTTL, Latency: n.redisLatency, Cadence: n.cadence, Logger: c.Logger, Registerer: c.Registerer,
	}
	if n.keys != nil {
		admitted.Opener = n.keys
	}
	if n.admission, err = admission.New(admitted); err != nil {
		return err
	}
	n.onStop("admission", func(context.Context) error { n.admission.Stop(); return nil })
	n.locks, err = shardlock.New(shardlock.Options{
		Client: n.lockConns, Functions: c.RedisFunctions, Key: n.store.LockKey, LifeKey: n.store.LifeKey, Shards: c.Shards, Node: c.Name, PeerAddr: n.peerAddr,
		ClientAddr: n.grpcAddr, OnAddress: func() { n.dispatcher.AddressesChanged() },
		TTL:       c.LockTTL,
		OnAcquire: func(shard int, _ string) { n.scheduler.Acquired(shard); n.shardTaken(shard) },
		OnLose:    func(shard int, _ string) { n.scheduler.Lost(shard) },
		OnRelease: func(shard int, _ string) { n.peers.HandOver([]int{shard}) },
		Logger:    c.Logger, Registerer: c.Registerer,
	})
	if err != nil {
		return err
	}
	o := membership.Options{
		Name: c.Name, Join: c.Join, KeyFile: c.GossipKeyFile, Allow: n.security.gossip, Label: c.Cluster, GRPCAddr: n.grpcAddr, PeerAddr: n.peerAddr, Version: c.Version,
		Process: n.locks.Process(), EventsKeep: c.EventsKeep, Defaults: n.defaults.Fingerprint(),
		Transport: c.Network.Gossip, Logger: c.Logger, Registerer: c.Registerer,
	}
	if o.BindAddr, o.BindPort, err = splitHostPort(c.GossipAddr); err != nil {
		return fmt.Errorf("gossip-addr: %w", err)
	}
	if c.AdvertiseGossip != "" {
		if o.AdvertiseAddr, o.AdvertisePort, err = splitHostPort(c.AdvertiseGossip); err != nil {
			return fmt.Errorf("advertise-gossip: %w", err)
		}
	}
	if n.gossip, err = membership.New(o); err == nil && o.KeyFile != "" {
		n.reportFile("gossip_keys", n.gossip.KeysFault)
	}
	return err
}

// serve answers clients, workers and peers.
func (n *Node) serve(ctx context.Context) error {
	workers := rpc.NewWorkerServer(n.dispatcher, n.cfg.Logger)
	if err := n.watchQueues(); err != nil {
		return err
	}
	var calls rpc.CallTracer
	if n.tracer != nil {
		workers.Trace(n.tracer.Lease)
		calls = n.tracer.Call
	}
	options, err := n.guarded(ctx, rpc.Options{
		Trace: calls,
		Jobs:  n.registry, Defaults: n.defaults, Cluster: clusterView{n}, Worker: workers, Events: n.feed, Webhooks: n.webhooks(), Sizes: n.lookout,
		Observe: func(method string, code codes.Code, took time.Duration) {
			n.telemetry.ObserveCall(method, code.String(), took)
		},
		Credentials: n.security.clients, Reflection: n.cfg.Reflection,
		Node: n.cfg.Name, Trail: n.trail, KeyspaceFault: n.keyspaceFault, Now: n.clock, Logger: n.cfg.Logger,
	})
	if err != nil {
		return err
	}
	server, checks, err := rpc.NewServer(options)
	if err != nil {
		return err
	}
	n.health = checks
	guard, err := n.peerGuard()
	if err != nil {
		return err
	}
	watched, err := rpc.PeerCredentials(n.security.peers, rpc.Options{
		MaxUnproved: n.cfg.UnprovedConnections, Registerer: n.cfg.Registerer, Logger: n.cfg.Logger,
	})
	if err != nil {
		return err
	}
	peerServer := grpc.NewServer(append(append(guard, watched...),
		grpc.ConnectionTimeout(peerHandshake),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 2 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 5 * time.Second, Timeout: 3 * time.Second}),
	)...)
	n.peers.Register(peerServer)
	n.background(peerServer, n.others)
	n.onStop("peer links", func(ctx context.Context) error {
		n.peers.Stop()
		stopServer(ctx, peerServer)
		return nil
	})
	n.background(server, n.clients)
	n.onStop("grpc server", func(ctx context.Context) error {
		n.lookout.Stop() // its streams do not end by themselves
		stopServer(ctx, server)
		workers.Wait()
		return nil
	})
	return nil
}

// peerHandshake bounds the handshake of a connection from a peer.
const peerHandshake = 5 * time.Second

func (n *Node) background(s *grpc.Server, l net.Listener) {
	n.serving.Go(func() {
		if err := s.Serve(l); err != nil {
			n.cfg.Logger.Error("grpc server ended", "address", l.Addr().String(), "error", err)
		}
	})
}

// stopServer lets calls under way end, within ctx.
func stopServer(ctx context.Context, s *grpc.Server) {
	done := make(chan struct{})
	go func() { s.GracefulStop(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		s.Stop()
		<-done
	}
}

// join enters the gossip.
func (n *Node) join(ctx context.Context) error {
	if err := n.gossip.Start(ctx); err != nil {
		return err
	}
	n.onStop("gossip", func(context.Context) error { return n.gossip.Stop() })
	return nil
}

// run starts the engines. Its cleanup is the drain: what is registered here is
// undone first.
func (n *Node) run(context.Context) error {
	for _, loop := range []func(context.Context) error{n.dispatcher.Run, n.scheduler.Run, n.locks.Run, n.feed.Run, n.quota.Run, n.byteQuota.Run} {
		n.engines.Go(func() {
			if err := loop(n.ctx); err != nil && n.ctx.Err() == nil {
				n.cfg.Logger.Error("engine ended", "error", err)
			}
		})
	}
	n.engines.Go(func() { n.permitLoop(n.ctx) })
	n.engines.Go(func() { n.demandLoop(n.ctx) })
	n.engines.Go(func() { n.statsLoop(n.ctx) })
	n.engines.Go(func() { n.reachLoop(n.ctx) })
	n.gossip.Subscribe(func(v sharding.View) {
		n.peers.SetView(v)
		n.wakeDemand() // a new link has what was offered to those before
		n.locks.SetView(v)
		n.dispatcher.AddressesChanged()
		n.compareEventsKeep()
		n.compareDefaults()
	})
	n.onStop("drain", n.drain)
	n.runHooks()
	n.announce(job.KindNodeJoined)
	return nil
}

// drain hands over what this node holds.
func (n *Node) drain(ctx context.Context) error {
	n.cfg.Logger.Info("node drains", "node", n.cfg.Name)
	n.health.Shutdown()
	if err := n.gossip.Leave(leaveTimeout); err != nil {
		// The others will find out, as they would after a crash; the locks are
		// handed over all the same.
		n.cfg.Logger.Warn("leaving the gossip took too long", "error", err)
	}
	n.announce(job.KindNodeLeft)
	n.stopHooks() // while the locks are held: how far they are is stored under them
	released := n.locks.Drain(ctx)
	n.peers.HandOver(released)
	err := n.dispatcher.Drain(ctx)
	n.peers.Restate(nil) // which demandLoop may not have come to
	n.cancel()
	n.engines.Wait()
	n.cfg.Logger.Info("node drained", "node", n.cfg.Name, "shards_released", len(released))
	return err
}

// leaveTimeout is how long the word that this node leaves may take.
const leaveTimeout = time.Second

// serveHTTP answers who asks about this node's health from its first moment on. Metrics are
// there when it is up.
func (n *Node) serveHTTP(context.Context) error {
	listener, err := n.cfg.Network.listen(n.cfg.HTTPAddr)
	if err != nil {
		return listenError("http-addr", err)
	}
	n.http = telemetry.Serve(listener, n.cfg.Gatherer, n.up.Load, n.missing, n.cfg.LogLevel)
	n.onStop("http", n.http.Stop)
	return nil
}
