package convert

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func refused(r Reader) string {
	var fields []string
	for _, v := range r.violations {
		fields = append(fields, v.Field)
	}
	return strings.Join(fields, " ")
}

func TestPresetsExpand(t *testing.T) {
	for _, p := range backoff.Presets() {
		var r Reader
		j := &fermatav1.Job{Handler: "http"}
		if p.Retry != nil {
			j.RetryPolicy = &fermatav1.RetryPolicy{Preset: p.Name}
		}
		if p.Recurring != nil {
			j.BackoffPolicy = &fermatav1.BackoffPolicy{Preset: p.Name}
		}
		d := r.Definition(key, j)
		if r.Err() != nil {
			t.Errorf("%s: %v", p.Name, r.Err())
		}
		if p.Retry != nil && d.Retry != *p.Retry || p.Recurring != nil && (d.Backoff != *p.Recurring || d.MinInterval != p.MinInterval) {
			t.Errorf("%s becomes %+v %+v %v", p.Name, d.Retry, d.Backoff, d.MinInterval)
		}
		// What is read back carries the fields, and gives the same again.
		var again Reader
		written := DefinitionToPB(&d)
		if back := again.Definition(key, written); written.GetRetryPolicy().GetPreset() != "" || !back.Equal(&d) {
			t.Errorf("%s comes back as %v", p.Name, written)
		}
	}
}

func TestWrongPresetsAreRefused(t *testing.T) {
	for want, j := range map[string]*fermatav1.Job{
		"job.retry_policy.preset":                {RetryPolicy: &fermatav1.RetryPolicy{Preset: "nope"}},
		"job.backoff_policy.preset":              {BackoffPolicy: &fermatav1.BackoffPolicy{Preset: "webhook"}},
		"job.retry_policy.sources[max_attempts]": {RetryPolicy: &fermatav1.RetryPolicy{MaxAttempts: 2, Sources: map[string]string{"max_attempts": "queue"}}},
		"job.retry_policy.sources[disabled]":     {RetryPolicy: &fermatav1.RetryPolicy{Sources: map[string]string{"disabled": "job"}}},
		"job.backoff_policy.sources[*]":          {BackoffPolicy: &fermatav1.BackoffPolicy{Sources: map[string]string{"*": "somebody"}}},
	} {
		var r Reader
		r.Definition(key, j)
		if got := refused(r); got != want {
			t.Errorf("want %s, got %q", want, got)
		}
	}
}

func TestPresetByMask(t *testing.T) {
	present := stored()
	merged := DefinitionToPB(&present)
	CopyFields(merged, &fermatav1.Job{
		RetryPolicy:   &fermatav1.RetryPolicy{Preset: "webhook"},
		BackoffPolicy: &fermatav1.BackoffPolicy{Preset: "monitor"},
	}, []string{"retry_policy.preset", "backoff_policy.preset"})
	var r Reader
	d := r.Definition(key, merged)
	webhook, _ := backoff.PresetByName("webhook")
	if r.Err() != nil || d.Retry != *webhook.Retry || d.MinInterval != 5*time.Second {
		t.Errorf("%v: %+v", r.Err(), d)
	}
	// A field beside it counts before the preset.
	merged = DefinitionToPB(&present)
	CopyFields(merged, &fermatav1.Job{RetryPolicy: &fermatav1.RetryPolicy{Preset: "webhook", MaxAttempts: 9}},
		[]string{"retry_policy.max_attempts", "retry_policy.preset"})
	r = Reader{}
	d = r.Definition(key, merged)
	retry := *webhook.Retry
	if retry.MaxAttempts = 9; r.Err() != nil || d.Retry != retry {
		t.Errorf("%v: %+v", r.Err(), d.Retry)
	}
}

// TestEverySettableFieldIsInTheMask: what definitionToPB writes can be edited.
func TestEverySettableFieldIsInTheMask(t *testing.T) {
	outputs := map[string]bool{
		"name": true, "etag": true, "generation": true, "create_time": true, "update_time": true, "status": true, "payload_sealed": true, "payload_key_id": true, "payload_size": true,
		"warnings": true,
	}
	fields := (&fermatav1.Job{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		name := string(fields.Get(i).Name())
		if name == "payload_json" {
			continue // a mask may name it, and means the payload
		}
		if settablePath(name) == outputs[name] {
			t.Errorf("%s: settable %v", name, settablePath(name))
		}
	}
}

func TestDefaultsOfRunPolicies(t *testing.T) {
	var r Reader
	d := r.Definition(key, &fermatav1.Job{Handler: "http", Locks: []*fermatav1.Lock{{Key: "db"}}})
	want := []job.Lock{{Key: "db", Limit: 1}}
	if d.Overlap != job.OverlapSkip || d.Misfire != (job.Misfire{}) || len(d.Locks) != 1 || d.Locks[0] != want[0] || d.PauseAfter != 0 {
		t.Errorf("got %+v", d)
	}
	if p := DefinitionToPB(&d); p.GetOverlapPolicy() != fermatav1.OverlapPolicy_OVERLAP_POLICY_SKIP ||
		p.GetMisfirePolicy().GetPolicy() != fermatav1.MisfirePolicy_POLICY_RUN_ONCE || p.GetMisfirePolicy().GetCatchUpWindow() != nil {
		t.Errorf("written as %v", p)
	}
}

func TestStatusOfAHeldJob(t *testing.T) {
	d := stored()
	d.Schedule.MaxRuns = 10
	state := job.State{
		Region: job.RegionDue, Nominal: 60_000, Due: 62_000, Source: job.DelayHeld, Fired: 4,
		Held:     job.Hold{Reason: job.HeldLock, Key: "db", By: "default/other", SinceMS: 60_100},
		Hint:     job.Hint{Source: job.HintPlanner, IntervalMS: 90_000, UntilMS: 99_000, Reason: "quiet hours"},
		Children: 0b101, Started: 1,
		Backfills: []job.Backfill{{ID: "b1", NextMS: 1000, ToMS: 4999, Concurrency: 2}},
	}
	s := RecordToPB(job.Record{Definition: &d, State: state}, 70_000).GetStatus()
	for name, ok := range map[string]bool{
		"hold": proto.Equal(s.GetHold(), &fermatav1.Hold{
			Reason: fermatav1.Hold_REASON_LOCK, Key: "db", BlockedBy: "default/other", SinceTime: MillisToPB(60_100),
		}),
		"source": s.GetDelaySource() == fermatav1.DelaySource_DELAY_SOURCE_HELD,
		"hint": proto.Equal(s.GetHint(), &fermatav1.Hint{
			Source: fermatav1.Hint_SOURCE_PLANNER, Interval: durationpb.New(90 * time.Second), ExpireTime: MillisToPB(99_000), Reason: "quiet hours",
		}),
		"left":     s.RunsLeft != nil && *s.RunsLeft == 6,
		"children": s.GetConcurrentRuns() == 2,
		"backfill": proto.Equal(s.GetBackfills()[0], &fermatav1.Backfill{Id: "b1", ProgressTime: MillisToPB(1000), EndTime: MillisToPB(5000), Concurrency: 2}),
	} {
		if !ok {
			t.Errorf("%s is wrong in %v", name, s)
		}
	}
	if s := RecordToPB(job.Record{Definition: &d, State: state}, 99_000).GetStatus(); s.GetHint() != nil {
		t.Errorf("an expired hint is shown: %v", s.GetHint())
	}
	state = state.Leased(7)
	d.Schedule.MaxRuns = 0
	if s := RecordToPB(job.Record{Definition: &d, State: state}, 70_000).GetStatus(); s.GetHold() != nil || s.RunsLeft != nil {
		t.Errorf("a live run is not held, and there is no bound: %v", s)
	}
	v, _ := job.State{Region: job.RegionDue, Trigger: job.TriggerBackfill, ManualID: "b1", Nominal: 1000, Due: 2000, Held: state.Held}.CurrentRun()
	run := RunToPB(key, v)
	if run.GetName() != "namespaces/default/jobs/ping/runs/b-b1-1000" || run.GetTrigger() != fermatav1.Run_TRIGGER_BACKFILL || run.GetHold().GetKey() != "db" {
		t.Errorf("run %v", run)
	}
}

func TestZoneOfExclusions(t *testing.T) {
	spec := schedule.Spec{Kind: schedule.KindInterval, Every: time.Hour, TimeZone: "Europe/Berlin"}
	if p := scheduleToPB(spec); p.GetExclusions().GetTimeZone() != "Europe/Berlin" {
		t.Errorf("interval: %v", p)
	}
	spec = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"@daily"}, TimeZone: "Europe/Berlin", Exclude: schedule.Exclusions{Windows: []string{"Sat"}}}
	if p := scheduleToPB(spec); p.GetExclusions().GetTimeZone() != "" || p.GetCron().GetTimeZone() != "Europe/Berlin" {
		t.Errorf("cron: %v", p)
	}
}

func TestLetterNames(t *testing.T) {
	for name, record := range map[string]job.RecordID{
		"namespaces/a/jobs/b/deadLetters/job": "a/b",
		"namespaces/a/jobs/b/deadLetters/0":   "a/b#d0",
		"namespaces/a/jobs/b/deadLetters/2":   "a/b#d2",
	} {
		if got, err := ParseDeadLetter("names", name, "a"); err != nil || got != record || DeadLetterName(record) != name {
			t.Errorf("%s: %q %q %v", name, got, DeadLetterName(record), err)
		}
	}
	for _, bad := range []string{
		"", "namespaces/a/jobs/b", "namespaces/a/jobs/b/deadLetters/", "namespaces/a/jobs/b/deadLetters/-1", "namespaces/a/jobs/b/deadLetters/00",
		"namespaces/a/jobs/b/deadLetters/99999", "namespaces/a/jobs/b/deadLetters/r1", "namespaces/other/jobs/b/deadLetters/0", "namespaces/a/jobs/#/deadLetters/0",
	} {
		if got, err := ParseDeadLetter("names", bad, "a"); err == nil {
			t.Errorf("%q is taken for %q", bad, got)
		}
	}
}
