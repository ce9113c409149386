package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

func clusterURL(c *redistest.Cluster) string {
	return "redis+cluster://" + strings.Join(c.Addrs(), ",")
}

// TestSuiteOnCluster runs the suite on three masters, and checks that a shard never
// leaves its slot.
func TestSuiteOnCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	storetest.Run(t, func(testing.TB) redis.UniversalClient { return cluster.Client() }, asOptions(t, clusterURL(cluster)))
	t.Run("slots", func(t *testing.T) {
		client := cluster.Client()
		w := storetest.NewWorld(t, client, asOptions(t, clusterURL(cluster)), func(o *redisstore.Options) { o.Shards = 64 })
		tags := sharding.Tags(64)
		for shard := range 64 {
			for _, id := range w.InShard(shard, 2) {
				w.Add(storetest.Once(id, 0))
			}
			want := int64(sharding.Slot(tags[shard]))
			for _, name := range []string{"meta", "def", "st", "hist", "lanes", "lock", "l:" + storetest.Lane().String()} {
				if got := client.ClusterKeySlot(t.Context(), w.Key(shard, name)).Val(); got != want {
					t.Errorf("shard %d: %s is in slot %d, want %d", shard, name, got, want)
				}
			}
		}
		var requests []job.LeaseRequest
		for shard := range 64 {
			requests = append(requests, storetest.LeaseRequest(shard, 2, ""))
		}
		for shard, reply := range w.Store.Lease(t.Context(), requests) {
			if reply.Err != nil || len(reply.Leased) != 2 {
				t.Errorf("shard %d: %+v", shard, reply)
			}
		}
		report, err := w.Store.Check(t.Context())
		if err != nil || report.Servers != 3 || !report.Cluster {
			t.Errorf("report %+v (%v)", report, err)
		}
	})
}

// TestClusterFailover loses a master; its shards go on with its replica.
func TestClusterFailover(t *testing.T) {
	// What the other masters serve does not depend on how soon this one is replaced.
	cluster := redistest.StartCluster(t, 3, 1, redistest.WithConfig("cluster-require-full-coverage", "no"))
	w := storetest.NewWorld(t, newObserver(t, cluster.Nodes()[0], clusterURL(cluster)), asOptions(t, clusterURL(cluster)), func(o *redisstore.Options) { o.Shards = 3 })
	last := map[job.RecordID]uint64{}
	cycle := func(shard int) error {
		w.Clock.Add(70_000)
		reply := w.Store.Lease(t.Context(), []job.LeaseRequest{storetest.LeaseRequest(shard, 5, "")})[0]
		if reply.Err != nil {
			return reply.Err
		}
		for _, l := range reply.Leased {
			if l.Known.State.Token <= last[l.Record] {
				t.Errorf("%s: token %d after %d", l.Record, l.Known.State.Token, last[l.Record])
			}
			last[l.Record] = l.Known.State.Token
			if r := w.Store.Apply(t.Context(), shard, []job.Write{w.Settle(l, job.OutcomeSucceeded)}); r.Err != nil {
				return r.Err
			}
		}
		if len(reply.Leased) == 0 {
			return errors.New("nothing was due")
		}
		return nil
	}
	for shard := range 3 {
		w.Add(storetest.Definition(w.InShard(shard, 1)[0]))
		if err := cycle(shard); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range cluster.Nodes() {
		redistest.Eventually(t, redistest.Patience, "replicas that have all", func(ctx context.Context) error { return inStep(ctx, n) })
	}
	old := cluster.KillMaster(1)
	if err := cycle(0); err != nil {
		t.Errorf("a shard of another master: %v", err)
	}
	cluster.WaitFailover(old)
	redistest.Eventually(t, redistest.Patience, "leasing after the failover", func(context.Context) error { return cycle(1) })
}

// inStep answers nil for a server whose replicas have all that it has written.
func inStep(ctx context.Context, n *redistest.Server) error {
	text, err := n.Client().Info(ctx, "replication").Result()
	if err != nil || !strings.Contains(text, "role:master") {
		return err
	}
	own := regexp.MustCompile(`master_repl_offset:(\d+)`).FindStringSubmatch(text)
	for _, replica := range regexp.MustCompile(`slave\d+:.*offset=(\d+)`).FindAllStringSubmatch(text, -1) {
		if own == nil || replica[1] != own[1] {
			return fmt.Errorf("a replica is at %s of %v", replica[1], own)
		}
	}
	return nil
}

// TestSlotMigration moves the slot of a shard to another master while the shard
// is at work: calls succeed or fail with an error that allows a repeat, and nothing is lost.
func TestSlotMigration(t *testing.T) {
	cluster := redistest.StartCluster(t, 2, 0)
	w := storetest.NewWorld(t, newObserver(t, cluster.Nodes()[0], clusterURL(cluster)), asOptions(t, clusterURL(cluster)), func(o *redisstore.Options) { o.Shards = 2 })
	ids := w.InShard(0, 20)
	for _, id := range ids {
		w.Add(storetest.Once(id, 0))
	}
	slot := int(sharding.Slot(sharding.Tags(2)[0]))
	from, to := cluster.Master(0), cluster.Master(1)
	node := func(s *redistest.Server, args ...any) string {
		t.Helper()
		text, err := s.Client().Do(t.Context(), args...).Text()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return text
	}
	settled := 0
	work := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		reply := w.Store.Lease(ctx, []job.LeaseRequest{storetest.LeaseRequest(0, 2, "")})[0]
		if reply.Err != nil && !errors.Is(reply.Err, job.ErrUnavailable) {
			t.Errorf("lease: %v", reply.Err)
		}
		for _, l := range reply.Leased {
			w.MustWrite(0, w.Settle(l, job.OutcomeSucceeded))
			settled++
		}
	}
	work()
	fromID, toID := node(from, "cluster", "myid"), node(to, "cluster", "myid")
	node(to, "cluster", "setslot", slot, "importing", fromID)
	node(from, "cluster", "setslot", slot, "migrating", toID)
	work()
	keys, err := from.Client().ClusterGetKeysInSlot(t.Context(), slot, 100).Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("keys %v (%v)", keys, err)
	}
	host, port, _ := strings.Cut(to.Addr(), ":")
	for _, key := range keys {
		admin := to.Client().Options()
		node(from, "migrate", host, port, key, 0, 5000, "auth2", admin.Username, admin.Password)
	}
	work()
	node(to, "cluster", "setslot", slot, "node", toID)
	node(from, "cluster", "setslot", slot, "node", toID)
	redistest.Eventually(t, redistest.Patience, "the rest after the migration", func(context.Context) error {
		work()
		if settled < len(ids) {
			return fmt.Errorf("%d of %d jobs have run", settled, len(ids))
		}
		return nil
	})
}
