package rpc

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (f *fakeJobs) RunJob(_ context.Context, _ job.Key, q job.RequestManualRun) (job.RunView, bool, error) {
	f.mode = q.Mode
	return job.RunView{Run: job.Run{ID: "m-" + q.RequestID}}, false, f.err
}

func (f *fakeJobs) RunJobWithPayload(_ context.Context, _ job.Key, q job.RunWithPayloadRequest) (job.RunView, error) {
	f.runPayload = q
	own := &job.RunPayload{Payload: q.Payload}
	return job.RunView{Run: job.Run{ID: "m-" + q.RequestID, Trigger: job.TriggerManual, OwnPayload: own.Describe()}}, f.err
}

func (f *fakeJobs) Resume(_ context.Context, _ job.Key, catchUp bool) (job.Record, error) {
	f.catchUp = catchUp
	return job.Record{Definition: &f.present}, f.err
}

func (f *fakeJobs) Hint(_ context.Context, _ job.Key, h job.Hint) (job.Record, error) {
	f.hint = h
	return job.Record{Definition: &f.present}, f.err
}

func (f *fakeJobs) Backfill(_ context.Context, _ job.Key, q job.BackfillRequest) (job.Record, error) {
	f.backfill = q
	return job.Record{Definition: &f.present}, f.err
}

func (f *fakeJobs) CancelBackfill(_ context.Context, _ job.Key, id string) (job.Record, error) {
	return job.Record{}, &job.MissingPartError{Key: key, Collection: "backfills", ID: id}
}

func (f *fakeJobs) Explain(context.Context, job.Key) (job.ExplainedJob, error) {
	return job.ExplainedJob{
		Explanation: job.Explanation{Summary: "held", Reasons: []job.Reason{
			{Kind: job.ReasonLock, Message: "mutex db", SinceMS: 1000, UntilMS: 2000, Key: "db", By: "a/b"},
		}},
		Record: job.Record{Definition: &f.present},
		Runs:   []job.RunView{{Run: job.Run{ID: "1-1"}, Hold: job.Hold{Reason: job.HeldLock, Key: "db"}}},
	}, f.err
}

func (f *fakeJobs) ListDeadLetters(_ context.Context, filter job.Filter, _ int, _ string) (job.DeadLetterPage, error) {
	f.filter = filter
	return job.DeadLetterPage{Next: "more", DeadLetters: []job.DeadLetter{
		{Record: "default/ping#d1", Queue: "mail", Run: job.Run{ID: "1-5", Outcome: job.OutcomeDead, Error: "503"}, ExpireMS: 9000},
		{Record: "default/once", Queue: "mail", Run: job.Run{ID: "1-6"}, ExpireMS: job.NeverMS},
	}}, f.err
}

func (f *fakeJobs) RedriveDeadLetters(_ context.Context, q job.RedriveRequest) (job.Bulk, error) {
	f.redrive = q
	return job.Bulk{Done: 3, Refused: 1, Next: "n"}, f.err
}

func (f *fakeJobs) PauseAll(_ context.Context, filter job.Filter, note, _ string) (job.Bulk, error) {
	f.filter, f.note = filter, note
	return job.Bulk{Done: 5, Next: "n"}, f.err
}

func (f *fakeJobs) ResumeAll(_ context.Context, filter job.Filter, note string, catchUp bool, _ string) (job.Bulk, error) {
	f.filter, f.note, f.catchUp = filter, note, catchUp
	return job.Bulk{Done: 4, Next: "n"}, f.err
}

func (f *fakeJobs) QueueSettings(_ context.Context, q job.QueueKey) (job.QueueSettings, error) {
	f.queue = q
	return f.settings, f.err
}

func (f *fakeJobs) SetQueueSettings(_ context.Context, q job.QueueKey, c job.QueueChange) (job.QueueSettings, error) {
	f.queue, f.settings, f.change = q, c.Settings, c
	return f.settings, f.err
}

func (f *fakeJobs) PlanJobs(_ context.Context, desired []job.DesiredJob, force bool) []job.ApplyResult {
	f.desired, f.force = desired, force
	return f.wished
}

func (f *fakeJobs) ApplyJobs(ctx context.Context, desired []job.DesiredJob, force bool) []job.ApplyResult {
	return f.PlanJobs(ctx, desired, force)
}

func (f *fakeJobs) Preview(_ context.Context, p job.PreviewRequest) (job.Preview, error) {
	f.preview = p
	at := time.Unix(100, 0)
	return job.Preview{
		Times:     []job.PreviewTime{{Nominal: at, Due: at.Add(time.Second), Latest: at.Add(time.Minute), Remark: "moved"}},
		Intervals: []time.Duration{time.Minute}, Projected: []time.Time{at},
	}, f.err
}

func TestPolicyCallsAreTranslated(t *testing.T) {
	b := serve(t)
	b.jobs.present = stored()
	jobs, ctx, name := fermatav1.NewJobServiceClient(b.conn), t.Context(), convert.JobName(key)
	if _, err := jobs.RunJob(ctx, &fermatav1.RunJobRequest{Name: name, Backoff: fermatav1.RunJobRequest_BACKOFF_KEEP}); err != nil || b.jobs.mode != job.ManualKeep {
		t.Errorf("run: %v %v", b.jobs.mode, err)
	}
	if _, err := jobs.ResumeJob(ctx, &fermatav1.ResumeJobRequest{Name: name, CatchUp: true}); err != nil || !b.jobs.catchUp {
		t.Errorf("resume: %v %v", b.jobs.catchUp, err)
	}
	_, err := jobs.HintJob(ctx, &fermatav1.HintJobRequest{Name: name, Hint: &fermatav1.Hint{
		NextRunTime: timestamppb.New(time.UnixMilli(5000)), Interval: durationpb.New(time.Minute), Reason: "r",
	}})
	if want := (job.Hint{Source: job.HintOperator, AtMS: 5000, IntervalMS: 60_000, Reason: "r"}); err != nil || b.jobs.hint != want {
		t.Errorf("hint: %+v %v", b.jobs.hint, err)
	}
	if _, err = jobs.HintJob(ctx, &fermatav1.HintJobRequest{Name: name}); err != nil || b.jobs.hint != (job.Hint{}) {
		t.Errorf("clearing: %+v %v", b.jobs.hint, err)
	}
	if _, err = jobs.HintJob(ctx, &fermatav1.HintJobRequest{Name: name, Hint: &fermatav1.Hint{Interval: &durationpb.Duration{Seconds: 1, Nanos: -1}}}); !slices.Contains(fields(err), "hint.interval") {
		t.Errorf("bad hint: %v", err)
	}
	_, err = jobs.BackfillJob(ctx, &fermatav1.BackfillJobRequest{
		Name: name, StartTime: timestamppb.New(time.UnixMilli(1000)), EndTime: timestamppb.New(time.UnixMilli(2000)), RequestId: "b",
	})
	if want := (job.BackfillRequest{FromMS: 1000, ToMS: 2000, Overlap: job.OverlapBufferAll, RequestID: "b"}); err != nil || b.jobs.backfill != want {
		t.Errorf("backfill: %+v %v", b.jobs.backfill, err)
	}
	if _, err = jobs.CancelBackfill(ctx, &fermatav1.CancelBackfillRequest{Name: name, BackfillId: "b"}); status.Code(err) != codes.NotFound {
		t.Errorf("cancel: %v", err)
	}
	e, err := jobs.ExplainJob(ctx, &fermatav1.ExplainJobRequest{Name: name})
	if err != nil || e.GetSummary() != "held" || e.GetReasons()[0].GetKind() != fermatav1.Reason_KIND_LOCK || e.GetReasons()[0].GetBlockedBy() != "a/b" ||
		e.GetReasons()[0].GetUntilTime().AsTime().UnixMilli() != 2000 || e.GetRuns()[0].GetHold().GetKey() != "db" || e.GetJob().GetName() != name {
		t.Errorf("explain: %v %v", e, err)
	}
}

func TestBulkCallsAreTranslated(t *testing.T) {
	b := serve(t)
	jobs, ctx := fermatav1.NewJobServiceClient(b.conn), t.Context()
	letters, err := jobs.ListDeadLetters(ctx, &fermatav1.ListDeadLettersRequest{Parent: "namespaces/default", Queue: "mail", IdPrefix: "p", Labels: map[string]string{"a": "b"}})
	if err != nil || letters.GetNextPageToken() != "more" || b.jobs.filter.Queue != "mail" || b.jobs.filter.IDPrefix != "p" || b.jobs.filter.Labels["a"] != "b" {
		t.Fatalf("letters: %v %v", letters, err)
	}
	first, second := letters.GetDeadLetters()[0], letters.GetDeadLetters()[1]
	if first.GetName() != "namespaces/default/jobs/ping/deadLetters/1" || first.GetRun().GetName() != "namespaces/default/jobs/ping/runs/1-5" ||
		first.GetRun().GetState() != fermatav1.Run_STATE_FINISHED || first.GetExpireTime().AsTime().UnixMilli() != 9000 {
		t.Errorf("letter %v", first)
	}
	if second.GetName() != "namespaces/default/jobs/once/deadLetters/job" || second.GetExpireTime() != nil {
		t.Errorf("letter %v", second)
	}
	done, err := jobs.RedriveDeadLetters(ctx, &fermatav1.RedriveDeadLettersRequest{Parent: "namespaces/default", Names: []string{first.GetName(), second.GetName()}, DryRun: true})
	if err != nil || done.GetRedriven() != 3 || done.GetRefused() != 1 || done.GetNextPageToken() != "n" ||
		!slices.Equal(b.jobs.redrive.Records, []job.RecordID{"default/ping#d1", "default/once"}) || !b.jobs.redrive.DryRun {
		t.Errorf("redrive: %v %+v %v", done, b.jobs.redrive, err)
	}
	for _, q := range []*fermatav1.RedriveDeadLettersRequest{
		{Parent: "namespaces/other", Names: []string{first.GetName()}},
		{Parent: "namespaces/default", Names: make([]string, 1001)},
	} {
		if _, err := jobs.RedriveDeadLetters(ctx, q); !slices.Contains(fields(err), "names") {
			t.Errorf("redrive: %v", err)
		}
	}
	paused, err := jobs.PauseJobs(ctx, &fermatav1.PauseJobsRequest{Parent: "namespaces/m", Queue: "mail", Note: "deploy"})
	if err != nil || paused.GetPaused() != 5 || paused.GetNextPageToken() != "n" || b.jobs.filter.Namespace != "m" || b.jobs.filter.Queue != "mail" || b.jobs.note != "deploy" {
		t.Errorf("pause: %v %v", paused, err)
	}
	resumed, err := jobs.ResumeJobs(ctx, &fermatav1.ResumeJobsRequest{Parent: "namespaces/n", IdPrefix: "x", Note: "why", CatchUp: true})
	if err != nil || resumed.GetResumed() != 4 || resumed.GetNextPageToken() != "n" || b.jobs.filter.Namespace != "n" || !b.jobs.catchUp || b.jobs.note != "why" {
		t.Errorf("resume: %v %v", resumed, err)
	}
}

func TestQueueSettings(t *testing.T) {
	b := serve(t)
	jobs, ctx := fermatav1.NewJobServiceClient(b.conn), t.Context()
	const name = "namespaces/default/queues/mail"
	got, err := jobs.GetQueueSettings(ctx, &fermatav1.GetQueueSettingsRequest{Name: name})
	if err != nil || got.GetName() != name || got.GetRecoveryRate() != job.DefaultRecoveryRate || got.GetMaxConcurrency() != 0 {
		t.Errorf("none: %v %v", got, err)
	}
	got, err = jobs.UpdateQueueSettings(ctx, &fermatav1.UpdateQueueSettingsRequest{
		Settings: &fermatav1.QueueSettings{Name: name, MaxConcurrency: 5, Rate: 2.5, Burst: 3, RecoveryRate: 7},
	})
	want := job.QueueSettings{MaxConcurrency: 5, Rate: 2.5, Burst: 3, RecoveryRate: 7}
	if err != nil || b.jobs.settings != want || b.jobs.queue != (job.QueueKey{Namespace: "default", Queue: "mail"}) || got.GetRate() != 2.5 {
		t.Errorf("set: %+v %v %v", b.jobs.settings, got, err)
	}
	if b.jobs.change.Expected != nil || !b.jobs.change.KeepPaused || got.Paused == nil {
		t.Errorf("change %+v, answer %v", b.jobs.change, got)
	}
	if _, err = jobs.UpdateQueueSettings(ctx, &fermatav1.UpdateQueueSettingsRequest{
		Settings: &fermatav1.QueueSettings{Name: name}, Expected: &fermatav1.QueueSettings{Burst: 3, RecoveryRate: job.DefaultRecoveryRate},
	}); err != nil || b.jobs.change.Expected == nil || *b.jobs.change.Expected != (job.QueueSettings{Burst: 3}) {
		t.Errorf("change %+v, %v", b.jobs.change, err)
	}
	for _, paused := range []bool{true, false} {
		got, err := jobs.UpdateQueueSettings(ctx, &fermatav1.UpdateQueueSettingsRequest{
			Settings: &fermatav1.QueueSettings{Name: name, Paused: &paused}, Expected: &fermatav1.QueueSettings{Paused: new(!paused)},
		})
		if err != nil || got.GetPaused() != paused || b.jobs.settings != (job.QueueSettings{Paused: paused}) ||
			b.jobs.change.KeepPaused || b.jobs.change.Expected.Paused == paused {
			t.Errorf("paused %v: %+v, %v, %v", paused, b.jobs.change, got, err)
		}
	}
	for _, bad := range []string{"", "namespaces/default", "namespaces/a b/queues/c", "namespaces/a/queues/.x"} {
		if _, err := jobs.GetQueueSettings(ctx, &fermatav1.GetQueueSettingsRequest{Name: bad}); !slices.Contains(fields(err), "name") {
			t.Errorf("%q: %v", bad, err)
		}
		if _, err := jobs.UpdateQueueSettings(ctx, &fermatav1.UpdateQueueSettingsRequest{Settings: &fermatav1.QueueSettings{Name: bad}}); !slices.Contains(fields(err), "settings.name") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestPreviewAndPresets(t *testing.T) {
	b := serve(t)
	jobs, ctx := fermatav1.NewJobServiceClient(b.conn), t.Context()
	got, err := jobs.PreviewSchedule(ctx, &fermatav1.PreviewScheduleRequest{
		Job: convert.JobName(key), BackoffPolicy: &fermatav1.BackoffPolicy{Preset: "monitor"},
	})
	if err != nil || len(got.GetDueTimes()) != 1 || len(got.GetProjectedDueTimes()) != 1 || got.GetBackoffIntervals()[0].AsDuration() != time.Minute ||
		got.GetTimes()[0].GetDstNote() != "moved" || got.GetTimes()[0].GetLatestDueTime().AsTime().Unix() != 160 || got.GetTimes()[0].GetDueTime().AsTime().Unix() != 101 {
		t.Errorf("preview: %v %v", got, err)
	}
	p := b.jobs.preview
	if p.Job != key || !p.Schedule.Equal(schedule.Spec{}) || p.Backoff == nil || p.MinInterval != 5*time.Second {
		t.Errorf("request %+v", p)
	}
	if _, err := jobs.PreviewSchedule(ctx, &fermatav1.PreviewScheduleRequest{Job: "ping"}); !slices.Contains(fields(err), "job") {
		t.Errorf("bad name: %v", err)
	}
	presets, err := jobs.ListPresets(ctx, &fermatav1.ListPresetsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	waits := map[string]string{}
	for _, p := range presets.GetPresets() {
		text := ""
		for _, w := range p.GetWaits() {
			text += w.AsDuration().String() + " "
		}
		waits[p.GetName()] = text
		if (p.GetRetryPolicy() == nil) == (p.GetBackoffPolicy() == nil) || p.GetDescription() == "" {
			t.Errorf("preset %v", p)
		}
	}
	if waits["webhook"] != "10s 20s 40s 1m20s " || waits["endpoint"] != "1m0s 2m0s 4m0s 8m0s 16m0s 32m0s " {
		t.Errorf("waits %v", waits)
	}
}
