package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/engine/audittrail"
	"github.com/fermata-io/fermata/internal/engine/events"
	"github.com/fermata-io/fermata/internal/engine/ledger"
	"github.com/fermata-io/fermata/internal/engine/queuestats"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/fsck"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// cluster is everything behind the command but the nodes' own loops: a real
// Redis whose clock the test moves, and the API on loopback.
type cluster struct {
	t       *testing.T
	address string
	clock   atomic.Int64
	store   *redisstore.Store
	ledger  *ledger.Ledger
	redis   redis.UniversalClient
	admin   *redis.Client // may do what nodes may not
	batch   int
	hooks   hooks
	// defaults are those of the operator, for jobs to come.
	defaults backoff.Defaults
}

// auditKey signs the audit records of the test's cluster.
var auditKey = job.ChainKey{ID: "k1", Key: ed25519.NewKeyFromSeed([]byte("a seed of exactly 32 bytes, here"))}

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type quiet struct{}

func (quiet) Observe([]job.Notice)              {}
func (quiet) Nudge(int, []job.LaneHead, string) {}

func startCluster(t *testing.T, change ...func(*registry.Options)) *cluster {
	t.Helper()
	c := &cluster{t: t}
	c.clock.Store(epoch.UnixMilli())
	server := redistest.Start(t)
	c.admin = server.Client()
	var err error
	if c.redis, err = conn.NewClient(conn.ClientOptions{URL: server.URL(), ReadTimeout: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.redis.Close() })
	c.store, err = redisstore.Open(t.Context(), redisstore.Options{Client: c.redis, Shards: 4, AllowUnsafe: true, Virtual: func() unixtime.Milli { return unixtime.Milli(c.clock.Load()) }, KeepEvents: 1000})
	if err != nil {
		t.Fatal(err)
	}
	c.ledger = ledger.New(ledger.Options{Store: c.store, Observer: quiet{}, Nudger: quiet{}, Revisions: job.DefaultRevisions})
	t.Cleanup(c.ledger.Stop)
	overview := queuestats.NewOverview(c.store)
	t.Cleanup(overview.Stop)
	options := registry.Options{Store: c.store, SharedLimits: c.store.Limits(), Rankings: overview, Lanes: overview,
		Ledger: c.ledger, Edit: rpc.CallerEdit, Revisions: job.DefaultRevisions}
	for _, f := range change {
		f(&options)
	}
	jobs, err := registry.New(options)
	if err != nil {
		t.Fatal(err)
	}
	records, err := audittrail.New(audittrail.Options{Store: c.store, Keys: func() []job.ChainKey { return []job.ChainKey{auditKey} }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { records.Stop(context.Background()) })
	feed, err := events.New(events.Options{Store: c.store})
	if err != nil {
		t.Fatal(err)
	}
	api, _, err := rpc.NewServer(rpc.Options{
		Jobs: jobs, Defaults: &c.defaults, Cluster: view{c.store}, AuditTrail: records, Events: feed, Webhooks: &c.hooks,
		Now: func() time.Time { return time.UnixMilli(c.clock.Load()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = listener.Addr().String()
	served, fed := make(chan error, 1), make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() { served <- api.Serve(listener) }()
	go func() { fed <- feed.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-fed
		api.Stop()
		<-served
	})
	return c
}

func (c *cluster) pass(d time.Duration) { c.clock.Add(d.Milliseconds()) }

// run executes a command line. Its standard input is the last argument if that
// begins with "<".
func (c *cluster) run(args ...string) (code int, out, errs string) {
	c.t.Helper()
	input := ""
	if n := len(args) - 1; n >= 0 && strings.HasPrefix(args[n], "<") {
		input, args = args[n][1:], args[:n]
	}
	var stdout, stderr bytes.Buffer
	code = runCommand(c.t.Context(), append([]string{"--address", c.address}, args...),
		standardStreams{strings.NewReader(input), &stdout, &stderr}, func() time.Time { return time.UnixMilli(c.clock.Load()).UTC() })
	return code, stdout.String(), strings.ReplaceAll(stderr.String(), c.address, "ADDRESS")
}

// must executes a command line that has to succeed.
func (c *cluster) must(args ...string) string {
	c.t.Helper()
	code, out, errs := c.run(args...)
	if code != 0 {
		c.t.Fatalf("fermata %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// attempt leases the current run of a job and settles it, unless outcome is 0.
func (c *cluster) attempt(id string, outcome job.Outcome, text string) {
	c.t.Helper()
	key := job.Key{Namespace: "default", ID: id}
	records, err := c.store.Get(c.t.Context(), []job.Key{key})
	if err != nil || records[0] == nil {
		c.t.Fatalf("job %s: %v %v", id, records, err)
	}
	if wait := int64(records[0].State.Due - unixtime.Milli(c.clock.Load())); wait > 0 {
		c.pass(time.Duration(wait) * time.Millisecond)
	}
	shard := c.store.ShardOf(key)
	if err := c.redis.Set(c.t.Context(), c.store.LockKey(shard), "v", 0).Err(); err != nil {
		c.t.Fatal(err)
	}
	c.batch++
	reply := c.store.Lease(c.t.Context(), []job.LeaseRequest{{
		Shard: shard, LockValue: "v", TTL: time.Minute, Batch: string(rune('0' + c.batch)),
		Quotas: []job.LaneQuota{{Lane: records[0].State.Lane, N: 1}},
	}})[0]
	if reply.Err != nil || len(reply.Leased) != 1 || reply.Leased[0].Record != key.Record() {
		c.t.Fatalf("lease of %s: %+v", id, reply)
	}
	if outcome == job.OutcomeNone {
		return
	}
	started := c.clock.Load()
	c.pass(1500 * time.Millisecond)
	result := c.ledger.SubmitAndWait(c.t.Context(), job.Change{Record: key.Record(), Input: job.FinishAttempt{
		Token: reply.Leased[0].Known.State.Token, Outcome: outcome, Error: text, Output: []byte("status 503"), StartedMS: unixtime.Milli(started), Worker: "w1",
	}})[0]
	if result.Err != nil || result.Answer != job.Applied {
		c.t.Fatalf("settle %s: %+v", id, result)
	}
}

// view is a cluster of two nodes that never changes.
type view struct{ store *redisstore.Store }

func (v view) CheckShard(ctx context.Context, shard int, repair bool) (job.ConsistencyReport, error) {
	return fsck.New(v.store).CheckShard(ctx, shard, repair)
}

func (view) LostNodes() []rpc.LostNode {
	return []rpc.LostNode{{Name: "c", GRPCAddress: "10.0.0.3:7070", LostAt: epoch.Add(-40 * time.Second)}}
}

func (view) Nodes(context.Context) ([]rpc.Node, error) {
	return []rpc.Node{
		{Name: "a", GRPCAddress: "10.0.0.1:7070", PeerAddress: "10.0.0.1:7071", ShardsHeld: 4, Workers: 1, Version: "1.0.0",
			Started: epoch.Add(-90 * time.Minute), Durability: "local"},
		{Name: "b", GRPCAddress: "10.0.0.2:7070", PeerAddress: "10.0.0.2:7071", Unreachable: true},
	}, nil
}

func (view) Shards(context.Context) ([]rpc.Shard, error) {
	return []rpc.Shard{{Shard: 0, Holder: "a", LockTTL: 9 * time.Second, Jobs: 12, Lag: 250 * time.Millisecond}, {Shard: 1}}, nil
}

func (view) Queues(_ context.Context, namespace string, _ func(string) bool) ([]rpc.Queue, error) {
	queues := []rpc.Queue{{Namespace: "default", Queue: "mail", Backlog: 3, Running: 2, Scheduled: 7, FreeSlots: 0, Workers: 1, OldestOverdue: 4 * time.Second}}
	if namespace == "" {
		queues = append(queues, rpc.Queue{Namespace: "other", Queue: "default", QueuePaused: true})
	}
	return queues, nil
}

func (view) Workers(context.Context) ([]rpc.Worker, error) {
	return []rpc.Worker{{ID: "w1", Node: "a", Namespace: "default", Queues: []string{"default", "mail"}, Slots: 8, Running: 2,
		Connected: epoch.Add(-10 * time.Second), Version: "1.0.0", Draining: true, Identity: "token:mailer"}}, nil
}

func (view) Namespaces(context.Context, job.QueueScope, func(string) bool) ([]rpc.Namespace, error) {
	return []rpc.Namespace{
		{Name: "default", Jobs: 12, Running: 2, Paused: 1, Dead: 3, Queues: 4, Whole: true, Failing: 5,
			JobsQuota: &rpc.QuotaUse{Used: 12, Counted: true, Limit: 100}, BytesQuota: &rpc.QuotaUse{Limit: 1 << 20}},
		{Name: "team-b", Jobs: 1, Queues: 1},
	}, nil
}
