package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// TestLostKeyspace empties Redis under an open store: the next check reports it, and
// does not make the loss invisible.
func TestLostKeyspace(t *testing.T) {
	server := redistest.Start(t)
	w := storetest.NewWorld(t, server.Client(), asOptions(t, server.URL()))
	w.Damaged()
	ctx, hash := t.Context(), w.Prefix+":{meta}"
	finding := func() string {
		t.Helper()
		report, err := w.Store.Check(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			if f.Code == "keyspace" && f.Severity == conn.Fatal {
				return f.Text
			}
		}
		return ""
	}
	if text := finding(); text != "" {
		t.Errorf("all is well, but: %s", text)
	}
	if err := server.Client().FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	storetest.Create(ctx, w.Store, 0, []job.Record{w.Record(storetest.Definition(w.InShard(0, 1)[0]))})
	for range 2 {
		if text := finding(); !strings.Contains(text, hash) || !strings.Contains(text, "--shards 4") || !strings.Contains(text, "backup") {
			t.Errorf("after the loss: %q", text)
		}
	}
	if n := server.Client().Exists(ctx, hash).Val(); n != 0 {
		t.Error("the keyspace was created again")
	}
	w.Open(func(o *redisstore.Options) { o.Shards = 5 })
	if text := finding(); !strings.Contains(text, `"5"`) || !strings.Contains(text, "with 4") {
		t.Errorf("another process has created it with 5 shards: %q", text)
	}
	server.Client().Del(ctx, hash)
	w.Open()
	if text := finding(); !strings.Contains(text, "another id") {
		t.Errorf("another process has created it as it was: %q", text)
	}
	if err := w.Store.CheckSchema(ctx); !errors.Is(err, rediserr.ErrKeyspaceGone) {
		t.Errorf("the short check returns %v", err)
	}
}

// TestLanesOfHealthyServers loses a master without a replica: the lanes of the
// other masters' shards are answered beside the error.
func TestLanesOfHealthyServers(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0, redistest.WithConfig("cluster-require-full-coverage", "no"))
	w := storetest.NewWorld(t, newObserver(t, cluster.Nodes()[0], clusterURL(cluster)), asOptions(t, clusterURL(cluster)), func(o *redisstore.Options) { o.Shards = 3 })
	w.Damaged()
	for shard := range 3 {
		w.Add(storetest.Once(w.InShard(shard, 1)[0], time.Minute))
	}
	cluster.KillMaster(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lanes, err := w.Store.Lanes(ctx, []int{0, 1, 2})
	if !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("error %v", err)
	}
	for _, shard := range []int{0, 2} {
		if heads := lanes[shard]; len(heads) != 1 || heads[0].Lane != storetest.Lane() || heads[0].DueMS != unixtime.Milli(storetest.Start+60_000) {
			t.Errorf("shard %d: %+v", shard, heads)
		}
	}
	if heads, ok := lanes[1]; ok {
		t.Errorf("the shard without a server has %+v", heads)
	}
}

// TestEventsOfHealthyServers freezes a master while events are written: what is decided in
// the shards of the others does not wait for it.
func TestEventsOfHealthyServers(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0, redistest.WithConfig("cluster-require-full-coverage", "no"))
	w := storetest.NewWorld(t, newObserver(t, cluster.Nodes()[0], clusterURL(cluster)), asOptions(t, clusterURL(cluster)), func(o *redisstore.Options) {
		o.Shards, o.KeepEvents = 3, redisstore.MinKeepEvents
	})
	w.Damaged()
	w.Add(storetest.Once(w.InShard(0, 1)[0], 0))
	leased := w.Lease(0, 1)
	for _, shard := range []int{0, 1} {
		w.Store.Announce(job.Event{Kind: job.KindShardTaken, Shard: shard, Node: "n"})
	}
	stream := w.Key(0, "events")
	before := w.Client.XLen(t.Context(), stream).Val()
	cluster.Master(1).Pause()
	flushed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { flushed <- w.Store.FlushEvents(ctx) }()
	redistest.Eventually(t, redistest.Patience, "the event of the healthy shard", func(ctx context.Context) error {
		if n := w.Client.XLen(ctx, stream).Val(); n <= before {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	within, done := context.WithTimeout(t.Context(), 3*time.Second)
	defer done()
	if r := w.Store.Apply(within, 0, []job.Write{w.Settle(leased[0], job.OutcomeSucceeded)}); r.Err != nil {
		t.Errorf("beside a server that does not answer: %v", r.Err)
	}
	cancel()
	if err := <-flushed; err == nil {
		t.Error("the event of the shard without a server is written")
	}
	cluster.Master(1).Resume()
}

// TestEventsOfHealthyServersAreRead loses a master without a replica: what is in the streams
// of the others is read beside the error, and where they end.
func TestEventsOfHealthyServersAreRead(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0, redistest.WithConfig("cluster-require-full-coverage", "no"))
	w := storetest.NewWorld(t, newObserver(t, cluster.Nodes()[0], clusterURL(cluster)), asOptions(t, clusterURL(cluster)), func(o *redisstore.Options) {
		o.Shards, o.KeepEvents = 3, redisstore.MinKeepEvents
	})
	w.Damaged()
	for shard := range 3 {
		w.Store.Announce(job.Event{Kind: job.KindShardTaken, Shard: shard, Node: "n"})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.Store.FlushEvents(ctx); err != nil {
		t.Fatal(err)
	}
	cluster.KillMaster(1)
	last, err := w.Store.LastEvents(ctx)
	if !errors.Is(err, job.ErrUnavailable) || len(last) != 3 {
		t.Fatalf("%v, %v", last, err)
	}
	pages, err := w.Store.Events(ctx, []job.EventsRequest{{Shard: 2, Limit: 10}, {Shard: 1, Limit: 10}, {Shard: 0, Limit: 10}})
	if !errors.Is(err, job.ErrUnavailable) || len(pages) != 3 {
		t.Fatalf("%+v, %v", pages, err)
	}
	for _, shard := range []int{0, 2} {
		page := pages[2-shard]
		if page.Err != nil || len(page.Events) != 1 || page.Events[0].Place != last[shard] || last[shard].Seq != 1 {
			t.Errorf("shard %d: %+v, its last is %v", shard, page, last[shard])
		}
	}
	if !errors.Is(pages[1].Err, job.ErrUnavailable) || len(pages[1].Events) != 0 || last[1].Exact() {
		t.Errorf("the shard without a server: %+v, its last is %v", pages[1], last[1])
	}
}

// TestTokenAfterLostGrant lets a failover lose the grant of another process, to a
// server whose clock is behind: the next token is greater all the same.
func TestTokenAfterLostGrant(t *testing.T) {
	server := miniredis.RunT(t)
	at := func(d time.Duration) { server.SetTime(time.UnixMilli(storetest.Start).Add(d)) }
	at(0)
	realTime := func(o *redisstore.Options) { o.Virtual = nil }
	w := storetest.NewWorld(t, dialRedis(t, "redis://"+server.Addr()), realTime)
	other := w.Open(realTime)
	id := w.InShard(0, 1)[0]
	w.Add(storetest.Once(id, 0))
	restore := rememberRecord(t, w, job.RecordID("ns/"+id))

	at(30 * time.Second)
	lost := other.Lease(t.Context(), []job.LeaseRequest{storetest.LeaseRequest(0, 1, "")})[0]
	if lost.Err != nil || len(lost.Leased) != 1 {
		t.Fatalf("lease of the other process: %+v", lost)
	}
	at(31 * time.Second)
	// It learns the time, and no token.
	if _, err := w.Store.Expired(t.Context(), 0, "nobody's", []job.Lane{storetest.Lane()}, 1); !errors.Is(err, job.ErrNotHolder) {
		t.Fatal(err)
	}
	learned, err := w.Store.Now(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	restore()
	at(5 * time.Second)
	leased := w.Lease(0, 1)
	if len(leased) != 1 {
		t.Fatalf("leased %d", len(leased))
	}
	before, token := lost.Leased[0].Known.State.Token, leased[0].Known.State.Token
	if expected := uint64(learned-1) * 1000; token <= before || token <= expected {
		t.Errorf("token %d, after %d and at time %d", token, before, expected)
	}
}

// rememberRecord returns what brings shard 0 with one record back to how it is now.
func rememberRecord(t *testing.T, w *storetest.World, record job.RecordID) (restore func()) {
	t.Helper()
	ctx, lane := t.Context(), w.Key(0, "l:"+storetest.Lane().String())
	clock := w.Client.HGet(ctx, w.Key(0, "meta"), "c").Val()
	state := w.Client.HGet(ctx, w.Key(0, "st"), string(record)).Val()
	due := w.Client.ZScore(ctx, lane, string(record)).Val()
	if clock == "" || state == "" {
		t.Fatalf("clock %q, state %q", clock, state)
	}
	return func() {
		t.Helper()
		p := w.Client.TxPipeline()
		p.Del(ctx, w.Key(0, "meta"))
		p.HSet(ctx, w.Key(0, "meta"), "c", clock)
		p.HSet(ctx, w.Key(0, "st"), string(record), state)
		p.ZAdd(ctx, lane, redis.Z{Score: due, Member: string(record)})
		p.ZAdd(ctx, w.Key(0, "lanes"), redis.Z{Score: due, Member: storetest.Lane().String()})
		if _, err := p.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
