package convert

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

var key = job.Key{Namespace: "default", ID: "ping"}

// duration draws whole milliseconds.
func duration(t *rapid.T, label string, low, high time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(low.Milliseconds(), high.Milliseconds()).Draw(t, label)) * time.Millisecond
}

func instant(t *rapid.T, label string) time.Time {
	return time.UnixMilli(rapid.Int64Range(1, int64(job.NeverMS-1)).Draw(t, label)).UTC()
}

func drawJitter(t *rapid.T) backoff.Jitter {
	return backoff.Jitter{
		Kind:     rapid.SampledFrom([]backoff.JitterKind{0, 1, 2, 3, 4, 5}).Draw(t, "kind"),
		Fraction: rapid.Float64Range(0, 1).Draw(t, "fraction"),
	}
}

func drawSchedule(t *rapid.T) schedule.Spec {
	s := schedule.Spec{Kind: schedule.Kind(rapid.IntRange(0, int(schedule.KindCalendar)).Draw(t, "schedule"))}
	switch s.Kind {
	case schedule.KindOnce:
		s.At = instant(t, "at")
		return s
	case schedule.KindInterval:
		s.Every = duration(t, "every", 5*time.Second, 1000*time.Hour)
		s.FixedDelay = rapid.Bool().Draw(t, "fixed delay")
	case schedule.KindCron:
		s.Cron = rapid.SampledFrom([][]string{{"0 0 5 * * *"}, {"*/10 * * * * *", "0 0 12 * * MON"}}).Draw(t, "cron")
		s.Seconds = true
	case schedule.KindCalendar:
		s.Calendar = schedule.Calendar{
			Every: rapid.IntRange(0, 9).Draw(t, "every"), Unit: schedule.CalendarUnit(rapid.IntRange(0, 2).Draw(t, "unit")),
			Times: []string{"09:00", "17:30"}, From: rapid.SampledFrom([]string{"", "2026-11-30"}).Draw(t, "from"),
		}
		switch s.Calendar.Unit {
		case schedule.CalendarWeek:
			s.Calendar.Weekdays = rapid.SampledFrom([][]time.Weekday{nil, {time.Saturday, time.Sunday}}).Draw(t, "weekdays")
		case schedule.CalendarMonth:
			s.Calendar.MonthDays = rapid.SampledFrom([][]int{nil, {31, -1}}).Draw(t, "month days")
			s.Calendar.ShortMonth = schedule.ShortMonthPolicy(rapid.IntRange(0, 1).Draw(t, "short month"))
		}
	}
	if s.Kind.Local() {
		s.TimeZone = rapid.SampledFrom([]string{"", "UTC"}).Draw(t, "zone")
		s.Gap = schedule.GapPolicy(rapid.IntRange(0, 1).Draw(t, "gap"))
		s.Repeat = schedule.RepeatPolicy(rapid.IntRange(0, 2).Draw(t, "repeat"))
	}
	if rapid.Bool().Draw(t, "bounded") {
		s.StartAt = instant(t, "start")
		s.EndAt = s.StartAt.Add(time.Hour)
	}
	if s.Kind != schedule.KindNone {
		s.Exclude = drawExclusions(t)
		s.Jitter = duration(t, "spread", 0, 24*time.Hour)
		s.MaxRuns = rapid.IntRange(0, 1000).Draw(t, "max runs")
	}
	if s.Kind == schedule.KindInterval {
		s.TimeZone = rapid.SampledFrom([]string{"", "Europe/Berlin"}).Draw(t, "zone of exclusions")
	}
	return s
}

func drawExclusions(t *rapid.T) schedule.Exclusions {
	e := schedule.Exclusions{
		Cron:    rapid.SampledFrom([][]string{nil, {"0 0 * * *"}}).Draw(t, "x.cron"),
		Dates:   rapid.SampledFrom([][]string{nil, {"2026-12-25", "12-24"}}).Draw(t, "x.dates"),
		Windows: rapid.SampledFrom([][]string{nil, {"Sat,Sun", "22:00-06:00"}}).Draw(t, "x.windows"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "x.periods") {
		from := instant(t, "x.from")
		e.Periods = append(e.Periods, schedule.Period{From: from, To: from.Add(time.Hour)})
	}
	return e
}

func drawLocks(t *rapid.T) []job.Lock {
	var locks []job.Lock
	for range rapid.IntRange(0, job.MaxLocks).Draw(t, "locks") {
		locks = append(locks, job.Lock{
			Key:   rapid.StringMatching(`[a-z]{1,9}`).Draw(t, "lock"),
			Limit: rapid.IntRange(1, job.MaxLockLimit).Draw(t, "limit"),
		})
	}
	return locks
}

// drawDefinition draws what Validate accepts, but for the fit of cron and window.
func drawDefinition(t *rapid.T) job.Definition {
	text := rapid.StringMatching(`[a-z0-9][a-z0-9._-]{0,20}`)
	d := job.Definition{
		Key:      job.Key{Namespace: text.Draw(t, "namespace"), ID: text.Draw(t, "id")},
		Queue:    text.Draw(t, "queue"),
		Priority: uint8(rapid.IntRange(0, 9).Draw(t, "priority")),
		Handler:  text.Draw(t, "handler"),
		Payload:  rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
		Labels:   rapid.MapOfN(text, text, 0, 4).Draw(t, "labels"),
		Schedule: drawSchedule(t),
		Retry: backoff.Retry{
			Strategy:     rapid.SampledFrom([]backoff.Strategy{0, 1, 2, 3}).Draw(t, "strategy"),
			Base:         duration(t, "base", 0, time.Hour),
			Multiplier:   rapid.Float64Range(1, 100).Draw(t, "multiplier"),
			Offset:       rapid.IntRange(0, 1).Draw(t, "offset"),
			MaxDoublings: rapid.IntRange(0, 50).Draw(t, "doublings"),
			MaxDelay:     duration(t, "cap", 0, 2*time.Hour),
			MaxAttempts:  rapid.IntRange(1, 1000).Draw(t, "attempts"),
			MaxElapsed:   duration(t, "elapsed", 0, time.Hour),
			Jitter:       drawJitter(t),
		},
		Backoff: backoff.Recurring{
			Disabled:    rapid.Bool().Draw(t, "disabled"),
			Multiplier:  rapid.Float64Range(1, 100).Draw(t, "b.multiplier"),
			MaxExponent: rapid.IntRange(0, 62).Draw(t, "b.exponent"),
			MaxDelay:    duration(t, "b.cap", 0, 100*time.Hour),
			MaxRatio:    rapid.SampledFrom([]float64{0, 1, 32}).Draw(t, "b.ratio"),
			Jitter:      drawJitter(t),
			StaleAfter:  duration(t, "b.stale", 0, time.Hour),
			StaleHalve:  rapid.Bool().Draw(t, "b.halve"),
			WithinSlot:  rapid.Bool().Draw(t, "b.slot"),
		},
		Overlap:      job.Overlap(rapid.IntRange(0, 5).Draw(t, "overlap")),
		OverlapLimit: rapid.IntRange(0, job.MaxBufferedRuns).Draw(t, "overlap limit"),
		Misfire: job.Misfire{
			Policy:     job.MisfirePolicy(rapid.IntRange(0, 2).Draw(t, "misfire")),
			Window:     duration(t, "window", 0, time.Hour),
			MaxCatchUp: rapid.IntRange(0, job.MaxCatchUpRuns).Draw(t, "catch up"),
		},
		Locks:         drawLocks(t),
		Target:        rapid.SampledFrom([]string{"", "api.example.com"}).Draw(t, "target"),
		PauseAfter:    rapid.IntRange(0, 100).Draw(t, "pause after"),
		MaxLag:        duration(t, "max lag", 0, time.Hour),
		MinInterval:   duration(t, "min", 0, time.Hour),
		MaxInterval:   duration(t, "max", 0, time.Hour),
		Timeout:       duration(t, "timeout", time.Millisecond, 24*time.Hour),
		TimeoutGrace:  duration(t, "grace", 0, time.Minute),
		HistoryLimit:  rapid.IntRange(0, 100).Draw(t, "history"),
		Retention:     duration(t, "retention", 0, time.Hour),
		DeadLetterTTL: duration(t, "ttl", 0, time.Hour),
	}
	return d
}

// TestDefinitionsComeBackTheSame: through the wire and through JSON.
func TestDefinitionsComeBackTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDefinition(t)
		written := DefinitionToPB(&d)
		wire, err := proto.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		var fromWire, fromJSON fermatav1.Job
		if err := proto.Unmarshal(wire, &fromWire); err != nil {
			t.Fatal(err)
		}
		text, err := protojson.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal(text, &fromJSON); err != nil {
			t.Fatal(err)
		}
		for _, p := range []*fermatav1.Job{&fromWire, &fromJSON} {
			var r Reader
			if got := r.Definition(d.Key, p); r.Err() != nil || !got.Equal(&d) {
				t.Fatalf("%v\ngot  %+v\nwant %+v", r.Err(), got, d)
			}
		}
	})
}

func TestUnsetFieldsGetDefaults(t *testing.T) {
	every := &fermatav1.Schedule{Rule: &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(time.Minute)}}}
	var r Reader
	d := r.Definition(key, &fermatav1.Job{Handler: "http", Schedule: every})
	want := job.WithDefaults(job.Definition{Key: key, Handler: "http", Schedule: d.Schedule})
	want.Priority, want.HistoryLimit = 5, 10
	if !d.Equal(&want) || d.Retry.MaxAttempts != 1 || d.TimeoutGrace != 5*time.Second {
		t.Errorf("got %+v", d)
	}
	d = r.Definition(key, &fermatav1.Job{Handler: "http"})
	if d.Retry != backoff.DefaultRetry() || d.Schedule.Kind != schedule.KindNone {
		t.Errorf("manual job: %+v", d)
	}
	d = r.Definition(key, &fermatav1.Job{Handler: "http", Schedule: every, RetryPolicy: &fermatav1.RetryPolicy{}, BackoffPolicy: &fermatav1.BackoffPolicy{}})
	if d.Retry != backoff.DefaultRetry() || d.Backoff != backoff.DefaultRecurring() {
		t.Errorf("empty policies: %+v %+v", d.Retry, d.Backoff)
	}
	d = r.Definition(key, &fermatav1.Job{RetryPolicy: &fermatav1.RetryPolicy{BaseDelay: durationpb.New(time.Hour)}})
	if v := d.Retry.Validate(); len(v) != 0 {
		t.Errorf("a long base delay alone: %v", v)
	}
}

func TestExplicitZerosStay(t *testing.T) {
	zero := durationpb.New(0)
	var r Reader
	d := r.Definition(key, &fermatav1.Job{
		Priority: new(int32(0)), HistoryLimit: new(int32(0)), TimeoutGrace: zero, Retention: zero, DeadLetterTtl: zero, Timeout: zero,
		BackoffPolicy: &fermatav1.BackoffPolicy{MaxExponent: new(int32(0)), MaxDelay: zero, Jitter: &fermatav1.Jitter{Fraction: new(0.0)}},
	})
	if d.Priority != 0 || d.HistoryLimit != 0 || d.TimeoutGrace != 0 || d.Retention != 0 || d.DeadLetterTTL != 0 || d.Timeout != 0 ||
		d.Backoff.MaxExponent != 0 || d.Backoff.MaxDelay != 0 || d.Backoff.Jitter.Fraction != 0 {
		t.Errorf("got %+v", d)
	}
}

func TestUnreadableValuesNameTheirField(t *testing.T) {
	bad := &durationpb.Duration{Seconds: 1, Nanos: -1}
	var r Reader
	r.Definition(key, &fermatav1.Job{
		Timeout:       bad,
		RetryPolicy:   &fermatav1.RetryPolicy{MaxElapsed: bad},
		BackoffPolicy: &fermatav1.BackoffPolicy{MinInterval: bad},
		Schedule: &fermatav1.Schedule{
			StartTime: &timestamppb.Timestamp{Nanos: -1}, Jitter: bad,
			Exclusions: &fermatav1.Exclusions{
				TimeZone: "Europe/Berlin",
				Periods:  []*fermatav1.Exclusions_Period{{}, {EndTime: &timestamppb.Timestamp{Nanos: -1}}},
			},
		},
		MisfirePolicy: &fermatav1.MisfirePolicy{CatchUpWindow: bad},
	})
	got := map[string]bool{}
	for _, v := range r.violations {
		got[v.Field] = true
	}
	for _, field := range []string{"job.timeout", "job.retry_policy.max_elapsed", "job.backoff_policy.min_interval", "job.schedule.start_time",
		"job.schedule.jitter", "job.schedule.exclusions.time_zone", "job.schedule.exclusions.periods[1].end_time", "job.misfire_policy.catch_up_window"} {
		if !got[field] {
			t.Errorf("%s is not named in %v", field, r.violations)
		}
	}
}

func TestOutOfRangeValuesReachValidation(t *testing.T) {
	for field, p := range map[string]*fermatav1.Job{
		"job.priority":                   {Priority: new(int32(-1))},
		"job.history_limit":              {HistoryLimit: new(int32(-1))},
		"job.retry_policy.strategy":      {RetryPolicy: &fermatav1.RetryPolicy{Strategy: 99}},
		"job.retry_policy.jitter.kind":   {RetryPolicy: &fermatav1.RetryPolicy{Jitter: &fermatav1.Jitter{Kind: 99}}},
		"job.retry_policy.max_attempts":  {RetryPolicy: &fermatav1.RetryPolicy{MaxAttempts: -1}},
		"job.timeout":                    {Timeout: &durationpb.Duration{Seconds: 1 << 37}},
		"job.backoff_policy.max_delay":   {BackoffPolicy: &fermatav1.BackoffPolicy{MaxDelay: durationpb.New(-time.Second)}},
		"job.schedule.once":              {Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: &timestamppb.Timestamp{}}}},
		"job.schedule.cron.dst_gap":      {Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Cron{Cron: &fermatav1.CronSchedule{Expressions: []string{"0 0 * * *"}, DstGap: 99}}}},
		"job.schedule.interval.every":    {Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Interval{}}},
		"job.schedule.cron.expressions":  {Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Cron{}}},
		"job.backoff_policy.jitter.kind": {BackoffPolicy: &fermatav1.BackoffPolicy{Jitter: &fermatav1.Jitter{Kind: 42}}},
		"job.schedule.exclusions.time_zone": {Schedule: &fermatav1.Schedule{
			Rule:       &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(time.Hour)}},
			Exclusions: &fermatav1.Exclusions{TimeZone: "X/Y"},
		}},
		"job.schedule.exclusions.windows[1]": {Schedule: &fermatav1.Schedule{
			Rule:       &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(time.Hour)}},
			Exclusions: &fermatav1.Exclusions{Windows: []string{"Sat", "Foo"}},
		}},
		"job.schedule.jitter": {Schedule: &fermatav1.Schedule{
			Rule:   &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(time.Hour)}},
			Jitter: durationpb.New(25 * time.Hour),
		}},
		"job.misfire_policy.max_catch_up": {MisfirePolicy: &fermatav1.MisfirePolicy{
			Policy: fermatav1.MisfirePolicy_POLICY_RUN_ALL, MaxCatchUp: 10_001,
		}},
		"job.overlap_policy":        {OverlapPolicy: 99},
		"job.overlap_limit":         {OverlapPolicy: fermatav1.OverlapPolicy_OVERLAP_POLICY_ALLOW_ALL, OverlapLimit: 65},
		"job.misfire_policy.policy": {MisfirePolicy: &fermatav1.MisfirePolicy{Policy: 99}},
		"job.locks[0].limit":        {Locks: []*fermatav1.Lock{{Key: "k", Limit: -1}}},
		"job.pause_after_failures":  {PauseAfterFailures: -1},
		"job.max_lag":               {MaxLag: durationpb.New(-time.Second)},
		"job.schedule.max_runs":     {Schedule: &fermatav1.Schedule{MaxRuns: -1, Rule: &fermatav1.Schedule_Cron{Cron: &fermatav1.CronSchedule{Expressions: []string{"0 0 * * *"}}}}},
	} {
		p.Handler = "http"
		var r Reader
		d := r.Definition(key, p)
		d.AnchorMS = unixtime.MilliOf(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
		found := false
		for _, v := range job.Validate(&d, job.DefaultLimits()) {
			found = found || v.Field == field
		}
		if !found {
			t.Errorf("%s: only %v", field, job.Validate(&d, job.DefaultLimits()))
		}
	}
}

// TestEnumsCoverTheAPI: every value of the API but unspecified comes back.
func TestEnumsCoverTheAPI(t *testing.T) {
	check := func(name string, values map[int32]string, back func(int32) int32) {
		for v, text := range values {
			if v != 0 && back(v) != v {
				t.Errorf("%s %s comes back as %d", name, text, back(v))
			}
		}
	}
	check("gap", fermatav1.DstGap_name, trip(gapPolicies))
	check("repeat", fermatav1.DstRepeat_name, trip(repeatPolicies))
	check("state", fermatav1.JobStatus_State_name, trip(JobStates))
	check("outcome", fermatav1.Outcome_name, trip(outcomes))
	check("delay source", fermatav1.DelaySource_name, trip(delaySources))
	check("run state", fermatav1.Run_State_name, trip(runStates))
	check("trigger", fermatav1.Run_Trigger_name, trip(triggers))
	check("overlap", fermatav1.OverlapPolicy_name, trip(OverlapPolicies))
	check("misfire", fermatav1.MisfirePolicy_Policy_name, trip(misfirePolicies))
	check("hint source", fermatav1.Hint_Source_name, trip(hintSources))
	check("hold", fermatav1.Hold_Reason_name, trip(holdReasons))
	check("manual mode", fermatav1.RunJobRequest_Backoff_name, trip(BackoffModes))
	check("existing", fermatav1.RestoreJobsRequest_Existing_name, trip(ExistingPolicies))
	check("restored", fermatav1.RestoreJobsResponse_Result_Outcome_name, trip(RestoreOutcomes))
	check("reason", fermatav1.Reason_Kind_name, trip(reasonKinds))
}

func trip[P ~int32, M ~uint8](e Enum[P, M]) func(int32) int32 {
	return func(v int32) int32 { return int32(e.ToPB(e.FromPB(P(v)))) }
}

func TestStatusOfAFailingJob(t *testing.T) {
	var r Reader
	d := r.Definition(key, &fermatav1.Job{
		Handler:  "http",
		Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(time.Minute)}}},
	})
	d.CreatedMS, d.Revision, d.Generation = 1000, 3, 2
	state := job.State{
		Region: job.RegionDue, Generation: 2, Nominal: 60_000, Due: 61_500, Source: job.DelayBackoff, Failures: 2, Attempt: 1,
		Losses: 1, LastOutcome: job.OutcomeFailed, LastError: "503", LastStarted: 5000, LastFinished: 6000, Runs: 9, Dead: 2, TimedOut: 1,
	}
	got := RecordToPB(job.Record{Definition: &d, State: state}, 0)
	s := got.GetStatus()
	for name, ok := range map[string]bool{
		"state":     s.GetState() == fermatav1.JobStatus_STATE_SCHEDULED,
		"effective": s.GetEffectiveInterval().AsDuration() == 4*time.Minute,
		"source":    s.GetDelaySource() == fermatav1.DelaySource_DELAY_SOURCE_BACKOFF,
		"due":       s.GetNextDueTime().AsTime().UnixMilli() == 61_500 && s.GetNextNominalTime().AsTime().UnixMilli() == 60_000,
		"run":       s.GetCurrentRun() == "namespaces/default/jobs/ping/runs/2-60000" && s.GetCurrentAttempt() == 2 && s.GetCurrentLostAttempts() == 1,
		"failures":  s.GetConsecutiveFailures() == 2 && s.GetLastError() == "503" && s.GetLastOutcome() == fermatav1.Outcome_OUTCOME_FAILED,
		"totals":    s.GetRunsTotal() == 9 && s.GetDeadTotal() == 2 && s.GetTimeoutTotal() == 1,
		"etag":      got.GetEtag() == d.Etag() && got.GetGeneration() == 2,
		"unset":     s.GetPauseTime() == nil && s.GetPauseNote() == "",
	} {
		if !ok {
			t.Errorf("%s is wrong in %v", name, got)
		}
	}
	done := RecordToPB(job.Record{Definition: &d, State: job.State{Region: job.RegionDone}}, 0).GetStatus()
	if done.GetState() != fermatav1.JobStatus_STATE_DONE || done.GetNextDueTime() != nil || done.GetCurrentRun() != "" {
		t.Errorf("done job: %v", done)
	}
}

func TestNames(t *testing.T) {
	k, run, err := ParseRunName("name", "namespaces/default/jobs/a~b/runs/m-x:1")
	if err != nil || k != (job.Key{Namespace: "default", ID: "a~b"}) || run != "m-x:1" {
		t.Errorf("got %v %q %v", k, run, err)
	}
	for _, bad := range []string{"", "namespaces/default", "namespaces/default/jobs/", "jobs/a/namespaces/b", "namespaces/a/jobs/b/runs/c", "namespaces/a b/jobs/c", "namespaces/a/jobs/#"} {
		if _, err := ParseJobName("name", bad); err == nil {
			t.Errorf("%q is taken for the name of a job", bad)
		} else if _, ok := err.(*job.InvalidError); !ok {
			t.Errorf("%q: %v", bad, fmt.Sprintf("%T", err))
		}
	}
}
