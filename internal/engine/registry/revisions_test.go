package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/engine/ledger"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// callerOf is the key of the caller in a context.
type callerOf struct{}

// withRevisions is a registry on the Redis of a rig whose jobs keep revisions, for callers that may reach the given
// queues.
func withRevisions(t testing.TB, r *rig, kept int, adjust ...func(*registry.Options)) *rig {
	t.Helper()
	book := ledger.New(ledger.Options{Store: r.store, Observer: quiet{}, Nudger: quiet{}, Revisions: kept})
	t.Cleanup(book.Stop)
	o := registry.Options{
		Store: r.store, SharedLimits: r.store.Limits(), Ledger: book, Revisions: kept,
		Edit: func(ctx context.Context) job.Edit {
			name, _ := ctx.Value(callerOf{}).(string)
			return job.Edit{Identity: name, Method: "UpdateJob"}
		},
	}
	for _, f := range adjust {
		f(&o)
	}
	reg, err := registry.NewUnhurried(o)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{Registry: reg, store: r.store, book: book, redis: r.redis, admin: r.admin}
}

// edit changes a job as a caller.
func (r *rig) edit(t *testing.T, key job.Key, caller string, change func(*job.Definition)) job.Record {
	t.Helper()
	record, err := r.Update(context.WithValue(t.Context(), callerOf{}, caller), job.UpdateRequest{Key: key,
		Merge: func(d job.Definition) (job.Definition, error) { change(&d); return d, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func TestRevisionsOfAJob(t *testing.T) {
	r := withRevisions(t, newRig(t), 3)
	d := jobOf("ping")
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	key := d.Key
	for i, name := range []string{"ann", "bob", "cleo", "dan"} {
		r.edit(t, key, name, func(d *job.Definition) { d.Timeout = time.Duration(i+1) * time.Minute })
	}
	list, err := r.Revisions(t.Context(), key)
	if err != nil || len(list) != 4 {
		t.Fatalf("%d revisions: %v", len(list), err)
	}
	for i, name := range []string{"dan", "cleo", "bob", "ann"} {
		v := list[i]
		if v.Revision != uint32(5-i) || v.LastEdit != (job.Edit{Identity: name, Method: "UpdateJob"}) || v.Timeout != time.Duration(4-i)*time.Minute ||
			(v.Before == nil) != (i == 3) || v.Before != nil && v.Before.Timeout != v.Timeout-time.Minute {
			t.Errorf("revision %d: %+v", v.Revision, v)
		}
	}
	for _, c := range []struct{ from, to, wantFrom, wantTo uint32 }{{0, 0, 4, 5}, {2, 4, 2, 4}, {4, 2, 4, 2}, {0, 3, 2, 3}, {5, 5, 5, 5}} {
		diff, err := r.DiffRevisions(t.Context(), key, c.from, c.to)
		if err != nil || diff.From.Revision != c.wantFrom || diff.To.Revision != c.wantTo || diff.ToIsCurrent != (c.wantTo == 5) {
			t.Errorf("%d to %d: %+v, %v", c.from, c.to, diff, err)
		}
	}
	var missing *job.MissingPartError
	for _, c := range [][2]uint32{{1, 5}, {2, 9}, {0, 2}} {
		if _, err := r.DiffRevisions(t.Context(), key, c[0], c[1]); !errors.As(err, &missing) {
			t.Errorf("%v: %v", c, err)
		}
	}
	if _, err := r.Revisions(t.Context(), job.Key{Namespace: "other", ID: "ping"}); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("a job of another namespace: %v", err)
	}
}

func TestRestoreRevision(t *testing.T) {
	r := withRevisions(t, newRig(t), job.DefaultRevisions)
	d := jobOf("report")
	d.Schedule = schedule.Spec{Kind: schedule.KindCalendar, TimeZone: "Europe/Berlin",
		Calendar: schedule.Calendar{Every: 2, Unit: schedule.CalendarWeek, Times: []string{"09:00"}}}
	created, err := r.Create(t.Context(), d, "")
	if err != nil {
		t.Fatal(err)
	}
	key, firstDay := d.Key, created.Definition.FirstDay()
	edited := r.edit(t, key, "ann", func(d *job.Definition) {
		d.Schedule, d.Handler, d.Payload = schedule.Spec{Kind: schedule.KindInterval, Every: time.Hour}, "exec", []byte(`["true"]`)
	})
	ctx := context.WithValue(t.Context(), callerOf{}, "bob")
	var etag *job.EtagError
	if _, err := r.RestoreRevision(ctx, key, 1, created.Definition.Etag(), ""); !errors.As(err, &etag) {
		t.Errorf("with an old etag: %v", err)
	}
	var missing *job.MissingPartError
	if _, err := r.RestoreRevision(ctx, key, 7, "", ""); !errors.As(err, &missing) || missing.Collection != "revisions" || missing.ID != "7" {
		t.Errorf("an unknown revision: %v", err)
	}
	for range 2 { // the second one is a repetition
		back, err := r.RestoreRevision(ctx, key, 1, edited.Definition.Etag(), "back")
		if err != nil {
			t.Fatal(err)
		}
		got := back.Definition
		if got.Revision != 3 || got.Handler != "http" || string(got.Payload) != "{}" || got.Schedule.Calendar.From != firstDay ||
			got.Generation != 3 || got.CreatedMS != created.Definition.CreatedMS || got.LastEdit.Identity != "bob" ||
			got.CreateRequestID != created.Definition.CreateRequestID {
			t.Errorf("restored %+v", got)
		}
	}
	list, err := r.Revisions(t.Context(), key)
	if err != nil || len(list) != 3 || list[1].Handler != "exec" {
		t.Errorf("%d revisions: %v", len(list), err)
	}
}

// TestRevisionsOfOtherQueues: who may reach some queues sees no definition that the job had in another one, and
// restores none.
func TestRevisionsOfOtherQueues(t *testing.T) {
	all := withRevisions(t, newRig(t), job.DefaultRevisions)
	d := jobOf("moved")
	d.Queue = "web"
	if _, err := all.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	all.edit(t, d.Key, "", func(d *job.Definition) { d.Queue = "mail" })
	all.edit(t, d.Key, "", func(d *job.Definition) { d.Handler = "exec" })
	some := withRevisions(t, all, job.DefaultRevisions, func(o *registry.Options) {
		o.Queues = func(context.Context) job.QueueScope { return func(q job.QueueKey) bool { return q.Queue == "mail" } }
	})
	list, err := some.Revisions(t.Context(), d.Key)
	if err != nil || len(list) != 2 || list[1].Revision != 2 || list[1].Before != nil {
		t.Errorf("%+v, %v", list, err)
	}
	var missing *job.MissingPartError
	if _, err := some.RestoreRevision(t.Context(), d.Key, 1, "", ""); !errors.As(err, &missing) {
		t.Errorf("restored: %v", err)
	}
	if _, err := some.DiffRevisions(t.Context(), d.Key, 1, 3); !errors.As(err, &missing) {
		t.Errorf("compared: %v", err)
	}
	if _, err := some.RestoreRevision(t.Context(), d.Key, 2, "", ""); err != nil {
		t.Error(err)
	}
}

// TestSealedRevisions: a restored payload is the stored one to the byte, payloads that are sealed twice are compared
// as they open, and sealing leaves no copy that is not sealed.
func TestSealedRevisions(t *testing.T) {
	s := newSealing(t)
	seal := func(o *registry.Options) { o.Sealer = s.ring }
	r := withRevisions(t, s.plain, job.DefaultRevisions, seal)
	key := put(t, r, "sealed", "secret")
	first := s.stored(t, key)
	r.edit(t, key, "", func(d *job.Definition) { d.Handler, d.Payload, d.PayloadKey = "exec", []byte("another"), "" })
	if _, err := r.RestoreRevision(t.Context(), key, 1, "", ""); err != nil {
		t.Fatal(err)
	}
	if got := s.stored(t, key); string(got.Payload) != string(first.Payload) || got.PayloadKey != first.PayloadKey {
		t.Errorf("payload %q, was %q", got.Payload, first.Payload)
	}
	r.edit(t, key, "", func(d *job.Definition) {
		d.Labels = map[string]string{"owner": "y"}
		d.Payload, d.PayloadKey = []byte("secret"), ""
	})
	list, err := r.Revisions(t.Context(), key)
	if err != nil || len(list) != 4 {
		t.Fatalf("%d revisions: %v", len(list), err)
	}
	if v := list[0]; string(v.Before.Payload) != string(v.Payload) || list[2].Before == nil || string(list[2].Before.Payload) == string(list[2].Payload) {
		t.Error("payloads are not compared as they open")
	}
	without := withRevisions(t, s.plain, job.DefaultRevisions)
	var unfit *job.PreconditionError
	if _, err := without.RestoreRevision(t.Context(), key, 1, "", ""); !errors.As(err, &unfit) || unfit.Reason != job.ReasonPayloadUnreadable {
		t.Errorf("without keys: %v", err)
	}

	plain := put(t, without, "plain", "open")
	without.edit(t, plain, "", func(d *job.Definition) { d.Timeout = time.Minute })
	if list, err := without.Revisions(t.Context(), plain); err != nil || len(list) != 2 {
		t.Fatalf("%d revisions: %v", len(list), err)
	}
	r.edit(t, plain, "", func(d *job.Definition) { d.Timeout = time.Hour })
	if list, err := r.Revisions(t.Context(), plain); err != nil || len(list) != 1 {
		t.Errorf("%d revisions of a job that was sealed: %v", len(list), err)
	}
	version1 := put(t, s.first, "rotated", "old")
	without.edit(t, version1, "", func(d *job.Definition) { d.Timeout = time.Minute })
	if list, err := without.Revisions(t.Context(), version1); err != nil || len(list) != 2 {
		t.Fatalf("%d revisions: %v", len(list), err)
	}
	if _, err := r.Update(t.Context(), job.UpdateRequest{Key: version1, Reseal: true,
		Merge: func(d job.Definition) (job.Definition, error) { return d, nil }}); err != nil {
		t.Fatal(err)
	}
	if list, err := r.Revisions(t.Context(), version1); err != nil || len(list) != 1 {
		t.Errorf("%d revisions of a job that was sealed again: %v", len(list), err)
	}
	strict := withRevisions(t, s.plain, job.DefaultRevisions, func(o *registry.Options) { o.Sealer = s.strictRing })
	forged := put(t, without, "forged", "planted")
	without.edit(t, forged, "", func(d *job.Definition) { d.Payload = []byte("x") })
	if _, err := strict.RestoreRevision(t.Context(), forged, 1, "", ""); !errors.As(err, &unfit) {
		t.Errorf("a strict node seals what it may not deliver: %v", err)
	}
}

// TestRevisionsInBackups: an export has them, and a job that takes a free id gets them.
func TestRevisionsInBackups(t *testing.T) {
	first := withRevisions(t, newRig(t), job.DefaultRevisions)
	d := jobOf("kept")
	if _, err := first.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	first.edit(t, d.Key, "ann", func(d *job.Definition) { d.Handler = "exec" })
	first.edit(t, d.Key, "bob", func(d *job.Definition) { d.Handler = "mail" })
	page, err := first.ExportJobs(t.Context(), job.Filter{Namespace: "default"}, 0, "")
	if err != nil || len(page.Backups) != 1 || len(page.Backups[0].Revisions) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	second := withRevisions(t, rigOn(t, redistest.Start(t)), job.DefaultRevisions)
	for _, r := range []*rig{second, first} {
		for _, a := range r.Restore(t.Context(), page.Backups, job.ExistingReplace) {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	list, err := second.Revisions(t.Context(), d.Key)
	if err != nil || len(list) != 3 || list[0].LastEdit.Identity != "bob" || list[1].LastEdit.Identity != "ann" || list[2].Handler != "http" {
		t.Fatalf("%+v, %v", list, err)
	}
	if back, err := second.RestoreRevision(t.Context(), d.Key, 1, "", ""); err != nil || back.Definition.Handler != "http" {
		t.Errorf("%+v, %v", back.Definition, err)
	}
	// A job that is replaced keeps its own, and the replaced definition becomes one.
	first.edit(t, d.Key, "cleo", func(d *job.Definition) { d.Handler = "late" })
	ctx := context.WithValue(t.Context(), callerOf{}, "dan")
	if a := first.Restore(ctx, page.Backups, job.ExistingReplace)[0]; a.Err != nil || a.Outcome != job.RestoreReplaced {
		t.Fatalf("%+v", a)
	}
	list, err = first.Revisions(t.Context(), d.Key)
	if err != nil || len(list) != 5 || list[0].Handler != "mail" || list[1].Handler != "late" || list[0].Revision != 5 ||
		list[0].LastEdit.Identity != "dan" {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestNoRevisionsInAFullNamespace: at its limit of bytes a namespace takes edits that make no definition larger, and
// keeps no further revisions. A census counts revisions.
func TestNoRevisionsInAFullNamespace(t *testing.T) {
	r := newRig(t)
	var full atomic.Bool
	book := ledger.New(ledger.Options{Store: r.store, Observer: quiet{}, Nudger: quiet{}, Revisions: job.DefaultRevisions,
		Full: func(namespace string) bool { return full.Load() && namespace == "default" }})
	t.Cleanup(book.Stop)
	limited := withRevisions(t, r, job.DefaultRevisions, func(o *registry.Options) { o.Ledger = book })
	d := jobOf("full")
	if _, err := limited.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	bytes := func() int {
		t.Helper()
		counts := r.store.Limits().ByteCounts()
		if _, err := counts.Census(t.Context(), 0, func(string) bool { return true }); err != nil {
			t.Fatal(err)
		}
		all, _, err := counts.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all["default"]
	}
	before := bytes()
	limited.edit(t, d.Key, "ann", func(d *job.Definition) { d.Handler = "exec" })
	if after := bytes(); after < before+before/2 {
		t.Errorf("%d bytes with a revision, %d before", after, before)
	}
	full.Store(true)
	limited.edit(t, d.Key, "bob", func(d *job.Definition) { d.Handler = "mail" })
	list, err := limited.Revisions(t.Context(), d.Key)
	if err != nil || len(list) != 2 || list[0].Revision != 3 || list[1].Revision != 1 || list[0].Before != nil || list[0].LastEdit.Identity != "bob" {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestExportsWithManyRevisionsAreSplit into shorter pages, which together have every job with its revisions.
func TestExportsWithManyRevisionsAreSplit(t *testing.T) {
	r := withRevisions(t, newRig(t), 5)
	const jobs = 25
	for i := range jobs {
		d := jobOf(fmt.Sprint("large", i))
		if _, err := r.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
		for n := range 4 { // the last one leaves the definition small and its revisions large
			r.edit(t, d.Key, "ann", func(d *job.Definition) {
				d.Payload = []byte(strings.Repeat("x", 80_000*min(1, 3-n)+n))
			})
		}
	}
	var got []job.Backup
	pages := 0
	for token := ""; ; pages++ {
		page, err := r.ExportJobs(t.Context(), job.Filter{Namespace: "default"}, 0, token)
		if err != nil {
			t.Fatal(err)
		}
		bytes := 0
		for _, b := range page.Backups {
			for _, d := range b.Revisions {
				bytes += len(d.Payload)
			}
		}
		if bytes > 5<<20 {
			t.Errorf("a page has %d bytes of revisions", bytes)
		}
		got, token = append(got, page.Backups...), page.Next
		if token == "" {
			break
		}
	}
	if len(got) != jobs || pages < 1 {
		t.Errorf("%d jobs in %d pages", len(got), pages+1)
	}
	for _, b := range got {
		if len(b.Revisions) < 3 {
			t.Errorf("%s has %d revisions", b.Definition.ID, len(b.Revisions))
		}
	}
}

// scriptMicros is how long Redis has worked on scripts, in microseconds.
func scriptMicros(b *testing.B, r *rig) float64 {
	b.Helper()
	text, err := r.admin.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "cmdstat_evalsha:")
	_, rest, _ = strings.Cut(rest, "usec=")
	number, _, _ := strings.Cut(rest, ",")
	micros, _ := strconv.ParseFloat(number, 64)
	return micros
}

// BenchmarkUpdateWithRevisions is what an edit costs with and without revisions, and how many bytes of Redis a
// revision takes. Each job has as many as are kept.
func BenchmarkUpdateWithRevisions(b *testing.B) {
	for _, kept := range []int{0, job.DefaultRevisions, job.MaxRevisions} {
		b.Run(fmt.Sprint("kept=", kept), func(b *testing.B) {
			r := withRevisions(b, newRig(b), kept)
			d := jobOf("edited")
			if _, err := r.Create(b.Context(), d, ""); err != nil {
				b.Fatal(err)
			}
			n := 0
			edit := func() {
				n++
				_, err := r.Update(b.Context(), job.UpdateRequest{Key: d.Key, Merge: func(d job.Definition) (job.Definition, error) {
					d.Timeout = time.Duration(1+n%100) * time.Second
					return d, nil
				}})
				if err != nil {
					b.Fatal(err)
				}
			}
			for range job.MaxRevisions + 1 {
				edit()
			}
			before := scriptMicros(b, r)
			for b.Loop() {
				edit()
			}
			b.ReportMetric((scriptMicros(b, r)-before)/float64(b.N), "server-µs/op")
			key := strings.TrimSuffix(r.store.LockKey(r.store.ShardOf(d.Key)), "lock") + "revisions"
			b.ReportMetric(float64(len(r.admin.HGet(b.Context(), key, "default/edited").Val()))/float64(max(1, kept)), "bytes/revision")
		})
	}
}
