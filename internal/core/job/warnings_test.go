package job

import (
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func TestScheduleWarnings(t *testing.T) {
	leapDay := func(d *Definition) {
		d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"0 0 29 2 *"}}
	}
	for name, c := range map[string]struct {
		edit  func(*Definition)
		state func(*State)
		want  string
	}{
		"every minute": {},
		"on request":   {edit: func(d *Definition) { d.Schedule = schedule.Spec{} }},
		"once":         {edit: func(d *Definition) { d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1000).Time()} }},
		"ended":        {edit: func(d *Definition) { d.Schedule.EndAt = (t0 - 1000).Time() }, want: "schedule.end_time has passed"},
		"ends now":     {edit: func(d *Definition) { d.Schedule.EndAt = t0.Time() }, want: "schedule.end_time has passed"},
		"ends later":   {edit: func(d *Definition) { d.Schedule.EndAt = (t0 + 3_600_000).Time() }},
		"ends before its first time": {edit: func(d *Definition) {
			leapDay(d)
			d.Schedule.EndAt = (t0 + 1000).Time()
		}, want: "schedule has no further time"},
		"rare":         {edit: leapDay, want: "schedule first starts a run at 20"},
		"rare, paused": {edit: leapDay, state: func(s *State) { s.Paused = true }},
		"rare, hinted": {edit: leapDay, state: func(s *State) { s.Trigger = TriggerManual }},
		"not stored":   {edit: leapDay, state: func(s *State) { *s = State{} }},
		"used up":      {state: func(s *State) { s.Region, s.Fired = RegionDone, 3 }},
	} {
		d := def()
		if c.edit != nil {
			c.edit(&d)
		}
		r := Record{Definition: &d, State: New(compile(t, d), t0).State}
		if c.state != nil {
			c.state(&r.State)
		}
		got := ""
		for _, w := range ScheduleWarnings(&r, t0) {
			got += w.Field + " " + w.Text
		}
		if c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestRareScheduleIsOneOfMoreThanAYear: a yearly job is none.
func TestRareScheduleIsOneOfMoreThanAYear(t *testing.T) {
	d := def()
	r := Record{Definition: &d, State: State{Revision: 1, Region: RegionDue, Nominal: t0 + unixtime.Milli((366 * 24 * time.Hour).Milliseconds())}}
	if w := ScheduleWarnings(&r, t0); len(w) != 0 {
		t.Errorf("%v", w)
	}
	r.State.Nominal++
	if w := ScheduleWarnings(&r, t0); len(w) != 1 {
		t.Errorf("%v", w)
	}
}

func TestUsesPreset(t *testing.T) {
	d := def()
	from := d.PolicySources()
	for f := range backoff.FieldCount {
		from[f] = backoff.Source{Kind: backoff.FromJob}
	}
	d.SetSources(from)
	if d.UsesPreset("x", backoff.RetryFields) {
		t.Error("all fields are the job's own")
	}
	for f := range backoff.FieldCount {
		if backoff.RetryFields.Has(f) {
			from[f] = backoff.Source{Kind: backoff.FromPreset, Name: "x"}
			break
		}
	}
	d.SetSources(from)
	if !d.UsesPreset("x", backoff.RetryFields) || d.UsesPreset("y", backoff.RetryFields) || d.UsesPreset("x", backoff.BackoffFields) {
		t.Error("one field of the retry policy is from preset x")
	}
}
