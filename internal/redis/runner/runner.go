package runner

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
)

// Options of a [Runner]. All are required, except where a default is named.
type Options struct {
	Client redis.UniversalClient
	Prefix string // of all keys
	// Clock are the scripts by which the runner reads the clocks of shards.
	Clock ClockScripts
	// Virtual is the clock of a keyspace that has no real one, in Unix milliseconds; nil for a real one.
	Virtual func() unixtime.Milli

	Durability  conn.Durability
	Replicas    int           // how many must confirm a write in class replica
	WaitTimeout time.Duration // bounds the wait for them

	// OpTimeout bounds every run that has no earlier deadline, retries included.
	OpTimeout time.Duration
	// Shed: calls that wait share a pipeline. A call fails instead of waiting on if it was not sent for as
	// long as the client waits for a reply, or got no connection within PoolTimeout.
	Shed bool

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: nothing is registered
	// Now is the clock of this process, which must be monotonic. Default: time.Now.
	Now func() time.Time
}

// Runner runs commands and scripts on the servers of a keyspace. It is safe for concurrent use.
type Runner struct {
	client        redis.UniversalClient
	prefix        string
	shards        []ShardKeys
	clocks        []shardClock
	clockScripts  ClockScripts
	virtual       func() unixtime.Milli
	latestVirtual atomic.Int64 // the greatest that virtual has returned
	durability    conn.Durability
	replicas      int
	waitTimeout   time.Duration
	opTimeout     time.Duration
	maxQueueWait  time.Duration // how long a call may wait for others, if Options.Shed; else 0
	answerTimeout time.Duration // how long the client waits for an answer
	coalescers    sync.Map      // by pipeliner
	firstDenial   atomic.Pointer[error]
	log           *slog.Logger
	metrics       *metrics
	now           func() time.Time
}

// New makes a runner without shards. It can run calls that concern the whole keyspace.
func New(o Options) (*Runner, error) {
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	r := &Runner{
		client: o.Client, prefix: o.Prefix, clockScripts: o.Clock, virtual: o.Virtual,
		durability: o.Durability, replicas: o.Replicas, waitTimeout: o.WaitTimeout,
		opTimeout: o.OpTimeout, answerTimeout: conn.AnswerTimeout(o.Client), log: o.Logger, metrics: m, now: o.Now,
	}
	if r.now == nil {
		r.now = time.Now
	}
	if o.Shed {
		r.maxQueueWait = r.answerTimeout
	}
	return r, nil
}

// AddShards makes the shards known, and nothing of their clocks. It is called once, before any call that
// concerns a shard.
func (r *Runner) AddShards(count int) {
	for _, tag := range sharding.Tags(count) {
		r.shards = append(r.shards, NewShardKeys(r.prefix, tag))
	}
	r.clocks = make([]shardClock, count)
}

// TouchShards reads all clocks, which shows that each shard is reachable and has the right kind of clock.
func (r *Runner) TouchShards(ctx context.Context) error {
	ops := make([]*Op, len(r.shards))
	for shard := range r.shards {
		ops[shard] = r.NewClockCall(shard)
	}
	return r.Run(ctx, ops...)
}

// Prefix begins all keys of the keyspace.
func (r *Runner) Prefix() string { return r.prefix }

// Shards are the keys of all shards. Callers do not change them.
func (r *Runner) Shards() []ShardKeys { return r.shards }

// LocalTime is the time by the clock of this process.
func (r *Runner) LocalTime() time.Time { return r.now() }

// AnswerTimeout is how long the client waits for an answer.
func (r *Runner) AnswerTimeout() time.Duration { return r.answerTimeout }

// QueueWait is how long a call may wait for others before it is sent.
func (r *Runner) QueueWait() time.Duration { return cmp.Or(r.maxQueueWait, r.opTimeout) }

// Virtual reports whether the keyspace has a virtual clock.
func (r *Runner) Virtual() bool { return r.virtual != nil }

// rememberDenial keeps the first error about a missing permission.
func (r *Runner) rememberDenial(err error) {
	if r.firstDenial.Load() == nil {
		r.firstDenial.Store(&err)
	}
}

// ReplaceDenial replaces the error about a missing permission by a more detailed one.
func (r *Runner) ReplaceDenial(err error) { r.firstDenial.Store(&err) }

// TakeDenial returns the first error about a missing permission since its last call; nil if there was none.
func (r *Runner) TakeDenial() error {
	if err := r.firstDenial.Swap(nil); err != nil {
		return *err
	}
	return nil
}

// ReportCorrupt counts and logs unreadable records.
func (r *Runner) ReportCorrupt(shard int, where string, err error, records ...string) {
	if len(records) == 0 {
		return
	}
	r.metrics.corrupt.Add(float64(len(records)))
	attrs := []any{"shard", shard, "records", records, "found_by", where}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	r.log.Error("corrupt records: they are kept, but take no part in scheduling", attrs...)
}

// KeyOfEachServer picks one of some keys for each reachable server of a Redis Cluster; none without a cluster.
func (r *Runner) KeyOfEachServer(ctx context.Context, keys []string) (picked []string) {
	if _, cluster := r.client.(*redis.ClusterClient); !cluster {
		return nil
	}
	ops := make([]*Op, len(keys))
	for i, key := range keys {
		ops[i] = NewCommand("", key)
	}
	groups := r.groupByServer(ctx, ops)
	delete(groups, nil) // callers learn of unreachable servers by other calls
	for _, group := range groups {
		picked = append(picked, group[0].Keys[0])
	}
	return picked
}

// Run runs ops as [Runner.RunEach] does, wraps their errors and returns the first one.
func (r *Runner) Run(ctx context.Context, ops ...*Op) error {
	r.RunEach(ctx, ops)
	for _, o := range ops {
		o.Err = rediserr.Wrap(o.Name, o.Err)
	}
	return FirstError(ops)
}
