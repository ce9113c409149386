package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// While more is due than a worker has slots for, some of it waits there, also of the shards
// that another node holds, and never more than the worker takes.
func TestSomeRunsWaitAtTheWorker(t *testing.T) {
	const shards, slots, prefetch = 8, 10, 10
	redis := redistest.Start(t)
	sharded := func(c *node.Config) { c.Shards = shards }
	a := startWith(t, redis.URL(), "a", sharded)
	b := startWith(t, redis.URL(), "b", sharded, a.GossipAddr())
	holders := shared(t, a)
	requests := make([]*fermatav1.CreateJobRequest, 1000) // each due every second
	for i := range requests {
		requests[i] = &fermatav1.CreateJobRequest{JobId: fmt.Sprint("j", i), Job: intervalJob(time.Second, "h")}
	}
	if _, err := jobs(t, a).BatchCreateJobs(t.Context(),
		&fermatav1.BatchCreateJobsRequest{Parent: "namespaces/default", Requests: requests}); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	hello := &fermatav1.Hello{WorkerId: "w", Queues: []string{job.DefaultQueue}, Slots: slots, Prefetch: prefetch,
		SessionEpoch: 1}
	s := welcomed(ctx, t, b, hello)
	came := make(chan *fermatav1.Lease, 1000)
	failed := make(chan error, 1)
	go func() {
		for {
			m, err := s.Recv()
			if err != nil {
				failed <- err
				return
			}
			for _, l := range m.GetLeases().GetLeases() {
				came <- l
			}
		}
	}()
	// Every millisecond the oldest runs end, as many as have a slot.
	waited := map[string]int{}
	var held []*fermatav1.Lease
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for waited["a"] < 20 || waited["b"] < 20 {
		select {
		case err := <-failed:
			t.Fatalf("%v; so many have waited: %v", err, waited)
		case l := <-came:
			held = append(held, l)
			if len(held) > slots+prefetch {
				t.Fatalf("%d leases, for %d slots and %d that may wait", len(held), slots, prefetch)
			}
			if len(held) > slots {
				id, _, _ := strings.Cut(strings.TrimPrefix(l.GetRun(), "namespaces/default/jobs/"), "/")
				waited[holders[sharding.ShardOf(job.DefaultNamespace, id, shards)]]++
			}
		case <-tick.C:
			results := &fermatav1.Results{}
			for _, l := range held[:min(slots, len(held))] {
				results.Results = append(results.Results,
					&fermatav1.Result{LeaseId: l.GetLeaseId(), Outcome: fermatav1.Result_OUTCOME_SUCCEEDED})
			}
			held = held[len(results.Results):]
			if len(results.Results) == 0 {
				continue
			}
			if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{Results: results}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
