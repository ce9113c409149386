package registry_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/quota"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// withQuota is the rig's registry under a limit that may change.
func withQuota(t *testing.T, r *rig, limit *atomic.Int64) (*registry.Registry, *quota.Quota) {
	t.Helper()
	q, err := quota.New(quota.Options{
		Store: r.store.Limits().JobCounts(), Every: time.Nanosecond,
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
	limited, err := registry.NewUnhurried(registry.Options{Store: r.store, SharedLimits: r.store.Limits(), Ledger: r.book, Quota: q})
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
	desiredJob := job.DesiredJob{Definition: job.Definition{Key: gone.Key}, Delete: true, Etag: gone.Etag()}
	if answers := b.ApplyJobs(ctx, []job.DesiredJob{desiredJob}, false); answers[0].Err != nil || answers[0].Action != job.ApplyDelete {
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
	if err := count.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Create(ctx, jobOf("later"), ""); err != nil {
		t.Errorf("after it: %v", err)
	}
	now.Store(limit - 10) // those that are there stay
	if _, err := a.Create(ctx, jobOf("last"), ""); !full(err) {
		t.Errorf("under a lower limit: %v", err)
	}
	if err := count.Refresh(ctx); err != nil {
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
	if _, err := q.Reserve(t.Context(), "default", 3, 3); err != nil { // and dies
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
	redistest.Eventually(t, redistest.Patience, "a census", q.Refresh)
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

// bytesOf is how many bytes the jobs of a namespace take, as they are listed.
func bytesOf(t *testing.T, r *rig, namespace string) (sum int) {
	t.Helper()
	page, err := r.List(t.Context(), job.Filter{Namespace: namespace}, 1000, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range page.Records {
		sum += r.store.DefinitionBytes(record.Definition)
	}
	return sum
}

// withByteQuota is the rig's registry under a limit of bytes that may change.
func withByteQuota(t *testing.T, r *rig, limit *atomic.Int64) (*registry.Registry, *quota.Quota) {
	t.Helper()
	q, err := quota.New(quota.Options{
		Measure: quota.JobBytes, Store: r.store.Limits().ByteCounts(), Every: time.Nanosecond,
		Limit:   func(string) int { return int(limit.Load()) },
		Limited: func() bool { return limit.Load() > 0 },
	})
	if err != nil {
		t.Fatal(err)
	}
	limited, err := registry.NewUnhurried(registry.Options{Store: r.store, SharedLimits: r.store.Limits(), Ledger: r.book, ByteQuota: q})
	if err != nil {
		t.Fatal(err)
	}
	return limited, q
}

// sized is a job with a payload of n bytes.
func sized(id string, n int) job.Definition {
	d := jobOf(id)
	d.Payload = bytes.Repeat([]byte("x"), n)
	return d
}

func overBytes(err error) bool {
	var e *job.QuotaError
	return errors.As(err, &e) && e.Bytes
}

// TestNamespaceHasSoManyBytes: nodes that register at once do not pass the limit. At it, what
// exists may be registered again, and made smaller; growth by an update, a desired job or a backup is
// refused; what is deleted or made smaller makes room.
func TestNamespaceHasSoManyBytes(t *testing.T) {
	const limit = 40_000
	var now atomic.Int64
	now.Store(limit)
	first, second := newRigs(t)
	a, count := withByteQuota(t, first, &now)
	b, _ := withByteQuota(t, second, &now)
	ctx := t.Context()
	var created, refused atomic.Int64
	var wg sync.WaitGroup
	for i, r := range []*registry.Registry{a, b, a, b} {
		wg.Go(func() {
			var requests []job.CreateRequest
			for k := range 20 {
				requests = append(requests, job.CreateRequest{Definition: sized(fmt.Sprintf("job-%d-%d", i, k), 1000)})
			}
			for _, answer := range r.CreateBatch(ctx, requests) {
				switch {
				case answer.Err == nil:
					created.Add(1)
				case overBytes(answer.Err):
					refused.Add(1)
				default:
					t.Error(answer.Err)
				}
			}
		})
	}
	wg.Wait()
	for k := 0; ; k++ { // what the calls held of one another at once
		if _, err := b.Create(ctx, sized(fmt.Sprint("rest", k), 1000), ""); overBytes(err) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	used := bytesOf(t, first, "default")
	if created.Load()+refused.Load() != 80 || refused.Load() == 0 || used > limit || used < limit-1200 {
		t.Fatalf("%d created, %d refused, %d bytes of %d", created.Load(), refused.Load(), used, limit)
	}
	page, err := a.List(ctx, job.Filter{Namespace: "default"}, 1000, "")
	if err != nil {
		t.Fatal(err)
	}
	there := page.Records[0].Definition
	if _, err := b.Create(ctx, sized(there.ID, 1000), ""); err != nil {
		t.Errorf("what exists, again: %v", err)
	}
	resize := func(id string, n int) error {
		_, err := b.Update(ctx, job.UpdateRequest{Key: job.Key{Namespace: "default", ID: id}, Merge: func(d job.Definition) (job.Definition, error) {
			d.Payload = bytes.Repeat([]byte("y"), n)
			return d, nil
		}})
		return err
	}
	if err := resize(there.ID, 5000); !overBytes(err) {
		t.Errorf("an update that grows: %v", err)
	}
	if err := resize(there.ID, 1000); err != nil {
		t.Errorf("an update of the same size: %v", err)
	}
	other := page.Records[1].Definition
	desiredJob := job.DesiredJob{Definition: sized(other.ID, 5000), Etag: other.Etag()}
	if answers := a.ApplyJobs(ctx, []job.DesiredJob{desiredJob}, false); !overBytes(answers[0].Err) {
		t.Errorf("a desired job that grows: %+v", answers[0].Err)
	}
	backups := []job.Backup{{Definition: sized(other.ID, 5000)}, {Definition: sized("late", 1300)}}
	for i, answer := range a.Restore(ctx, backups, job.ExistingReplace) {
		if !overBytes(answer.Err) {
			t.Errorf("backup %d: %+v", i, answer)
		}
	}
	if got := bytesOf(t, first, "default"); got > limit+100 {
		t.Errorf("%d bytes after what was refused", got)
	}
	if err := resize(there.ID, 10); err != nil {
		t.Errorf("an update that shrinks: %v", err)
	}
	if err := a.Delete(ctx, other.Key, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Create(ctx, sized("in-its-place", 1500), ""); err != nil {
		t.Errorf("in the place of what was deleted and made smaller: %v", err)
	}
	if err := count.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	counts, _, err := first.store.Limits().ByteCounts().Counts(ctx)
	if want := bytesOf(t, first, "default"); err != nil || counts["default"] != want {
		t.Errorf("a census counts %v, want %d (%v)", counts, want, err)
	}
}

// TestBytesOfALostNode: what a node took and did not write counts until a census.
func TestBytesOfALostNode(t *testing.T) {
	var limit atomic.Int64
	limit.Store(3000)
	first, _ := newRigs(t)
	r, q := withByteQuota(t, first, &limit)
	if _, err := q.Reserve(t.Context(), "default", 2500, 3000); err != nil { // and dies
		t.Fatal(err)
	}
	if _, err := r.Create(t.Context(), sized("a", 1500), ""); !overBytes(err) {
		t.Fatalf("the bytes are taken: %v", err)
	}
	if err := q.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(t.Context(), sized("a", 1500), ""); err != nil {
		t.Errorf("after a census: %v", err)
	}
}

// TestEditsGiveNoBytesBack that were not taken: jobs that are created, changed by requests with ids, and
// deleted leave the count as it was, and so do those that are restored from a backup.
func TestEditsGiveNoBytesBack(t *testing.T) {
	var limit atomic.Int64
	limit.Store(1 << 20)
	rig, _ := newRigs(t)
	r, _ := withByteQuota(t, rig, &limit)
	ctx := t.Context()
	count := func() int {
		t.Helper()
		counts, _, err := rig.store.Limits().ByteCounts().Counts(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return counts["default"]
	}
	if _, err := r.Create(ctx, sized("stays", 5000), ""); err != nil {
		t.Fatal(err)
	}
	before := count()
	for cycle := range 4 {
		d := sized(fmt.Sprint("edited", cycle), 100)
		if _, err := r.Create(ctx, d, strings.Repeat("c", 64)); err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			_, err := r.Update(ctx, job.UpdateRequest{
				Key: d.Key, RequestID: fmt.Sprintf("%064d", i), KeepsPayload: true,
				Merge: func(d job.Definition) (job.Definition, error) {
					d.Priority = uint8(1 + i%2)
					return d, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		page, err := r.ExportJobs(ctx, job.Filter{Namespace: "default", IDPrefix: "edited"}, 0, "")
		if err != nil || len(page.Backups) != 1 {
			t.Fatal(page, err)
		}
		plain := &page.Backups[0].Definition // as callers send it
		plain.CreateRequestID, plain.UpdateRequestIDs, plain.CreatedMS = "", nil, 0
		if err := r.Delete(ctx, d.Key, ""); err != nil {
			t.Fatal(err)
		}
		if now := count(); now != before {
			t.Fatalf("%d bytes after cycle %d, %d before", now, cycle, before)
		}
		if answer := r.Restore(ctx, page.Backups, job.ExistingFail)[0]; answer.Err != nil {
			t.Fatal(answer.Err)
		}
		if err := r.Delete(ctx, d.Key, ""); err != nil {
			t.Fatal(err)
		}
		if now := count(); now != before {
			t.Fatalf("%d bytes after the restore of cycle %d, %d before", now, cycle, before)
		}
	}
}
