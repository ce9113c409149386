package registry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/registry"
)

// manyLanes lists 100,000 lanes.
type manyLanes struct{}

func (manyLanes) FindLanes(context.Context, job.LaneQuery) (lanes []job.ShardLane, isCurrent bool, err error) {
	for i := range 100_000 {
		l := job.Lane{Namespace: "a", Queue: fmt.Sprint("q", i/4)}
		lanes = append(lanes, job.ShardLane{Shard: i % 4, LaneHead: job.LaneHead{Lane: l, DueMS: job.NeverMS}})
	}
	return lanes, true, nil
}

// countedReads counts the parts of lanes that are read or counted.
type countedReads struct {
	registry.Store
	ranges int
}

func (c *countedReads) ReadIndex(ctx context.Context, ranges []job.IndexRange) ([][]job.IndexEntry, error) {
	c.ranges += len(ranges)
	return c.Store.ReadIndex(ctx, ranges)
}

func (c *countedReads) CountIndex(ctx context.Context, ranges []job.IndexRange) ([]int, error) {
	c.ranges += len(ranges)
	return c.Store.CountIndex(ctx, ranges)
}

// fillNamespaces registers many jobs of namespace a and nine of namespace b.
func fillNamespaces(t *testing.T, r *rig, many int) {
	t.Helper()
	var requests []job.CreateRequest
	for i := range many + 9 {
		d := jobOf(fmt.Sprintf("job-%05d", i))
		d.Namespace, d.Queue = "a", "web"
		if i >= many {
			d.Namespace, d.Queue = "b", "mail"
		}
		requests = append(requests, job.CreateRequest{Definition: d})
	}
	for part := range slices.Chunk(requests, 1000) {
		for _, a := range r.CreateBatch(t.Context(), part) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
}

// TestListsDoNotShowHowManyJobsOthersHave: a list of few jobs is one page with all of them and no token, however many
// jobs there are that its filter, its namespace or the caller's roles exclude.
func TestListsDoNotShowHowManyJobsOthersHave(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fillNamespaces(t, r, 6000)
	onlyB := func(q job.QueueKey) bool { return q.Namespace == "b" }
	for name, f := range map[string]job.Filter{
		"roles in one namespace": {AllNamespaces: true, Scope: onlyB},
		"a namespace":            {Namespace: "b"},
		"a queue":                {AllNamespaces: true, Queue: "mail"},
		"a queue, by text":       {AllNamespaces: true, Condition: parsed(t, `queue = mail OR queue = other`)},
		"a namespace, by text":   {AllNamespaces: true, Condition: parsed(t, `namespace = b`)},
	} {
		page, err := r.List(t.Context(), f, 100, "")
		if err != nil || len(page.Records) != 9 || page.Next != "" || page.Incomplete {
			t.Errorf("%s: %d jobs, token %q, incomplete %v: %v", name, len(page.Records), page.Next, page.Incomplete, err)
		}
		var paged []job.RecordID
		for token, pages := "", 0; (pages == 0 || token != "") && pages < 9; pages++ {
			page, err := r.List(t.Context(), f, 4, token)
			if err != nil || strings.Contains(page.Next, "b/job-0000") {
				t.Fatal(err)
			}
			paged, token = append(paged, recordIDs(page.Records)...), page.Next
		}
		if len(paged) != 9 || !slices.IsSorted(paged) {
			t.Errorf("%s, pages of 4: %v", name, paged)
		}
	}
}

// TestListThatGrowsContinues: a list that began with few jobs goes on when it has many, with each job once.
func TestListThatGrowsContinues(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fillNamespaces(t, r, 500)
	f := job.Filter{Namespace: "a"}
	first, err := r.List(t.Context(), f, 100, "")
	if err != nil || len(first.Records) != 100 || first.Next == "" {
		t.Fatalf("%d jobs: %v", len(first.Records), err)
	}
	seen := map[job.RecordID]int{}
	for _, id := range recordIDs(first.Records) {
		seen[id]++
	}
	walking, err := registry.NewUnhurried(registry.Options{Store: r.store, SharedLimits: r.store.Limits(), Ledger: r.book,
		Lanes: manyLanes{}})
	if err != nil {
		t.Fatal(err)
	}
	for token, pages := first.Next, 0; token != "" && pages < 100; pages++ {
		page, err := walking.List(t.Context(), f, 100, token)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range recordIDs(page.Records) {
			seen[id]++
		}
		token = page.Next
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is listed %d times", id, n)
		}
	}
	if len(seen) != 500 {
		t.Errorf("%d jobs, want 500", len(seen))
	}
}

// moveRunningJob creates the job "moved" in queue web, and moves it to queue mail while its run is live.
func moveRunningJob(t *testing.T, r *rig) {
	t.Helper()
	d := jobOf("moved")
	d.Queue = "web"
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.RunJob(t.Context(), d.Key, job.RequestManualRun{RequestID: "now"}); err != nil {
		t.Fatal(err)
	}
	r.lease(t, d.Key)
	_, err := r.Update(t.Context(), job.UpdateRequest{Key: d.Key, Merge: func(d job.Definition) (job.Definition, error) {
		d.Queue = "mail"
		return d, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMovedJobsAreListed: a job that was moved to another queue while its run is live is listed there.
func TestMovedJobsAreListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	moveRunningJob(t, r)
	for queue, want := range map[string]int{"mail": 1, "web": 0} {
		page, err := r.List(t.Context(), job.Filter{Namespace: "default", Queue: queue}, 10, "")
		if err != nil || len(page.Records) != want {
			t.Errorf("queue %s: %d jobs, want %d: %v", queue, len(page.Records), want, err)
		}
	}
}

// TestPagesThatEndEarlyGetOn: pages that end by time before they have found anything lead to the end of the list.
func TestPagesThatEndEarlyGetOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fillNamespaces(t, r, 1000)
	hasty, err := registry.NewUnhurried(registry.Options{Store: r.store, SharedLimits: r.store.Limits(), Ledger: r.book,
		Lanes: r.overview, ScanTime: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	f := job.Filter{AllNamespaces: true, Order: job.OrderNextDue, IDPrefix: "job-01008"}
	found := 0
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		page, err := hasty.List(t.Context(), f, 10, token)
		if err != nil || pages > 1009 || page.Next != "" && page.Next == token {
			t.Fatalf("page %d, token %q again: %v", pages, token, err)
		}
		found, token = found+len(page.Records), page.Next
	}
	if found != 1 {
		t.Errorf("%d jobs found, want 1", found)
	}
}

// TestListsOpenFewLanes: a list that would have to read very many lanes before its first entry is refused, and one that
// needs few of them reads few.
func TestListsOpenFewLanes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lanes := &countedReads{Store: r.store}
	many, err := registry.NewUnhurried(registry.Options{Store: lanes, SharedLimits: r.store.Limits(), Ledger: r.book,
		Lanes: manyLanes{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []job.Order{job.OrderNextDue, job.OrderID, job.OrderLastRun, job.OrderFailures} {
		lanes.ranges = 0
		f := job.Filter{Namespace: "a", Order: order, Status: job.StatusDead}
		if _, err := many.List(t.Context(), f, 10, ""); err == nil || !strings.Contains(err.Error(), "too many") {
			t.Errorf("by %s, a list that reads each of 100,000 lanes: %v", order, err)
		}
		if lanes.ranges > 21_000 {
			t.Errorf("by %s: %d lanes were read", order, lanes.ranges)
		}
	}
}
