package registry_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/quota"
	"github.com/fermata-io/fermata/internal/redistest"
	"github.com/fermata-io/fermata/internal/registry"
)

// withQuota is the rig's registry under a limit that may change.
func withQuota(t *testing.T, r *rig, limit *atomic.Int64) (*registry.Registry, *quota.Quota) {
	t.Helper()
	q, err := quota.New(quota.Options{
		Store: r.store, Every: time.Nanosecond,
		Limit: func(namespace string) int {
			if namespace == "free" {
				return 0
			}
			return int(limit.Load())
		},
		Limited: func() bool { return limit.Load() > 0 },
	})
	if err != nil {
		t.Fatal(err)
	}
	limited, err := registry.New(registry.Options{Store: r.store, Ledger: r.book, Quota: q, ScanTime: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return limited, q
}

// TestNamespaceHasSoManyJobs: nodes that register at once reach the limit and do not pass
// it. At it, what exists may be registered again, edited and restored; what is deleted,
// by whomever, makes room.
func TestNamespaceHasSoManyJobs(t *testing.T) {
	const limit = 50
	var now atomic.Int64
	now.Store(limit)
	first, second := newRigs(t)
	a, count := withQuota(t, first, &now)
	b, _ := withQuota(t, second, &now)
	ctx := t.Context()
	var created, refused atomic.Int64
	var wg sync.WaitGroup
	for i, r := range []*registry.Registry{a, b, a, b} {
		wg.Go(func() {
			for batch := range 3 {
				var requests []job.CreateRequest
				for k := range 10 {
					requests = append(requests, job.CreateRequest{Definition: jobOf(fmt.Sprintf("job-%d-%d-%d", i, batch, k))})
				}
				for _, answer := range r.CreateBatch(ctx, requests) {
					var full *job.QuotaError
					switch {
					case answer.Err == nil:
						created.Add(1)
					case errors.As(answer.Err, &full) && full.Limit == limit && full.Namespace == "default":
						refused.Add(1)
					default:
						t.Error(answer.Err)
					}
				}
			}
		})
	}
	wg.Wait()
	page, err := a.List(ctx, job.Filter{Namespace: "default"}, 1000, "")
	if err != nil || created.Load() != limit || refused.Load() != 120-limit || len(page.Records) != limit {
		t.Fatalf("%d are created, %d refused, %d there (%v)", created.Load(), refused.Load(), len(page.Records), err)
	}
	there := page.Records[0].Definition
	full := func(err error) bool {
		var e *job.QuotaError
		return errors.As(err, &e)
	}
	if _, err := b.Create(ctx, jobOf("late"), ""); !full(err) {
		t.Errorf("one more: %v", err)
	}
	if _, err := b.Create(ctx, jobOf(there.ID), ""); err != nil {
		t.Errorf("what exists, again: %v", err)
	}
	other := jobOf("other")
	other.Namespace = "free"
	if _, err := b.Create(ctx, other, ""); err != nil {
		t.Errorf("a namespace without a limit: %v", err)
	}
	backup := job.Backup{Definition: jobOf(there.ID)}
	if answers := b.Restore(ctx, []job.Backup{backup, {Definition: jobOf("late")}}, job.ExistingSkip); answers[0].Err != nil || !full(answers[1].Err) {
		t.Errorf("restoring what exists and what does not: %+v", answers)
	}
	mixed := b.CreateBatch(ctx, []job.CreateRequest{{Definition: jobOf("late")}, {Definition: jobOf(there.ID)}, {Definition: other}})
	if !full(mixed[0].Err) || mixed[1].Err != nil || mixed[2].Err != nil {
		t.Errorf("a batch of all kinds: %+v", mixed)
	}
	if err := a.Delete(ctx, there.Key, ""); err != nil {
		t.Fatal(err)
	}
	bad := jobOf("bad")
	bad.Handler = ""
	if _, err := b.Create(ctx, bad, ""); err == nil || full(err) {
		t.Errorf("a faulty one: %v", err)
	}
	if _, err := b.Create(ctx, jobOf("late"), ""); err != nil {
		t.Errorf("one in the place of a deleted one, after one that was not created: %v", err)
	}
	gone := page.Records[2].Definition
	wish := job.Wish{Definition: job.Definition{Key: gone.Key}, Delete: true, Etag: gone.Etag()}
	if answers := b.Apply(ctx, []job.Wish{wish}, false); answers[0].Err != nil || answers[0].Action != job.WishDelete {
		t.Fatalf("%+v", answers)
	}
	if _, err := a.Create(ctx, jobOf("wished"), ""); err != nil {
		t.Errorf("one in the place of one that was wished away: %v", err)
	}
	// What was deleted where nothing is counted is found by a census.
	if err := first.Delete(ctx, page.Records[1].Definition.Key, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Create(ctx, jobOf("later"), ""); !full(err) {
		t.Errorf("before a census: %v", err)
	}
	if err := count.Look(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Create(ctx, jobOf("later"), ""); err != nil {
		t.Errorf("after it: %v", err)
	}
	now.Store(limit - 10) // those that are there stay
	if _, err := a.Create(ctx, jobOf("last"), ""); !full(err) {
		t.Errorf("under a lower limit: %v", err)
	}
	if err := count.Look(ctx); err != nil {
		t.Fatal(err)
	}
	now.Store(0)
	if _, err := a.Create(ctx, jobOf("last"), ""); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}

// TestQuotaOfALostNode: what a node took and did not write, because Redis went away,
// counts until a census and no longer.
func TestQuotaOfALostNode(t *testing.T) {
	var limit atomic.Int64
	limit.Store(3)
	server := redistest.Start(t, redistest.WithAOF("always"))
	r := rigOn(t, server)
	limited, q := withQuota(t, r, &limit)
	if _, err := q.Take(t.Context(), "default", 3, 3); err != nil { // and dies
		t.Fatal(err)
	}
	if _, err := limited.Create(t.Context(), jobOf("a"), ""); err == nil {
		t.Fatal("the places are taken")
	}
	server.Kill()
	if _, err := limited.Create(t.Context(), jobOf("a"), ""); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("while nobody can be asked: %v", err)
	}
	server.Restart()
	redistest.Eventually(t, time.Minute, "a census", q.Look)
	for _, id := range []string{"a", "b", "c"} {
		if _, err := limited.Create(t.Context(), jobOf(id), ""); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	var full *job.QuotaError
	if _, err := limited.Create(t.Context(), jobOf("d"), ""); !errors.As(err, &full) {
		t.Errorf("the fourth: %v", err)
	}
}
