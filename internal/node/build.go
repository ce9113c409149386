package node

import (
	"context"
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/cluster/membership"
	"github.com/fermata-io/fermata/internal/cluster/peer"
	"github.com/fermata-io/fermata/internal/cluster/reachability"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/admission"
	"github.com/fermata-io/fermata/internal/engine/audittrail"
	"github.com/fermata-io/fermata/internal/engine/dispatch"
	"github.com/fermata-io/fermata/internal/engine/ledger"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/engine/scheduler"
	"github.com/fermata-io/fermata/internal/engine/slotshare"
	"github.com/fermata-io/fermata/internal/lib/ticks"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// buildEngines builds the engines and adapters and connects them. The order matters where an engine gets another
// one; calls to engines that are built later go through methods of Node.
func (n *Node) buildEngines(ctx context.Context) error {
	n.alignment = ticks.Since(time.Now())
	for _, build := range []func(context.Context) error{
		n.buildPeers, n.openTracing, n.buildEvents, n.openQuotas, n.buildLedger, n.buildAuditTrail, n.buildRegistry,
		n.buildDispatcher, n.buildScheduler, n.buildSlotShare, n.buildAdmission, n.buildLocks, n.buildGossip,
		n.buildReach, n.buildForecaster,
	} {
		if err := build(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) buildPeers(ctx context.Context) error {
	c := n.cfg
	options, err := n.peerDialOptions(ctx)
	if err != nil {
		return err
	}
	n.peers, err = peer.New(peer.Options{
		Self: c.Name, Version: c.Version, Keyspace: n.store.Identity, ClientAddr: n.grpcAddr, Handler: n,
		Forecast: n.forecastShards, Dial: c.Network.Dial, Credentials: n.security.peers, DialOptions: options,
		Process: func() string { return n.locks.Process() }, Features: uint32(membership.AllFeatures),
		Logger: c.Logger, Registerer: c.Registerer,
	})
	return err
}

func (n *Node) buildLedger(context.Context) error {
	o := ledger.Options{
		Store: n.store, Observer: n.telemetry, Nudger: n, Full: n.byteQuota.Full, Revisions: n.cfg.JobRevisions,
		Logger:     n.cfg.Logger,
		Registerer: n.cfg.Registerer,
	}
	if n.tracer != nil {
		o.Tracer = n.tracer
	}
	n.ledger = ledger.New(o)
	n.addCleanup("ledger", func(context.Context) error { n.ledger.Stop(); return nil })
	return nil
}

func (n *Node) buildAuditTrail(context.Context) (err error) {
	c := n.cfg
	n.trail, err = audittrail.New(audittrail.Options{
		Store: n.clientStore, Node: c.Name, MaxRecords: c.AuditMaxRecords, Age: c.AuditRetention, MaxBytes: c.AuditMaxBytes,
		Keys: n.security.auditKeys(), Logger: c.Logger, Registerer: c.Registerer,
	})
	if err != nil {
		return err
	}
	if n.security.audit != nil {
		n.reportFile("audit_keys", n.security.audit.LoadError)
	}
	n.addCleanup("audit trail", func(ctx context.Context) error { n.trail.Stop(ctx); return nil })
	return nil
}

func (n *Node) buildRegistry(ctx context.Context) (err error) {
	c := n.cfg
	o := registry.Options{
		Quota: n.quota, ByteQuota: n.byteQuota, Queues: guard.ReachableQueues, QueueOwner: guard.LimitedIdentity,
		Store: n.clientStore, Rankings: n.overview, Lanes: n.overview, SharedLimits: n.clientStore.Limits(),
		Ledger: n.ledger, Limits: c.Limits, Observer: n.telemetry,
		Nudger: n, Canceller: n, Cluster: n, Logger: c.Logger,
		WorkerOf:        func(r job.RecordID, token uint64) string { return n.dispatcher.WorkerOf(r, token) },
		BeginWrite:      rpc.BeginWrite,
		NoteStored:      rpc.NoteChanged,
		Edit:            rpc.CallerEdit,
		Revisions:       c.JobRevisions,
		SettingsChanged: func() { n.admission.SettingsChanged() },
		QueuePaused:     func(q job.QueueKey) bool { return n.admission.Paused(q) },

		NodesWithoutRunPayloads: n.nodesWithoutRunPayloads,
	}
	o.TokenKey, err = n.store.Secret(ctx, "bulk")
	if err != nil {
		return err
	}
	if len(c.ValidatePayloads) > 0 {
		o.CheckPayload = payloadValidator(c.ValidatePayloads)
	}
	if n.keys != nil {
		o.Sealer = n.keys
	}
	if n.tracer != nil {
		o.Caller, o.TraceID = n.tracer.Caller, n.tracer.RunTraceID
	}
	n.registry, err = registry.New(o)
	return err
}

func (n *Node) buildDispatcher(context.Context) (err error) {
	c := n.cfg
	o := dispatch.Options{
		Node: c.Name, LeaseTTL: c.LeaseTTL, SessionTTL: c.SessionTTL, Store: n.store, Ledger: n.ledger,
		Observer: observers{n.telemetry, n.feed},
		Attempts: gates{n}, OnDemand: n.assignFreed, OnServed: n.telemetry.QueueServed, Addresses: n.otherNodes,
		Logger: c.Logger, Registerer: c.Registerer,
	}
	if n.tracer != nil {
		o.TraceID = n.tracer.TraceID
	}
	n.dispatcher, err = dispatch.New(o)
	return err
}

func (n *Node) buildScheduler(context.Context) (err error) {
	c := n.cfg
	n.scheduler, err = scheduler.New(scheduler.Options{
		Node: c.Name, Store: n.store, Ledger: n.ledger, Slots: gates{n}, Limits: gates{n}, Peers: n.peers,
		Held: n.validLock, Latency: n.redisLatency, OnLost: func(e job.Ending) { n.admission.Ended(e) },
		FinishRenames: func(ctx context.Context, shards []int) error { return n.registry.FinishRenames(ctx, shards) },
		LeaseTTL:      c.LeaseTTL, Rescan: c.Rescan, Alignment: n.alignment, Logger: c.Logger, Registerer: c.Registerer,
	})
	return err
}

func (n *Node) buildSlotShare(context.Context) error {
	n.slotShare = slotshare.New(slotshare.Options{
		Scheduler: n.scheduler, Peers: n.peers, Accept: n.acceptPermits, FreeSlots: n.offeredSlots, Cadence: n.alignment,
	})
	return nil
}

func (n *Node) buildAdmission(context.Context) (err error) {
	c := n.cfg
	o := admission.Options{
		Store: n.store, Limits: n.store.Limits(), Ledger: n.ledger, Slots: n.dispatcher, Canceller: n,
		OnRoom: n.scheduler.LimitsChanged, OnPaused: n.telemetry.QueuePaused, LeaseTTL: c.LeaseTTL,
		Latency: n.redisLatency, Alignment: n.alignment, Logger: c.Logger, Registerer: c.Registerer,
	}
	if n.keys != nil {
		o.Opener = n.keys
	}
	n.admission, err = admission.New(o)
	if err != nil {
		return err
	}
	n.addCleanup("admission", func(context.Context) error { n.admission.Stop(); return nil })
	return nil
}

func (n *Node) buildLocks(context.Context) (err error) {
	c := n.cfg
	n.locks, err = shardlock.New(shardlock.Options{
		Client: n.lockConns, Functions: c.RedisFunctions, Key: n.store.LockKey, HeartbeatKey: n.store.HeartbeatKey,
		Shards: c.Shards, Node: c.Name, PeerAddr: n.peerAddr,
		ClientAddr: n.grpcAddr, OnAddress: func() { n.dispatcher.AddressesChanged() },
		TTL:       c.LockTTL,
		OnAcquire: func(shard int, _ string) { n.scheduler.ShardAcquired(shard); n.shardTaken(shard) },
		OnLose:    func(shard int, _ string) { n.scheduler.ShardLost(shard) },
		OnRelease: func(shard int, _ string) { n.peers.BroadcastHandOver([]int{shard}) },
		Logger:    c.Logger, Registerer: c.Registerer,
	})
	return err
}

func (n *Node) buildGossip(ctx context.Context) (err error) {
	c := n.cfg
	n.startRedisClock(ctx)
	o := membership.Options{
		Name: c.Name, Join: c.Join, KeyFile: c.GossipKeyFile, Allow: n.security.gossip, Label: c.Cluster,
		GRPCAddr: n.grpcAddr, PeerAddr: n.peerAddr, Version: c.Version,
		Process: n.locks.Process(), EventsKeep: c.EventsKeep, Defaults: n.defaults.Fingerprint(),
		Transport: c.Network.Gossip, Now: n.redisClock.now, Logger: c.Logger, Registerer: c.Registerer,
	}
	o.BindAddr, o.BindPort, err = splitHostPort(c.GossipAddr)
	if err != nil {
		return fmt.Errorf("gossip-addr: %w", err)
	}
	if c.AdvertiseGossip != "" {
		o.AdvertiseAddr, o.AdvertisePort, err = splitHostPort(c.AdvertiseGossip)
		if err != nil {
			return fmt.Errorf("advertise-gossip: %w", err)
		}
	}
	n.gossip, err = membership.New(o)
	if err != nil {
		return err
	}
	if o.KeyFile != "" {
		n.reportFile("gossip_keys", n.gossip.KeysError)
	}
	return nil
}

func (n *Node) buildReach(context.Context) (err error) {
	n.reach, err = reachability.New(reachability.Options{
		LockTTL: n.cfg.LockTTL, Client: n.lockConns, Latency: n.latency, LastLockAnswer: n.locks.LastAnswer,
		Peers:    n.reachOfOthers,
		Publish:  n.publishReach,
		OnChange: n.slotShare.NotifyPeers, OnWithdraw: n.relocateWorkers, Logger: n.cfg.Logger, Registerer: n.cfg.Registerer,
	})
	return err
}
