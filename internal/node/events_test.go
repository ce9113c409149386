package node_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/keytest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

func dial(t *testing.T, nodes ...*node.Node) *client.Client {
	t.Helper()
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.GRPCAddr())
	}
	c, err := client.Dial(addresses, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// gathered is what a watcher has been told.
type gathered struct {
	mu     sync.Mutex
	events []*client.Event
	token  string
	err    error
}

func (g *gathered) all() []*client.Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.events)
}

// watch gathers events until the returned function is called.
func watch(t *testing.T, c *client.Client, f client.EventFilter) (*gathered, func()) {
	t.Helper()
	g := &gathered{}
	ctx, cancel := context.WithCancel(t.Context())
	begun, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		first := sync.OnceFunc(func() { close(begun) })
		defer first()
		for batch, err := range c.WatchEvents(ctx, f) {
			g.mu.Lock()
			g.err = err
			if err == nil {
				g.events, g.token = append(g.events, batch.Events...), batch.ResumeToken
			}
			g.mu.Unlock()
			first()
		}
	}()
	<-begun
	stop := sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return g, stop
}

// kinds are those of one job's events, in their order.
func kinds(events []*client.Event, name string) []string {
	var out []string
	for _, e := range events {
		if e.GetJob() == "namespaces/default/jobs/"+name {
			out = append(out, e.GetKind())
		}
	}
	return out
}

// flaky fails the first attempts of each run that it is told to.
func flaky(failures int) func(context.Context, *worker.Task) error {
	return func(_ context.Context, task *worker.Task) error {
		if task.Attempt <= failures {
			return fmt.Errorf("attempt %d fails", task.Attempt)
		}
		return nil
	}
}

// TestALifeInEvents: a watcher hears of a job what happens to it, in order, with one
// correlation id for all of a run; another watcher goes on from its token at another
// node and hears the rest, once.
func TestALifeInEvents(t *testing.T) {
	redis := redistest.Start(t)
	record := func(c *node.Config) { c.EventsKeep = 10_000; c.Shards = 8 }
	a := startWith(t, redis.URL(), "a", record)
	b := startWith(t, redis.URL(), "b", record, a.GossipAddr())
	work(t, a, 4, map[string]func(context.Context, *worker.Task) error{"flaky": flaky(1), "broken": flaky(99)})
	first, stop := watch(t, dial(t, a), client.EventFilter{})
	c := jobs(t, a)
	twice := intervalJob(time.Hour, "flaky")
	twice.Labels = map[string]string{"team": "ops"}
	twice.RetryPolicy = &fermatav1.RetryPolicy{
		Strategy: fermatav1.RetryPolicy_STRATEGY_FIXED, BaseDelay: durationpb.New(10 * time.Millisecond),
		MaxAttempts: 3,
	}
	create(t, c, "twice", twice)
	run, _, err := dial(t, a).RunJob(t.Context(), "twice", client.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{job.KindJobCreated, job.KindRunTriggered, job.KindRunStarted, job.KindRunFailed,
		job.KindRunStarted, job.KindRunSucceeded}
	redistest.Eventually(t, redistest.Patience, "the watcher receives the run", func() error {
		if got := kinds(first.all(), "twice"); !slices.Equal(got, want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	stop()
	correlations := map[string]bool{}
	for _, e := range first.all() {
		if e.GetRunId() == client.RunID(run) {
			correlations[e.GetCorrelationId()] = true
		}
		if e.GetKind() == job.KindRunFailed &&
			(e.GetDueTime() == nil || e.GetError() != "attempt 1 fails" || e.GetAttempt() != 1) {
			t.Errorf("a failure that is tried again: %v", e)
		}
		if e.GetKind() == job.KindRunStarted && (e.GetWorker() == "" || e.GetLabels()["team"] != "ops") {
			t.Errorf("a start: %v", e)
		}
	}
	if len(correlations) != 1 || correlations[""] {
		t.Errorf("one run has the correlations %v", correlations)
	}

	if err := dial(t, a).DeleteJob(t.Context(), "twice", client.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create(t, c, "fails", intervalJob(time.Hour, "broken"))
	if _, _, err := dial(t, a).RunJob(t.Context(), "fails", client.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	second, _ := watch(t, dial(t, b), client.EventFilter{ResumeToken: first.token})
	third, _ := watch(t, dial(t, b), client.EventFilter{Kinds: []string{"run.dead"}, Since: time.Now().Add(-time.Hour)})
	redistest.Eventually(t, redistest.Patience, "the second watcher receives the rest", func() error {
		got := kinds(second.all(), "fails")
		if len(got) == 0 || !slices.Contains(got, job.KindRunDead) || !slices.Contains(got, job.KindJobBackoff) {
			return fmt.Errorf("%v", got)
		}
		if got := kinds(third.all(), "fails"); !slices.Equal(got, []string{job.KindRunDead}) {
			return fmt.Errorf("by its filter: %v", got)
		}
		return nil
	})
	if got := kinds(second.all(), "twice"); !slices.Equal(got, []string{job.KindJobDeleted}) {
		t.Errorf("after the token: %v", got)
	}
	seen := map[string]bool{}
	for _, e := range append(first.all(), second.all()...) {
		if seen[e.GetId()] {
			t.Errorf("told twice: %v", e)
		}
		seen[e.GetId()] = true
	}
}

// TestAWatcherOutlivesTheRolesOfItsNode: the node that a watcher hangs on loses half of its
// shards to one that joins, then all of its locks, then it stops; all that while jobs are
// created and run. The watcher, who goes on after its last token, is told of the beginning and
// the end of each, in this order, once.
func TestAWatcherOutlivesTheRolesOfItsNode(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	record := func(c *node.Config) { c.EventsKeep, c.Shards = 100_000, 8 }
	a := startWith(t, redis.URL(), "a", record)
	holds := func(n *node.Node, what string, want func(int) bool) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, what, func() error {
			if held := n.Describe().ShardsHeld; !want(held) {
				return fmt.Errorf("%s holds %d shards", n.Name(), held)
			}
			return nil
		})
	}
	all, some, none := func(n int) bool { return n == 8 }, func(n int) bool {
		return n > 0 &&
			n < 8
	}, func(n int) bool { return n == 0 }
	holds(a, "the first node has all", all)
	first, stop := watch(t, dial(t, a), client.EventFilter{})
	b := startWith(t, redis.URL(), "b", record, a.GossipAddr())
	work(t, b, 20, map[string]func(context.Context, *worker.Task) error{"ok": flaky(0)})

	var created atomic.Int64
	calls := jobs(t, b)
	end := make(chan struct{})
	var creating sync.WaitGroup
	creating.Go(func() {
		for i := 0; ; i++ {
			_, err := calls.CreateJob(t.Context(), &fermatav1.CreateJobRequest{
				Parent: "namespaces/default", JobId: fmt.Sprint("j", i),
				Job: &fermatav1.Job{Handler: "ok", Schedule: client.Once(time.Now())},
			})
			if err != nil {
				t.Errorf("creating: %v", err)
				return
			}
			created.Add(1)
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	goesOn := func() {
		t.Helper()
		n := created.Load()
		redistest.Eventually(t, redistest.Patience, "jobs are created", func() error {
			if now := created.Load(); now < n+20 {
				return fmt.Errorf("%d", now-n)
			}
			return nil
		})
	}
	finish := sync.OnceFunc(func() { close(end); creating.Wait() })
	defer finish()

	holds(a, "the second node takes some", some)
	goesOn()
	if err := redis.Client().Del(t.Context(), keysOf(t, redis, "lock")...).Err(); err != nil {
		t.Fatal(err)
	}
	goesOn()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	stop()
	holds(a, "the first node has none", none)
	goesOn()
	finish()
	second, _ := watch(t, dial(t, b), client.EventFilter{ResumeToken: first.token})
	redistest.Eventually(t, redistest.Patience, "all events are received", func() error {
		events := append(first.all(), second.all()...)
		for i := range int(created.Load()) {
			got := kinds(events, fmt.Sprint("j", i))
			if want := []string{job.KindJobCreated, job.KindRunStarted, job.KindRunSucceeded}; !slices.Equal(got,
				want) {
				return fmt.Errorf("of job %d: %v", i, got)
			}
		}
		return nil
	})
	if len(first.all()) == 0 || len(kinds(second.all(), fmt.Sprint("j", created.Load()-1))) == 0 {
		t.Errorf("%d events before, %d after", len(first.all()), len(second.all()))
	}
	ids := map[string]bool{}
	for _, e := range append(first.all(), second.all()...) {
		if ids[e.GetId()] {
			t.Errorf("told twice: %v", e)
		}
		ids[e.GetId()] = true
	}
}

// TestEventsAreRefused: where none are recorded, where the token is none, and where what
// follows it is gone.
func TestEventsAreRefused(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	off := start(t, redis.URL(), "off")
	g, _ := watch(t, dial(t, off), client.EventFilter{})
	if status.Code(g.err) != codes.FailedPrecondition {
		t.Errorf("off: %v", g.err)
	}
	other := redistest.Start(t)
	on := startWith(t, other.URL(), "on", func(c *node.Config) { c.EventsKeep = 1000; c.Shards = 1 })
	if g, _ := watch(t, dial(t, on), client.EventFilter{ResumeToken: "AQECAwQF"}); status.Code(g.err) != codes.InvalidArgument {
		t.Errorf("a token of nobody: %v", g.err)
	}
	if g, _ := watch(t, dial(t, on), client.EventFilter{Kinds: []string{"run.dade"}}); status.Code(g.err) != codes.InvalidArgument {
		t.Errorf("a kind that is none: %v", g.err)
	}
	g, stop := watch(t, dial(t, on), client.EventFilter{})
	stop()
	c := jobs(t, on)
	create(t, c, "a", intervalJob(time.Hour, "x"))
	calls := dial(t, on)
	for range 700 { // two events each; of 1400 about 1000 are kept
		if _, err := calls.PauseJob(t.Context(), "a", client.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := calls.ResumeJob(t.Context(), "a", client.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	late, _ := watch(t, dial(t, on), client.EventFilter{ResumeToken: g.token})
	redistest.Eventually(t, redistest.Patience, "the watcher receives that what follows is gone", func() error {
		late.mu.Lock()
		defer late.mu.Unlock()
		if !client.IsEventsGone(late.err) {
			return fmt.Errorf("%v, %d events", late.err, len(late.events))
		}
		return nil
	})
}

// TestNodesThatKeepDifferentEventsSaySo: by a metric and one warning each, until they agree.
func TestNodesThatKeepDifferentEventsSaySo(t *testing.T) {
	redis := redistest.Start(t)
	logs := map[string]*said{"a": {}, "b": {}}
	keep := func(name string, n int) func(*node.Config) {
		return func(c *node.Config) {
			c.EventsKeep, c.Shards = n, 2
			c.Logger = slog.New(slog.NewTextHandler(logs[name], nil))
		}
	}
	differ := func(n *node.Node, name string, others, warnings int, names string) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, "what "+name+" knows of others", func() error {
			text, err := metricsOf(t.Context(), n)
			if err != nil || !strings.Contains(text, fmt.Sprintf("fermata_events_keep_mismatches %d\n", others)) {
				return fmt.Errorf("not %d, %v", others, err)
			}
			if warned := logs[name].count("nodes differ in --events-keep"); warned != warnings || names != "" &&
				logs[name].count(names) != 1 {
				return fmt.Errorf("%d warnings", warned)
			}
			return nil
		})
	}
	a := startWith(t, redis.URL(), "a", keep("a", 10_000))
	b := startWith(t, redis.URL(), "b", keep("b", 0), a.GossipAddr())
	differ(a, "a", 1, 1, "events_keep=10000 others=\"b=0\"")
	differ(b, "b", 1, 1, "events_keep=0 others=\"a=10000\"")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	differ(a, "a", 0, 1, "")
	c := startWith(t, redis.URL(), "c", func(c *node.Config) { c.EventsKeep, c.Shards = 10_000, 2 }, a.GossipAddr())
	redistest.Eventually(t, redistest.Patience, "the third is a member", func() error {
		nodes, err := dial(t, c).Admin().Nodes(t.Context())
		if err == nil && len(nodes) != 2 {
			err = fmt.Errorf("%d nodes", len(nodes))
		}
		return err
	})
	differ(a, "a", 0, 1, "")
}

// said keeps what is logged.
type said struct {
	mu   sync.Mutex
	text []byte
}

func (s *said) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, line...)
	return len(line), nil
}

func (s *said) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(string(s.text), what)
}

// receiver is an endpoint that keeps what it was told, unless it is told to fail.
type receiver struct {
	mu    sync.Mutex
	fails int
	heads []http.Header
	told  []map[string]any
	tries int
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	var e map[string]any
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	if r.fails > 0 || json.Unmarshal(body, &e) != nil {
		r.fails--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.heads, r.told = append(r.heads, q.Header.Clone()), append(r.told, e)
}

// types are those of the events that it took.
func (r *receiver) types() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.told {
		out = append(out, e["type"].(string))
	}
	return out
}

// TestAWebhookGoesOnAtAnotherNode: an endpoint that fails at first is told of each event
// in the end, in order; when the node that told it stops, another one goes on.
func TestAWebhookGoesOnAtAnotherNode(t *testing.T) {
	t.Parallel()
	r := &receiver{fails: 2}
	server := httptest.NewServer(r)
	defer server.Close()
	file := hooksFile(t, server.URL, "kinds: [job.*]\n    retry: {base-delay: 100ms, max-attempts: 50}")
	redis := redistest.Start(t)
	record := func(c *node.Config) { c.EventsKeep, c.Shards, c.WebhooksFile = 10_000, 2, file }
	a := startWith(t, redis.URL(), "a", record)
	hooks := dial(t, a)
	redistest.Eventually(t, redistest.Patience, "the node holds its shards", func() error {
		shards, err := hooks.Admin().Shards(t.Context())
		for _, s := range shards {
			if s.GetHolder() == "" {
				return fmt.Errorf("nobody holds shard %d", s.GetShard())
			}
		}
		return err
	})
	redistest.Eventually(t, redistest.Patience, "the webhook has begun", func() error {
		n, err := redis.Client().Exists(t.Context(), keysOf(t, redis, "hooks")...).Result()
		if n != 2 || err != nil {
			return fmt.Errorf("in %d shards, %v", n, err)
		}
		return nil
	})
	create(t, jobs(t, a), "one", intervalJob(time.Hour, "x"))
	if _, err := hooks.PauseJob(t.Context(), "one", client.PauseOptions{Note: "while its target is mended"}); err != nil {
		t.Fatal(err)
	}
	want := []string{"io.fermata.job.created", "io.fermata.job.paused"}
	redistest.Eventually(t, redistest.Patience, "the endpoint is called", func() error {
		if got := r.types(); !slices.Equal(got, want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if r.tries < 4 || r.told[0]["subject"] != "namespaces/default/jobs/one" ||
		r.heads[0].Get("Webhook-Id") != r.told[0]["id"] {
		t.Errorf("after %d tries: %v, %v", r.tries, r.told[0], r.heads[0])
	}
	b := startWith(t, redis.URL(), "b", record, a.GossipAddr())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, b).ResumeJob(t.Context(), "one", client.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	want = append(want, "io.fermata.job.resumed")
	redistest.Eventually(t, redistest.Patience, "the other node goes on", func() error {
		if got := r.types(); !slices.Equal(got, want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	redistest.Eventually(t, redistest.Patience, "nothing is left", func() error {
		list, err := dial(t, b).Admin().Webhooks(t.Context())
		if err != nil || len(list) != 1 || list[0].GetBehindShards() != 0 || list[0].GetUndelivered() != 0 {
			return fmt.Errorf("%v, %v", list, err)
		}
		return nil
	})
}

// hooksFile is a file with one webhook.
func hooksFile(t *testing.T, url, more string) string {
	t.Helper()
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(keytest.Key("webhook"))), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "webhooks.yaml")
	text := fmt.Sprintf("webhooks:\n  - name: ops\n    url: %s\n    insecure: true\n    allow-networks: "+
		"[127.0.0.0/8]\n    key-file: %s\n    %s\n", url, key, more)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// keysOf are a keyspace's keys with this last part.
func keysOf(t *testing.T, redis *redistest.Server, name string) []string {
	t.Helper()
	keys, err := redis.Client().Keys(t.Context(), "fermata:{*}:"+name).Result()
	if err != nil {
		t.Fatal(err)
	}
	return append(keys, "none")
}
