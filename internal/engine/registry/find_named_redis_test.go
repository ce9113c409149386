package registry_test

import (
	"cmp"
	"context"
	"slices"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/registry"
)

// countedStore counts what is read of jobs.
type countedStore struct {
	registry.Store
	indexed, records, calls int // entries of indexes; records and states; calls of the store
}

func (c *countedStore) ReadIndex(ctx context.Context, ranges []job.IndexRange) ([][]job.IndexEntry, error) {
	parts, err := c.Store.ReadIndex(ctx, ranges)
	for _, part := range parts {
		c.indexed += len(part)
	}
	c.calls++
	return parts, err
}

func (c *countedStore) CountIndex(ctx context.Context, ranges []job.IndexRange) ([]int, error) {
	counts, err := c.Store.CountIndex(ctx, ranges)
	for _, n := range counts {
		c.indexed += n
	}
	c.calls++
	return counts, err
}

func (c *countedStore) ReadEntries(ctx context.Context, entries []job.IndexEntry) ([]*job.Record, error) {
	c.records, c.calls = c.records+len(entries), c.calls+1
	return c.Store.ReadEntries(ctx, entries)
}

func (c *countedStore) ReadStates(ctx context.Context, entries []job.IndexEntry) ([]*job.State, error) {
	c.records, c.calls = c.records+len(entries), c.calls+1
	return c.Store.ReadStates(ctx, entries)
}

func (c *countedStore) ReadScores(ctx context.Context, entries []job.IndexEntry, states []*job.State) ([]int64, error) {
	c.calls++
	return c.Store.ReadScores(ctx, entries, states)
}

func (c *countedStore) List(ctx context.Context, namespace, cursor string, budget int) ([]job.Record, string, error) {
	records, next, err := c.Store.List(ctx, namespace, cursor, budget)
	c.indexed, c.calls = c.indexed+len(records), c.calls+1
	return records, next, err
}

// counted returns a second registry on the store of a rig, which counts its reads.
func (r *rig) counted(t *testing.T) (*registry.Registry, *countedStore) {
	t.Helper()
	c := &countedStore{Store: r.store}
	counting, err := registry.NewUnhurried(registry.Options{Store: c, SharedLimits: r.store.Limits(), Ledger: r.book,
		Lanes: r.overview, Rankings: r.overview})
	if err != nil {
		t.Fatal(err)
	}
	return counting, c
}

var everyOrder = []job.Order{job.OrderNone, job.OrderID, job.OrderNextDue, job.OrderLastRun, job.OrderFailures}

// TestNamedJobsAreReadDirectly: a list whose filter names jobs reads their records only, in each order.
func TestNamedJobsAreReadDirectly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fillForLists(t, r)
	counting, store := r.counted(t)
	for name, tt := range map[string]struct {
		filter job.Filter
		want   int // jobs
		named  int // records that the filter names
	}{
		"one":              {job.Filter{Namespace: "a", Condition: parsed(t, "id = job-577")}, 1, 1},
		"none":             {job.Filter{Namespace: "a", Condition: parsed(t, "id = nobody")}, 0, 1},
		"by queue":         {job.Filter{Namespace: "a", Condition: parsed(t, "id = job-577 AND queue = web")}, 1, 1},
		"of another queue": {job.Filter{Namespace: "a", Queue: "mail", Condition: parsed(t, "id = job-577")}, 0, 1},
		"with a namespace": {job.Filter{AllNamespaces: true, Condition: parsed(t, "id = job-577 namespace = a")}, 1, 1},
		"all namespaces":   {job.Filter{AllNamespaces: true, Condition: parsed(t, "id = job-577")}, 1, 2},
		"some":             {job.Filter{Namespace: "a", Condition: parsed(t, "id = job-577 OR id = job-831 OR id = x")}, 2, 3},
	} {
		for _, order := range everyOrder {
			store.indexed, store.records, store.calls = 0, 0, 0
			tt.filter.Order = order
			page, err := counting.List(t.Context(), tt.filter, 100, "")
			want := tt.want
			if order == job.OrderFailures {
				want = 0 // none is failing
			}
			if err != nil || len(page.Records) != want || page.Next != "" || page.Incomplete {
				t.Errorf("%s by %q: %d jobs, want %d; token %q, incomplete %v: %v", name, order, len(page.Records), want,
					page.Next, page.Incomplete, err)
			}
			if store.indexed != 0 || store.records > 2*tt.named || store.calls > 3 {
				t.Errorf("%s by %q: read %d entries of indexes and %d records in %d calls", name, order, store.indexed,
					store.records, store.calls)
			}
		}
	}
}

// TestNamedJobsAreThoseOfTheFilter: a list whose filter names jobs has those that its other conditions select and the
// caller may see, in order, on pages of any size.
func TestNamedJobsAreThoseOfTheFilter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fillForLists(t, r)
	for _, namespace := range []string{"b", "c"} {
		d := jobOf("job-577")
		d.Namespace, d.Queue = namespace, "mail"
		if _, err := r.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Pause(t.Context(), job.Key{Namespace: "c", ID: "job-577"}, "x"); err != nil {
		t.Fatal(err)
	}
	everything := listPages(t, r, job.Filter{AllNamespaces: true}, 1000)
	byName := func(a, b job.Record) int { return cmp.Compare(a.Definition.Record(), b.Definition.Record()) }
	byDue := func(a, b job.Record) int { return cmp.Or(cmp.Compare(scoreOf(a), scoreOf(b)), byName(a, b)) }
	of := func(text string) job.Condition { return parsed(t, text) }
	for name, filter := range map[string]job.Filter{
		"one":             {Namespace: "b", Condition: of("id = job-577")},
		"everywhere":      {AllNamespaces: true, Condition: of("id = job-577")},
		"several":         {AllNamespaces: true, Condition: of("id = job-577 OR id = job-000 OR id = job-600")},
		"paused":          {AllNamespaces: true, Status: job.StatusPaused, Condition: of("id = job-577 OR id = job-000")},
		"by state":        {AllNamespaces: true, Condition: of("id = job-577 AND state = scheduled")},
		"in a queue":      {AllNamespaces: true, Queue: "mail", Condition: of("id = job-577")},
		"in some queues":  {AllNamespaces: true, Condition: of("id = job-577 (queue = web OR queue = other)")},
		"of a namespace":  {AllNamespaces: true, Condition: of("id = job-577 namespace = c")},
		"of no namespace": {Namespace: "a", Condition: of("id = job-577 namespace = c")},
		"with a prefix":   {AllNamespaces: true, IDPrefix: "job-6", Condition: of("id = job-577 OR id = job-600")},
		"by its label":    {AllNamespaces: true, Labels: map[string]string{"hundred": "0"}, Condition: of("id = job-577")},
		"unless":          {Namespace: "a", Condition: of("id = job-577 AND NOT queue = web")},
		"a record of run": {Namespace: "a", Condition: of(`id = "job-577#r0"`)},
		"a path":          {AllNamespaces: true, Condition: of(`id = job-577 namespace = "a/b"`)},
		"only web": {AllNamespaces: true, Condition: of("id = job-577 OR id = job-000"),
			Scope: func(q job.QueueKey) bool { return q.Queue == "web" }},
		"only c": {AllNamespaces: true, Limited: true, Condition: of("id = job-577"),
			Scope: func(q job.QueueKey) bool { return q.Namespace == "c" }},
		"hidden": {AllNamespaces: true, Limited: true, Condition: of("id = job-577 namespace = a"),
			Scope: func(q job.QueueKey) bool { return q.Namespace == "c" }},
		"covered":   {Namespace: "c", Condition: of("id = job-577"), Covers: func(q string) bool { return q == "mail" }},
		"uncovered": {Namespace: "c", Condition: of("id = job-577"), Covers: func(q string) bool { return q == "web" }},
	} {
		for order, compare := range map[job.Order]func(a, b job.Record) int{
			job.OrderNone: byName, job.OrderID: byName, job.OrderNextDue: byDue, job.OrderLastRun: byName,
		} {
			want := slices.DeleteFunc(slices.Clone(everything), func(r job.Record) bool {
				return !selects(filter, &r) || filter.IDPrefix != "" && r.Definition.ID != "job-600"
			})
			slices.SortFunc(want, compare)
			filter.Order = order
			for _, size := range []int{1, 2, 100} {
				if got := recordIDs(listPages(t, r, filter, size)); !slices.Equal(got, recordIDs(want)) {
					t.Errorf("%s by %q, pages of %d: %v, want %v", name, order, size, got, recordIDs(want))
				}
			}
		}
	}
}

// TestNamedJobThatWasMoved: a job that was moved to another queue while its run is live is listed by its id.
func TestNamedJobThatWasMoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	moveRunningJob(t, r)
	for queue, want := range map[string]int{"mail": 1, "web": 0} {
		for _, order := range everyOrder[:4] {
			f := job.Filter{AllNamespaces: true, Queue: queue, Order: order, Condition: parsed(t, "id = moved")}
			if page, err := r.List(t.Context(), f, 10, ""); err != nil || len(page.Records) != want {
				t.Errorf("queue %s by %q: %d jobs, want %d: %v", queue, order, len(page.Records), want, err)
			}
		}
	}
}
