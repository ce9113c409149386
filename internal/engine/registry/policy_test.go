package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// reason is that of a PreconditionError.
func reason(err error) string {
	var unfit *job.PreconditionError
	if !errors.As(err, &unfit) {
		return ""
	}
	return unfit.Reason
}

func TestHintIsChecked(t *testing.T) {
	f, r := newFake(t)
	mustCreate(t, r, "ping", "")
	const hour = 3_600_000
	for want, h := range map[string]job.Hint{
		"hint.source":                         {Source: job.HintWorker, IntervalMS: hour},
		"hint":                                {Source: job.HintOperator},
		"hint.interval":                       {Source: job.HintOperator, IntervalMS: 4999},
		"hint.next_run_time":                  {Source: job.HintOperator, AtMS: f.now - 61_000},
		"hint.expire_time":                    {Source: job.HintOperator, IntervalMS: hour, UntilMS: f.now},
		"hint.reason":                         {Source: job.HintOperator, IntervalMS: hour, Reason: strings.Repeat("x", 257)},
		"hint.next_run_time hint.expire_time": {Source: job.HintOperator, AtMS: f.now + 31*24*hour},
	} {
		if _, err := r.Hint(t.Context(), ping, h); violated(err) != want {
			t.Errorf("%s: got %v", want, err)
		}
	}
	for _, h := range []job.Hint{
		{Source: job.HintOperator, IntervalMS: 30*24*hour + 1},
		{Source: job.HintOperator, AtMS: f.now + 2*hour, UntilMS: f.now + hour},
		{Source: job.HintOperator, IntervalMS: hour, UntilMS: f.now + 30*24*hour + 1},
	} {
		if _, err := r.Hint(t.Context(), ping, h); violated(err) == "" {
			t.Errorf("%+v: got %v", h, err)
		}
	}
	if got := f.records[ping].State.Hint; got != (job.Hint{}) {
		t.Errorf("stored all the same: %+v", got)
	}
}

func TestHintIsTakenAndCleared(t *testing.T) {
	f, r := newFake(t)
	mustCreate(t, r, "ping", "")
	got, err := r.Hint(t.Context(), ping, job.Hint{Source: job.HintPlanner, AtMS: f.now + 600_000, Reason: "load"})
	if h := got.State.Hint; err != nil || h.UntilMS != f.now+3_600_000 || h.Source != job.HintPlanner || got.State.Due != f.now+600_000 || got.State.Source != job.DelayHint {
		t.Fatalf("got %+v, %v", got.State, err)
	}
	// The default outlives the run that is asked for.
	if got, err = r.Hint(t.Context(), ping, job.Hint{Source: job.HintOperator, AtMS: f.now + 7_200_000}); err != nil || got.State.Hint.UntilMS != f.now+7_200_000 {
		t.Errorf("got %+v, %v", got.State.Hint, err)
	}
	if got, err = r.Hint(t.Context(), ping, job.Hint{}); err != nil || got.State.Hint != (job.Hint{}) || got.State.Due != f.now+60_000 {
		t.Errorf("cleared: %+v, %v", got.State, err)
	}
	d := definition("once")
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: start.Add(time.Hour)}
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Hint(t.Context(), d.Key, job.Hint{Source: job.HintOperator, IntervalMS: 60_000}); reason(err) != job.ReasonNoInterval {
		t.Errorf("one-time job: %v", err)
	}
	if _, err := r.Hint(t.Context(), job.Key{Namespace: "default", ID: "none"}, job.Hint{}); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("missing job: %v", err)
	}
}

// hourly creates a cron job, which has a past.
func hourly(t *testing.T, r *Registry, id string, edit func(*job.Definition)) job.Key {
	t.Helper()
	d := definition(id)
	d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"0 * * * *"}}
	if edit != nil {
		edit(&d)
	}
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	return d.Key
}

func TestBackfillIsChecked(t *testing.T) {
	f, r := newFake(t)
	key := hourly(t, r, "hourly", nil)
	day := int64(24 * 3_600_000)
	good := job.BackfillRequest{FromMS: f.now - unixtime.Milli(day), ToMS: f.now, Overlap: job.OverlapBufferAll}
	for want, edit := range map[string]func(*job.BackfillRequest){
		"start_time":     func(q *job.BackfillRequest) { q.FromMS = 0 },
		"end_time":       func(q *job.BackfillRequest) { q.ToMS = q.FromMS },
		"overlap_policy": func(q *job.BackfillRequest) { q.Overlap = job.OverlapSkip },
		"request_id":     func(q *job.BackfillRequest) { q.RequestID = "a/b" },
	} {
		q := good
		edit(&q)
		if _, err := r.Backfill(t.Context(), key, q); violated(err) != want {
			t.Errorf("%s: got %v", want, err)
		}
	}
	for name, edit := range map[string]func(*job.BackfillRequest){
		"future":   func(q *job.BackfillRequest) { q.ToMS = f.now + 1 },
		"empty":    func(q *job.BackfillRequest) { q.FromMS, q.ToMS = f.now-1_800_000, f.now-900_000 },
		"too many": func(q *job.BackfillRequest) { q.FromMS = f.now - 10_001*3_600_000 },
	} {
		q := good
		edit(&q)
		if _, err := r.Backfill(t.Context(), key, q); violated(err) != "end_time" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	q := good
	q.FromMS = f.now - 10_000*3_600_000
	if got, err := r.Backfill(t.Context(), key, q); err != nil || len(got.State.Backfills) != 1 {
		t.Errorf("10,000 times: %+v %v", got.State.Backfills, err)
	}
	manual := definition("manual")
	manual.Schedule = schedule.Spec{}
	fixed := definition("fixed")
	fixed.Schedule.FixedDelay = true
	for _, d := range []job.Definition{manual, fixed} {
		if _, err := r.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Backfill(t.Context(), d.Key, good); reason(err) != job.ReasonNoNominalTimes {
			t.Errorf("%s: %v", d.ID, err)
		}
	}
}

func TestBackfillRunsARangeOnce(t *testing.T) {
	f, r := newFake(t)
	key := hourly(t, r, "hourly", func(d *job.Definition) { d.OverlapLimit = 3 })
	const hour = 3_600_000
	q := job.BackfillRequest{FromMS: f.now - 5*hour, ToMS: f.now - 2*hour, Overlap: job.OverlapAllowAll, RequestID: "b1"}
	got, err := r.Backfill(t.Context(), key, q)
	if err != nil || len(got.State.Backfills) != 1 {
		t.Fatalf("got %+v, %v", got.State, err)
	}
	if b := got.State.Backfills[0]; b.ID != "b1" || b.ToMS != q.ToMS-1 || b.Concurrency != 3 {
		t.Errorf("backfill %+v", b)
	}
	again, err := r.Backfill(t.Context(), key, q)
	if err != nil || len(again.State.Backfills) != 1 || again.State.Revision != got.State.Revision {
		t.Errorf("replay: %+v, %v", again.State, err)
	}
	runs, err := r.ListRuns(t.Context(), key)
	if err != nil || len(runs) < 2 || runs[1].ID != fmt.Sprint("b-b1-", q.FromMS) || runs[1].Trigger != job.TriggerBackfill {
		t.Fatalf("runs %+v, %v", runs, err)
	}
	q.Overlap = job.OverlapBufferAll
	for i := range job.MaxBackfills {
		q.RequestID = fmt.Sprint("more", i)
		got, err = r.Backfill(t.Context(), key, q)
		if i < job.MaxBackfills-1 && (err != nil || got.State.Backfills[i+1].Concurrency != 1) {
			t.Errorf("backfill %d: %+v %v", i, got.State.Backfills, err)
		}
	}
	if reason(err) != job.ReasonTooManyBackfills {
		t.Errorf("one too many: %v", err)
	}
	if got, err = r.CancelBackfill(t.Context(), key, "more0"); err != nil || len(got.State.Backfills) != job.MaxBackfills-1 {
		t.Errorf("cancel: %+v %v", got.State.Backfills, err)
	}
	var part *job.MissingPartError
	if _, err = r.CancelBackfill(t.Context(), key, "more0"); !errors.As(err, &part) {
		t.Errorf("cancel again: %v", err)
	}
	if _, err = r.CancelBackfill(t.Context(), key, ""); violated(err) != "backfill_id" {
		t.Errorf("no id: %v", err)
	}
}

func TestRunsBesideTheCurrentOne(t *testing.T) {
	f, r := newFake(t)
	key := hourly(t, r, "hourly", nil)
	const hour = 3_600_000
	if _, err := r.Backfill(t.Context(), key, job.BackfillRequest{
		FromMS: f.now - 5*hour, ToMS: f.now, Overlap: job.OverlapAllowAll, RequestID: "b",
	}); err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprint("b-b-", int64(f.now-5*hour))
	child := key.Record().Run(f.records[key].State.ChildSlots()[0])
	v, err := r.GetRun(t.Context(), key, id)
	if err != nil || v.Phase != job.RunWaiting {
		t.Fatalf("waiting: %+v %v", v, err)
	}
	f.children[child] = f.children[child].Leased(77)
	if v, err = r.CancelRun(t.Context(), key, id); err != nil || v.Phase != job.RunRunning || !f.children[child].Cancel || !slices.Equal(f.cancelled, []uint64{77}) {
		t.Fatalf("live: %+v %v, told %v", v, err, f.cancelled)
	}
	if f.records[key].State.Cancel {
		t.Error("the job's own run is cancelled")
	}
}

func TestCancelEndsAWaitingChild(t *testing.T) {
	f, r := newFake(t)
	key := hourly(t, r, "hourly", nil)
	v, joined, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: "m1", Mode: job.ManualKeep})
	if err != nil || joined || v.ID != "m-m1" || v.DueMS != f.now {
		t.Fatalf("%+v %v %v", v, joined, err)
	}
	runs, err := r.ListRuns(t.Context(), key)
	if err != nil || len(runs) != 2 || runs[0].Trigger != job.TriggerSchedule || runs[1].ID != "m-m1" {
		t.Fatalf("runs %+v %v", runs, err)
	}
	if v, err = r.CancelRun(t.Context(), key, "m-m1"); err != nil || v.Phase != job.RunFinished || v.Outcome != job.OutcomeCancelled {
		t.Fatalf("%+v %v", v, err)
	}
	if s := f.records[key].State; len(f.children) != 0 || s.Children != 0 || s.Pending != "" {
		t.Errorf("children %v, state %+v", f.children, s)
	}
	if v, err = r.CancelRun(t.Context(), key, "m-m1"); err != nil || v.Outcome != job.OutcomeCancelled {
		t.Errorf("replay: %+v %v", v, err)
	}
	if _, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: "m2", Mode: 9}); violated(err) != "backoff" {
		t.Errorf("unknown mode: %v", err)
	}
}

func TestDeleteDropsChildrenThatHaveNotBegun(t *testing.T) {
	f, r := newFake(t)
	key := hourly(t, r, "hourly", nil)
	if _, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: "m1", Mode: job.ManualKeep}); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), key, ""); err != nil {
		t.Fatal(err)
	}
	if len(f.children) != 0 || len(f.records) != 0 {
		t.Errorf("left: %v %v", f.children, f.records)
	}
}

func TestDeleteLeavesLiveChildrenToFinish(t *testing.T) {
	f, r := newFake(t)
	key := hourly(t, r, "hourly", nil)
	if _, _, err := r.RunJob(t.Context(), key, job.RequestManualRun{RequestID: "m1", Mode: job.ManualKeep}); err != nil {
		t.Fatal(err)
	}
	record := f.records[key]
	child := key.Record().Run(record.State.ChildSlots()[0])
	record.State.Started = record.State.Children
	f.records[key] = record
	s := f.children[child].Leased(5)
	s.Started = s.Children
	f.children[child] = s
	if err := r.Delete(t.Context(), key, ""); err != nil {
		t.Fatal(err)
	}
	if got := f.children[child]; !got.Live() || got.Cancel {
		t.Errorf("the live run: %+v", got)
	}
	if _, err := r.Get(t.Context(), key); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if err := r.Delete(t.Context(), key, ""); err != nil {
		t.Errorf("replay: %v", err)
	}
}

// bury makes a dead letter of a job, and its record.
func (f *fake) bury(key job.Key, slot int, queue string) string {
	id := key.Record().Letter(slot)
	f.children[id] = job.State{Region: job.RegionDead, Lane: job.Lane{Namespace: key.Namespace, Queue: queue}, Nominal: unixtime.Milli(slot + 1), Generation: 1, Revision: 1}
	f.letters[id] = job.DeadLetter{Record: id, Queue: queue, Labels: map[string]string{"team": queue}, Run: job.Run{ID: "1-" + fmt.Sprint(slot+1)}}
	return string(id)
}

func TestDeadLettersAreListedAndRedriven(t *testing.T) {
	f, r := newFake(t)
	var ids []string
	for i := range 30 {
		key := hourly(t, r, fmt.Sprintf("j%02d", i), nil)
		for slot := range job.DeadLettersPerJob {
			ids = append(ids, f.bury(key, slot, []string{"a", "b"}[i%2]))
		}
	}
	var seen []string
	for token, first := "", true; first || token != ""; first = false {
		page, err := r.ListDeadLetters(t.Context(), job.Filter{Namespace: "default"}, 7, token)
		if err != nil || len(page.DeadLetters) > 7 {
			t.Fatalf("page of %d, %v", len(page.DeadLetters), err)
		}
		for _, l := range page.DeadLetters {
			seen = append(seen, string(l.Record))
		}
		token = page.Next
	}
	slices.Sort(seen)
	if !slices.Equal(seen, ids) {
		t.Errorf("%d of %d letters: %v", len(seen), len(ids), seen)
	}
	half := job.Filter{Namespace: "default", Labels: map[string]string{"team": "b"}, Queue: "b"}
	count, err := r.RedriveDeadLetters(t.Context(), job.RedriveRequest{Filter: half, DryRun: true})
	if err != nil || count.Done != len(ids)/2 || len(f.letters) != len(ids) {
		t.Errorf("dry run: %+v %v", count, err)
	}
	done, err := r.RedriveDeadLetters(t.Context(), job.RedriveRequest{Filter: half})
	if err != nil || done.Done != len(ids)/2 || done.Refused != 0 || len(f.letters) != len(ids)/2 {
		t.Errorf("redrive: %+v %v, %d letters left", done, err, len(f.letters))
	}
	if s := f.records[job.Key{Namespace: "default", ID: "j01"}].State; len(s.ChildSlots()) != job.DeadLettersPerJob {
		t.Errorf("children %v", s.ChildSlots())
	}
}

func TestRedriveByName(t *testing.T) {
	f, r := newFake(t)
	key := hourly(t, r, "hourly", nil)
	id := f.bury(key, 1, "a")
	q := job.RedriveRequest{Filter: job.Filter{Namespace: "default"}, Records: []job.RecordID{job.RecordID(id), key.Record().Letter(2), key.Record(), "default/none"}, DryRun: true}
	if got, err := r.RedriveDeadLetters(t.Context(), q); err != nil || got.Done != 1 || got.Refused != 3 {
		t.Errorf("dry run: %+v %v", got, err)
	}
	q.DryRun = false
	if got, err := r.RedriveDeadLetters(t.Context(), q); err != nil || got.Done != 1 || got.Refused != 3 {
		t.Errorf("redrive: %+v %v", got, err)
	}
	if got, err := r.RedriveDeadLetters(t.Context(), q); err != nil || got.Done != 0 || got.Refused != 4 {
		t.Errorf("replay: %+v %v", got, err)
	}
	q.Filter.Queue = "a"
	if _, err := r.RedriveDeadLetters(t.Context(), q); violated(err) != "names" {
		t.Errorf("names and filter: %v", err)
	}
	f.err = job.ErrUnavailable
	q.Filter.Queue = ""
	if _, err := r.RedriveDeadLetters(t.Context(), q); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("no Redis: %v", err)
	}
}

// TestRedriveCoversBothQueues: that of the dead letter, and that of its job.
func TestRedriveCoversBothQueues(t *testing.T) {
	for _, named := range []bool{false, true} {
		f, r := newFake(t)
		request := job.RedriveRequest{Filter: job.Filter{Namespace: "default", Covers: func(queue string) bool { return queue == "mail" }}}
		for i, queues := range [][2]string{{"mail", "mail"}, {"mail", "web"}, {"web", "mail"}, {"web", "web"}} {
			key := hourly(t, r, fmt.Sprintf("j%d", i), func(d *job.Definition) { d.Queue = queues[0] })
			id := f.bury(key, 0, queues[1])
			if named {
				request.Records = append(request.Records, job.RecordID(id))
			}
		}
		refused := 3 * len(request.Records) / 4
		for _, request.DryRun = range []bool{true, false} {
			if got, err := r.RedriveDeadLetters(t.Context(), request); err != nil || got.Done != 1 || got.Refused != refused {
				t.Errorf("named %v, dry run %v: %+v %v", named, request.DryRun, got, err)
			}
		}
		if len(f.letters) != 3 || f.letters["default/j0#d0"].Record != "" {
			t.Errorf("named %v: left are %v", named, f.letters)
		}
	}
}

func TestResumeAll(t *testing.T) {
	f, r := newFake(t)
	for i := range 40 {
		d := definition(fmt.Sprintf("j%02d", i))
		d.Queue = []string{"a", "b"}[i%2]
		if _, err := r.Create(t.Context(), d, ""); err != nil {
			t.Fatal(err)
		}
		if i < 20 {
			if _, err := r.Pause(t.Context(), d.Key, "x"); err != nil {
				t.Fatal(err)
			}
		}
	}
	live := job.Key{Namespace: "default", ID: "j00"}
	f.lease(live, 3) // paused while it runs: its status is running
	got, err := r.ResumeAll(t.Context(), job.Filter{Namespace: "default", Queue: "a"}, "", false, "")
	if err != nil || got.Done != 10 || got.Refused != 0 || got.Next != "" {
		t.Errorf("queue a: %+v %v", got, err)
	}
	if f.records[live].State.Paused {
		t.Error("a live job that was paused is left out")
	}
	if got, err = r.ResumeAll(t.Context(), job.Filter{Namespace: "default"}, "", true, ""); err != nil || got.Done != 10 {
		t.Errorf("all: %+v %v", got, err)
	}
	page, err := r.List(t.Context(), job.Filter{Namespace: "default"}, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.ResumeAll(t.Context(), job.Filter{Namespace: "default"}, "", true, page.Next); violated(err) != "page_token" {
		t.Errorf("token of ListJobs: %v", err)
	}
}

func TestQueueSettings(t *testing.T) {
	_, r := newFake(t)
	q := job.QueueKey{Namespace: "default", Queue: "mail"}
	if got, err := r.QueueSettings(t.Context(), q); err != nil || got != (job.QueueSettings{}) {
		t.Errorf("none: %+v %v", got, err)
	}
	want := job.QueueSettings{MaxConcurrency: 5, Rate: 0.5, Burst: 2, RecoveryRate: 10}
	if _, err := r.SetQueueSettings(t.Context(), q, job.QueueChange{Settings: want}); err != nil {
		t.Fatal(err)
	}
	if got, err := r.QueueSettings(t.Context(), q); err != nil || got != want {
		t.Errorf("got %+v %v", got, err)
	}
	nan := 0.0
	nan /= nan
	for field, s := range map[string]job.QueueSettings{
		"settings.max_concurrency": {MaxConcurrency: 100_001},
		"settings.rate":            {Rate: 0.0001},
		"settings.burst":           {Burst: 3},
		"settings.recovery_rate":   {RecoveryRate: nan},
	} {
		if _, err := r.SetQueueSettings(t.Context(), q, job.QueueChange{Settings: s}); violated(err) != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := r.SetQueueSettings(t.Context(), job.QueueKey{Namespace: "a b", Queue: "q"}, job.QueueChange{Settings: want}); violated(err) != "namespace" {
		t.Errorf("bad name: %v", err)
	}
}

// Whoever sets limits says nothing of a pause, and changes nothing of it, also where
// somebody pauses the queue just then.
func TestLimitsAreSetBesideAPause(t *testing.T) {
	f, r := newFake(t)
	q := job.QueueKey{Namespace: "default", Queue: "mail"}
	set := func(want job.QueueSettings, c job.QueueChange) {
		t.Helper()
		if got, err := r.SetQueueSettings(t.Context(), q, c); err != nil || got != want || f.settings[q] != want {
			t.Errorf("answer %+v, %v, stored %+v, want %+v", got, err, f.settings[q], want)
		}
	}
	changes := 0
	r.o.SettingsChanged = func() { changes++ }
	set(job.QueueSettings{Rate: 1}, job.QueueChange{Settings: job.QueueSettings{Rate: 1}, KeepPaused: true})
	set(job.QueueSettings{Rate: 1, Paused: true}, job.QueueChange{Settings: job.QueueSettings{Rate: 1, Paused: true}, Expected: &job.QueueSettings{Rate: 1}})
	set(job.QueueSettings{Rate: 2, Paused: true}, job.QueueChange{Settings: job.QueueSettings{Rate: 2}, KeepPaused: true})
	set(job.QueueSettings{Rate: 3, Paused: true}, job.QueueChange{
		Settings: job.QueueSettings{Rate: 3}, KeepPaused: true, Expected: &job.QueueSettings{Rate: 2, Paused: true},
	})
	set(job.QueueSettings{Paused: true}, job.QueueChange{KeepPaused: true})
	set(job.QueueSettings{}, job.QueueChange{})
	if changes != 6 {
		t.Errorf("%d changes are told of 6", changes)
	}
	f.beforeSwap = func() { f.settings[q], f.beforeSwap = job.QueueSettings{Paused: true}, nil }
	set(job.QueueSettings{Rate: 4, Paused: true}, job.QueueChange{Settings: job.QueueSettings{Rate: 4}, KeepPaused: true})
	burst := 0
	f.beforeSwap = func() { burst++; f.settings[q] = job.QueueSettings{Burst: burst} }
	if _, err := r.SetQueueSettings(t.Context(), q, job.QueueChange{KeepPaused: true}); !errors.Is(err, job.ErrSettingsChanged) || burst != keepTries {
		t.Errorf("settings that change all the time: %v after %d tries", err, burst)
	}
}

// TestSettingsArePartOfAShare: each call that may give a queue settings says whose share they are part of.
func TestSettingsArePartOfAShare(t *testing.T) {
	f, r := newFake(t)
	r.o.QueueOwner = func(context.Context) string { return "ann" }
	q := job.QueueKey{Namespace: "default", Queue: "mail"}
	set := func(c job.QueueChange) func() (job.QueueSettings, error) {
		return func() (job.QueueSettings, error) { return r.SetQueueSettings(t.Context(), q, c) }
	}
	limited := job.QueueSettings{Rate: 1}
	for what, call := range map[string]func() (job.QueueSettings, error){
		"set":          set(job.QueueChange{Settings: limited}),
		"keep a pause": set(job.QueueChange{Settings: limited, KeepPaused: true}),
		"expect none":  set(job.QueueChange{Settings: limited, Expected: &job.QueueSettings{}}),
		"pause":        func() (job.QueueSettings, error) { return r.PauseQueue(t.Context(), q, 0) },
	} {
		f.queueOwner = ""
		delete(f.settings, q)
		if _, err := call(); err != nil || f.queueOwner != "ann" {
			t.Errorf("%s: %v, the settings are part of the share of %q", what, err, f.queueOwner)
		}
	}
}

func TestExplainGathersFacts(t *testing.T) {
	f, r := newFake(t)
	d := definition("ping")
	d.Target = "api"
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	open := backoff.Circuit{Failures: 2, OpenUntilMS: f.now + 5000, FailedJob: "default/other", Error: "503"}
	f.cells[job.TargetName("default", "api")] = open.Encode()
	queue := job.QueueKey{Namespace: "default", Queue: "default"}
	f.settings[queue] = job.QueueSettings{MaxConcurrency: 7}
	f.facts = job.Facts{Holder: "node-1", Held: true, Workers: 2, FreeSlots: 3, ClusterKnown: true}
	record := f.records[ping]
	facts, err := r.gatherFacts(t.Context(), record)
	if err != nil || facts.Holder != "node-1" || facts.FreeSlots != 3 || facts.Queue.MaxConcurrency != 7 || facts.QueueLive != 2 || facts.Target != open {
		t.Errorf("facts %+v %v", facts, err)
	}
	e, err := r.Explain(t.Context(), ping)
	if err != nil || e.Explanation.Summary == "" || len(e.Runs) != 1 || e.Record.Definition.Key != ping {
		t.Errorf("explanation %+v %v", e, err)
	}
	if _, err := r.Explain(t.Context(), job.Key{Namespace: "default", ID: "none"}); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("missing: %v", err)
	}
	f.err = job.ErrUnavailable
	if _, err := r.Explain(t.Context(), ping); !errors.Is(err, job.ErrUnavailable) {
		t.Errorf("no Redis: %v", err)
	}
}

func TestPreviewOfAJob(t *testing.T) {
	f, r := newFake(t)
	d := definition("ping")
	d.Schedule.Jitter = 10 * time.Second
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	record := f.records[ping]
	record.State.Failures, record.State.Due = 2, f.now+30_000
	f.records[ping] = record
	got, err := r.Preview(t.Context(), job.PreviewRequest{Job: ping, Count: 4})
	if err != nil || len(got.Times) != 4 || len(got.Projected) != 4 {
		t.Fatalf("got %+v %v", got, err)
	}
	for _, p := range got.Times {
		if p.Due.Before(p.Nominal) || !p.Due.Before(p.Latest) || p.Latest.Sub(p.Nominal) != 10*time.Second {
			t.Errorf("time %+v", p)
		}
	}
	if !got.Projected[0].Equal(start.Add(30 * time.Second)) {
		t.Errorf("the first is %v, not the planned run", got.Projected[0])
	}
	for i, most := range []time.Duration{8 * time.Minute, 16 * time.Minute, 32 * time.Minute} {
		// With the jitter that they will have: up to a tenth less.
		if wait := got.Projected[i+1].Sub(got.Projected[i]); wait > most || wait < most*9/10 || wait == most {
			t.Errorf("after %d failures it waits %v, want a little less than %v", i+3, wait, most)
		}
	}
	shut := schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute}
	shut.Exclude.Periods = []schedule.Period{{From: start.Add(2 * time.Minute), To: start.Add(time.Hour)}}
	got, err = r.Preview(t.Context(), job.PreviewRequest{Schedule: shut, Backoff: new(backoff.DefaultRecurring()), Count: 3})
	want := []time.Time{start.Add(time.Minute), start.Add(time.Hour), start.Add(time.Hour + 4*time.Minute)}
	if err != nil || !slices.EqualFunc(got.Projected, want, time.Time.Equal) {
		t.Errorf("projected %v (%v), want %v", got.Projected, err, want)
	}
	// The job's name alone settles H and jitter: it need not exist.
	hash := job.PreviewRequest{Schedule: schedule.Spec{Kind: schedule.KindCron, Cron: []string{"H H * * *"}}, Count: 1}
	minutes := map[string]bool{}
	for i := range 8 {
		hash.Job = job.Key{Namespace: "default", ID: fmt.Sprint("x", i)}
		one, err := r.Preview(t.Context(), hash)
		again, err2 := r.Preview(t.Context(), hash)
		if err := errors.Join(err, err2); err != nil || !one.Times[0].Nominal.Equal(again.Times[0].Nominal) {
			t.Fatal(err, one, again)
		}
		minutes[one.Times[0].Nominal.String()] = true
	}
	if len(minutes) < 5 {
		t.Errorf("eight jobs share %v", minutes)
	}
	if _, err := r.Preview(t.Context(), job.PreviewRequest{Job: job.Key{Namespace: "default", ID: "none"}}); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("missing job: %v", err)
	}
}

func TestPreviewTellsOfClockChanges(t *testing.T) {
	_, r := newFake(t)
	got, err := r.Preview(t.Context(), job.PreviewRequest{
		Schedule: schedule.Spec{Kind: schedule.KindCron, Cron: []string{"30 2 * * *"}, TimeZone: "Europe/Berlin"},
		After:    time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC), Count: 3,
	})
	if err != nil || len(got.Times) != 3 {
		t.Fatal(got, err)
	}
	if got.Times[0].Remark != "" || got.Times[1].Remark == "" || got.Times[2].Remark != "" || len(got.Projected) != 0 {
		t.Errorf("got %+v", got)
	}
}
