package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisacl"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// setUser makes a user by the line that the documents give operators.
func setUser(t *testing.T, server *redistest.Server, name, keyspace string) (url string) {
	t.Helper()
	line := redisacl.User(name, redisacl.HashPassword("secret"), redisacl.UserRules(keyspace, false))
	args := []any{"acl", "setuser"}
	for _, word := range strings.Fields(line)[1:] {
		args = append(args, word)
	}
	if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	return "redis://" + name + ":secret@" + server.Addr()
}

// TestSharedGrantShowsNoUsers: by the usual grant a user learns what users there are and what
// each may do, and by that for a shared Redis it does not. A node goes without it.
func TestSharedGrantShowsNoUsers(t *testing.T) {
	server := redistest.Start(t, redistest.WithACL("default off"), redistest.WithAOF("always"))
	url := setUser(t, server, "a", "fermata")
	asks := func(user string) string {
		return fmt.Sprint(dialRedis(t, url).Do(t.Context(), "acl", "dryrun", user, "get", "x").Err(), dialRedis(t, url).Do(t.Context(), "acl", "dryrun", user, "get", "x").Val())
	}
	if asks("a") == asks("nobody") {
		t.Error("ACL DRYRUN does not distinguish users: it could be granted to all")
	}
	args := []any{"acl", "setuser", "a", "-acl|dryrun"}
	if rules := strings.Fields(redisacl.SharedRules("fermata", false)); !slices.Contains(rules, "+hget") || slices.Contains(rules, "+acl|dryrun") {
		t.Fatalf("rules %v", rules)
	} else {
		for _, r := range rules {
			args = append(args, r)
		}
	}
	if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"a", "nobody", "default"} {
		if answer := asks(user); !strings.Contains(answer, "NOPERM") {
			t.Errorf("of %s a user learns %s", user, answer)
		}
	}
	w := storetest.NewWorldAt(t, server.Client(), "fermata", storetest.Start, func(o *redisstore.Options) { o.Client = dialRedis(t, url) })
	w.Add(storetest.Once("a", 0))
	report, err := w.Store.Check(t.Context())
	if err != nil || slices.ContainsFunc(report.Findings, func(f conn.Finding) bool { return f.Severity == conn.Fatal }) {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestClustersShareARedis runs the main cycle of clusters whose names begin alike, at
// once, each under the user of its keyspace: none is refused anything, none can reach
// a key of another, and all of them are whole in the end.
func TestClustersShareARedis(t *testing.T) {
	server := redistest.Start(t, redistest.WithACL("default off"))
	names := []string{"fermata", "fermata2", "fermata:b", "ferm"}
	worlds := make([]*storetest.World, len(names))
	for i, keyspace := range names {
		client := dialRedis(t, setUser(t, server, fmt.Sprint("user", i), keyspace))
		worlds[i] = storetest.NewWorldAt(t, server.Client(), keyspace, storetest.Start, func(o *redisstore.Options) { o.Client = client })
	}
	var wg sync.WaitGroup
	for i, w := range worlds {
		wg.Go(func() {
			ids := w.InShard(0, 20+i)
			for _, id := range ids {
				w.Add(storetest.Once(id, 0))
			}
			for done := 0; done < len(ids); {
				reply := w.Store.Lease(t.Context(), []job.LeaseRequest{storetest.LeaseRequest(0, 7, "")})[0]
				if reply.Err != nil || len(reply.Leased) == 0 {
					t.Errorf("%s: %+v after %d", w.Prefix, reply, done)
					return
				}
				done += len(reply.Leased)
				for _, l := range reply.Leased {
					w.MustWrite(0, w.Settle(l, job.OutcomeSucceeded))
				}
			}
			records, _, err := w.Store.List(t.Context(), "ns", "", 1000)
			if err != nil || len(records) != len(ids) {
				t.Errorf("%s lists %d jobs, has %d (%v)", w.Prefix, len(records), len(ids), err)
			}
		})
	}
	wg.Wait()
	if refused := server.Refused(); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
	for i := range names {
		client := dialRedis(t, "redis://user"+fmt.Sprint(i)+":secret@"+server.Addr())
		for j, w := range worlds {
			for _, key := range []string{w.Key(0, "st"), w.Key(0, "lock"), w.Prefix + ":{meta}"} {
				err := client.HGet(t.Context(), key, "shards").Err()
				if denied := redis.HasErrorPrefix(err, "NOPERM"); denied != (i != j) {
					t.Errorf("%s asks for %s: %v", names[i], key, err)
				}
			}
		}
	}
}

// TestGrantRefusesOtherCommands what an intruder with the product's password would try.
func TestGrantRefusesOtherCommands(t *testing.T) {
	server := redistest.Start(t)
	if err := server.Client().Set(t.Context(), "secret", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	client := dialRedis(t, setUser(t, server, "intruder", "fermata"))
	for _, command := range []string{
		"keys *", "scan 0", "flushall", "flushdb", "config get *", "config set maxmemory 1", "script flush", "script kill", "get secret",
		"eval return(redis.call('get','secret')) 0", "acl list", "acl whoami", "monitor", "debug sleep 0", "shutdown", "replicaof no one",
		"client kill user default", "client list", "module list", "slaveof a 1", "publish c m", "subscribe c", "migrate h 1 k 0 1", "dump fermata:{a}",
		"restore fermata:{a} 0 x", "swapdb 0 1", "function list", "fcall f 0", "xread streams fermata:{meta}:audit 0", "xtrim fermata:{meta}:audit maxlen 0",
		"del fermata2:{meta}", "get fermata:secret", "rename fermata:{a} fermata:{b}", "save", "bgrewriteaof", "failover", "cluster reset", "latency reset",
	} {
		var args []any
		for _, word := range strings.Fields(command) {
			args = append(args, word)
		}
		if err := client.Do(t.Context(), args...).Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "can't run this command") && !strings.Contains(err.Error(), "can't access") && !strings.Contains(err.Error(), "ACL failure") {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// TestEveryGrantedCommandIsUsed: the store, the locks, the audit trail and events call every command of
// the grant that concerns one server, and those of a cluster the rest.
func TestEveryGrantedCommandIsUsed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithAOF("no"))
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/3" // another database than the first
	client, err := conn.NewClient(conn.ClientOptions{URL: u.String(), ClientName: "fermata"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	storetest.Run(t, func(testing.TB) redis.UniversalClient { return harnessAt(t, server, 3) }, func(o *redisstore.Options) { o.Client = client })
	w := storetest.NewWorld(t, harnessAt(t, server, 3), recordPolicy, func(o *redisstore.Options) { o.Client = client })
	if _, err := w.Store.Events(t.Context(), []job.EventsRequest{{Limit: 1}}); err != nil {
		t.Fatal(err)
	}
	if done, err := w.Store.AppendTrail(t.Context(), job.TrailHead{}, []job.TrailRecord{{ID: "1-1", Seq: 1, Method: "m"}}, job.TrailTrim{Keep: 100}); err != nil || !done {
		t.Fatal(err)
	}
	if _, err := w.Store.TrailState(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Store.ReadTrail(t.Context(), "", 0, 0, 10); err != nil {
		t.Fatal(err)
	}
	w.Add(storetest.Definition("measured"))
	measureBytes(t, w)
	if err := client.Ping(t.Context()).Err(); err != nil { // as the readiness check does
		t.Fatal(err)
	}
	locksOn(t, client, w)
	cluster := redistest.StartCluster(t, 3, 0)
	cw := storetest.NewWorld(t, newObserver(t, cluster.Nodes()[0], clusterURL(cluster)), asOptions(t, clusterURL(cluster)))
	cw.Add(storetest.Once(cw.InShard(0, 1)[0], 0))

	used := commandsOf(t, server)
	for _, n := range cluster.Nodes() {
		for name := range commandsOf(t, n) {
			used[name] = true
		}
		if refused := n.Refused(); len(refused) > 0 {
			t.Errorf("refused by the cluster: %v", refused)
		}
	}
	// A slot has to move for ASKING (TestSlotMigration), replicas have to be asked
	// for WAIT (TestReplicaClass).
	used["asking"], used["wait"] = true, true
	for _, name := range redisacl.Commands(false) {
		if !used[name] {
			t.Errorf("%s is granted, and nothing calls it", name)
		}
	}
	if refused := server.Refused(); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
}

// TestSentinelGrant: nodes need no more of the sentinels than the documents tell operators to
// grant, and what an intruder would try is not in it. Sentinels that let in who has a
// password get the one that is for them.
func TestSentinelGrant(t *testing.T) {
	s := redistest.StartSentinel(t, 1, 2, 2)
	url := fmt.Sprintf("redis+sentinel://%s/%s", strings.Join(s.SentinelAddrs(), ","), s.MasterName())
	client, err := conn.NewClient(conn.ClientOptions{URL: url, ClientName: "fermata"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, server := range append(s.Sentinels(), s.Nodes()...) {
		if refused := server.Refused(); len(refused) > 0 {
			t.Errorf("refused: %v", refused)
		}
	}
	intruder := dialRedis(t, "redis://"+s.SentinelAddrs()[0])
	for _, command := range [][]any{{"sentinel", "remove", s.MasterName()}, {"sentinel", "failover", s.MasterName()}, {"sentinel", "set", s.MasterName(), "quorum", "9"}, {"shutdown"}, {"publish", "c", "m"}} {
		if err := intruder.Do(t.Context(), command...).Err(); !redis.HasErrorPrefix(err, "NOPERM") {
			t.Errorf("%v: %v", command, err)
		}
	}

	const password = "for-sentinels-only"
	rules := strings.Fields(redisacl.SentinelRules())
	for _, sentinel := range s.Sentinels() {
		user := []any{"acl", "setuser", "nodes", "reset", "on", ">" + password}
		for _, rule := range rules {
			user = append(user, rule)
		}
		for _, command := range [][]any{user, {"acl", "setuser", "default", "off"}} {
			if err := sentinel.Client().Do(t.Context(), command...).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		user, password string
		good           bool
	}{{"", "", false}, {"nodes", "", false}, {"nodes", "wrong", false}, {"", password, false}, {"nodes", password, true}} {
		client, err := conn.NewClient(conn.ClientOptions{URL: url, SentinelUsername: c.user, SentinelPassword: c.password})
		if err != nil {
			t.Fatal(err)
		}
		err = client.Ping(t.Context()).Err()
		if (err == nil) != c.good {
			t.Errorf("user %q, password %q: %v", c.user, c.password, err)
		}
		_ = client.Close()
	}
}

func harnessAt(t *testing.T, server *redistest.Server, db int) *redis.Client {
	o := *server.Client().Options()
	o.DB, o.MaxRetries = db, -1
	c := redis.NewClient(&o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// locksOn has two nodes take and hand over the locks of a keyspace.
func locksOn(t *testing.T, client redis.UniversalClient, w *storetest.World, adjust ...func(*shardlock.Options)) {
	t.Helper()
	for shard := range w.Store.Shards() {
		client.Del(t.Context(), w.Store.LockKey(shard))
	}
	o := shardlock.Options{
		Client: client, Key: w.Store.LockKey, HeartbeatKey: w.Store.HeartbeatKey, Shards: w.Store.Shards(), Node: "a", PeerAddr: "a:1", TTL: 2 * time.Second,
		OnAcquire: func(int, string) {}, OnLose: func(int, string) {}, OnRelease: func(int, string) {},
	}
	for _, f := range adjust {
		f(&o)
	}
	m, err := shardlock.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	m.SetView(viewOf("a"))
	redistest.Eventually(t, redistest.Patience, "locks", func(context.Context) error {
		for shard := range w.Store.Shards() {
			if _, held := m.ValidLock(shard); !held {
				return errors.New("not all are held")
			}
		}
		return nil
	})
	if _, err := m.Holders(t.Context()); err != nil {
		t.Error(err)
	}
	m.Drain(t.Context())
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// commandsOf are the commands that a server has carried out.
func commandsOf(t *testing.T, server *redistest.Server) map[string]bool {
	t.Helper()
	text, err := server.Client().Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`cmdstat_([^:]+):calls=[1-9]`).FindAllStringSubmatch(text, -1) {
		used[m[1]] = true
	}
	return used
}

// TestDocumentedGrantIsTheTestedOne: what operators read is what the tests run under.
func TestDocumentedGrantIsTheTestedOne(t *testing.T) {
	text, err := os.ReadFile("../../../" + redisacl.Doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{redisacl.User("fermata", "<sha256>", redisacl.UserRules("fermata", false)), redisacl.User("fermata", "<sha256>", redisacl.UserRules("fermata", true)), redisacl.User("fermata", "<sha256>", redisacl.SentinelRules()), redisacl.DefaultUser} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("%s does not have the line\n%s", redisacl.Doc, line)
		}
	}
	for _, functions := range []bool{false, true} {
		if c := redisacl.Commands(functions); len(slices.Compact(slices.Sorted(slices.Values(c)))) != len(c) {
			t.Error("a command is granted twice")
		}
	}
}

// TestHostileKeyspaces are refused before anything is stored.
func TestHostileKeyspaces(t *testing.T) {
	server := redistest.Start(t)
	for _, name := range []string{"a*", "a?", "[a]", `a\`, "a{b}", "}", "a b", "a\n", "a\x00", "ä", strings.Repeat("a", 129), "~*", "a +@all"} {
		if _, err := redisstore.Open(t.Context(), redisstore.Options{Client: server.Client(), Prefix: name, AllowUnsafe: true}); err == nil {
			t.Errorf("%q is taken", name)
		}
	}
	if n := server.Client().DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are stored", n)
	}
}

func viewOf(self string) sharding.View {
	return sharding.NewView(1, self, []sharding.Member{{Name: self}})
}
