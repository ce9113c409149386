package registry_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/ledger"
	"github.com/fermata-io/fermata/internal/engine/quota"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// countedQuota is a quota that counts the calls that change a count.
type countedQuota struct {
	*quota.Quota
	calls atomic.Int64
}

func (q *countedQuota) Reserve(ctx context.Context, namespace string, n, limit int) (int, error) {
	q.calls.Add(1)
	return q.Quota.Reserve(ctx, namespace, n, limit)
}

func (q *countedQuota) Return(ctx context.Context, namespace string, n int) {
	q.calls.Add(1)
	q.Quota.Return(ctx, namespace, n)
}

// limitedRig is a rig whose namespaces have a limit of bytes.
type limitedRig struct {
	*rig
	quota *countedQuota
	limit atomic.Int64
}

// withBytes limits the bytes of the namespaces of a rig. Its jobs keep revisions.
func withBytes(t *testing.T, r *rig, limit int, adjust ...func(*registry.Options)) *limitedRig {
	t.Helper()
	l := &limitedRig{}
	l.limit.Store(int64(limit))
	q, err := quota.New(quota.Options{
		Measure: quota.JobBytes, Store: r.store.Limits().ByteCounts(), Every: time.Nanosecond,
		Limit:   func(string) int { return int(l.limit.Load()) },
		Limited: func() bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	l.quota = &countedQuota{Quota: q}
	book := ledger.New(ledger.Options{Store: r.store, Observer: quiet{}, Nudger: quiet{}, Full: q.Full, Revisions: job.DefaultRevisions})
	t.Cleanup(book.Stop)
	l.rig = withRevisions(t, r, job.DefaultRevisions, append(adjust, func(o *registry.Options) { o.Ledger, o.ByteQuota = book, l.quota })...)
	l.rig.book = book
	return l
}

// claimed is how many bytes the calls so far have counted, and stored what a census counts.
func (l *limitedRig) claimed(t *testing.T) int {
	t.Helper()
	counts, _, err := l.store.Limits().ByteCounts().Counts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return counts["default"]
}

func (l *limitedRig) stored(t *testing.T) int {
	t.Helper()
	if _, err := l.store.Limits().ByteCounts().Census(t.Context(), 0, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if err := l.quota.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l.claimed(t)
}

// checkLimit fails if more is stored than the limit, or than was counted. Bookkeeping of edits, up to so many bytes, is
// counted by a census only.
func (l *limitedRig) checkLimit(t *testing.T, bookkeeping int) {
	t.Helper()
	claimed, limit := l.claimed(t), int(l.limit.Load())
	if stored := l.stored(t); stored > limit+bookkeeping || stored > claimed+bookkeeping {
		t.Errorf("%d bytes are stored, %d were counted, %d are allowed", stored, claimed, limit)
	}
}

func (l *limitedRig) resize(t *testing.T, id string, n int) error {
	t.Helper()
	_, err := l.Update(t.Context(), job.UpdateRequest{Key: job.Key{Namespace: "default", ID: id}, Merge: func(d job.Definition) (job.Definition, error) {
		d.Payload = bytes.Repeat([]byte("y"), n)
		return d, nil
	}})
	return err
}

// fill creates jobs with payloads of n bytes until no more fits, and returns their ids.
func (l *limitedRig) fill(t *testing.T, n int) (ids []string) {
	t.Helper()
	for {
		id := fmt.Sprintf("fill%03d", len(ids))
		_, err := l.Create(t.Context(), sized(id, n), "")
		switch {
		case overBytes(err):
			return ids
		case err != nil:
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
}

// TestLaterRequestsForAnIDAreCounted: the first valid request for an id is stored, and counted, however large those are
// that come before it.
func TestLaterRequestsForAnIDAreCounted(t *testing.T) {
	l := withBytes(t, newRig(t), 40_000)
	of := func(id string, n int, valid bool) job.CreateRequest {
		d := sized(id, n)
		if !valid {
			d.Handler = ""
		}
		return job.CreateRequest{Definition: d}
	}
	var requests []job.CreateRequest
	for k := range 40 {
		id := fmt.Sprint("job", k)
		requests = append(requests, of(id, 1, false), of(id, 10_000, true))
	}
	l.CreateBatch(t.Context(), requests)
	l.checkLimit(t, 0)
	if answers := l.CreateBatch(t.Context(), []job.CreateRequest{of("small", 5000, false), of("small", 1, true)}); answers[1].Err != nil {
		t.Fatal(answers[1].Err)
	}
	if claimed, stored := l.claimed(t), l.stored(t); claimed != stored {
		t.Errorf("%d bytes were counted, %d are stored", claimed, stored)
	}
}

// TestRevisionsAreCountedWithTheirEdit: the definition that an edit replaces is counted before it is stored as a
// revision. If it does not fit, the edit leaves none behind.
func TestRevisionsAreCountedWithTheirEdit(t *testing.T) {
	l := withBytes(t, newRig(t), 60_000)
	const bookkeeping = 50 // of each edit
	edits := 0
	for ; ; edits++ {
		id := fmt.Sprint("job", edits)
		_, err := l.Create(t.Context(), sized(id, 10_000), "")
		if overBytes(err) {
			break
		}
		if err == nil {
			err = l.resize(t, id, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if edits < 3 || edits > 6 {
		t.Errorf("%d jobs of 60,000 bytes with revisions of 10,000", edits)
	}
	l.checkLimit(t, edits*bookkeeping)
	ids := l.fill(t, 2000)
	for round := range 5 {
		for _, id := range ids {
			if err := l.resize(t, id, 2000-round); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.checkLimit(t, (edits+5*len(ids))*bookkeeping)
	list, err := l.Revisions(t.Context(), job.Key{Namespace: "default", ID: "job0"})
	if err != nil || len(list) != 2 {
		t.Errorf("%d definitions of a job with a revision, %v", len(list), err)
	}
	desired := []job.DesiredJob{}
	page, err := l.List(t.Context(), job.Filter{Namespace: "default", IDPrefix: "fill"}, 100, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range page.Records {
		desired = append(desired, job.DesiredJob{Definition: sized(record.Definition.ID, 1990), Etag: record.Definition.Etag()})
	}
	for _, a := range l.ApplyJobs(t.Context(), desired, false) {
		if a.Err != nil {
			t.Error(a.Err)
		}
	}
	l.checkLimit(t, (edits+6*len(ids))*bookkeeping)
}

// TestRenamesStayWithinTheLimit: a rename counts what it adds before it is stored, and leaves no revision behind that
// does not fit. The earlier ones stay.
func TestRenamesStayWithinTheLimit(t *testing.T) {
	l := withBytes(t, newRig(t), 60_000)
	if _, err := l.Create(t.Context(), sized("edited", 3000), ""); err != nil {
		t.Fatal(err)
	}
	if err := l.resize(t, "edited", 2999); err != nil {
		t.Fatal(err)
	}
	ids := append(l.fill(t, 3000), "edited")
	const renames, bookkeeping = 4, 50
	for round := range renames {
		for i, id := range ids {
			to := fmt.Sprintf("r%d-%02d", round, i)
			if _, err := l.Rename(t.Context(), job.RenameRequest{Key: job.Key{Namespace: "default", ID: id}, NewID: to}); err != nil {
				t.Fatal(err)
			}
			ids[i] = to
		}
	}
	l.checkLimit(t, renames*len(ids)*bookkeeping)
	list, err := l.Revisions(t.Context(), job.Key{Namespace: "default", ID: ids[len(ids)-1]})
	if err != nil || len(list) < 2 || len(list[len(list)-1].Payload) != 3000 {
		t.Errorf("%d definitions of a job with a revision, %v", len(list), err)
	}
}

// TestRenamesAreCounted: with room, a rename is counted as it is stored, with its revision and a longer id.
func TestRenamesAreCounted(t *testing.T) {
	l := withBytes(t, newRig(t), 1<<20)
	d := sized("short", 3000)
	if _, err := l.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		l.runOnce(t, l.book, d.Key, fmt.Sprint("bad", i), 1000, true)
	}
	l.stored(t) // runs are counted by a census
	if _, err := l.Rename(t.Context(), job.RenameRequest{Key: d.Key, NewID: "much-longer-than-before"}); err != nil {
		t.Fatal(err)
	}
	if claimed, stored := l.claimed(t), l.stored(t); claimed != stored || stored < 4*3000 {
		t.Errorf("%d bytes were counted, %d are stored", claimed, stored)
	}
}

// backupOf makes a backup of a job with dead letters and runs, some with payloads of their own, and deletes the job.
func backupOf(t *testing.T, r *rig, id string, payload, own int) job.Backup {
	t.Helper()
	d := sized(id, payload)
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		r.runOnce(t, r.book, d.Key, fmt.Sprint("bad", i), 10, true)
	}
	for i := range 2 {
		request := job.RunWithPayloadRequest{RequestID: fmt.Sprint("own", i), Payload: bytes.Repeat([]byte("o"), own)}
		if own == 0 {
			break
		}
		if _, err := r.RunJobWithPayload(t.Context(), d.Key, request); err != nil {
			t.Fatal(err)
		}
	}
	page, err := r.ExportJobs(t.Context(), job.Filter{Namespace: "default", IDPrefix: id}, 0, "")
	if err != nil || len(page.Backups) != 1 || len(page.Backups[0].Checkpoint.DeadLetters) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	if err := r.Delete(t.Context(), d.Key, ""); err != nil {
		t.Fatal(err)
	}
	return page.Backups[0]
}

// TestRestoredDeadLettersAreCounted: each dead letter has a copy of the definition.
func TestRestoredDeadLettersAreCounted(t *testing.T) { testRestoresAreCounted(t, 5000, 0) }

// TestRestoredRunPayloadsAreCounted: payloads that runs have of their own are counted when they are restored.
func TestRestoredRunPayloadsAreCounted(t *testing.T) { testRestoresAreCounted(t, 10, 5000) }

// testRestoresAreCounted restores a job that is new, and jobs in place of those that exist, until no more fits.
func testRestoresAreCounted(t *testing.T, payload, own int) {
	plain := newRig(t)
	backup := backupOf(t, plain, "full", payload, own)
	l := withBytes(t, plain, 1<<20)
	l.stored(t)
	if a := l.Restore(t.Context(), []job.Backup{backup}, job.ExistingFail)[0]; a.Err != nil || a.Outcome != job.RestoreCreated {
		t.Fatalf("%+v", a)
	}
	claimed, stored := l.claimed(t), l.stored(t)
	if claimed != stored || stored < 10_000 {
		t.Errorf("%d bytes of a new job were counted, %d are stored", claimed, stored)
	}
	const jobs = 10
	var backups []job.Backup
	for i := range jobs {
		id := fmt.Sprint("replaced", i)
		d := sized(id, payload)
		if _, err := l.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
		b := backup
		b.Definition.ID = id
		backups = append(backups, b)
	}
	l.limit.Store(int64(l.stored(t) + 3*10_000))
	replaced, refused := 0, 0
	for _, a := range l.Restore(t.Context(), backups, job.ExistingReplace) {
		switch {
		case overBytes(a.Err):
			refused++
		case a.Err == nil && a.Outcome == job.RestoreReplaced:
			replaced++
		default:
			t.Errorf("%+v", a)
		}
	}
	if replaced == 0 || refused == 0 || replaced+refused != jobs {
		t.Errorf("%d jobs were replaced, %d refused", replaced, refused)
	}
	l.checkLimit(t, 0)
}

// TestRestoresLeaveNoRevisionBeyondTheLimit: a restored job is stored in place of another one without a revision that
// does not fit.
func TestRestoresLeaveNoRevisionBeyondTheLimit(t *testing.T) {
	l := withBytes(t, newRig(t), 1<<20)
	if _, err := l.Create(t.Context(), sized("replaced", 5000), ""); err != nil {
		t.Fatal(err)
	}
	page, err := l.ExportJobs(t.Context(), job.Filter{Namespace: "default"}, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	backup := page.Backups[0]
	l.limit.Store(int64(l.stored(t)) + 6000)
	for i, want := range []int{2, 2, 2} { // the first revision fits
		backup.Definition.Payload = bytes.Repeat([]byte{byte('a' + i)}, 5000)
		if a := l.Restore(t.Context(), []job.Backup{backup}, job.ExistingReplace)[0]; a.Err != nil || a.Outcome != job.RestoreReplaced {
			t.Fatalf("%+v", a)
		}
		list, err := l.Revisions(t.Context(), backup.Definition.Key)
		if err != nil || len(list) != want {
			t.Errorf("restoration %d: %d definitions, %v", i, len(list), err)
		}
		l.checkLimit(t, 100)
	}
}

// TestRunPayloadsAreCounted with the record of their run.
func TestRunPayloadsAreCounted(t *testing.T) {
	l := withBytes(t, newRig(t), 1<<20)
	key := put(t, l.rig, "digest", "job's")
	before := l.stored(t)
	if _, err := l.RunJobWithPayload(t.Context(), key, withPayload("a", strings.Repeat("o", 5000))); err != nil {
		t.Fatal(err)
	}
	if claimed, stored := l.claimed(t), l.stored(t); claimed != stored || stored < before+5000 {
		t.Errorf("%d bytes were counted, %d are stored, %d before", claimed, stored, before)
	}
}

// TestCancelledRunsAreCounted: the run of a call that ends while it is written is stored, and counted.
func TestCancelledRunsAreCounted(t *testing.T) {
	var cancel context.CancelFunc
	l := withBytes(t, newRig(t), 60_000, func(o *registry.Options) {
		o.BeginWrite = func(context.Context) bool {
			cancel()
			return true
		}
	})
	cancel = func() {}
	key := put(t, l.rig, "digest", "job's")
	l.stored(t)
	refused := 0
	for i := range 6 {
		var ctx context.Context
		ctx, cancel = context.WithCancel(t.Context())
		q := withPayload(fmt.Sprint("run", i), strings.Repeat("o", 20_000))
		_, err := l.RunJobWithPayload(ctx, key, q)
		cancel()
		if overBytes(err) {
			refused++
			continue
		}
		redistest.Eventually(t, time.Minute, "the run is stored", func() bool {
			record, err := l.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			_, _, known := record.State.RequestedRun(q.RequestID)
			return known
		})
	}
	if refused == 0 {
		t.Error("no run was refused")
	}
	l.checkLimit(t, 200)
}

// TestRefusedWritesKeepNothing: what a write was granted that does not fit is left to others at once.
func TestRefusedWritesKeepNothing(t *testing.T) {
	l := withBytes(t, newRig(t), 60_000)
	key := put(t, l.rig, "digest", strings.Repeat("j", 30_000))
	large := strings.Repeat("o", 40_000)
	backup := backupOf(t, l.rig, "back", 10, 0)
	backup.Definition.Payload = []byte(large)
	stored := l.stored(t)
	writes := map[string]func() error{
		"run": func() error {
			_, err := l.RunJobWithPayload(t.Context(), key, withPayload("r", large))
			return err
		},
		"creation": func() error {
			_, err := l.Create(t.Context(), sized("large", len(large)), "")
			return err
		},
		"edit": func() error { return l.resize(t, "digest", 100_000) },
		"restore": func() error {
			return l.Restore(t.Context(), []job.Backup{backup}, job.ExistingFail)[0].Err
		},
		"apply": func() error {
			record, err := l.Get(t.Context(), key)
			if err != nil {
				return err
			}
			d := *record.Definition
			d.Payload = make([]byte, 100_000)
			return l.ApplyJobs(t.Context(), []job.DesiredJob{{Definition: d, Etag: record.Definition.Etag()}}, false)[0].Err
		},
	}
	for name, write := range writes {
		if err := write(); !overBytes(err) {
			t.Errorf("%s: %v; want it to be refused", name, err)
		}
		if claimed := l.claimed(t); claimed != stored {
			t.Errorf("%s: %d bytes are counted after it was refused, %d are stored", name, claimed, stored)
		}
	}
	if _, err := l.Create(t.Context(), sized("small", 100), ""); err != nil {
		t.Errorf("a small job: %v", err)
	}
}

// meddlingStore is a store where others change something before a job is created.
type meddlingStore struct {
	*redisstore.Store
	meddle func()
}

func (s *meddlingStore) Create(ctx context.Context, batches []job.CreateBatch) []job.CreateReply {
	if s.meddle != nil {
		s.meddle()
	}
	return s.Store.Create(ctx, batches)
}

// TestJobsDeletedWhileTheyAreRegisteredCount: a job that exists takes nothing when it is registered again, but if it
// was deleted meanwhile it is created, and counted.
func TestJobsDeletedWhileTheyAreRegisteredCount(t *testing.T) {
	const limit = 3
	rig := newRig(t)
	var now atomic.Int64
	now.Store(limit)
	plain, q := withQuota(t, rig, &now)
	store := &meddlingStore{Store: rig.store}
	r, err := registry.NewUnhurried(registry.Options{Store: store, SharedLimits: rig.store.Limits(), Ledger: rig.book, Quota: q})
	if err != nil {
		t.Fatal(err)
	}
	for i := range limit {
		if _, err := r.Create(t.Context(), jobOf(fmt.Sprint(i)), ""); err != nil {
			t.Fatal(err)
		}
	}
	store.meddle = func() {
		if err := plain.Delete(t.Context(), jobOf("0").Key, ""); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Create(t.Context(), jobOf("0"), ""); err != nil {
		t.Fatal(err)
	}
	counts, _, err := rig.store.Limits().JobCounts().Counts(t.Context())
	if err != nil || counts["default"] != limit {
		t.Errorf("%v jobs of %d are counted, %v", counts, limit, err)
	}
}

// TestAppliedDeletionsReturnWhatWasDeleted: a restore sets the etag of a job, so that a job that is deleted and restored
// with less while it is about to be deleted has the etag that was asked for.
func TestAppliedDeletionsReturnWhatWasDeleted(t *testing.T) {
	meddle := func() {}
	l := withBytes(t, newRig(t), 100_000, func(o *registry.Options) {
		o.BeginWrite = func(context.Context) bool {
			now := meddle
			meddle = func() {}
			now()
			return true
		}
	})
	big := job.Key{Namespace: "default", ID: "big"}
	for _, id := range []string{"big", "other"} {
		if _, err := l.Create(t.Context(), sized(id, 40_000), ""); err != nil {
			t.Fatal(err)
		}
	}
	page, err := l.ExportJobs(t.Context(), job.Filter{Namespace: "default", IDPrefix: "big"}, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	backup := page.Backups[0]
	etag := backup.Definition.Etag()
	backup.Definition.Payload = []byte("x")
	meddle = func() {
		if err := l.Delete(t.Context(), big, ""); err != nil {
			t.Error(err)
		}
		if a := l.Restore(t.Context(), []job.Backup{backup}, job.ExistingFail)[0]; a.Err != nil {
			t.Error(a.Err)
		}
	}
	// The creation comes first, and others meddle when it begins.
	for _, a := range l.ApplyJobs(t.Context(), []job.DesiredJob{
		{Definition: sized("new", 10)}, {Definition: job.Definition{Key: big}, Etag: etag, Delete: true},
	}, false) {
		if a.Err != nil {
			t.Error(a.Err)
		}
	}
	if _, err := l.Get(t.Context(), big); err == nil {
		t.Error("the job is not deleted")
	}
	if claimed, stored := l.claimed(t), l.stored(t); claimed != stored {
		t.Errorf("%d bytes are counted, %d are stored", claimed, stored)
	}
}

// TestClaimsTakeOneRoundTrip: what is claimed is what is stored, sealed or not, so that nothing is left to be
// corrected.
func TestClaimsTakeOneRoundTrip(t *testing.T) {
	s := newSealing(t)
	for name, seal := range map[string]func(*registry.Options){
		"plain":  func(*registry.Options) {},
		"sealed": func(o *registry.Options) { o.Sealer = s.ring },
	} {
		t.Run(name, func(t *testing.T) { testRoundTripsOfClaims(t, withBytes(t, newRig(t), 1<<20, seal)) })
	}
}

func testRoundTripsOfClaims(t *testing.T, l *limitedRig) {
	calls := func(what string, want int64, do func() error) {
		t.Helper()
		before := l.quota.calls.Load()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if n := l.quota.calls.Load() - before; n != want {
			t.Errorf("%s: %d calls, want %d", what, n, want)
		}
	}
	calls("a job", 1, func() error { _, err := l.Create(t.Context(), sized("a", 100), "request"); return err })
	calls("a batch", 1, func() error {
		var requests []job.CreateRequest
		for i := range 200 {
			requests = append(requests, job.CreateRequest{Definition: sized(fmt.Sprint("batch", i), 100)})
		}
		return l.CreateBatch(t.Context(), requests)[0].Err
	})
	calls("growth", 1, func() error { return l.resize(t, "a", 500) })
	calls("shrinking", 1, func() error { return l.resize(t, "a", 50) })
	l.limit.Store(1000) // all are beyond it
	l.stored(t)
	calls("the same size without a revision", 0, func() error { return l.resize(t, "a", 50) })
	calls("shrinking without a revision", 1, func() error { return l.resize(t, "a", 5) })
}
