package node_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// TestLanesWithoutWorkersKeepNobodyWaiting: a tenant has more due lanes in a shard than one read lists, and no
// worker. Another tenant's jobs run in that shard as before, when they are due and when they are run by hand, and
// also after another node took the shard over.
func TestLanesWithoutWorkersKeepNobodyWaiting(t *testing.T) {
	redis := redistest.Start(t)
	oneShard := func(c *node.Config) { c.Shards = 1 }
	var regular, manual atomic.Int64
	serve := func(n *node.Node) {
		workWith(t, worker.Options{Addresses: []string{n.GRPCAddr()}, Slots: 2},
			map[string]func(context.Context, *worker.Task) error{
				"regular": func(context.Context, *worker.Task) error { regular.Add(1); return nil },
				"manual":  func(context.Context, *worker.Task) error { manual.Add(1); return nil },
			})
	}
	a := startWith(t, redis.URL(), "a", oneShard)
	serve(a)
	create(t, jobs(t, a), "regular", intervalJob(time.Second, "regular"))
	create(t, jobs(t, a), "manual", intervalJob(1000*time.Hour, "manual"))
	fillWithDueLanes(t, jobs(t, a), 0, job.LanesPerRead+500)

	bothRun := func(n *node.Node) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, "the shard shows as oversized", func(ctx context.Context) error {
			text, err := metricsOf(ctx, n)
			if err == nil && !strings.Contains(text, "\nfermata_oversized_shards 1\n") {
				err = errors.New("it does not")
			}
			return err
		})
		before, byHand := regular.Load(), manual.Load()
		redistest.Eventually(t, redistest.Patience, "five runs", func(context.Context) error {
			if n := regular.Load() - before; n < 5 {
				return fmt.Errorf("%d runs", n)
			}
			return nil
		})
		run := &fermatav1.RunJobRequest{Name: "namespaces/default/jobs/manual"}
		if _, err := jobs(t, n).RunJob(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, redistest.Patience, "the manual run", func(context.Context) error {
			if manual.Load() == byHand {
				return errors.New("did not start")
			}
			return nil
		})
	}
	bothRun(a)
	b := startWith(t, redis.URL(), "b", oneShard, a.GossipAddr())
	serve(b)
	if err := a.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	bothRun(b)
}

// TestOversizedShardsShow: a consistency check and the explanation of a due run say that a shard has more lanes than
// one read lists. Lists of queues have all of them.
func TestOversizedShardsShow(t *testing.T) {
	redis := redistest.Start(t)
	a := startWith(t, redis.URL(), "a", func(c *node.Config) { c.Shards = 1 })
	cluster := fermatav1.NewClusterServiceClient(connect(t, a))
	findings := func() []*fermatav1.Finding {
		t.Helper()
		r, err := cluster.CheckShard(t.Context(), &fermatav1.CheckShardRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetFindings()
	}
	fillWithDueLanes(t, jobs(t, a), 0, job.LanesPerRead)
	if f := findings(); len(f) > 0 {
		t.Errorf("findings with %d lanes: %v", job.LanesPerRead, f)
	}
	fillWithDueLanes(t, jobs(t, a), job.LanesPerRead, job.LanesPerRead+20)
	f := findings()
	if len(f) != 1 || f[0].GetFault() != fermatav1.Finding_FAULT_OVERSIZED || f[0].GetRepairable() ||
		!strings.Contains(f[0].GetDetail(), "10020 lanes") || !strings.HasSuffix(f[0].GetDetail(), "10020 are of namespace tenant") {
		t.Errorf("findings: %v", f)
	}
	facts := a.JobFacts(t.Context(), 0, job.QueueKey{Namespace: "tenant", Queue: "q0"})
	if !facts.Oversized {
		t.Errorf("facts: %+v", facts)
	}
	redistest.Eventually(t, redistest.Patience, "all queues are listed", func(ctx context.Context) error {
		r, err := cluster.ListQueues(ctx, &fermatav1.ListQueuesRequest{Parent: "namespaces/tenant"})
		if err == nil && len(r.GetQueues()) != (job.LanesPerRead+20)/10 {
			err = fmt.Errorf("%d queues", len(r.GetQueues()))
		}
		return err
	})
}

// fillWithDueLanes creates a tenant's jobs that are due, one in each of the lanes from first to end, without a worker.
func fillWithDueLanes(t *testing.T, c fermatav1.JobServiceClient, first, end int) {
	t.Helper()
	var requests []*fermatav1.CreateJobRequest
	for i := first; i < end; i++ {
		requests = append(requests, &fermatav1.CreateJobRequest{JobId: fmt.Sprint("j", i), Job: &fermatav1.Job{
			Handler: "none", Queue: fmt.Sprint("q", i/10), Priority: new(int32(i % 10)),
			Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(time.Now().Add(-time.Hour))}},
		}})
	}
	for len(requests) > 0 {
		n := min(1000, len(requests))
		_, err := c.BatchCreateJobs(t.Context(),
			&fermatav1.BatchCreateJobsRequest{Parent: "namespaces/tenant", Requests: requests[:n]})
		if err != nil {
			t.Fatal(err)
		}
		requests = requests[n:]
	}
}
