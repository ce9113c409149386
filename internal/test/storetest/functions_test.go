package storetest_test

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/redisacl"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// loadFunctions does what an operator does, under the rights that are documented for it.
func loadFunctions(t *testing.T, servers ...*redistest.Server) {
	t.Helper()
	for _, server := range servers {
		line := redisacl.User("loader", redisacl.HashPassword("secret"), redisacl.LoaderRules())
		args := []any{"acl", "setuser"}
		for _, word := range strings.Fields(line)[1:] {
			args = append(args, word)
		}
		if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		u := url.URL{Scheme: "redis", Host: server.Addr(), User: url.UserPassword("loader", "secret")}
		loader := dialRedis(t, u.String())
		for _, library := range []string{redisstore.Library().Code, shardlock.Library().Code} {
			if err := loader.FunctionLoad(t.Context(), library).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// functionsAs has the store call functions, by a client of its own.
func functionsAs(t *testing.T, url string) func(*redisstore.Options) {
	client := dialRedis(t, url)
	return func(o *redisstore.Options) { o.Client, o.Functions = client, true }
}

// measureBytes has the store add up what the jobs of the world take.
func measureBytes(t *testing.T, w *storetest.World) {
	t.Helper()
	counts := w.Store.Limits().ByteCounts()
	if began, err := counts.Census(t.Context(), 0, func(string) bool { return true }); err != nil || !began {
		t.Fatalf("census of bytes: %v %v", began, err)
	}
	if bytes, _, err := counts.Counts(t.Context()); err != nil || bytes["ns"] == 0 {
		t.Errorf("bytes %v (%v)", bytes, err)
	}
}

// TestSuiteByFunctions runs the suite, locks, events and the audit trail as a user who may bring no
// script along. Each of its rights is called.
func TestSuiteByFunctions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithFunctions())
	loadFunctions(t, server)
	adjust := functionsAs(t, server.URL())
	storetest.Run(t, func(testing.TB) redis.UniversalClient { return server.Client() }, adjust)
	w := storetest.NewWorld(t, server.Client(), adjust, recordPolicy)
	w.Add(storetest.Definition("told"))
	if told := eventsAfter(t, w, w.Store.ShardOf(job.Key{Namespace: "ns", ID: "told"}), job.Place{}); len(told) != 1 || told[0].Kind != job.KindJobCreated {
		t.Errorf("events %+v", told)
	}
	if done, err := w.Store.AppendTrail(t.Context(), job.TrailHead{}, []job.TrailRecord{{ID: "1-1", Seq: 1, Method: "m"}}, job.TrailTrim{Keep: 100}); err != nil || !done {
		t.Fatal(err)
	}
	if done, err := w.Store.SaveTrailExport(t.Context(), job.TrailExport{Name: "e"}, job.TrailExport{}); err != nil || !done {
		t.Fatal(err)
	}
	if _, err := w.Store.TrailState(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Store.ReadTrail(t.Context(), "", 0, 0, 10); err != nil {
		t.Fatal(err)
	}
	measureBytes(t, w)
	o := redisstore.Options{}
	adjust(&o)
	if err := o.Client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	locksOn(t, o.Client, w, func(o *shardlock.Options) { o.Functions = true })
	used := commandsOf(t, server)
	for _, name := range redisacl.Commands(true) {
		elsewhere := []string{"select", "client|setname", "wait", "cluster|slots", "command", "asking", "acl|dryrun"} // see TestEveryGrantedCommandIsUsed
		if !used[name] && !slices.Contains(elsewhere, name) {
			t.Errorf("%s is granted, and nothing calls it", name)
		}
	}
	if refused := server.Refused(); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
}

// TestFunctionsOfACluster: every primary needs the library, and one that lacks it is
// found at start.
func TestFunctionsOfACluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0, redistest.WithFunctions())
	loadFunctions(t, cluster.Nodes()[:2]...)
	client := dialRedis(t, clusterURL(cluster))
	open := func() error {
		_, err := redisstore.Open(t.Context(), redisstore.Options{Client: client, Functions: true, AllowUnsafe: true, OpTimeout: 60e9})
		return err
	}
	if err := open(); !errors.Is(err, redisstore.ErrFunctions) || !strings.Contains(err.Error(), "fermata redis functions") {
		t.Fatalf("with a primary that lacks the library: %v", err)
	}
	loadFunctions(t, cluster.Nodes()[2])
	if err := open(); err != nil {
		t.Fatal(err)
	}
	w := storetest.NewWorld(t, newObserver(t, cluster.Nodes()[0], clusterURL(cluster)), functionsAs(t, clusterURL(cluster)))
	for shard := range w.Store.Shards() {
		w.Add(storetest.Once(w.InShard(shard, 1)[0], 0))
		if reply := w.Store.Lease(t.Context(), []job.LeaseRequest{storetest.LeaseRequest(shard, 1, "")})[0]; reply.Err != nil || len(reply.Leased) != 1 {
			t.Errorf("shard %d: %+v", shard, reply)
		}
	}
}

// TestFunctionsRefuseCode: who has stolen the password of the nodes brings no code of
// his own to the server, and reaches no more by the functions than by commands.
func TestFunctionsRefuseCode(t *testing.T) {
	server := redistest.Start(t, redistest.WithFunctions(), redistest.WithACL("intruder reset on >pw "+redisacl.UserRules("fermata", true)))
	loadFunctions(t, server)
	if err := server.Client().Set(t.Context(), "fermata2:{meta}", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	client := dialRedis(t, "redis://intruder:pw@"+server.Addr())
	store := redisstore.Library()
	for _, command := range [][]any{
		{"eval", "return 1", 0}, {"eval_ro", "return 1", 0}, {"evalsha", strings.Repeat("a", 40), 0}, {"evalsha_ro", strings.Repeat("a", 40), 0},
		{"script", "load", "return 1"}, {"script", "exists", strings.Repeat("a", 40)}, {"script", "flush"},
		{"function", "load", "replace", store.Code}, {"function", "delete", store.Name}, {"function", "flush"}, {"function", "list"},
		{"function", "dump"}, {"function", "restore", "x"}, {"function", "kill"}, {"fcall_ro", store.Function("read_no_writes"), 0},
		{"fcall", store.Function("clock_allow_oom"), 2, "fermata2:{meta}", "fermata2:{meta}:lanes", 0, 0, "", 0},
	} {
		if err := client.Do(t.Context(), command...).Err(); !redis.HasErrorPrefix(err, "NOPERM") {
			t.Errorf("%.40v: %v", command, err)
		}
	}
	if err := client.Do(t.Context(), "fcall", store.Function("clock_allow_oom"), 2, "fermata:{1}:meta", "fermata:{1}:lanes", 0, 0, "", 0).Err(); err != nil {
		t.Errorf("the function itself: %v", err)
	}
}
