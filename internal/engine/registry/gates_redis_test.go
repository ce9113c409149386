package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/engine/registry"
)

// register creates jobs of a namespace and a queue, each changed by edit.
func (r *rig) register(t *testing.T, namespace, queue string, edit func(*job.Definition), ids ...string) {
	t.Helper()
	for _, id := range ids {
		d := jobOf(id)
		d.Namespace, d.Queue = namespace, queue
		edit(&d)
		if _, err := r.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// openCircuit stores a circuit that a job opened, for an hour.
func (r *rig) openCircuit(t *testing.T, namespace, target, failedJob string) backoff.Circuit {
	t.Helper()
	name := job.TargetName(namespace, target)
	now := r.store.Limits().ReadCells(t.Context(), []string{name})[0].NowMS
	c := backoff.Circuit{}.Failed(now, "h", failedJob, "HTTP 503", time.Hour, backoff.DefaultCircuit(), 1)
	if s := r.store.Limits().SwapCells(t.Context(), []job.CellSwap{{Name: name, New: c.Encode()}})[0]; s.Err != nil || !s.Swapped {
		t.Fatalf("%+v", s)
	}
	return c
}

// hold leases the run of a job and has a gate hold it back for an hour.
func (r *rig) hold(t *testing.T, key job.Key, reason job.HoldReason, name string) {
	t.Helper()
	if _, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: "now"}); err != nil {
		t.Fatal(err)
	}
	l := r.lease(t, key)
	until := unixtime.MilliOf(time.Now().Add(time.Hour))
	result := r.book.SubmitAndWait(t.Context(), job.Change{Record: l.Record, Input: job.HoldBack{
		Token: l.Known.State.Token, Reason: reason, Key: name, UntilMS: until,
	}})[0]
	if result.Err != nil || result.Answer != job.Applied {
		t.Fatalf("%+v", result)
	}
}

func (r *rig) listTargets(t *testing.T, f job.Filter, size int) (targets []job.Target, pages int) {
	t.Helper()
	for token := ""; pages == 0 || token != ""; pages++ {
		page, err := r.ListTargets(t.Context(), f, size, token)
		if err != nil || len(page.Targets) > max(size, registry.DefaultPageSize) {
			t.Fatalf("%d targets, %v", len(page.Targets), err)
		}
		targets, token = append(targets, page.Targets...), page.Next
	}
	return targets, pages
}

// TestTargetsOfVisibleJobs: a target is listed with its circuit and the numbers of jobs, if a visible job names it.
// Jobs of hidden queues and of other namespaces add nothing: no target, number, job, error or cursor.
func TestTargetsOfVisibleJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	api := func(d *job.Definition) { d.Target = "api" }
	r.register(t, "a", "mail", api, "m1", "m2", "m3")
	r.register(t, "a", "web", api, "w1")
	r.register(t, "a", "web", func(d *job.Definition) { d.Target = "secret" }, "w2")
	r.register(t, "b", "mail", api, "other")
	r.register(t, "a", "mail", func(*job.Definition) {}, "none")
	circuit := r.openCircuit(t, "a", "api", "w1")
	r.hold(t, job.Key{Namespace: "a", ID: "m1"}, job.HeldTarget, "api")
	r.hold(t, job.Key{Namespace: "a", ID: "w1"}, job.HeldTarget, "api")

	all, _ := r.listTargets(t, job.Filter{Namespace: "a"}, 0)
	if len(all) != 2 || all[0].Name != "api" || all[1].Name != "secret" {
		t.Fatalf("%+v", all)
	}
	if g := all[0]; g.Jobs != 4 || g.Held != 2 || g.Circuit != circuit || g.FailedJob.ID != "w1" || g.NowMS == 0 {
		t.Errorf("%+v", g)
	}
	if g := all[1]; g.Circuit.Open() || g.Jobs != 1 || g.Held != 0 {
		t.Errorf("%+v", g)
	}
	if spanning, _ := r.listTargets(t, job.Filter{AllNamespaces: true}, 0); len(spanning) != 3 || spanning[2].Namespace != "b" ||
		spanning[2].Circuit.Open() {
		t.Errorf("of all namespaces: %+v", spanning)
	}
	mail := withQueues(t, r, func(q job.QueueKey) bool { return q.Queue == "mail" })
	page, err := mail.ListTargets(t.Context(), job.Filter{Namespace: "a", Covers: func(q string) bool { return q == "mail" }}, 0, "")
	if err != nil || len(page.Targets) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	if g := page.Targets[0]; g.Jobs != 3 || g.Held != 1 || g.FailedJob != (job.Key{}) || g.Circuit.FailedJob != "" ||
		g.Circuit.Error != "" || !g.Circuit.Open() {
		t.Errorf("a caller of queue mail sees %+v", g)
	}
}

// withQueues is the registry as a caller of some queues sees it.
func withQueues(t *testing.T, r *rig, scope job.QueueScope) *registry.Registry {
	t.Helper()
	scoped, err := registry.NewUnhurried(registry.Options{
		Store: r.store, SharedLimits: r.store.Limits(), Ledger: r.book,
		Queues:   func(context.Context) job.QueueScope { return scope },
		WorkerOf: func(record job.RecordID, token uint64) string { return "worker of " + job.LeaseID(record, token) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return scoped
}

// TestPagesOfTargets: no page has more targets than asked for, no job is missed or counted twice, and a token is of one
// listing only.
func TestPagesOfTargets(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 40 {
		r.register(t, "a", "mail", func(d *job.Definition) { d.Target = fmt.Sprintf("t%02d", i%13) }, fmt.Sprintf("j%d", i))
	}
	for _, size := range []int{1, 5, 100} {
		jobs := map[string]int{}
		targets, _ := r.listTargets(t, job.Filter{Namespace: "a"}, size)
		for _, g := range targets {
			jobs[g.Name] += g.Jobs
		}
		total := 0
		for _, n := range jobs {
			total += n
		}
		if len(jobs) != 13 || total != 40 || jobs["t00"] != 4 {
			t.Errorf("by %d: %v", size, jobs)
		}
	}
	page, err := r.ListTargets(t.Context(), job.Filter{Namespace: "a"}, 1, "")
	if err != nil || len(page.Targets) != 1 || page.Next == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	var invalid *job.InvalidError
	for name, call := range map[string]func() error{
		"another namespace": func() error {
			_, err := r.ListTargets(t.Context(), job.Filter{Namespace: "b"}, 1, page.Next)
			return err
		},
		"another list": func() error {
			_, err := r.ListLocks(t.Context(), job.Filter{Namespace: "a"}, 1, page.Next)
			return err
		},
		"page size": func() error { _, err := r.ListTargets(t.Context(), job.Filter{Namespace: "a"}, 1001, ""); return err },
	} {
		if err := call(); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProbeTarget makes one held run due, ends the wait, and leaves a probe alone that is under way.
func TestProbeTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.register(t, "a", "mail", func(d *job.Definition) { d.Target = "api" }, "j1", "j2")
	before := r.openCircuit(t, "a", "api", "j1")
	for _, id := range []string{"j1", "j2"} {
		r.hold(t, job.Key{Namespace: "a", ID: id}, job.HeldTarget, "api")
	}
	answer, err := r.ProbeTarget(t.Context(), "a", "api")
	if err != nil || answer.Released != 1 || answer.Job.Namespace != "a" {
		t.Fatalf("%+v, %v", answer, err)
	}
	c := answer.Target.Circuit
	if c.OpenUntilMS >= before.OpenUntilMS || c.OpenUntilMS > answer.Target.NowMS || c.Failures != 1 {
		t.Errorf("the circuit is %+v", c)
	}
	due := r.dueNow(t, "a", "j1", "j2")
	if want := []string{answer.Job.ID}; !slices.Equal(due, want) {
		t.Errorf("due are %v, want %v", due, want)
	}
	// The run is admitted as the probe; a second call changes nothing of that.
	probed, v := c.Admit(answer.Target.NowMS, "5@a/j1", time.Minute)
	if !v.Probe {
		t.Fatalf("%+v", v)
	}
	name := job.TargetName("a", "api")
	if s := r.store.Limits().SwapCells(t.Context(), []job.CellSwap{{Name: name, Old: c.Encode(), New: probed.Encode()}})[0]; !s.Swapped {
		t.Fatalf("%+v", s)
	}
	if again, err := r.ProbeTarget(t.Context(), "a", "api"); err != nil || again.Target.Circuit != probed || again.Target.ProbeJob.ID != "j1" {
		t.Errorf("%+v, %v", again.Target, err)
	}
	if other, err := r.ProbeTarget(t.Context(), "b", "api"); err != nil || other.Target.Circuit.Open() || other.Released != 0 {
		t.Errorf("the target of that name in another namespace: %+v, %v", other, err)
	}
}

// dueNow returns which of some jobs have a run that is due.
func (r *rig) dueNow(t *testing.T, namespace string, ids ...string) (due []string) {
	t.Helper()
	for _, id := range ids {
		key := job.Key{Namespace: namespace, ID: id}
		record, err := r.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		now, err := r.store.Now(t.Context(), r.store.ShardOf(key))
		if err != nil {
			t.Fatal(err)
		}
		if record.State.Region == job.RegionDue && record.State.Due <= now {
			due = append(due, id)
		}
	}
	return due
}

// TestResetTarget closes the circuit and makes all runs due that it holds back, and no other. A repeated call, and one
// of a namespace without the target, change nothing.
func TestResetTarget(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	named := func(d *job.Definition) { d.Target, d.Locks = "api", []job.Lock{{Key: "k", Limit: 1}} }
	r.register(t, "a", "mail", named, "j1", "j2", "locked")
	r.register(t, "b", "mail", named, "other")
	for _, namespace := range []string{"a", "b"} {
		r.openCircuit(t, namespace, "api", "j1")
	}
	for _, id := range []string{"j1", "j2"} {
		r.hold(t, job.Key{Namespace: "a", ID: id}, job.HeldTarget, "api")
	}
	r.hold(t, job.Key{Namespace: "a", ID: "locked"}, job.HeldLock, "k")
	r.hold(t, job.Key{Namespace: "b", ID: "other"}, job.HeldTarget, "api")
	answer, err := r.ResetTarget(t.Context(), "a", "api", "")
	if err != nil || answer.Released != 2 || answer.Next != "" || answer.Target.Circuit.Open() {
		t.Fatalf("%+v, %v", answer, err)
	}
	if due := r.dueNow(t, "a", "j1", "j2", "locked"); !slices.Equal(due, []string{"j1", "j2"}) {
		t.Errorf("due are %v", due)
	}
	if due := r.dueNow(t, "b", "other"); len(due) != 0 {
		t.Errorf("due in another namespace: %v", due)
	}
	if targets, _ := r.listTargets(t, job.Filter{AllNamespaces: true}, 0); targets[0].Circuit.Open() || !targets[1].Circuit.Open() {
		t.Errorf("%+v", targets)
	}
	if again, err := r.ResetTarget(t.Context(), "a", "api", ""); err != nil || again.Released != 0 {
		t.Errorf("%+v, %v", again, err)
	}
	var invalid *job.InvalidError
	if _, err := r.ResetTarget(t.Context(), "a", "", ""); !errors.As(err, &invalid) {
		t.Errorf("no target: %v", err)
	}
}

// TestLocksOfVisibleJobs: holders and waiters come with their jobs, in order; those that the caller may not see only
// count.
func TestLocksOfVisibleJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	lock := func(limit int) func(*job.Definition) {
		return func(d *job.Definition) { d.Locks = []job.Lock{{Key: "ledger", Limit: limit}, {Key: "free", Limit: 1}} }
	}
	r.register(t, "a", "mail", lock(2), "holder", "waiter")
	r.register(t, "a", "web", lock(3), "hidden", "second")
	r.register(t, "b", "mail", func(d *job.Definition) { d.Locks = []job.Lock{{Key: "ledger", Limit: 1}} }, "other")
	holder := job.Key{Namespace: "a", ID: "holder"}
	if _, _, err := r.RunJob(t.Context(), holder, job.RequestManualRun{RequestID: "x"}); err != nil {
		t.Fatal(err)
	}
	l := r.lease(t, holder)
	name := job.LockName("a", "ledger")
	asks := []job.UnitRequest{
		{Name: name, Limit: 2, Holder: job.LeaseID(l.Record, l.Known.State.Token), TTL: time.Minute},
		{Name: name, Limit: 2, Holder: job.LeaseID("a/hidden", 77), TTL: time.Hour},
		{Name: name, Limit: 2, Holder: job.LeaseID("a/waiter", 78), Waiter: "a/waiter", Rank: 2000, TTL: time.Hour},
		{Name: name, Limit: 2, Holder: job.LeaseID("a/second", 79), Waiter: "a/second", Rank: 1000, TTL: time.Hour},
	}
	for i, g := range r.store.Limits().AcquireUnits(t.Context(), asks) {
		if g.Err != nil || g.Granted != (i < 2) {
			t.Fatalf("%d: %+v", i, g)
		}
	}
	page, err := r.ListLocks(t.Context(), job.Filter{Namespace: "a"}, 0, "")
	if err != nil || len(page.Locks) != 2 || page.Locks[0].Key != "free" {
		t.Fatalf("%+v, %v", page, err)
	}
	if free := page.Locks[0]; free.Held != 0 || len(free.Holders)+len(free.Waiters) != 0 || free.Jobs != 4 || free.Capacity != 1 {
		t.Errorf("%+v", free)
	}
	got := page.Locks[1]
	if got.Capacity != 3 || got.Held != 2 || got.Waiting != 2 || got.Jobs != 4 {
		t.Errorf("%+v", got)
	}
	if h := got.Holders; len(h) != 2 || h[0].Job.ID != "holder" || h[0].RunID != "m-x" || h[1].Job.ID != "hidden" || h[1].RunID != "" ||
		h[0].SinceMS == 0 || h[0].EndMS.Sub(h[0].SinceMS) < time.Minute {
		t.Errorf("holders %+v", h)
	} else if h[0].Worker+h[1].Worker != "" {
		t.Errorf("workers of holders that nobody knows: %+v", h)
	}
	if w := got.Waiters; len(w) != 2 || w[0].Job.ID != "second" || w[0].SinceMS != 1000 || w[1].Job.ID != "waiter" || w[1].ReservedMS != 0 {
		t.Errorf("waiters %+v", w)
	}
	mail := withQueues(t, r, func(q job.QueueKey) bool { return q.Queue == "mail" })
	page, err = mail.ListLocks(t.Context(), job.Filter{Namespace: "a", Covers: func(q string) bool { return q == "mail" }}, 0, "")
	if err != nil || len(page.Locks) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	got = page.Locks[1]
	if got.Capacity != 2 || got.Held != 2 || got.Waiting != 2 || got.Jobs != 2 || got.Holders[0].Job.ID != "holder" ||
		got.Holders[1].Job != (job.Key{}) || got.Holders[0].Worker != "worker of "+asks[0].Holder || got.Holders[1].Worker != "" || got.Waiters[0].Job != (job.Key{}) || got.Waiters[0].SinceMS != 0 || got.Waiters[1].Job.ID != "waiter" {
		t.Errorf("a caller of queue mail sees %+v", got)
	}
	// A release reserves the unit for the first in line.
	if released := r.store.Limits().ReleaseUnits(t.Context(), []job.UnitRelease{{Name: name, Holder: asks[1].Holder, Limit: 2}})[0]; len(released.Woken) != 1 {
		t.Fatalf("%+v", released)
	}
	page, err = r.ListLocks(t.Context(), job.Filter{Namespace: "a"}, 0, "")
	if w := page.Locks[1].Waiters; err != nil || len(w) != 2 || w[0].Job.ID != "second" || w[0].ReservedMS == 0 || w[1].ReservedMS != 0 {
		t.Errorf("after a release: %+v, %v", w, err)
	}
}

// TestDiscardDeadLetter deletes the dead letter of the run that the caller has seen: no other, and not twice.
func TestDiscardDeadLetter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	key := job.Key{Namespace: "default", ID: "ping"}
	if _, err := r.Create(ctx, jobOf("ping"), ""); err != nil {
		t.Fatal(err)
	}
	once := jobOf("once")
	once.Queue = "once" // a lane of its own
	once.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.Now().Add(-time.Hour)}
	if _, err := r.Create(ctx, once, ""); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, _, err := r.RunJob(ctx, key, job.RequestManualRun{RequestID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
		r.die(t, key)
	}
	r.die(t, once.Key)
	letters := func() (found []job.DeadLetter) {
		page, err := r.ListDeadLetters(ctx, job.Filter{Namespace: "default"}, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		return page.DeadLetters
	}
	byRun := map[string]job.RecordID{}
	onceRun := ""
	for _, l := range letters() {
		byRun[l.Run.ID] = l.Record
		if l.Record.IsJob() {
			onceRun = l.Run.ID
		}
	}
	if len(byRun) != 3 || onceRun == "" {
		t.Fatalf("%v", byRun)
	}
	hidden := withQueues(t, r, func(q job.QueueKey) bool { return q.Queue == "web" })
	for name, call := range map[string]func() error{
		"another run of a letter":       func() error { return r.DiscardDeadLetter(ctx, byRun["m-0"], "m-1") },
		"another run of a one-time job": func() error { return r.DiscardDeadLetter(ctx, once.Record(), "1-1") },
		"an empty slot":                 func() error { return r.DiscardDeadLetter(ctx, key.Record().Letter(2), "m-0") },
		"a job that is not dead":        func() error { return r.DiscardDeadLetter(ctx, key.Record(), "m-1") },
		"no job":                        func() error { return r.DiscardDeadLetter(ctx, "default/none#d0", "m-1") },
		"a job of a hidden queue":       func() error { return hidden.DiscardDeadLetter(ctx, byRun["m-0"], "m-0") },
	} {
		if err := call(); !errors.Is(err, job.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var invalid *job.InvalidError
	if err := r.DiscardDeadLetter(ctx, byRun["m-0"], ""); !errors.As(err, &invalid) {
		t.Errorf("no run: %v", err)
	}
	if len(letters()) != 3 {
		t.Fatal("a refused call discarded a dead letter")
	}
	before, err := r.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.DiscardDeadLetter(ctx, byRun["m-0"], "m-0"); err != nil {
		t.Fatal(err)
	}
	if err := r.DiscardDeadLetter(ctx, byRun["m-0"], "m-0"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("a second time: %v", err)
	}
	after, err := r.Get(ctx, key)
	if err != nil || after.State.Due != before.State.Due || after.State.Region != before.State.Region || after.IndexMS != before.IndexMS {
		t.Errorf("the job was %+v, is %+v: %v", before.State, after.State, err)
	}
	if err := r.DiscardDeadLetter(ctx, once.Record(), onceRun); err != nil {
		t.Fatal(err)
	}
	if left := letters(); len(left) != 1 || left[0].Run.ID != "m-1" {
		t.Errorf("left are %+v", left)
	}
	if _, err := r.Get(ctx, once.Key); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("the one-time job: %v", err)
	}
}

// TestPauseQueueUntil: a pause keeps the limits, a change of limits keeps the end of a pause, and a resume removes it.
func TestPauseQueueUntil(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	q := job.QueueKey{Namespace: "a", Queue: "mail"}
	now, err := r.store.Now(ctx, job.PauseClockShard)
	if err != nil {
		t.Fatal(err)
	}
	until := now + 3_600_000
	step := func(what string, want job.QueueSettings, call func() (job.QueueSettings, error)) {
		t.Helper()
		got, err := call()
		stored, readErr := r.QueueSettings(ctx, q)
		if err != nil || readErr != nil || got != want || stored != want {
			t.Errorf("%s: %+v, stored %+v, want %+v: %v %v", what, got, stored, want, err, readErr)
		}
	}
	set := func(c job.QueueChange) func() (job.QueueSettings, error) {
		return func() (job.QueueSettings, error) { return r.SetQueueSettings(ctx, q, c) }
	}
	paused := job.QueueSettings{Rate: 5, Paused: true, PauseUntilMS: until}
	step("limits", job.QueueSettings{Rate: 5}, set(job.QueueChange{Settings: job.QueueSettings{Rate: 5}}))
	pause := func() (job.QueueSettings, error) { return r.PauseQueue(ctx, q, until) }
	step("pause", paused, pause)
	step("again", paused, pause)
	kept := paused
	kept.Rate = 6
	step("limits without a pause", kept, set(job.QueueChange{Settings: job.QueueSettings{Rate: 6}, KeepPaused: true}))
	step("limits and a pause", kept, set(job.QueueChange{Settings: job.QueueSettings{Rate: 6, Paused: true}}))
	expected := kept
	kept.Rate = 7
	step("limits of settings as read", kept, set(job.QueueChange{Settings: job.QueueSettings{Rate: 7}, KeepPaused: true, Expected: &expected}))
	stale := kept
	stale.PauseUntilMS++
	if _, err := r.SetQueueSettings(ctx, q, job.QueueChange{Settings: kept, Expected: &stale}); !errors.Is(err, job.ErrSettingsChanged) {
		t.Errorf("another end of the pause was expected: %v", err)
	}
	step("resume", job.QueueSettings{Rate: 7}, set(job.QueueChange{Settings: job.QueueSettings{Rate: 7}}))
	step("pause without an end", job.QueueSettings{Rate: 7, Paused: true}, func() (job.QueueSettings, error) { return r.PauseQueue(ctx, q, 0) })
	for _, bad := range []unixtime.Milli{-1, now, now + unixtime.Milli(job.MaxQueuePause.Milliseconds()) + 3_600_000} {
		var invalid *job.InvalidError
		if _, err := r.PauseQueue(ctx, q, bad); !errors.As(err, &invalid) {
			t.Errorf("until %d: %v", bad, err)
		}
	}
}
