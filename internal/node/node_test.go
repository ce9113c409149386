package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// start runs a node on free ports until the test ends.
func start(t *testing.T, redis string, name string, join ...string) *node.Node {
	t.Helper()
	return startWith(t, redis, name, func(*node.Config) {}, join...)
}

// startWith is start with a changed configuration.
func startWith(t *testing.T, redis, name string, change func(*node.Config), join ...string) *node.Node {
	t.Helper()
	n, err := tryStart(t, redis, name, change, join...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// tryStart is startWith for a node that may not start.
func tryStart(t *testing.T, redis, name string, change func(*node.Config), join ...string) (*node.Node, error) {
	t.Helper()
	cfg := node.Config{
		Name: name, GRPCAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
		HTTPAddr: "127.0.0.1:0",
		Join:     join, AllowUnsafeRedis: true, Shards: 64,
		// A machine that is busy for a while is not what is tested.
		Redis: conn.ClientOptions{URL: redis, DialTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
			PoolTimeout: 10 * time.Second},
		LockTTL: 6 * time.Second, LeaseTTL: 10 * time.Second,
	}
	cfg.Limits.MinInterval = 100 * time.Millisecond
	change(&cfg)
	n, err := node.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Errorf("stopping %s: %v", name, err)
		}
	})
	return n, nil
}

// connect dials a node until the test ends.
func connect(t *testing.T, n *node.Node) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func jobs(t *testing.T, n *node.Node) fermatav1.JobServiceClient {
	t.Helper()
	return fermatav1.NewJobServiceClient(connect(t, n))
}

// work runs a worker on a node until the test ends.
func work(t *testing.T, n *node.Node, slots int, handlers map[string]func(context.Context, *worker.Task) error) {
	t.Helper()
	workWith(t, worker.Options{Addresses: []string{n.GRPCAddr()}, Slots: slots}, handlers)
}

func workWith(t *testing.T, o worker.Options, handlers map[string]func(context.Context, *worker.Task) error) {
	t.Helper()
	w, err := worker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range handlers {
		w.Handle(name, h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("worker: %v", err)
		}
	})
}

// welcomed opens a stream of a worker that the test plays itself.
func welcomed(ctx context.Context, t *testing.T, n *node.Node,
	hello *fermatav1.Hello) fermatav1.WorkerService_WorkClient {
	t.Helper()
	s, err := fermatav1.NewWorkerServiceClient(connect(t, n)).Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err != nil || m.GetWelcome() == nil {
		t.Fatalf("%v, %v, want a welcome", m, err)
	}
	return s
}

func intervalJob(d time.Duration, handler string) *fermatav1.Job {
	return &fermatav1.Job{
		Handler: handler,
		Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Interval{
			Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(d)},
		}},
		BackoffPolicy: &fermatav1.BackoffPolicy{Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE}},
	}
}

func create(t *testing.T, c fermatav1.JobServiceClient, id string, j *fermatav1.Job) {
	t.Helper()
	if _, err := c.CreateJob(t.Context(), &fermatav1.CreateJobRequest{Parent: "namespaces/default", JobId: id,
		Job: j}); err != nil {
		t.Fatalf("create %s: %v", id, err)
	}
}

func TestAHealthyJobRunsOnTimeWhileAFailingOneBacksOff(t *testing.T) {
	redis := redistest.Start(t)
	n := start(t, redis.URL(), "solo")
	var ok atomic.Int64
	work(t, n, 4, map[string]func(context.Context, *worker.Task) error{
		"ok":   func(context.Context, *worker.Task) error { ok.Add(1); return nil },
		"fail": func(context.Context, *worker.Task) error { return errors.New("boom") },
	})
	c := jobs(t, n)
	create(t, c, "ok", intervalJob(200*time.Millisecond, "ok"))
	create(t, c, "fail", intervalJob(200*time.Millisecond, "fail"))
	var failing *fermatav1.Job
	redistest.Eventually(t, redistest.Patience, "three failures", func(ctx context.Context) (err error) {
		failing, err = c.GetJob(ctx, &fermatav1.GetJobRequest{Name: "namespaces/default/jobs/fail"})
		if got := failing.GetStatus().GetConsecutiveFailures(); err == nil && got < 3 {
			err = fmt.Errorf("%d failures", got)
		}
		return err
	})
	status := failing.GetStatus()
	failures := status.GetConsecutiveFailures() // more than three, if nobody looked for a while
	if got := status.GetEffectiveInterval().AsDuration(); got != 200*time.Millisecond<<min(failures, 5) {
		t.Errorf("effective interval %v after %d failures", got, failures)
	}
	if status.GetLastError() != "boom" || status.GetDeadTotal() != failures {
		t.Errorf("status %v", status)
	}
	// While the failing one waited for 400 and 800 ms, the other one went on.
	redistest.Eventually(t, redistest.Patience, "the healthy job goes on", func(context.Context) error {
		if n := ok.Load(); n < 2*failures {
			return fmt.Errorf("it ran %d times", n)
		}
		return nil
	})
	runs, err := c.ListRuns(t.Context(), &fermatav1.ListRunsRequest{Parent: "namespaces/default/jobs/fail"})
	if err != nil || len(runs.GetRuns()) < 4 {
		t.Errorf("runs %v, error %v", runs, err)
	}
}

func TestWorkReachesWorkersThroughPeers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := start(t, redis.URL(), "a")
	b := start(t, redis.URL(), "b", a.GossipAddr())
	c := start(t, redis.URL(), "c", a.GossipAddr())
	var mu sync.Mutex
	ran := make(map[string]int)
	work(t, b, 20, map[string]func(context.Context, *worker.Task) error{
		"h": func(_ context.Context, task *worker.Task) error {
			mu.Lock()
			ran[task.Job]++
			mu.Unlock()
			return nil
		},
	})
	// Every node holds some shards before work begins.
	redistest.Eventually(t, redistest.Patience, "shards on every node", func(context.Context) error {
		for _, n := range []*node.Node{a, b, c} {
			if n.Describe().ShardsHeld == 0 {
				return errors.New(n.Name() + " holds none")
			}
		}
		return nil
	})
	clients := []fermatav1.JobServiceClient{jobs(t, a), jobs(t, b), jobs(t, c)}
	const n = 60
	for i := range n {
		create(t, clients[i%3], fmt.Sprintf("j%d", i), intervalJob(500*time.Millisecond, "h"))
	}
	redistest.Eventually(t, redistest.Patience, "every job to run twice", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		done := 0
		for _, times := range ran {
			if times >= 2 {
				done++
			}
		}
		if done < n {
			return fmt.Errorf("%d of %d", done, n)
		}
		return nil
	})
}

// TestShardsAreHandedOverAtOnce: a node that drains sends the others the shards that it has released. They do not have
// to find them by polling, which happens once a second.
func TestShardsAreHandedOverAtOnce(t *testing.T) {
	redis, log := redistest.Start(t), &lines{}
	a := start(t, redis.URL(), "a")
	b := startWith(t, redis.URL(), "b", func(c *node.Config) {
		c.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}, a.GossipAddr())
	sharedByTwo(t, a, b)
	const received = "shards released by a peer"
	before := log.count(received)
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	redistest.Eventually(t, redistest.Patience, "the takeover", func(context.Context) error {
		if got := b.Describe().ShardsHeld; got != 64 {
			return fmt.Errorf("b holds %d", got)
		}
		return nil
	})
	if log.count(received) == before {
		t.Error("no notice of released shards has come")
	}
}

func TestImpossibleTimeoutsAreRefused(t *testing.T) {
	cfg := node.Config{
		Name: "n", Redis: conn.ClientOptions{URL: "redis://127.0.0.1:6379"},
		Durability: conn.DurabilityReplica, DurabilityTimeout: time.Second,
	}
	if _, err := node.New(cfg); err == nil || !strings.Contains(err.Error(), "redis-timeout") {
		t.Errorf("confirmations that take as long as any answer may: %v", err)
	}
	cfg.Redis.ReadTimeout = 3 * time.Second
	if _, err := node.New(cfg); err != nil {
		t.Error(err)
	}
}

func TestALostKeyspaceMakesTheNodeNotReady(t *testing.T) {
	redis := redistest.Start(t)
	n := start(t, redis.URL(), "solo")
	if missing := n.Missing(t.Context()); len(missing) != 0 {
		t.Fatalf("a node that is up misses %v", missing)
	}
	if err := redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if missing := n.Missing(t.Context()); len(missing) != 1 {
		t.Errorf("the keyspace is gone and the node misses %v", missing)
	}
}
