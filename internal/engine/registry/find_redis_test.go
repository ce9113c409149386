package registry_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// fillForLists registers jobs in two namespaces and three queues. Many are due at the same time. It pauses
// some.
func fillForLists(t *testing.T, r *rig) {
	t.Helper()
	begin := time.Now().Add(time.Hour).Truncate(time.Minute)
	var requests []job.CreateRequest
	for i := range 900 {
		d := jobOf(fmt.Sprintf("job-%03d", (i*577)%900))
		d.Namespace = []string{"a", "b"}[i%5/4]
		d.Queue = []string{"mail", "web", "web"}[i%3]
		d.Priority = uint8(4 + i%2)
		d.Labels = map[string]string{"hundred": fmt.Sprint(i / 100)}
		d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: begin.Add(time.Duration(max(0, i-600)) * time.Second)}
		requests = append(requests, job.CreateRequest{Definition: d})
	}
	for _, a := range r.CreateBatch(t.Context(), requests) {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	for i := 0; i < 900; i += 50 {
		d := requests[i].Definition
		if _, err := r.Pause(t.Context(), d.Key, "x"); err != nil {
			t.Fatal(err)
		}
	}
}

func parsed(t *testing.T, text string) job.Condition {
	t.Helper()
	f, err := jobfilter.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// listPages reads all pages.
func listPages(t *testing.T, r *rig, f job.Filter, size int) (all []job.Record) {
	t.Helper()
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		page, err := r.List(t.Context(), f, size, token)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Records) > size || page.Incomplete || pages > 1000 {
			t.Fatalf("a page of %d jobs, incomplete %v", len(page.Records), page.Incomplete)
		}
		all, token = append(all, page.Records...), page.Next
	}
	return all
}

func recordIDs(records []job.Record) []job.RecordID {
	ids := make([]job.RecordID, len(records))
	for i, r := range records {
		ids[i] = r.Definition.Record()
	}
	return ids
}

// scoreOf is the place of a job in the order of due times.
func scoreOf(r job.Record) int64 {
	at := r.State.Due
	if r.State.Region == job.RegionPaused {
		at = r.State.PausedMS
	}
	return job.Score(r.State.Region, at)
}

// TestListsInOrder lists jobs in each order, by pages of several sizes, and compares with all jobs that are sorted
// here.
func TestListsInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fillForLists(t, r)
	everything := listPages(t, r, job.Filter{AllNamespaces: true}, 1000)
	if len(everything) != 900 {
		t.Fatalf("%d jobs", len(everything))
	}
	byName := func(a, b job.Record) int { return cmp.Compare(a.Definition.Record(), b.Definition.Record()) }
	byDue := func(a, b job.Record) int { return cmp.Or(cmp.Compare(scoreOf(a), scoreOf(b)), byName(a, b)) }
	onlyWeb := func(q job.QueueKey) bool { return q.Queue == "web" }
	for name, filter := range map[string]job.Filter{
		"all":             {AllNamespaces: true},
		"a namespace":     {Namespace: "b"},
		"a queue":         {Namespace: "a", Queue: "mail"},
		"a label":         {Namespace: "a", Labels: map[string]string{"hundred": "3"}},
		"a condition":     {AllNamespaces: true, Condition: parsed(t, "queue = web AND id:7 AND namespace = a")},
		"paused":          {AllNamespaces: true, Status: job.StatusPaused},
		"paused, by text": {AllNamespaces: true, Condition: parsed(t, "state = paused")},
		"one":             {Namespace: "a", Condition: parsed(t, "id = job-577")},
		"some queues":     {AllNamespaces: true, Scope: onlyWeb},
		"covered":         {Namespace: "a", Covers: func(q string) bool { return q == "mail" }},
	} {
		for order, compare := range map[job.Order]func(a, b job.Record) int{
			job.OrderID: byName, job.OrderNextDue: byDue, job.OrderLastRun: byName,
		} {
			want := slices.DeleteFunc(slices.Clone(everything), func(r job.Record) bool { return !selects(filter, &r) })
			slices.SortFunc(want, compare)
			filter.Order = order
			for _, size := range []int{7, 100, 1000} {
				if got := recordIDs(listPages(t, r, filter, size)); !slices.Equal(got, recordIDs(want)) {
					t.Errorf("%s by %s, pages of %d: %d jobs, want %d; the first is %.1s", name, order, size, len(got),
						len(want), got)
				}
			}
		}
	}
}

// selects evaluates a filter without an index.
func selects(f job.Filter, r *job.Record) bool {
	d := r.Definition
	return (f.AllNamespaces || d.Namespace == f.Namespace) && (f.Queue == "" || d.Queue == f.Queue) &&
		(f.Status == job.StatusAny || r.State.Status() == f.Status) && f.CoversAll(d.Queue) && f.Scope.Holds(d) &&
		(f.Condition == nil || f.Condition.Matches(r, f.NowMS)) &&
		(f.Labels == nil || d.Labels["hundred"] == f.Labels["hundred"])
}

// TestUpcomingRuns lists the runs that are due next: paused jobs have none, and those of paused queues are marked.
func TestUpcomingRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fillForLists(t, r)
	var want []job.Record
	for _, record := range listPages(t, r, job.Filter{AllNamespaces: true, Order: job.OrderNextDue}, 1000) {
		if record.State.Region == job.RegionDue {
			want = append(want, record)
		}
	}
	for _, size := range []int{1, 50, 1000} {
		var got []job.Record
		q := job.UpcomingQuery{Filter: job.Filter{AllNamespaces: true}, PageSize: size}
		for pages := 0; (pages == 0 || q.Token != "") && len(got) < 100*size; pages++ {
			page, err := r.ListUpcoming(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range page.Runs {
				got = append(got, run.Record)
			}
			q.Token = page.Next
		}
		if n := min(len(want), 100*size); !slices.Equal(recordIDs(got), recordIDs(want[:n])) {
			t.Errorf("pages of %d: %d runs, want %d", size, len(got), n)
		}
	}
	q := job.UpcomingQuery{Filter: job.Filter{Namespace: "a"}, PageSize: 5}
	page, err := r.ListUpcoming(t.Context(), q)
	if err != nil || page.Next == "" {
		t.Fatal(err)
	}
	q.Token, q.ExcludeHeld = page.Next, true
	if _, err := r.ListUpcoming(t.Context(), q); err == nil || !strings.Contains(err.Error(), "page_token") {
		t.Errorf("the token of a list with other fields: %v", err)
	}
}

// TestRunNowComesFirst: a run that is requested moves to the front of the list of what is due next, and a job that is
// deleted leaves it.
func TestRunNowComesFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fillForLists(t, r)
	first := func() job.RecordID {
		page, err := r.ListUpcoming(t.Context(), job.UpcomingQuery{Filter: job.Filter{Namespace: "a"}, PageSize: 1})
		if err != nil || len(page.Runs) != 1 {
			t.Fatalf("%+v, %v", page, err)
		}
		return page.Runs[0].Definition.Record()
	}
	key := listPages(t, r, job.Filter{Namespace: "a", Order: job.OrderNextDue}, 1000)[500].Definition.Key
	if first() == key.Record() {
		t.Fatal("it is the first already")
	}
	if _, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: "now"}); err != nil || first() != key.Record() {
		t.Errorf("the first is %s, want %s: %v", first(), key.Record(), err)
	}
	if err := r.Delete(t.Context(), key, ""); err != nil || first() == key.Record() {
		t.Errorf("a deleted job is the first: %v", err)
	}
}

// TestTooManyToSort: what cannot be sorted completely is refused, and a narrower list is not.
func TestTooManyToSort(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var requests []job.CreateRequest
	for i := range 5001 {
		d := jobOf(fmt.Sprintf("job-%04d", i))
		d.Queue = []string{"mail", "web"}[min(i%100, 1)]
		requests = append(requests, job.CreateRequest{Definition: d})
	}
	for part := range slices.Chunk(requests, 1000) {
		for _, a := range r.CreateBatch(t.Context(), part) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	f := job.Filter{Namespace: "default", Order: job.OrderLastRun}
	var refusal *job.TooManyToSortError
	if _, err := r.List(t.Context(), f, 10, ""); !errors.As(err, &refusal) || refusal.Limit != 5000 {
		t.Errorf("5,001 jobs: %v", err)
	}
	f.Queue = "mail"
	if got := listPages(t, r, f, 1000); len(got) != 51 {
		t.Errorf("%d jobs of a queue, want 51", len(got))
	}
	f.Queue, f.Order = "", job.OrderFailures
	if got := listPages(t, r, f, 1000); len(got) != 0 {
		t.Errorf("%d failing jobs", len(got))
	}
	for _, order := range []job.Order{job.OrderID, job.OrderNextDue} {
		f.Order = order
		if got := listPages(t, r, f, 1000); len(got) != 5001 {
			t.Errorf("%d jobs by %s", len(got), order)
		}
	}
}

// TestManyDueAtOnce lists jobs of one lane that are due at the same time: pages continue among them, and jobs that go
// meanwhile shift no other from its page.
func TestManyDueAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	due := time.Now().Add(time.Hour)
	var requests []job.CreateRequest
	for i := range 2000 {
		d := jobOf(fmt.Sprintf("job-%04d", i))
		d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: due}
		requests = append(requests, job.CreateRequest{Definition: d})
	}
	for part := range slices.Chunk(requests, 1000) {
		for _, a := range r.CreateBatch(t.Context(), part) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	f := job.Filter{Namespace: "default", Order: job.OrderNextDue}
	want := make([]job.RecordID, len(requests))
	for i := range requests {
		want[i] = requests[i].Definition.Record()
	}
	if got := recordIDs(listPages(t, r, f, 300)); !slices.Equal(got, want) {
		t.Errorf("%d jobs, want %d in the order of their ids", len(got), len(want))
	}
	var got []job.RecordID
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		page, err := r.List(t.Context(), f, 300, token)
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range page.Records {
			if err := r.Delete(t.Context(), record.Definition.Key, ""); err != nil {
				t.Fatal(err)
			}
		}
		got, token = append(got, recordIDs(page.Records)...), page.Next
	}
	if !slices.Equal(got, want) {
		t.Errorf("while jobs are deleted: %d jobs, want %d", len(got), len(want))
	}
}
