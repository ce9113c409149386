package registry_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// listEnded reads all pages of ended runs.
func listEnded(t *testing.T, r *rig, q job.EndedRunsQuery) (all []job.EndedRun) {
	t.Helper()
	for pages := 0; pages == 0 || q.Token != ""; pages++ {
		page, err := r.ListEndedRuns(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if page.Incomplete || pages > 1000 {
			t.Fatalf("page %d of %d runs, incomplete %v", pages, len(page.Runs), page.Incomplete)
		}
		all, q.Token = append(all, page.Runs...), page.Next
	}
	return all
}

func everywhere() job.EndedRunsQuery {
	return job.EndedRunsQuery{Filter: job.Filter{AllNamespaces: true}}
}

// namesOf returns namespace/job/outcome of runs, sorted.
func namesOf(runs []job.EndedRun) string {
	var names []string
	for _, e := range runs {
		names = append(names, e.Key.Namespace+"/"+e.Key.ID+"/"+e.Outcome.String())
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// endedUntil are the runs that ended at an instant or before: the first two may have ended in one millisecond.
func endedUntil(runs []job.EndedRun, at unixtime.Milli) (found []job.EndedRun) {
	for _, e := range runs {
		if e.FinishedMS <= at {
			found = append(found, e)
		}
	}
	return found
}

// endRun starts the job's run, and ends it as given.
func (r *rig) endRun(t *testing.T, key job.Key, end job.FinishAttempt) {
	t.Helper()
	if _, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{}); err != nil {
		t.Fatal(err)
	}
	leased := r.lease(t, key)
	end.Token, end.StartedMS = leased.Known.State.Token, leased.Known.State.Due
	result := r.book.SubmitAndWait(t.Context(), job.Change{Record: leased.Record, Input: end})[0]
	if result.Err != nil || result.Answer != job.Applied {
		t.Fatalf("end of %s: %v, %v", key, result.Answer, result.Err)
	}
}

func (r *rig) create(t *testing.T, namespace, id, queue string) job.Key {
	t.Helper()
	d := jobOf(id)
	d.Namespace, d.Queue, d.HistoryLimit = namespace, queue, 1
	d.Labels = map[string]string{"of": id}
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	return d.Key
}

var (
	succeed  = job.FinishAttempt{Outcome: job.OutcomeSucceeded}
	failHard = job.FinishAttempt{Outcome: job.OutcomeFailed, Permanent: true, Error: "HTTP 500" + strings.Repeat("!", 300)}
	timeOut  = job.FinishAttempt{Outcome: job.OutcomeTimedOut, Permanent: true, Error: "timeout"}
	cancel   = job.FinishAttempt{Outcome: job.OutcomeCancelled}
)

// TestUnsuccessfulRunsAreListed ends runs in every way and lists those that did not succeed, also after their jobs have
// forgotten them or were deleted.
func TestUnsuccessfulRunsAreListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	good, bad, other := r.create(t, "a", "good", "mail"), r.create(t, "a", "bad", "web"), r.create(t, "b", "bad", "web")
	r.endRun(t, good, succeed)
	r.endRun(t, bad, failHard)
	r.endRun(t, bad, timeOut)
	r.endRun(t, bad, cancel)
	for range 5 {
		r.endRun(t, bad, succeed) // its history keeps one run
	}
	r.endRun(t, other, failHard)
	if err := r.Delete(t.Context(), other, ""); err != nil {
		t.Fatal(err)
	}

	all := listEnded(t, r, everywhere())
	if got, want := namesOf(all), "a/bad/cancelled a/bad/dead a/bad/dead b/bad/dead"; got != want {
		t.Errorf("all: %s", got)
	}
	if !slices.IsSortedFunc(all, func(a, b job.EndedRun) int { return int(b.FinishedMS - a.FinishedMS) }) {
		t.Error("they are not in the order of their ends")
	}
	// Another run may have ended in the same millisecond.
	first := all[slices.IndexFunc(all, func(e job.EndedRun) bool { return e.Key == bad && strings.HasPrefix(e.Error, "HTTP 500!") })]
	if first.FinishedMS != all[len(all)-1].FinishedMS {
		t.Errorf("the first one is not at the end: %+v", first)
	}
	if first.ID == "" || first.Queue != "web" || first.Trigger != job.TriggerManual || first.Attempts != 1 ||
		first.StartedMS == 0 || first.DueMS == 0 || first.LastAttempt != job.OutcomeFailed ||
		len(first.Error) > job.MaxIndexedError || !strings.HasPrefix(first.Error, "HTTP 500!") {
		t.Errorf("the first one: %+v", first)
	}
	for name, c := range map[string]struct {
		edit func(*job.EndedRunsQuery)
		want string
	}{
		"of a namespace": {func(q *job.EndedRunsQuery) { q.Filter = job.Filter{Namespace: "b"} }, "b/bad/dead"},
		"of a queue":     {func(q *job.EndedRunsQuery) { q.Filter.Queue = "mail" }, ""},
		"cancelled":      {func(q *job.EndedRunsQuery) { q.Outcomes = []job.Outcome{job.OutcomeCancelled} }, "a/bad/cancelled"},
		"timed out":      {func(q *job.EndedRunsQuery) { q.Outcomes = []job.Outcome{job.OutcomeTimedOut} }, "a/bad/dead"},
		"quarantined":    {func(q *job.EndedRunsQuery) { q.Outcomes = []job.Outcome{job.OutcomeQuarantined} }, ""},
		"dead":           {func(q *job.EndedRunsQuery) { q.Outcomes = []job.Outcome{job.OutcomeDead} }, "a/bad/dead a/bad/dead b/bad/dead"},
		"with a filter, of jobs that exist": {func(q *job.EndedRunsQuery) { q.Filter.Condition = parsed(t, "labels.of = bad") },
			"a/bad/cancelled a/bad/dead a/bad/dead"},
		"with a filter of a queue of the job": {func(q *job.EndedRunsQuery) { q.Filter.Condition = parsed(t, "queue = mail") }, ""},
		"with a filter of a namespace":        {func(q *job.EndedRunsQuery) { q.Filter.Condition = parsed(t, "namespace = b") }, ""},
		"until the first":                     {func(q *job.EndedRunsQuery) { q.EndMS = first.FinishedMS }, ""},
		"until after the first":               {func(q *job.EndedRunsQuery) { q.EndMS = first.FinishedMS + 1 }, namesOf(endedUntil(all, first.FinishedMS))},
		"from the last":                       {func(q *job.EndedRunsQuery) { q.StartMS = all[0].FinishedMS }, "b/bad/dead"},
		"after the last":                      {func(q *job.EndedRunsQuery) { q.StartMS = all[0].FinishedMS + 1 }, ""},
	} {
		q := everywhere()
		c.edit(&q)
		if got := namesOf(listEnded(t, r, q)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}

	q := everywhere()
	q.Outcomes = []job.Outcome{job.OutcomeSucceeded}
	if _, err := r.ListEndedRuns(t.Context(), q); !errors.Is(err, job.ErrEventsOff) {
		t.Errorf("successes without events: %v", err)
	}
	q = everywhere()
	q.StartMS, q.EndMS = 2, 2
	if _, err := r.ListEndedRuns(t.Context(), q); !isInvalid(err) {
		t.Errorf("an empty window: %v", err)
	}
}

// TestCancelledWaitingRunIsListed cancels a manual run that waits for the end of another one, which then is cancelled
// too.
func TestCancelledWaitingRunIsListed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	key := r.create(t, "a", "busy", "mail")
	if _, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: "first"}); err != nil {
		t.Fatal(err)
	}
	leased := r.lease(t, key)
	if _, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: "second"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.CancelRun(t.Context(), key, "m-second"); err != nil {
		t.Fatal(err)
	}
	r.book.SubmitAndWait(t.Context(), job.Change{Record: leased.Record, Input: job.FinishAttempt{
		Token: leased.Known.State.Token, Outcome: job.OutcomeCancelled}})
	var ids []string
	for _, e := range listEnded(t, r, everywhere()) {
		ids = append(ids, e.ID+" "+e.Outcome.String()+" "+e.Queue)
	}
	if want := []string{"m-first cancelled mail", "m-second cancelled mail"}; !slices.Equal(ids, want) {
		t.Errorf("%v, want %v", ids, want)
	}
}

// TestPagesOfEndedRuns cancels many runs in the same millisecond, and reads the list in pages of several sizes.
func TestPagesOfEndedRuns(t *testing.T) {
	t.Parallel()
	r := rigOn(t, redistest.Start(t), func(o *redisstore.Options) { o.KeepEvents = 10_000 })
	want := map[string]bool{}
	for round := range 3 {
		var changes []job.Change
		for i := range 40 {
			id := fmt.Sprintf("job-%02d", i)
			key := job.Key{Namespace: "a", ID: id}
			if round == 0 {
				key = r.create(t, "a", id, []string{"mail", "web"}[i%2])
			}
			run, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: fmt.Sprint("r", round)})
			if err != nil {
				t.Fatal(err)
			}
			want[id+" "+run.ID] = true
			changes = append(changes, job.Change{Record: key.Record(), Input: job.CancelRun{RunID: run.ID}})
		}
		for _, result := range r.book.SubmitAndWait(t.Context(), changes...) {
			if result.Err != nil || result.Answer != job.Applied {
				t.Fatalf("cancel: %v, %v", result.Answer, result.Err)
			}
		}
	}
	good := r.create(t, "a", "good", "mail")
	for range 10 {
		r.endRun(t, good, succeed)
	}
	outcomes := []job.Outcome{job.OutcomeCancelled, job.OutcomeSucceeded}
	whole := listEnded(t, r, job.EndedRunsQuery{Filter: job.Filter{Namespace: "a"}, Outcomes: outcomes, PageSize: 1000})
	if len(whole) != len(want)+10 {
		t.Fatalf("%d runs, want %d", len(whole), len(want)+10)
	}
	for _, e := range whole {
		if e.Outcome == job.OutcomeCancelled && !want[e.Key.ID+" "+e.ID] {
			t.Errorf("unknown run %+v", e)
		}
		if e.Outcome == job.OutcomeSucceeded && (e.Key != good || e.Queue != "mail" || e.StartedMS == 0) {
			t.Errorf("success %+v", e)
		}
	}
	for _, size := range []int{1, 7, 40, 130} {
		paged := listEnded(t, r, job.EndedRunsQuery{Filter: job.Filter{Namespace: "a"}, Outcomes: outcomes, PageSize: size})
		if !slices.EqualFunc(paged, whole, func(a, b job.EndedRun) bool { return a.Key == b.Key && a.ID == b.ID }) {
			t.Errorf("pages of %d: %d runs, in another order than one page of %d", size, len(paged), len(whole))
		}
	}
	q := job.EndedRunsQuery{Filter: job.Filter{Namespace: "a"}, Outcomes: outcomes, PageSize: 5}
	page, err := r.ListEndedRuns(t.Context(), q)
	if err != nil || page.Next == "" {
		t.Fatal(page, err)
	}
	for name, edit := range map[string]func(*job.EndedRunsQuery){
		"another window":   func(q *job.EndedRunsQuery) { q.StartMS = 1 },
		"other outcomes":   func(q *job.EndedRunsQuery) { q.Outcomes = nil },
		"another parent":   func(q *job.EndedRunsQuery) { q.Filter.Namespace = "b" },
		"another queue":    func(q *job.EndedRunsQuery) { q.Filter.Queue = "web" },
		"no token at all":  func(q *job.EndedRunsQuery) { q.Token = "x" },
		"a token of jobs":  func(q *job.EndedRunsQuery) { q.Token = "eyJjIjoiIiwiZiI6IiJ9" },
		"a negative place": func(q *job.EndedRunsQuery) { q.Token = "eyJ0IjotMSwicyI6MCwibiI6MCwiZiI6IiJ9" },
	} {
		q := q
		q.Token = page.Next
		edit(&q)
		if _, err := r.ListEndedRuns(t.Context(), q); !isInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEndedRunsShowNothingOfHiddenQueues lists for callers who may see a part: neither runs nor tokens name anything of
// hidden queues and of jobs that have moved to one.
func TestEndedRunsShowNothingOfHiddenQueues(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 8 {
		r.endRun(t, r.create(t, "a", fmt.Sprint("seen-", i), "mail"), failHard)
		r.endRun(t, r.create(t, "a", fmt.Sprint("secret-", i), "vault"), failHard)
		r.endRun(t, r.create(t, "b", fmt.Sprint("secret-", i), "mail"), failHard)
	}
	moved := r.create(t, "a", "secret-moved", "mail")
	r.endRun(t, moved, failHard)
	if _, err := r.Update(t.Context(), job.UpdateRequest{Key: moved, Merge: func(d job.Definition) (job.Definition, error) {
		d.Queue = "vault"
		return d, nil
	}}); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]job.Filter{
		"of one namespace": {Namespace: "a", Covers: func(queue string) bool { return queue == "mail" }},
		"of all": {AllNamespaces: true, Scope: func(q job.QueueKey) bool {
			return q == job.QueueKey{Namespace: "a", Queue: "mail"}
		}},
	} {
		var seen []string
		for q := (job.EndedRunsQuery{Filter: f, PageSize: 3}); ; {
			page, err := r.ListEndedRuns(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Runs) < 3 && page.Next != "" || page.Incomplete {
				t.Errorf("%s: a page of %d runs, incomplete %v", name, len(page.Runs), page.Incomplete)
			}
			for _, e := range page.Runs {
				seen = append(seen, e.Key.ID)
			}
			if token := decodeToken(t, page.Next); strings.Contains(token, "vault") || strings.Contains(token, "secret") ||
				strings.Contains(token, `"b/`) {
				t.Errorf("%s: token %s", name, token)
			}
			if page.Next == "" {
				break
			}
			q.Token = page.Next
		}
		slices.Sort(seen)
		if got, want := strings.Join(seen, " "), "seen-0 seen-1 seen-2 seen-3 seen-4 seen-5 seen-6 seen-7"; got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestIndexOfUnsuccessfulRunsIsBounded has a job fail more often than the index keeps, and lets entries get too old.
func TestIndexOfUnsuccessfulRunsIsBounded(t *testing.T) {
	t.Parallel()
	const most = redisstore.MinKeepUnsuccessful / 4 // of a shard
	r := rigOn(t, redistest.Start(t), func(o *redisstore.Options) {
		o.KeepUnsuccessful, o.UnsuccessfulAge = redisstore.MinKeepUnsuccessful, time.Hour
	})
	key := r.create(t, "a", "bad", "mail")
	index := fmt.Sprintf("fermata:{%s}:unsuccessful", strings.Trim(strings.Split(r.store.LockKey(r.store.ShardOf(key)), ":")[1], "{}"))
	entries := index + ":a/mail"
	for i := range most + 20 {
		if i%50 == 49 {
			r.endRun(t, key, succeed) // keeps the backoff from mattering
		}
		r.endRun(t, key, failHard)
	}
	if n := r.admin.ZCard(t.Context(), entries).Val(); n != most {
		t.Errorf("the index has %d entries, want %d", n, most)
	}
	runs := listEnded(t, r, everywhere())
	if len(runs) != most {
		t.Errorf("%d runs are listed", len(runs))
	}
	for _, k := range []string{index, entries} {
		if ttl := r.admin.PTTL(t.Context(), k).Val(); ttl <= 0 || ttl > time.Hour {
			t.Errorf("%s expires in %v", k, ttl)
		}
	}
	old := float64(unixtime.MilliOf(time.Now().Add(-2 * time.Hour)))
	for _, e := range r.admin.ZRange(t.Context(), entries, 0, 99).Val() {
		r.admin.ZAddXX(t.Context(), entries, redisZ(old, e))
	}
	r.admin.ZAdd(t.Context(), index, redisZ(old, "a/gone"))
	r.endRun(t, key, failHard)
	if n := r.admin.ZCard(t.Context(), entries).Val(); n != most-99 {
		t.Errorf("after 100 entries have become too old, the index has %d", n)
	}
	if queues := r.admin.ZRange(t.Context(), index, 0, -1).Val(); !slices.Equal(queues, []string{"a/mail"}) {
		t.Errorf("queues %v", queues)
	}
}

func redisZ(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

func decodeToken(t *testing.T, token string) string {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func isInvalid(err error) bool {
	var invalid *job.InvalidError
	return errors.As(err, &invalid)
}
