package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
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

func staleHalve() *backoff.Recurring {
	b := backoff.DefaultRecurring()
	b.StaleHalve = true
	return &b
}

func mustCreate(t *testing.T, r *Registry, id, requestID string) job.Record {
	t.Helper()
	record, err := r.Create(t.Context(), definition(id), requestID)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func merge(edit func(*job.Definition)) func(job.Definition) (job.Definition, error) {
	return func(d job.Definition) (job.Definition, error) {
		edit(&d)
		return d, nil
	}
}

func mustUpdate(t *testing.T, r *Registry, edit func(*job.Definition)) job.Record {
	t.Helper()
	record, err := r.Update(t.Context(), job.UpdateRequest{Key: ping, Merge: merge(edit)})
	if err != nil {
		t.Fatal(err)
	}
	return record
}

func TestUpdateChangesEtagAndKeepsBookkeeping(t *testing.T) {
	f, r := newFake(t)
	before := mustCreate(t, r, "ping", "r1")
	f.now += 1000
	after := mustUpdate(t, r, func(d *job.Definition) {
		d.ID, d.CreatedMS, d.Generation, d.Revision = "other", 1, 9, 9
		d.Schedule.Every = 2 * time.Minute
	})
	d := after.Definition
	if d.ID != "ping" || d.CreatedMS != before.Definition.CreatedMS || d.Generation != 2 || d.Revision != 2 || d.CreateRequestID != "r1" {
		t.Errorf("definition %+v", d)
	}
	if before.Definition.Etag() == d.Etag() {
		t.Error("etag has not changed")
	}
	if want := f.now + 120_000; after.State.Due != want {
		t.Errorf("due %d, want %d", after.State.Due, want)
	}
}

func TestUpdateIsRefusedUnderAnotherEtag(t *testing.T) {
	_, r := newFake(t)
	etag := mustCreate(t, r, "ping", "").Definition.Etag()
	mustUpdate(t, r, func(d *job.Definition) { d.Handler = "exec" })
	_, err := r.Update(t.Context(), job.UpdateRequest{Key: ping, Etag: etag, Merge: merge(func(*job.Definition) {})})
	var refused *job.EtagError
	if !errors.As(err, &refused) || refused.Want != etag {
		t.Errorf("got %v", err)
	}
	if err := r.Delete(t.Context(), ping, etag); !errors.As(err, &refused) {
		t.Errorf("delete: got %v", err)
	}
}

func TestUpdateMeetsAConcurrentEdit(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		f, r := newFake(t)
		u := job.UpdateRequest{Key: ping, Merge: merge(func(d *job.Definition) { d.Timeout = time.Minute })}
		etag := mustCreate(t, r, "ping", "").Definition.Etag()
		if guarded {
			u.Etag = etag
		}
		f.meddle = func() { mustUpdate(t, r, func(d *job.Definition) { d.Queue = "mail" }) }
		got, err := r.Update(t.Context(), u)
		var refused *job.EtagError
		switch {
		case guarded && !errors.As(err, &refused):
			t.Errorf("with etag: %v", err)
		case !guarded && (err != nil || got.Definition.Queue != "mail" || got.Definition.Timeout != time.Minute):
			t.Errorf("without etag: %v; one of both edits is lost: %+v", err, got.Definition)
		}
	}
}

func TestDeleteMeetsAConcurrentEdit(t *testing.T) {
	f, r := newFake(t)
	etag := mustCreate(t, r, "ping", "").Definition.Etag()
	f.meddle = func() { mustUpdate(t, r, func(d *job.Definition) { d.Queue = "mail" }) }
	var refused *job.EtagError
	if err := r.Delete(t.Context(), ping, etag); !errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
	if _, err := r.Get(t.Context(), ping); err != nil {
		t.Errorf("the job is gone: %v", err)
	}
}

func TestUpdateReplayHasNoSecondEffect(t *testing.T) {
	_, r := newFake(t)
	mustCreate(t, r, "ping", "")
	u := job.UpdateRequest{Key: ping, RequestID: "u1", Merge: merge(func(d *job.Definition) { d.Timeout += time.Second })}
	first, err1 := r.Update(t.Context(), u)
	second, err2 := r.Update(t.Context(), u)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if first.Definition.Revision != second.Definition.Revision || second.Definition.Timeout != 31*time.Second {
		t.Errorf("second %+v", second.Definition)
	}
}

// TestUpdateReplayAfterOtherEdits: a late repetition undoes nothing, as long as no more
// than seven edits came between.
func TestUpdateReplayAfterOtherEdits(t *testing.T) {
	_, r := newFake(t)
	mustCreate(t, r, "ping", "")
	edit := func(id string, timeout time.Duration) job.Record {
		record, err := r.Update(t.Context(), job.UpdateRequest{Key: ping, RequestID: id, Merge: merge(func(d *job.Definition) { d.Timeout = timeout })})
		if err != nil {
			t.Fatal(err)
		}
		return record
	}
	edit("u1", time.Second)
	for i := range job.MaxRecent - 1 {
		edit(fmt.Sprint("other", i), time.Minute)
		mustUpdate(t, r, func(d *job.Definition) { d.Handler = fmt.Sprint("h", i) }) // has no id, and takes no place
	}
	present := edit("u1", time.Second)
	if present.Definition.Timeout != time.Minute {
		t.Errorf("the repetition of an edit undid others: %+v", present.Definition)
	}
	edit("other8", time.Minute)
	if d := edit("u1", time.Second).Definition; d.Timeout != time.Second || len(d.UpdateRequestIDs) != job.MaxRecent {
		t.Errorf("after eight others: %+v", d)
	}
}

func TestUpdateValidates(t *testing.T) {
	_, r := newFake(t)
	before := mustCreate(t, r, "ping", "")
	_, err := r.Update(t.Context(), job.UpdateRequest{Key: ping, Merge: merge(func(d *job.Definition) { d.Schedule.Every = -1 })})
	if !strings.Contains(violated(err), "job.schedule.interval.every") {
		t.Errorf("got %v", err)
	}
	after, err := r.Get(t.Context(), ping)
	if err != nil || after.Definition.Revision != before.Definition.Revision {
		t.Errorf("stored all the same: %+v, %v", after.Definition, err)
	}
}

func TestMissingJobs(t *testing.T) {
	_, r := newFake(t)
	ctx := t.Context()
	_, errGet := r.Get(ctx, ping)
	_, errUpdate := r.Update(ctx, job.UpdateRequest{Key: ping, Merge: merge(func(*job.Definition) {})})
	_, errPause := r.Pause(ctx, ping, "")
	_, errResume := r.Resume(ctx, ping, false)
	_, _, errRun := r.RunJob(ctx, ping, job.RequestManualRun{RequestID: ""})
	_, errRuns := r.ListRuns(ctx, ping)
	_, errOne := r.GetRun(ctx, ping, "1-1")
	_, errCancel := r.CancelRun(ctx, ping, "1-1")
	errDelete := r.Delete(ctx, ping, "")
	_, errHint := r.Hint(ctx, ping, job.Hint{})
	_, errExplain := r.Explain(ctx, ping)
	_, errBackfill := r.Backfill(ctx, ping, job.BackfillRequest{})
	_, errStop := r.CancelBackfill(ctx, ping, "b")
	for i, err := range []error{
		errGet, errUpdate, errPause, errResume, errRun, errRuns, errOne, errCancel, errDelete,
		errHint, errExplain, errBackfill, errStop,
	} {
		var missing *job.MissingError
		if !errors.As(err, &missing) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if _, err := r.Get(ctx, job.Key{}); violated(err) != "parent job_id" {
		t.Errorf("empty key: %v", err)
	}
}

func TestRunNow(t *testing.T) {
	f, r := newFake(t)
	mustCreate(t, r, "ping", "")
	v, joined, err := r.RunJob(t.Context(), ping, job.RequestManualRun{RequestID: "m1"})
	if err != nil || joined || v.ID != "m-m1" || v.Phase != job.RunWaiting || v.DueMS != f.now {
		t.Fatalf("idle: %+v %v %v", v, joined, err)
	}
	f.lease(ping, 5)
	if v, joined, err = r.RunJob(t.Context(), ping, job.RequestManualRun{RequestID: "m2"}); err != nil || joined || v.ID != "m-m2" {
		t.Fatalf("live: %+v %v %v", v, joined, err)
	}
	if v, joined, err = r.RunJob(t.Context(), ping, job.RequestManualRun{RequestID: "m3"}); err != nil || !joined || v.ID != "m-m2" {
		t.Fatalf("joining: %+v %v %v", v, joined, err)
	}
	if v, _, err = r.RunJob(t.Context(), ping, job.RequestManualRun{RequestID: "m1"}); err != nil || v.ID != "m-m1" || v.Phase != job.RunRunning {
		t.Fatalf("replay: %+v %v", v, err)
	}
	runs, err := r.ListRuns(t.Context(), ping)
	if err != nil || len(runs) != 2 || runs[0].ID != "m-m1" || runs[1].ID != "m-m2" {
		t.Errorf("runs %+v %v", runs, err)
	}
	if _, _, err := r.RunJob(t.Context(), ping, job.RequestManualRun{RequestID: "a/b"}); violated(err) != "request_id" {
		t.Errorf("bad id: %v", err)
	}
}

func TestCancel(t *testing.T) {
	f, r := newFake(t)
	created := mustCreate(t, r, "ping", "")
	waiting := created.State.RunID()
	v, err := r.CancelRun(t.Context(), ping, waiting)
	if err != nil || v.Outcome != job.OutcomeCancelled || v.Phase != job.RunFinished {
		t.Fatalf("waiting: %+v %v", v, err)
	}
	if v, err = r.CancelRun(t.Context(), ping, waiting); err != nil || v.Outcome != job.OutcomeCancelled {
		t.Fatalf("replay: %+v %v", v, err)
	}
	live, err := r.Get(t.Context(), ping)
	if err != nil {
		t.Fatal(err)
	}
	f.lease(ping, 9)
	if _, _, err := r.RunJob(t.Context(), ping, job.RequestManualRun{RequestID: "m1"}); err != nil {
		t.Fatal(err)
	}
	if v, err = r.CancelRun(t.Context(), ping, live.State.RunID()); err != nil || v.Phase != job.RunRunning {
		t.Fatalf("live: %+v %v", v, err)
	}
	if !slices.Equal(f.cancelled, []uint64{9}) {
		t.Errorf("the worker was told %v", f.cancelled)
	}
	if v, err = r.CancelRun(t.Context(), ping, "m-m1"); err != nil || v.Outcome != job.OutcomeCancelled {
		t.Fatalf("manual run that waits: %+v %v", v, err)
	}
	if s := f.records[ping].State; s.Pending != "" || !s.Live() || !s.Cancel {
		t.Errorf("state %+v", s)
	}
	if _, err := r.CancelRun(t.Context(), ping, "1-1"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("unknown run: %v", err)
	}
}

func TestListVisitsEveryJobOnce(t *testing.T) {
	_, r := newFake(t)
	var requests []job.CreateRequest
	for i := range 201 {
		d := definition(fmt.Sprintf("j%d", i*7919%1000))
		d.Queue = []string{"a", "b", "c"}[i%3]
		d.Labels = map[string]string{"team": d.Queue}
		requests = append(requests, job.CreateRequest{Definition: d})
	}
	r.CreateBatch(t.Context(), requests)
	for _, size := range []int{3, 100, 1000} {
		for queue, want := range map[string]int{"": 201, "b": 67, "x": 0} {
			f := job.Filter{Namespace: "default", Queue: queue}
			if queue == "b" {
				f.Queue, f.Labels = "", map[string]string{"team": "b"}
			}
			seen := map[string]int{}
			for token, first := "", true; first || token != ""; first = false {
				page, err := r.List(t.Context(), f, size, token)
				if err != nil {
					t.Fatal(err)
				}
				if len(page.Records) > size {
					t.Fatalf("page of %d, at most %d asked", len(page.Records), size)
				}
				for _, record := range page.Records {
					seen[record.Definition.ID]++
				}
				token = page.Next
			}
			for id, n := range seen {
				if n != 1 {
					t.Errorf("size %d queue %q: %s came %d times", size, queue, id, n)
				}
			}
			if len(seen) != want {
				t.Errorf("size %d queue %q: %d jobs, want %d", size, queue, len(seen), want)
			}
		}
	}
}

// TestPagesEndInTime: one that has looked for its time ends, also if it is empty, and the
// next goes on.
func TestPagesEndInTime(t *testing.T) {
	_, r := newFake(t)
	var requests []job.CreateRequest
	for i := range 2 * filterChunk {
		requests = append(requests, job.CreateRequest{Definition: definition(fmt.Sprint("j", i))})
	}
	r.CreateBatch(t.Context(), requests)
	hasty := *r
	hasty.o.ScanTime = 1
	pages := 0
	for token, first := "", true; first || token != ""; first = false {
		page, err := hasty.List(t.Context(), job.Filter{Namespace: "default", IDPrefix: "none"}, 1, token)
		if err != nil || len(page.Records) > 0 {
			t.Fatalf("%v, %v", page, err)
		}
		pages, token = pages+1, page.Next
	}
	if whole, err := r.List(t.Context(), job.Filter{Namespace: "default", IDPrefix: "none"}, 1, ""); pages < 2 || whole.Next != "" || err != nil {
		t.Errorf("%d hasty pages; without haste: %v, %v", pages, whole, err)
	}
}

func TestListFiltersAndRefuses(t *testing.T) {
	f, r := newFake(t)
	mustCreate(t, r, "ping", "")
	mustCreate(t, r, "pong", "")
	if _, err := r.Pause(t.Context(), ping, "x"); err != nil {
		t.Fatal(err)
	}
	pong := f.records[job.Key{Namespace: "default", ID: "pong"}]
	pong.State.Failures = 4
	f.records[pong.Definition.Key] = pong
	for want, filter := range map[string]job.Filter{
		"[ping]":      {Status: job.StatusPaused},
		"[pong]":      {Status: job.StatusScheduled},
		"[ping pong]": {IDPrefix: "p"},
		"[]":          {IDPrefix: "x"},
		"[pong ]":     {MinFailures: 4},
	} {
		filter.Namespace = "default"
		page, err := r.List(t.Context(), filter, 0, "")
		var ids []string
		for _, record := range page.Records {
			ids = append(ids, record.Definition.ID)
		}
		if got := fmt.Sprint(ids); err != nil || got != strings.Replace(want, " ]", "]", 1) {
			t.Errorf("%+v: %s, %v", filter, got, err)
		}
	}
	page, err := r.List(t.Context(), job.Filter{Namespace: "default"}, 1, "")
	if err != nil || page.Next == "" {
		t.Fatalf("page %+v, %v", page, err)
	}
	for field, call := range map[string]func() error{
		"parent":     func() error { _, err := r.List(t.Context(), job.Filter{}, 1, ""); return err },
		"page_size":  func() error { _, err := r.List(t.Context(), job.Filter{Namespace: "n"}, 1001, ""); return err },
		"page_token": func() error { _, err := r.List(t.Context(), job.Filter{Namespace: "n"}, 1, page.Next); return err },
		"min_consecutive_failures": func() error {
			_, err := r.List(t.Context(), job.Filter{Namespace: "n", MinFailures: -1}, 1, "")
			return err
		},
	} {
		if err := call(); violated(err) != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := r.List(t.Context(), job.Filter{Namespace: "n"}, 1, "rubbish!"); violated(err) != "page_token" {
		t.Errorf("rubbish: %v", err)
	}
	// One that is made by hand, for the right listing, of places that there are not.
	var fields map[string]any
	text, err := base64.RawURLEncoding.DecodeString(page.Next)
	if err := errors.Join(err, json.Unmarshal(text, &fields)); err != nil {
		t.Fatal(err)
	}
	for _, cursor := range []string{"-1", "9999", "0.0", "*", "n/*"} {
		fields["c"] = cursor
		forged, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.List(t.Context(), job.Filter{Namespace: "default"}, 1, base64.RawURLEncoding.EncodeToString(forged))
		if violated(err) != "page_token" {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

// A manual run at an excluded time is refused with what to do about it.
func TestManualRunAtAnExcludedTime(t *testing.T) {
	f, r := newFake(t)
	d := definition("ping")
	d.Schedule.Exclude.Periods = []schedule.Period{{From: start.Add(-time.Second), To: start.Add(time.Hour)}}
	if _, err := r.Create(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	var unfit *job.PreconditionError
	_, _, err := r.RunJob(t.Context(), ping, job.RequestManualRun{RequestID: "m"})
	if !errors.As(err, &unfit) || unfit.Reason != job.ReasonExcludedTime {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{"until " + start.Add(time.Hour).UTC().Format(time.RFC3339), "--ignore-exclusions"} {
		if !strings.Contains(unfit.Text, part) {
			t.Errorf("%q says nothing of %q", unfit.Text, part)
		}
	}
	if v, joined, err := r.RunJob(t.Context(), ping, job.RequestManualRun{RequestID: "m", IgnoreExclusions: true}); err != nil || joined || v.DueMS != f.now {
		t.Errorf("%+v %v %v", v, joined, err)
	}
	f.now += unixtime.Milli(2 * time.Hour.Milliseconds())
	if _, _, err := r.RunJob(t.Context(), ping, job.RequestManualRun{RequestID: "n"}); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// TestEveryWriteIsBegun: calls say so before something is stored for them.
func TestEveryWriteIsBegun(t *testing.T) {
	f, r := newFake(t)
	begun := 0
	r.o.BeginWrite = func(context.Context) bool { begun++; return true }
	ctx, key, queue := t.Context(), job.Key{Namespace: "default", ID: "j"}, job.QueueKey{Namespace: "default", Queue: "q"}
	filter := job.Filter{Namespace: "default"}
	for _, c := range []struct {
		name string
		call func() error
	}{
		{"create", func() error { _, err := r.Create(ctx, definition("j"), ""); return err }},
		{"update", func() error {
			_, err := r.Update(ctx, job.UpdateRequest{Key: key, Merge: func(d job.Definition) (job.Definition, error) {
				d.MaxLag = time.Hour
				return d, nil
			}})
			return err
		}},
		{"run", func() error { _, _, err := r.RunJob(ctx, key, job.RequestManualRun{RequestID: "r"}); return err }},
		{"pause", func() error { _, err := r.Pause(ctx, key, ""); return err }},
		{"resume all", func() error { _, err := r.ResumeAll(ctx, filter, "", false, ""); return err }},
		{"pause all", func() error { _, err := r.PauseAll(ctx, filter, "", ""); return err }},
		{"resume", func() error { _, err := r.Resume(ctx, key, false); return err }},
		{"redrive", func() error {
			_, err := r.RedriveDeadLetters(ctx, job.RedriveRequest{Filter: filter, Records: []job.RecordID{job.RecordID(f.bury(key, 0, "q"))}})
			return err
		}},
		{"settings", func() error {
			_, err := r.SetQueueSettings(ctx, queue, job.QueueChange{Settings: job.QueueSettings{Rate: 1}})
			return err
		}},
		{"settings but the pause", func() error {
			_, err := r.SetQueueSettings(ctx, queue, job.QueueChange{Settings: job.QueueSettings{Rate: 2}, KeepPaused: true})
			return err
		}},
		{"settings of a plan", func() error {
			_, err := r.SetQueueSettings(ctx, queue, job.QueueChange{Expected: &job.QueueSettings{Rate: 2}})
			return err
		}},
		{"restore", func() error {
			return r.Restore(ctx, []job.Backup{{Definition: definition("restored")}}, job.ExistingSkip)[0].Err
		}},
		{"apply", func() error {
			return r.ApplyJobs(ctx, []job.DesiredJob{{Definition: definition("applied")}}, true)[0].Err
		}},
		{"apply a deletion", func() error {
			etag := f.records[job.Key{Namespace: "default", ID: "applied"}].Definition.Etag()
			return r.ApplyJobs(ctx, []job.DesiredJob{{Definition: definition("applied"), Delete: true, Etag: etag}}, true)[0].Err
		}},
		{"delete", func() error { return r.Delete(ctx, key, "") }},
	} {
		before := begun
		if err := c.call(); err != nil || begun == before {
			t.Errorf("%s: begun %d times, %v", c.name, begun-before, err)
		}
	}
	f.err = job.ErrUnavailable
	before := begun
	if _, err := r.Pause(ctx, key, ""); err == nil || begun != before {
		t.Errorf("a call that could not read has begun to write (%v)", err)
	}
}
