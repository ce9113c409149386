package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/coalesce"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/limits"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Store keeps the records of a keyspace. It has no goroutines of its own and is
// safe for concurrent use. Every method is bounded by its context and by
// [Options.OpTimeout]; errors wrap the sentinels of package job.
type Store struct {
	runner          *runner.Runner
	limits          *limits.Store
	client          redis.UniversalClient
	prefix          string
	shards          []runner.ShardKeys
	batches         []batchSlots
	definitionSizes []definitionSize
	creations       []*coalesce.Coalescer[*createCall] // by shard
	caller          string
	schema          atomic.Int32
	identity        atomic.Pointer[string] // random id of the keyspace; nil: unknown
	scripts         scripts
	checks          conn.PreflightOptions // for an open store
	onEarlier       func(shard int, heads []job.LaneHead, holder string)
	log             *slog.Logger
	metrics         *metrics
	events          *eventQueue // nil: none are recorded
	unsuccessful    unsuccessfulBounds
}

// Open checks the server, creates the keyspace or checks that it fits, and
// touches every shard, which also loads the scripts.
//
// It fails with ErrUnsafe where jobs would be lost, with ErrKeyspace where the
// keyspace was made for something else, with a list of commands where the user
// lacks rights, and with job.ErrUnavailable where Redis cannot be asked.
func Open(ctx context.Context, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, o)
	return s, explainMissingFunction(ExplainDenied(o, err))
}

func open(ctx context.Context, o Options) (*Store, error) {
	report, err := conn.Preflight(ctx, o.preflightOptions())
	if err != nil {
		return nil, err
	}
	if err := report.Refusal(o.preflightOptions()); err != nil {
		return nil, err
	}
	s, err := newStore(o, report.Embedded)
	if err != nil {
		return nil, err
	}
	if err := s.checkGrant(ctx); err != nil {
		return nil, err
	}
	shards, err := s.openKeyspace(ctx, o.Shards, report.Cluster)
	if err != nil {
		return nil, err
	}
	s.addShards(shards)
	s.events, s.unsuccessful = newEventQueue(o.KeepEvents, shards), newUnsuccessfulBounds(o, shards)
	return s, s.runner.TouchShards(ctx)
}

// newStore makes a store that knows nothing of the shards yet.
func newStore(o Options, embedded bool) (*Store, error) {
	s := &Store{
		client: o.Client, prefix: o.Prefix, caller: o.Caller, onEarlier: o.OnLanesDueEarlier, log: o.Logger,
		checks:  o.preflightOptions(),
		scripts: loadScripts(embedded, o.KeepEvents > 0),
	}
	s.checks.Embedded, s.checks.AllowUnsafe = embedded, false
	if o.Functions {
		if embedded {
			return nil, fmt.Errorf("%w: an embedded imitation of Redis has no functions", rediserr.ErrUnsafe)
		}
		s.scripts = loadFunctions(o.KeepEvents > 0)
	}
	var err error
	s.metrics, err = newMetrics(o.Registerer)
	if err == nil {
		s.runner, err = runner.New(o.runnerOptions(s.scripts.clocks))
	}
	if err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	return s, nil
}

func (s *Store) addShards(count int) {
	s.runner.AddShards(count)
	s.shards, s.batches = s.runner.Shards(), make([]batchSlots, count)
	s.definitionSizes = make([]definitionSize, count)
	s.creations = make([]*coalesce.Coalescer[*createCall], count)
	for i := range s.creations {
		s.creations[i] = coalesce.New[*createCall](1, maxSharedCreateWeight)
	}
	s.limits = limits.New(s.runner, limits.Options{
		Scripts: s.scripts.limits, EachLane: s.EachLane, ExplainDenial: s.explainCensusDenial,
	})
}

// Secret returns a secret of this name that all processes of the keyspace share:
// random bytes, made on the first request. Everybody who can read the keyspace's hash can read
// it.
func (s *Store) Secret(ctx context.Context, name string) ([]byte, error) {
	text, err := s.randomField(ctx, "secret:"+name, secretBytes)
	if err != nil {
		return nil, err
	}
	secret, err := hex.DecodeString(text)
	if err != nil || len(secret) != secretBytes {
		return nil, fmt.Errorf("%w: hash %s holds an invalid secret %q", rediserr.ErrKeyspace,
			runner.KeyspaceKey(s.prefix), name)
	}
	return secret, nil
}

// randomField reads a field of the keyspace's hash that is random and never changes. The first caller
// makes it, in hex.
func (s *Store) randomField(ctx context.Context, field string, length int) (string, error) {
	fresh := make([]byte, length)
	// crypto/rand.Read never fails.
	_, _ = rand.Read(fresh)
	o := runner.NewScriptCall(s.scripts.secret, runner.NoShard, []string{runner.KeyspaceKey(s.prefix)},
		[]any{field, hex.EncodeToString(fresh)})
	err := s.runner.Run(ctx, o)
	return o.Reply.TextAt(0), err
}

// identityField is the field of the keyspace's hash that has its identity.
const (
	identityField = "id"
	identityBytes = 16
)

// Identity is the random id by which nodes check that they use the same keyspace; empty if unknown, for
// example because Redis had no room for it. It is no secret. A copy of a keyspace has the same id.
func (s *Store) Identity() string {
	if id := s.identity.Load(); id != nil {
		return *id
	}
	return ""
}

// openIdentity reads the id of the keyspace, and makes one if it has none. Without room for it, the
// keyspace works without an id.
func (s *Store) openIdentity(ctx context.Context) {
	id, err := s.randomField(ctx, identityField, identityBytes)
	if err != nil {
		s.log.Warn("failed to read the id of the keyspace: nodes of another keyspace are not refused", "error", err)
		return
	}
	s.identity.Store(&id)
}

const secretBytes = 32

// defaultShards is the number of shards of a new keyspace for which none is configured.
func defaultShards(cluster bool) int {
	if cluster {
		return DefaultClusterShards
	}
	return DefaultShards
}

// openKeyspace returns the number of shards. It creates the keyspace with the wanted number, or with the default if
// that is 0. A keyspace that exists keeps its number, and is refused if another one is wanted.
func (s *Store) openKeyspace(ctx context.Context, want int, cluster bool) (int, error) {
	fresh := cmp.Or(want, defaultShards(cluster))
	virtual := "0"
	if s.runner.Virtual() {
		virtual = "1"
	}
	o := runner.NewScriptCall(s.scripts.keyspace, runner.NoShard, []string{runner.KeyspaceKey(s.prefix)},
		[]any{fresh, SchemaVersion, virtual})
	if err := s.runner.Run(ctx, o); err != nil {
		return 0, err
	}
	shards, err := strconv.Atoi(o.Reply.TextAt(1))
	schema, err2 := strconv.Atoi(o.Reply.TextAt(2))
	switch {
	case err != nil || err2 != nil || shards < 1 || shards > MaxShards:
		return 0, fmt.Errorf("%w: hash %s holds shards %q, schema %q", rediserr.ErrKeyspace,
			runner.KeyspaceKey(s.prefix), o.Reply.TextAt(1), o.Reply.TextAt(2))
	case schema > SchemaVersion:
		return 0, laterSchemaError(o.Reply.TextAt(2))
	case want != 0 && want != shards:
		return 0, fmt.Errorf("%w: it has %d shards, but %d are asked for: the number is fixed, leave it out, "+
			"use %d or move the jobs by export and import", rediserr.ErrKeyspace, shards, want, shards)
	case o.Reply.TextAt(3) != virtual:
		return 0, fmt.Errorf("%w: its clock is %s, this process wants a %s one", rediserr.ErrKeyspace,
			clockName(o.Reply.TextAt(3)), clockName(virtual))
	}
	if o.Reply.IntAt(0) == 1 {
		s.log.Info("keyspace created", "prefix", s.prefix, "shards", shards, "virtual", s.runner.Virtual())
	}
	s.schema.Store(int32(schema))
	s.openIdentity(ctx)
	return shards, nil
}

func clockName(virtual string) string {
	if virtual == "1" {
		return "virtual"
	}
	return "real"
}

// Shards is the number of shards of the keyspace.
func (s *Store) Shards() int { return len(s.shards) }

// Schema is that of the keyspace, as it was last read.
func (s *Store) Schema() int { return int(s.schema.Load()) }

// form is how records are written.
func (s *Store) form() codec.Encoding { return codec.EncodingOf(int(s.schema.Load())) }

// keepsRuns reports whether the run of a one-time job is stored in its state.
func (s *Store) keepsRuns() bool { return s.schema.Load() >= SchemaOfKeptRuns }

// Limits are those of the same keyspace, on the same connections.
func (s *Store) Limits() *limits.Store { return s.limits }

// ShardOf is the shard of a job, and of its children.
func (s *Store) ShardOf(k job.Key) int { return sharding.ShardOf(k.Namespace, k.ID, len(s.shards)) }

// LockKey is the key of the shard's lock.
func (s *Store) LockKey(shard int) string { return s.shards[shard].Lock }

// HeartbeatKey is the key of the heartbeats of a node's process.
func (s *Store) HeartbeatKey(process string) string { return runner.HeartbeatKey(s.prefix, process) }

// Virtual reports whether the keyspace has a virtual clock.
func (s *Store) Virtual() bool { return s.runner.Virtual() }

// Now returns the shard's clock in Unix milliseconds: see [runner.Runner.Now].
func (s *Store) Now(ctx context.Context, shard int) (unixtime.Milli, error) {
	return s.runner.Now(ctx, shard)
}

// NowIsKnown reports whether Now answers without asking Redis.
func (s *Store) NowIsKnown(shard int) bool { return s.runner.NowIsKnown(shard) }

// Latest bounds from above what the shard's clock can show now: see [runner.Runner.Latest].
func (s *Store) Latest(shard int) lease.ClockBound { return s.runner.Latest(shard) }

// Confirm returns nil when everything that the shard holds now is confirmed: see [runner.Runner.Confirm].
func (s *Store) Confirm(ctx context.Context, shard int) error { return s.runner.Confirm(ctx, shard) }

func randomID() string { return rand.Text() }
