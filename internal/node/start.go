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

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/api/workerstream"
	"github.com/fermata-io/fermata/internal/cluster/peer"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/engine/queuestats"
	"github.com/fermata-io/fermata/internal/lib/secretfile"
	"github.com/fermata-io/fermata/internal/observe/telemetry"
	"github.com/fermata-io/fermata/internal/observe/tracing"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
)

// awaitRedis waits until Redis can be opened. When a whole site restarts, nodes start before Redis has loaded
// its data or elected a primary. Nodes that exited each time would be restarted with growing delays.
func (n *Node) awaitRedis(ctx context.Context) (err error) {
	n.lockConns, err = n.connectRedis("locks")
	if err != nil || n.cfg.RedisStartupTimeout == 0 {
		return err
	}
	within, cancel := context.WithTimeout(ctx, n.cfg.RedisStartupTimeout)
	defer cancel()
	err = redisstore.WaitForRedis(within, n.storeOptions(n.lockConns), func(reason error) {
		text := n.addRedisAddress(reason).Error()
		if last := n.redisWaitReason.Swap(&text); last == nil || *last != text {
			n.cfg.Logger.Warn("waiting for redis", "error", text, "at_most", n.cfg.RedisStartupTimeout)
		}
	})
	n.redisWaitReason.Store(nil)
	if err != nil {
		return n.addRedisAddress(err)
	}
	return nil
}

// openRedis connects the other two of three pools and opens the keyspace. With separate pools, locks do not wait
// for connections used by data, nor leases and results for those used by clients.
func (n *Node) openRedis(ctx context.Context) (err error) {
	n.telemetry = telemetry.New(n.cfg.Logger, n.cfg.Registerer, n.cfg.Version)
	n.gauges = newGauges(n)
	if n.keys != nil {
		n.reportFile("payload_keys", n.keys.LoadError)
		secretfile.WarnIfExposed(n.cfg.Logger, n.cfg.PayloadKeyFile)
	}
	n.store, err = n.openStore(ctx, "engines", false)
	if err != nil {
		return n.addRedisAddress(err)
	}
	n.cfg.Shards, n.counts = n.store.Shards(), queuestats.NewShardCounts(n.store)
	n.clientStore, err = n.openStore(ctx, clientsPool, true)
	if err != nil {
		return n.addRedisAddress(err)
	}
	n.overview = queuestats.NewOverview(n.clientStore)
	n.addCleanup("overview", func(context.Context) error { n.overview.Stop(); return nil })
	if err := n.bindPayloads(); err != nil {
		return err
	}
	if n.keys != nil && !n.keys.RequiresVersion2() {
		n.cfg.Logger.Warn("unencrypted payloads in Redis are handed out without authentication; see " +
			"--payload-require-sealed")
	}
	return n.checkRedis(ctx)
}

// addRedisAddress adds the address of Redis to an error, and the flag that changes it.
func (n *Node) addRedisAddress(err error) error {
	return fmt.Errorf("redis at %s (set --redis-url if it is elsewhere): %w", n.cfg.Redis.Servers(), err)
}

// clientsPool is the pool of calls by clients. Its latency is not measured: these calls may be many, and large.
const clientsPool = "clients"

// connectRedis opens a pool of connections.
func (n *Node) connectRedis(pool string) (redis.UniversalClient, error) {
	options := n.security.redisOptions(n.cfg)
	options.ClientName = "fermata-" + n.cfg.Name + "-" + pool
	client, err := conn.NewClient(options)
	if err != nil {
		return nil, err
	}
	n.addCleanup("redis "+pool, func(context.Context) error { return client.Close() })
	if pool != clientsPool {
		n.latency.MeasureClient(client)
	}
	return client, n.cfg.Registerer.Register(conn.NewPoolStats(pool, client))
}

// openStore opens the keyspace on a pool of its own. With shed, calls are refused while the pool is busy.
func (n *Node) openStore(ctx context.Context, pool string, shed bool) (*redisstore.Store, error) {
	client, err := n.connectRedis(pool)
	if err != nil {
		return nil, err
	}
	o := n.storeOptions(client)
	o.Shed = shed
	o.Registerer = prometheus.WrapRegistererWith(prometheus.Labels{"pool": pool}, n.cfg.Registerer)
	return redisstore.Open(ctx, o)
}

// storeOptions are the common options of all stores of the node.
func (n *Node) storeOptions(client redis.UniversalClient) redisstore.Options {
	o := redisstore.Options{
		Client: client, Prefix: n.cfg.Keyspace, Shards: n.cfg.Shards, Caller: n.cfg.Name,
		Durability: n.cfg.Durability, Replicas: n.cfg.DurabilityReplicas, WaitTimeout: n.cfg.DurabilityTimeout,
		AllowUnsafe: n.cfg.AllowUnsafeRedis, Functions: n.cfg.RedisFunctions, KeepEvents: n.cfg.EventsKeep,
		KeepUnsuccessful: n.cfg.UnsuccessfulRunsKeep, UnsuccessfulAge: n.cfg.UnsuccessfulRunsRetention,
		OnLanesDueEarlier: n.Nudge, Logger: n.cfg.Logger,
	}
	if n.cfg.Virtual {
		o.Virtual = n.cfg.Now
	}
	return o
}

// openTracing connects to the collector of spans, if one is configured.
func (n *Node) openTracing(ctx context.Context) (err error) {
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
	n.addCleanup("traces", func(ctx context.Context) error {
		// Spans that the collector does not accept at once are not worth a slow shutdown.
		ctx, cancel := context.WithTimeout(ctx, spanFlushTimeout)
		defer cancel()
		if err := n.tracer.Stop(ctx); err != nil {
			n.cfg.Logger.Warn("failed to send the last spans", "error", err)
		}
		return nil
	})
	return nil
}

// spanFlushTimeout bounds the flush of the last spans.
const spanFlushTimeout = 3 * time.Second

// openListeners opens the addresses that are advertised.
func (n *Node) openListeners(context.Context) error {
	for _, l := range []struct {
		what, addr string
		to         *net.Listener
	}{{"grpc-addr", n.cfg.GRPCAddr, &n.clientListener}, {"peer-addr", n.cfg.PeerAddr, &n.peerListener}} {
		listener, err := n.cfg.Network.listen(l.addr)
		if err != nil {
			return listenError(l.what, err)
		}
		*l.to = listener
		n.addCleanup(l.what, func(context.Context) error {
			_ = listener.Close() // already closed, unless the start failed
			return nil
		})
	}
	n.grpcAddr = advertisedAddress(n.cfg.AdvertiseGRPC, n.clientListener.Addr())
	n.peerAddr = advertisedAddress(n.cfg.AdvertisePeer, n.peerListener.Addr())
	return nil
}

// listenError names the flag of the address that cannot be opened.
func listenError(flag string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("--%s: %w: another process listens there, perhaps another node; name another address", flag,
			err)
	}
	return fmt.Errorf("--%s: %w", flag, err)
}

// startServers serves clients, workers and peers.
func (n *Node) startServers(ctx context.Context) error {
	workers := workerstream.NewServer(n.dispatcher, n.cfg.Logger)
	if err := n.watchQueues(); err != nil {
		return err
	}
	var calls guard.CallTracer
	if n.tracer != nil {
		workers.Trace(n.tracer.Lease)
		calls = n.tracer.Call
	}
	options, err := n.addAuthentication(ctx, rpc.Options{
		Trace: calls,
		Jobs:  n.registry, Defaults: n.defaults, Cluster: clusterView{n}, Worker: workers, Events: n.feed,
		Webhooks: n.webhookService(), Sizes: n.lookout, UnservedQueues: n.unservedQueues,
		ObserveCall: func(method string, code codes.Code, took time.Duration) {
			n.telemetry.ObserveCall(method, code.String(), took)
		},
		Credentials: n.security.clients, Reflection: n.cfg.Reflection, MaxPayload: n.cfg.Limits.MaxPayload,
		Node: n.cfg.Name, AuditTrail: n.trail, KeyspaceFault: n.keyspaceError, Now: n.currentTime, Logger: n.cfg.Logger,
	})
	if err != nil {
		return err
	}
	server, checks, err := rpc.NewServer(options)
	if err != nil {
		return err
	}
	n.health = checks
	check, err := n.peerCheck(ctx)
	if err != nil {
		return err
	}
	peerOptions, err := guard.PeerServerOptions(n.security.peers, check, guard.Options{
		MaxUnauthenticated: n.cfg.MaxUnauthenticatedConnections, Registerer: n.cfg.Registerer, Logger: n.cfg.Logger,
	})
	if err != nil {
		return err
	}
	proofs, err := n.peerProofOptions(ctx)
	if err != nil {
		return err
	}
	peerServer := grpc.NewServer(append(append(peerOptions, proofs...),
		peer.MessageLimit(),
		grpc.ConnectionTimeout(peerHandshake),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 2 * time.Second,
			PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 5 * time.Second, Timeout: 3 * time.Second}),
	)...)
	n.peers.Register(peerServer)
	n.serveInBackground(peerServer, n.peerListener)
	n.addCleanup("peer links", func(ctx context.Context) error {
		n.peers.Stop()
		stopServer(ctx, peerServer)
		return nil
	})
	n.serveInBackground(server, n.clientListener)
	n.addCleanup("grpc server", func(ctx context.Context) error {
		n.lookout.Stop() // its streams do not end by themselves
		stopServer(ctx, server)
		workers.Wait()
		return nil
	})
	return nil
}

// peerHandshake bounds the handshake of a connection from a peer.
const peerHandshake = 5 * time.Second

func (n *Node) serveInBackground(s *grpc.Server, l net.Listener) {
	n.serving.Go(func() {
		if err := s.Serve(l); err != nil {
			n.cfg.Logger.Error("grpc server failed", "address", l.Addr().String(), "error", err)
		}
	})
}

// stopServer lets running calls end, within ctx.
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

// joinGossip joins the gossip.
func (n *Node) joinGossip(ctx context.Context) error {
	if err := n.gossip.Start(ctx); err != nil {
		return err
	}
	n.addCleanup("gossip", func(context.Context) error { return n.gossip.Stop() })
	return nil
}

// run starts the engines. Its cleanup is the drain: cleanups that are registered here run first.
func (n *Node) run(context.Context) error {
	for _, loop := range []func(context.Context) error{n.dispatcher.Run, n.scheduler.Run, n.locks.Run, n.feed.Run,
		n.quota.Run, n.byteQuota.Run, n.slotShare.Run, n.reach.Run, n.forecaster.Run} {
		n.engines.Go(func() {
			if err := loop(n.ctx); err != nil && n.ctx.Err() == nil {
				n.cfg.Logger.Error("engine failed", "error", err)
			}
		})
	}
	n.engines.Go(func() { n.statsLoop(n.ctx) })
	n.gossip.Subscribe(func(v sharding.View) {
		n.peers.SetView(v)
		n.slotShare.NotifyPeers() // a new link has the offers sent to the others before
		n.locks.SetView(v)
		n.dispatcher.AddressesChanged()
	})
	n.addCleanup("drain", n.handOver)
	n.runHooks()
	n.recordNodeEvent(job.KindNodeJoined)
	return nil
}

// handOver drains the node: it hands over its shards and its workers.
func (n *Node) handOver(ctx context.Context) error {
	n.cfg.Logger.Info("node draining", "node", n.cfg.Name)
	n.health.Shutdown()
	if err := n.gossip.Leave(leaveTimeout); err != nil {
		// The others detect the end, as after a crash; the locks are handed over nevertheless.
		n.cfg.Logger.Warn("failed to leave gossip in time", "error", err)
	}
	n.recordNodeEvent(job.KindNodeLeft)
	n.stopHooks() // while the locks are held: the delivery positions are stored under them
	released := n.locks.Drain(ctx)
	n.peers.BroadcastLeave(released)
	err := n.dispatcher.Drain(ctx)
	n.peers.ResendDemand(nil) // the loop of offers may not have sent it
	n.cancel()
	n.engines.Wait()
	n.cfg.Logger.Info("node drained", "node", n.cfg.Name, "shards_released", len(released))
	return err
}

// leaveTimeout bounds the message that this node leaves.
const leaveTimeout = time.Second

// serveHTTP serves health from the start of the node. Metrics follow when it is up.
func (n *Node) serveHTTP(context.Context) error {
	listener, err := n.cfg.Network.listen(n.cfg.HTTPAddr)
	if err != nil {
		return listenError("http-addr", err)
	}
	n.http = telemetry.Serve(listener, telemetry.ServerOptions{
		Gatherer: n.cfg.Gatherer, Registerer: n.cfg.Registerer, Up: n.started.Load, Ready: n.unreadyReasons,
		Level: n.cfg.LogLevel, Logger: n.cfg.Logger,
	})
	n.addCleanup("http", n.http.Stop)
	return nil
}
