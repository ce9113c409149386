package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redistest"
	"github.com/fermata-io/fermata/internal/ring"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// While more is due than a worker has slots for, some of it waits there, also of the shards
// that another node holds, and never more than the worker takes.
func TestSomeRunsWaitAtTheWorker(t *testing.T) {
	const shards, prefetch = 8, 10
	redis := redistest.Start(t)
	sharded := func(c *node.Config) { c.Shards = shards }
	a := startWith(t, redis.URL(), "a", sharded)
	b := startWith(t, redis.URL(), "b", sharded, a.GossipAddr())
	holders := shared(t, a)
	requests := make([]*fermatav1.CreateJobRequest, 1000) // each due every second
	for i := range requests {
		requests[i] = &fermatav1.CreateJobRequest{JobId: fmt.Sprint("j", i), Job: every(time.Second, "h")}
	}
	if _, err := jobs(t, a).BatchCreateJobs(t.Context(), &fermatav1.BatchCreateJobsRequest{Parent: "namespaces/default", Requests: requests}); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := fermatav1.NewWorkerServiceClient(connect(t, b)).Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	hello := &fermatav1.Hello{WorkerId: "w", Queues: []string{job.DefaultQueue}, Slots: 1, Prefetch: prefetch, SessionEpoch: 1}
	if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	waited := map[string]int{}
	for waited["a"] < 20 || waited["b"] < 20 {
		m, err := s.Recv()
		if err != nil {
			t.Fatalf("%v; so many have waited: %v", err, waited)
		}
		leases := m.GetLeases().GetLeases()
		if len(leases) > 1+prefetch {
			t.Fatalf("%d leases at once, for 1 slot and %d that may wait", len(leases), prefetch)
		}
		results := &fermatav1.Results{}
		for i, l := range leases {
			if i > 0 { // the first one has the slot
				id, _, _ := strings.Cut(strings.TrimPrefix(l.GetRun(), "namespaces/default/jobs/"), "/")
				waited[holders[ring.ShardOf(job.DefaultNamespace, id, shards)]]++
			}
			results.Results = append(results.Results, &fermatav1.Result{LeaseId: l.GetLeaseId(), Outcome: fermatav1.Result_OUTCOME_SUCCEEDED})
		}
		if len(leases) > 0 {
			if err := s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Results{Results: results}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
