package acceptance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// listPromise is the longest time of a call that lists jobs, at the 99th percentile, on a machine that does nothing
	// else.
	listPromise = 100 * time.Millisecond
	// listMemory is by how much a node may grow while it answers lists, in the mean of the nodes: where one of them is in
	// its cycle of garbage collection differs by as much.
	listMemory = 20 << 20
	// listCalls is how many calls of each kind are made, measuredListCalls how many if they are measured: the more there
	// are, the surer is the 99th percentile.
	listCalls         = 50
	measuredListCalls = 200
)

// listCall lists something, and returns how many there are.
type listCall func(context.Context, ...grpc.CallOption) (int, error)

// TestListsOfManyJobs lists jobs on a cluster that has many, and looks at the time of each call and at the memory of
// the nodes. FERMATA_FIND_JOBS makes it a measurement with so many jobs, which the promised time is held against.
func TestListsOfManyJobs(t *testing.T) {
	count, listed, measured := 20_000, listCalls, false
	if text := os.Getenv("FERMATA_FIND_JOBS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		count, listed, measured = n, measuredListCalls, true
	}
	runAlone(t)
	c := newCluster(t, newRedis(t).URL())
	c.plain = true
	for _, id := range []string{"a", "b", "c"} {
		c.startNode(id)
	}
	c.awaitSettled()
	c.createForLists(count)
	jobs := c.nodes[0].jobs
	list := func(q *fermatav1.ListJobsRequest) listCall {
		return func(ctx context.Context, opts ...grpc.CallOption) (int, error) {
			q.Parent = namespace
			r, err := jobs.ListJobs(ctx, q, opts...)
			return len(r.GetJobs()), err
		}
	}
	calls := []struct {
		name string
		want int // jobs, -1: any number, as pages end by time
		call listCall
	}{
		{"warm up", 100, list(&fermatav1.ListJobsRequest{OrderBy: "next_due_time"})},
		{"100 by next_due_time", 100, list(&fermatav1.ListJobsRequest{OrderBy: "next_due_time"})},
		{"1,000 by next_due_time", -1, list(&fermatav1.ListJobsRequest{OrderBy: "next_due_time", PageSize: 1000})},
		{"a rare queue by id", 100, list(&fermatav1.ListJobsRequest{OrderBy: "id", Filter: "queue = rare"})},
		{"failing jobs", 0, list(&fermatav1.ListJobsRequest{OrderBy: "consecutive_failures desc"})},
		{"a filter that few match", -1, list(&fermatav1.ListJobsRequest{Filter: "handler = nothing"})},
		{"what runs next", -1, func(ctx context.Context, opts ...grpc.CallOption) (int, error) {
			q := &fermatav1.ListUpcomingJobsRequest{Parent: namespace, PageSize: 1000}
			r, err := jobs.ListUpcomingJobs(ctx, q, opts...)
			return len(r.GetRuns()), err
		}},
	}
	before := c.residentMemories()
	for _, k := range calls {
		var took []time.Duration
		for range listed {
			began := time.Now()
			n, err := k.call(callContext(t))
			if err != nil || k.want >= 0 && (n > k.want || measured && n < k.want) { // pages end by time
				t.Fatalf("%s: %d jobs, want %d: %v", k.name, n, k.want, err)
			}
			took = append(took, time.Since(began))
		}
		if k.name == "warm up" {
			before = c.residentMemories()
			continue
		}
		p99 := quantileOfSorted(sortedDurations(took), 0.99)
		t.Logf("%-26s p50 %-10v p99 %v", k.name, quantileOfSorted(sortedDurations(took), 0.5), p99)
		if measured && p99 > listPromise {
			t.Errorf("%s: p99 %v, want %v", k.name, p99, listPromise)
		}
	}
	var growth int64
	for i, after := range c.residentMemories() {
		t.Logf("node %s: %d MiB, before %d MiB", c.nodes[i].id, after>>20, before[i]>>20)
		growth += (after - before[i]) / int64(len(c.nodes))
	}
	if growth > listMemory {
		t.Errorf("the nodes have grown by %d MiB each", growth>>20)
	}
	rounds, span := 1, time.Second
	if measured {
		rounds, span = 8, 5*time.Second
	}
	var lists []listCall
	for _, k := range calls[1:] {
		lists = append(lists, k.call)
	}
	measureLagBesideLists(t, c.startLagMeter(), rounds, span, lists)
}

// createForLists registers jobs that are due tomorrow, many of them at the same time, and 100 of them in a queue of
// their own.
func (c *cluster) createForLists(count int) {
	c.t.Helper()
	tomorrow := time.Now().Add(24 * time.Hour).Truncate(time.Hour)
	at := 0
	for part := range slices.Chunk(make([]struct{}, count), 1000) {
		q := &fermatav1.BatchCreateJobsRequest{Parent: namespace, NamesOnly: true}
		for range part {
			j := newJob(behaviour{})
			j.Queue = "common"
			if at < 100 {
				j.Queue = "rare"
			}
			due := tomorrow.Add(time.Duration(at%600) * time.Second)
			j.Schedule = &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(due)}}
			q.Requests = append(q.Requests, &fermatav1.CreateJobRequest{JobId: fmt.Sprintf("job-%07d", at), Job: j})
			at++
		}
		node := c.nodes[at/1000%len(c.nodes)]
		if _, err := node.jobs.BatchCreateJobs(callContext(c.t), q); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) residentMemories() []int64 {
	memories := make([]int64, len(c.nodes))
	for i, n := range c.nodes {
		memories[i] = n.residentMemory()
	}
	return memories
}
