package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/engine/ledger"
	"github.com/fermata-io/fermata/internal/engine/queuestats"
	"github.com/fermata-io/fermata/internal/engine/registry"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// quiet hears everything and says nothing.
type quiet struct{}

func (quiet) Observe([]job.Notice)                        {}
func (quiet) Nudge(int, []job.LaneHead, string)           {}
func (quiet) CancelAttempt(record job.RecordID, _ uint64) {}

// rig is a registry on a real Redis.
type rig struct {
	*registry.Registry
	store *redisstore.Store
	book  *ledger.Ledger
	// overview lists the lanes of the store.
	overview *queuestats.Overview
	redis    redis.UniversalClient // of the store
	admin    *redis.Client
	// leases counts the leasing calls: each has a batch of its own.
	leases int
}

func newRig(t testing.TB, options ...redistest.Option) *rig {
	t.Helper()
	return rigOn(t, redistest.Start(t, options...))
}

// newRigs are two registries, as of two nodes, on one Redis.
func newRigs(t *testing.T) (first, second *rig) {
	t.Helper()
	server := redistest.Start(t)
	return rigOn(t, server), rigOn(t, server)
}

func rigOn(t testing.TB, server *redistest.Server, adjust ...func(*redisstore.Options)) *rig {
	t.Helper()
	c, err := conn.NewClient(conn.ClientOptions{URL: server.URL(), ReadTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	o := redisstore.Options{Client: c, Shards: 4, AllowUnsafe: true, OpTimeout: time.Minute}
	for _, f := range adjust {
		f(&o)
	}
	store, err := redisstore.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	book := ledger.New(ledger.Options{Store: store, Observer: quiet{}, Nudger: quiet{}})
	t.Cleanup(book.Stop)
	overview := queuestats.NewOverview(store)
	t.Cleanup(overview.Stop)
	r, err := registry.NewUnhurried(registry.Options{
		Store: store, Rankings: overview, Lanes: overview, SharedLimits: store.Limits(), Ledger: book, Observer: quiet{}, Nudger: quiet{}, Canceller: quiet{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{Registry: r, store: store, book: book, overview: overview, redis: c, admin: server.Client()}
}

func jobOf(id string) job.Definition {
	d := job.WithDefaults(job.Definition{
		Key:      job.Key{Namespace: "default", ID: id},
		Handler:  "http",
		Payload:  []byte("{}"),
		Labels:   map[string]string{"team": "ops"},
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
	})
	d.Priority, d.HistoryLimit = job.DefaultPriority, job.DefaultHistoryLimit
	return d
}

// lease makes a job's current run live under the shard's lock.
func (r *rig) lease(t *testing.T, key job.Key) job.Leased {
	t.Helper()
	shard := r.store.ShardOf(key)
	if err := r.redis.Set(t.Context(), r.store.LockKey(shard), "v", time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	record, err := r.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	r.leases++
	reply := r.store.Lease(t.Context(), []job.LeaseRequest{{
		Shard: shard, LockValue: "v", TTL: time.Minute, Batch: strconv.Itoa(r.leases), Quotas: []job.LaneQuota{{Lane: record.State.Lane, N: 1}},
	}})[0]
	if reply.Err != nil || len(reply.Leased) != 1 {
		t.Fatalf("lease: %+v", reply)
	}
	return reply.Leased[0]
}

func TestLifeOfAJobOnRedis(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	key := job.Key{Namespace: "default", ID: "ping"}
	created, err := r.Create(ctx, jobOf("ping"), "r1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Get(ctx, key)
	want := jobOf("ping")
	if err != nil || !got.Definition.Equal(&want) || got.Definition.Etag() != created.Definition.Etag() || got.State.Due != created.State.Due {
		t.Fatalf("read back %+v, %v", got, err)
	}
	if again, err := r.Create(ctx, jobOf("ping"), "r1"); err != nil || again.Definition.Etag() != created.Definition.Etag() {
		t.Errorf("replay: %+v, %v", again, err)
	}
	var exists *job.ExistsError
	if _, err := r.Create(ctx, jobOf("ping"), "r2"); !errors.As(err, &exists) {
		t.Errorf("another request: %v", err)
	}
	updated, err := r.Update(ctx, job.UpdateRequest{Key: key, Etag: got.Definition.Etag(), Merge: func(d job.Definition) (job.Definition, error) {
		d.Schedule.Every = 2 * time.Minute
		return d, nil
	}})
	if err != nil || updated.Definition.Generation != 2 || updated.State.Generation != 2 {
		t.Fatalf("update: %+v, %v", updated, err)
	}
	if paused, err := r.Pause(ctx, key, "why"); err != nil || paused.State.Status() != job.StatusPaused {
		t.Errorf("pause: %+v, %v", paused.State, err)
	}
	if resumed, err := r.Resume(ctx, key, false); err != nil || resumed.State.Status() != job.StatusScheduled {
		t.Errorf("resume: %+v, %v", resumed.State, err)
	}
	if run, _, err := r.RunJob(ctx, key, job.RequestManualRun{RequestID: "m1"}); err != nil || run.ID != "m-m1" {
		t.Errorf("run: %+v, %v", run, err)
	}
	if run, err := r.CancelRun(ctx, key, "m-m1"); err != nil || run.Outcome != job.OutcomeCancelled {
		t.Errorf("cancel: %+v, %v", run, err)
	}
	runs, err := r.ListRuns(ctx, key)
	if err != nil || len(runs) != 2 || runs[1].ID != "m-m1" || runs[1].Outcome != job.OutcomeCancelled {
		t.Errorf("runs: %+v, %v", runs, err)
	}
	if err := r.Delete(ctx, key, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(ctx, key); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("deleted job: %v", err)
	}
}

func TestDeletedLiveJobOnRedis(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	key := job.Key{Namespace: "default", ID: "ping"}
	if _, err := r.Create(ctx, jobOf("ping"), ""); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.RunJob(ctx, key, job.RequestManualRun{RequestID: "m1"}); err != nil {
		t.Fatal(err)
	}
	r.lease(t, key)
	if err := r.Delete(ctx, key, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(ctx, key); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if _, err := r.Create(ctx, jobOf("ping"), ""); !errors.Is(err, job.ErrBusy) {
		t.Errorf("create: %v", err)
	}
	if page, err := r.List(ctx, job.Filter{Namespace: "default"}, 0, ""); err != nil || len(page.Records) != 0 {
		t.Errorf("list: %+v, %v", page, err)
	}
}

func TestConcurrentEditsAreAllKept(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	key := job.Key{Namespace: "default", ID: "ping"}
	if _, err := r.Create(ctx, jobOf("ping"), ""); err != nil {
		t.Fatal(err)
	}
	const editors, edits = 4, 5
	errs := make([]error, editors)
	var wg sync.WaitGroup
	for i := range editors {
		wg.Go(func() {
			for n := range edits {
				for {
					_, err := r.Update(ctx, job.UpdateRequest{Key: key, RequestID: fmt.Sprintf("%d-%d", i, n), Merge: func(d job.Definition) (job.Definition, error) {
						labels := map[string]string{fmt.Sprintf("%d-%d", i, n): "x"}
						for k, v := range d.Labels {
							labels[k] = v
						}
						d.Labels = labels
						return d, nil
					}})
					if errors.Is(err, job.ErrConflict) {
						continue
					}
					errs[i] = errors.Join(errs[i], err)
					break
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	got, err := r.Get(ctx, key)
	if err != nil || len(got.Definition.Labels) != editors*edits+1 || got.Definition.Revision != editors*edits+1 {
		t.Errorf("%d labels, revision %d, %v", len(got.Definition.Labels), got.Definition.Revision, err)
	}
}

func TestBatchAndListOnRedis(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	var requests []job.CreateRequest
	for i := range 1000 {
		d := jobOf(fmt.Sprintf("j%d", i))
		d.Queue = []string{"a", "b"}[i%2]
		requests = append(requests, job.CreateRequest{Definition: d})
	}
	for i, answer := range r.CreateBatch(ctx, requests) {
		if answer.Err != nil {
			t.Fatalf("request %d: %v", i, answer.Err)
		}
	}
	for _, size := range []int{70, 1000} {
		for queue, want := range map[string]int{"": 1000, "b": 500} {
			ids, pages := listAll(t, r.Registry, job.Filter{Namespace: "default", Queue: queue}, size)
			if len(ids) != want {
				t.Errorf("queue %q by %d: %d jobs in %d pages, want %d", queue, size, len(ids), pages, want)
			}
		}
	}
}

// TestAJobCreatedPausedSaysSo: its events are those of both decisions, once.
func TestAJobCreatedPausedSaysSo(t *testing.T) {
	r := rigOn(t, redistest.Start(t), func(o *redisstore.Options) { o.Shards, o.KeepEvents = 1, redisstore.MinKeepEvents })
	for range 2 { // the second finds the work of the first
		for _, answer := range r.CreateBatch(t.Context(), []job.CreateRequest{
			{Definition: jobOf("a"), RequestID: "1", PauseNote: "not yet"}, {Definition: jobOf("b"), RequestID: "2"},
		}) {
			if answer.Err != nil {
				t.Fatal(answer.Err)
			}
		}
	}
	pages, err := r.store.Events(t.Context(), []job.EventsRequest{{Limit: 10}})
	if err != nil || pages[0].Gap {
		t.Fatalf("%+v, %v", pages, err)
	}
	var told []string
	for _, h := range pages[0].Events {
		told = append(told, h.Kind+" "+h.Key.ID+" "+h.Reason)
	}
	if want := []string{"job.created a ", "job.paused a not yet", "job.created b "}; !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}

// listAll goes through all pages; an id that comes twice fails the test.
func listAll(t *testing.T, r *registry.Registry, f job.Filter, size int) (ids []string, pages int) {
	t.Helper()
	for token := ""; ; {
		page, err := r.List(t.Context(), f, size, token)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, record := range page.Records {
			ids = append(ids, record.Definition.ID)
		}
		if len(page.Records) > size {
			t.Fatalf("a page of %d, at most %d asked", len(page.Records), size)
		}
		if token = page.Next; token == "" {
			break
		}
	}
	slices.Sort(ids)
	if n := len(slices.Compact(slices.Clone(ids))); n != len(ids) {
		t.Errorf("%d of %d ids came twice", len(ids)-n, len(ids))
	}
	return ids, pages
}

func TestPagesOfLargePayloadsStaySmall(t *testing.T) {
	r := newRig(t)
	var requests []job.CreateRequest
	for i := range 30 {
		d := jobOf(fmt.Sprintf("j%d", i))
		d.Payload = make([]byte, 200<<10)
		requests = append(requests, job.CreateRequest{Definition: d})
	}
	for _, answer := range r.CreateBatch(t.Context(), requests) {
		if answer.Err != nil {
			t.Fatal(answer.Err)
		}
	}
	ids, pages := listAll(t, r.Registry, job.Filter{Namespace: "default"}, 1000)
	if len(ids) != 30 || pages < 3 {
		t.Errorf("%d jobs of 200 KiB in %d pages", len(ids), pages)
	}
}

// TestBadInputStoresNothing is checked against what Redis holds, not against
// what the registry says.
func TestBadInputStoresNothing(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	size := func() int64 {
		var keys int64
		for _, name := range r.admin.Keys(ctx, "*").Val() {
			n, err := r.redis.HLen(ctx, name).Result()
			if err == nil && (strings.HasSuffix(name, ":def") || strings.HasSuffix(name, ":st")) {
				keys += n
			}
		}
		return keys
	}
	cases := map[string]func(*job.Definition){
		"job_id": func(d *job.Definition) { d.ID = strings.Repeat("x", 129) },
		"job.schedule.cron.time_zone": func(d *job.Definition) {
			d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"@daily"}, TimeZone: "X/Y"}
		},
		"job.schedule.cron.expressions[0]": func(d *job.Definition) {
			d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"0 0 31 2 *"}}
		},
		"job.retry_policy.base_delay": func(d *job.Definition) { d.Retry.Base = -time.Second },
		"job.payload":                 func(d *job.Definition) { d.Payload = make([]byte, 256<<10+1) },
	}
	for field, edit := range cases {
		d := jobOf("bad")
		edit(&d)
		_, err := r.Create(ctx, d, "")
		var invalid *job.InvalidError
		if !errors.As(err, &invalid) || !slices.ContainsFunc(invalid.Violations, func(v job.Violation) bool { return v.Field == field }) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := size(); n != 0 {
		t.Errorf("%d entries are stored", n)
	}
	if _, err := r.Create(ctx, jobOf("good"), ""); err != nil {
		t.Fatal(err)
	}
	if n := size(); n != 2 {
		t.Errorf("%d entries of one job: the check above sees nothing", n)
	}
}

func TestFullRedisRefusesNewJobsOnly(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	key := job.Key{Namespace: "default", ID: "ping"}
	if _, err := r.Create(ctx, jobOf("ping"), ""); err != nil {
		t.Fatal(err)
	}
	if err := r.admin.ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(ctx, jobOf("pong"), ""); !errors.Is(err, job.ErrNoMemory) {
		t.Fatalf("create: %v, want ErrNoMemory", err)
	}
	if _, err := r.Pause(ctx, key, ""); err != nil {
		t.Errorf("an existing job must go on: %v", err)
	}
	if err := r.Delete(ctx, key, ""); err != nil {
		t.Errorf("deleting must go on: %v", err)
	}
}

func TestUnreachableRedis(t *testing.T) {
	r := newRig(t)
	if _, err := r.Create(t.Context(), jobOf("ping"), ""); err != nil {
		t.Fatal(err)
	}
	r.redis.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := r.Create(ctx, jobOf("pong"), ""); !errors.Is(err, job.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
