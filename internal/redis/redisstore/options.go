package redisstore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisacl"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Defaults and limits of [Options].
const (
	DefaultPrefix = "fermata"
	// DefaultShards and DefaultClusterShards are the number of shards of a new keyspace on one primary, and in a Redis
	// Cluster. Fewer shards make calls that carry more runs; more of them lie more evenly on nodes and primaries.
	DefaultShards        = 16
	DefaultClusterShards = 64

	MaxShards          = 4096
	DefaultOpTimeout   = 5 * time.Second
	DefaultWaitTimeout = 500 * time.Millisecond
	MinWaitTimeout     = time.Millisecond

	// MinKeepEvents and MaxKeepEvents bound Options.KeepEvents.
	MinKeepEvents = 1000
	MaxKeepEvents = 10_000_000

	// SchemaVersion is the latest schema that this package knows. New keyspaces have it. An existing keyspace keeps
	// its schema until an operator raises it. Records of all schemas are read; they are written in the schema of the
	// keyspace.
	SchemaVersion = 5
	// SchemaOfBoundPayloads is from which on all nodes open payloads that are sealed by
	// version 2, and seal by it.
	SchemaOfBoundPayloads = 4
	// SchemaOfKeptRuns is from which on all nodes find the run of a one-time job in its state, and keep it there.
	SchemaOfKeptRuns = 5
)

// Options of a [Store]. Only Client is required.
type Options struct {
	// Client talks to the keyspace; see [NewClient]. The store does not close it.
	Client redis.UniversalClient
	// Prefix begins all keys. 1 to 128 letters, digits, '-', '_', '.' and ':'.
	// Default "fermata".
	Prefix string
	// Shards is the number of shards, 1 to 4096, fixed when the keyspace is
	// created. 0 takes what is stored; for a new keyspace it is DefaultShards, or DefaultClusterShards
	// in a Redis Cluster.
	Shards int
	// Caller names this process in the shards' memory of lease batches. It should
	// be the same after a restart. Default: a random name.
	Caller string
	// Virtual, when set, is the clock in Unix milliseconds of a keyspace that has
	// no real one, for tests. A keyspace has a virtual clock for ever or never.
	Virtual func() unixtime.Milli
	// Embedded: the server is an embedded imitation of Redis, which has no script flags. It is also
	// detected by INFO without redis_version.
	Embedded bool

	// Functions calls the functions of [Library] in place of sending scripts, so that
	// the user needs no EVAL. An administrator has loaded the library on every primary.
	Functions bool

	// Durability is the class that is demanded; [Open] fails where the server
	// cannot give it. Default memory.
	Durability conn.Durability
	// Replicas is how many must confirm a write in class replica. Default 1.
	Replicas int
	// WaitTimeout bounds the wait for them; up to half the client's read timeout
	// makes sense. Default 500 ms.
	WaitTimeout time.Duration
	// AllowUnsafe opens a server that evicts keys when its memory is full, or
	// that cannot give the class demanded.
	AllowUnsafe bool

	// Shed is for many callers that can try again later. Calls that wait share a pipeline. A call
	// fails instead of waiting on if it was not sent for as long as the client waits for a reply,
	// or got no connection within PoolTimeout.
	Shed bool

	// OpTimeout bounds every call that has no earlier deadline, retries
	// included. Default 5 s.
	OpTimeout time.Duration

	// KeepEvents is about how many events the keyspace keeps, all shards together,
	// 1000 to 10,000,000. 0: none are recorded.
	KeepEvents int

	// KeepUnsuccessful is about how many unsuccessful runs of a queue their index keeps, all shards together: 1000 to
	// 10,000,000. UnsuccessfulAge is for how long, 1 h to 365 days. Default 64,000 and 7 days.
	KeepUnsuccessful int
	UnsuccessfulAge  time.Duration

	// OnLanesDueEarlier is called with lanes that repairs of the index, the deletion of ended records, or creations whose
	// callers got an error have made due earlier, and with the lock value of the shard's holder. It must not block; nil:
	// not called.
	OnLanesDueEarlier func(shard int, heads []job.LaneHead, holder string)

	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Caller == "" {
		o.Caller = randomID()
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.WaitTimeout == 0 {
		o.WaitTimeout = DefaultWaitTimeout
	}
	if o.OpTimeout == 0 {
		o.OpTimeout = DefaultOpTimeout
	}
	o.KeepUnsuccessful = cmp.Or(o.KeepUnsuccessful, DefaultKeepUnsuccessful)
	o.UnsuccessfulAge = cmp.Or(o.UnsuccessfulAge, DefaultUnsuccessfulAge)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := o.validate(); err != nil {
		return o, fmt.Errorf("redisstore: %w", err)
	}
	return o, nil
}

func (o Options) validate() error {
	if err := redisacl.CheckKeyspace(o.Prefix); err != nil {
		return err
	}
	switch {
	case o.Client == nil:
		return errors.New("a Client is required")
	case o.Shards < 0 || o.Shards > MaxShards:
		return fmt.Errorf("%d shards: must be 1 to %d, or 0 for what is stored", o.Shards, MaxShards)
	case o.Durability > conn.DurabilityReplica:
		return fmt.Errorf("durability class %d is unknown", o.Durability)
	case o.Replicas < 1:
		return fmt.Errorf("%d replicas: must be at least 1", o.Replicas)
	case o.WaitTimeout < MinWaitTimeout:
		return fmt.Errorf("wait timeout %v: must be at least %v", o.WaitTimeout, MinWaitTimeout)
	case o.KeepEvents != 0 && (o.KeepEvents < MinKeepEvents || o.KeepEvents > MaxKeepEvents):
		return fmt.Errorf("%d events to keep: must be %d to %d, or 0 for none", o.KeepEvents, MinKeepEvents,
			MaxKeepEvents)
	case o.KeepUnsuccessful < MinKeepUnsuccessful || o.KeepUnsuccessful > MaxKeepUnsuccessful:
		return fmt.Errorf("%d unsuccessful runs to keep: must be %d to %d", o.KeepUnsuccessful, MinKeepUnsuccessful,
			MaxKeepUnsuccessful)
	case o.UnsuccessfulAge < MinUnsuccessfulAge || o.UnsuccessfulAge > MaxUnsuccessfulAge:
		return fmt.Errorf("unsuccessful runs are kept for %v: must be %v to %v", o.UnsuccessfulAge, MinUnsuccessfulAge,
			MaxUnsuccessfulAge)
	case o.OpTimeout < 0:
		return fmt.Errorf("operation timeout %v: must be positive", o.OpTimeout)
	}
	return nil
}

// preflightOptions are the options of the checks of the servers.
func (o Options) preflightOptions() conn.PreflightOptions {
	return conn.PreflightOptions{
		Client: o.Client, Prefix: o.Prefix, Embedded: o.Embedded, Durability: o.Durability, Replicas: o.Replicas,
		AllowUnsafe: o.AllowUnsafe, Timeout: o.OpTimeout,
	}
}

// runnerOptions are the options of the store's runner.
func (o Options) runnerOptions(clocks runner.ClockScripts) runner.Options {
	return runner.Options{
		Client: o.Client, Prefix: o.Prefix, Clock: clocks, Virtual: o.Virtual,
		Durability: o.Durability, Replicas: o.Replicas, WaitTimeout: o.WaitTimeout,
		OpTimeout: o.OpTimeout, Shed: o.Shed, Logger: o.Logger, Registerer: o.Registerer,
	}
}
