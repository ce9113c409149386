package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/redisstore"
	"github.com/fermata-io/fermata/internal/redistest"
	"github.com/fermata-io/fermata/internal/ring"
	"github.com/fermata-io/fermata/internal/storetest"
)

func clusterURL(c *redistest.Cluster) string {
	return "redis+cluster://" + strings.Join(c.Addrs(), ",")
}

// TestCluster runs the suite on three masters, and checks that a shard never
// leaves its slot.
func TestCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	storetest.Run(t, func(t testing.TB) redis.UniversalClient { return dial(t, clusterURL(cluster)) })
	t.Run("slots", func(t *testing.T) {
		client := dial(t, clusterURL(cluster))
		w := storetest.NewWorld(t, client, func(o *redisstore.Options) { o.Shards = 64 })
		tags := ring.Tags(64)
		for shard := range 64 {
			for _, id := range w.InShard(shard, 2) {
				w.Add(storetest.Once(id, 0))
			}
			want := int64(ring.Slot(tags[shard]))
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
	cluster := redistest.StartCluster(t, 3, 1)
	w := storetest.NewWorld(t, dial(t, clusterURL(cluster)), func(o *redisstore.Options) { o.Shards = 3 })
	last := map[string]uint64{}
	cycle := func(shard int) error {
		w.Clock.Add(70_000)
		reply := w.Store.Lease(t.Context(), []job.LeaseRequest{storetest.LeaseRequest(shard, 5, "")})[0]
		if reply.Err != nil {
			return reply.Err
		}
		for _, l := range reply.Leased {
			if l.State.Token <= last[l.Record] {
				t.Errorf("%s: token %d after %d", l.Record, l.State.Token, last[l.Record])
			}
			last[l.Record] = l.State.Token
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
	for _, n := range cluster.Nodes() { // what was acknowledged has reached the replicas
		_ = n.Client().Do(t.Context(), "wait", 1, 1000).Err()
	}
	old := cluster.KillMaster(1)
	if err := cycle(0); err != nil {
		t.Errorf("a shard of another master: %v", err)
	}
	cluster.WaitFailover(old)
	redistest.Eventually(t, 20*time.Second, "leasing after the failover", func(context.Context) error { return cycle(1) })
}

// TestReplicaClass demands that replicas confirm.
func TestReplicaClass(t *testing.T) {
	s := redistest.StartSentinel(t, 1, 3, 2)
	url := fmt.Sprintf("redis+sentinel://%s/%s", strings.Join(s.SentinelAddrs(), ","), s.MasterName())
	w := storetest.NewWorld(t, dial(t, url), func(o *redisstore.Options) {
		o.Durability, o.WaitTimeout = redisstore.DurabilityReplica, 200*time.Millisecond
	})
	id := w.InShard(0, 1)[0]
	w.Add(storetest.Definition(id))
	w.Clock.Add(60_000)
	l := w.Lease(0, 1)[0]
	replica := s.Nodes()[1]
	replica.Pause()
	settle := w.Settle(l, job.OutcomeSucceeded)
	reply := w.Store.Apply(t.Context(), 0, []job.Write{settle})
	if !errors.Is(reply.Err, job.ErrDurability) || len(reply.Results) != 1 || reply.Results[0].Code != job.Written {
		t.Errorf("the replica is frozen: %+v", reply)
	}
	replica.Resume()
	redistest.Eventually(t, 10*time.Second, "confirmation of a repeat", func(context.Context) error {
		return w.Store.Apply(t.Context(), 0, []job.Write{settle}).Err
	})
	if got := w.Get(id).State; got.Runs != 1 {
		t.Errorf("state %+v", got)
	}
}

// TestPreflight says what is wrong with a server, and refuses the worst.
func TestPreflight(t *testing.T) {
	open := func(server *redistest.Server, adjust func(*redisstore.Options)) error {
		o := redisstore.Options{Client: dial(t, server.URL()), Prefix: "preflight", Shards: 1}
		adjust(&o)
		_, err := redisstore.Open(t.Context(), o)
		return err
	}
	as := func(d redisstore.Durability) func(*redisstore.Options) {
		return func(o *redisstore.Options) { o.Durability = d }
	}
	plain := redistest.Start(t)
	if err := open(plain, as(redisstore.DurabilityMemory)); err != nil {
		t.Errorf("a server in memory: %v", err)
	}
	if err := open(plain, as(redisstore.DurabilityLocal)); !errors.Is(err, redisstore.ErrUnsafe) || !strings.Contains(err.Error(), "appendonly") {
		t.Errorf("class local without an append-only file: %v", err)
	}
	aof := redistest.Start(t, redistest.WithAOF("always"))
	if err := open(aof, as(redisstore.DurabilityLocal)); err != nil {
		t.Errorf("class local: %v", err)
	}
	if err := open(aof, as(redisstore.DurabilityReplica)); !errors.Is(err, redisstore.ErrUnsafe) {
		t.Errorf("class replica without replicas: %v", err)
	}
	evicting := redistest.Start(t, redistest.WithConfig("maxmemory", "100mb", "maxmemory-policy", "volatile-lru"))
	if err := open(evicting, as(redisstore.DurabilityMemory)); !errors.Is(err, redisstore.ErrUnsafe) || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("an evicting server: %v", err)
	}
	if err := open(evicting, func(o *redisstore.Options) { o.AllowUnsafe = true }); err != nil {
		t.Errorf("an evicting server, allowed: %v", err)
	}
	host, port, _ := strings.Cut(plain.Addr(), ":")
	replica := redistest.Start(t, redistest.WithConfig("replicaof", host+" "+port))
	if err := open(replica, func(o *redisstore.Options) { o.AllowUnsafe = true }); !errors.Is(err, redisstore.ErrUnsafe) || !strings.Contains(err.Error(), "replica") {
		t.Errorf("a replica: %v", err)
	}
	plain.Stop()
	if err := open(plain, as(redisstore.DurabilityMemory)); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}

// TestLeastRights runs the suite with the commands that Commands lists and no
// others.
func TestLeastRights(t *testing.T) {
	rights := strings.Join(redisstore.Commands(), " +")
	server := redistest.Start(t, redistest.WithACL("default off", "app on >secret ~t*:* resetchannels -@all +"+rights))
	client, err := redisstore.NewClient(redisstore.ClientOptions{
		URL: "redis://app@" + server.Addr(), Password: "secret", ClientName: "fermata",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	storetest.Run(t, func(testing.TB) redis.UniversalClient { return server.Client() },
		func(o *redisstore.Options) { o.Client = client })
	if log := server.Client().Do(t.Context(), "acl", "log").Val(); len(log.([]any)) != 0 {
		t.Errorf("refused: %v", log)
	}
	other := dial(t, "redis://app:secret@"+server.Addr())
	if _, err := redisstore.Open(t.Context(), redisstore.Options{Client: other, Prefix: "elsewhere"}); !errors.Is(err, job.ErrUnavailable) ||
		!strings.Contains(err.Error(), "elsewhere") && !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("outside its keys: %v", err)
	}
}
