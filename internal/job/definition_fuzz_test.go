package job

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/schedule"
)

// anyDefinition draws definitions with no regard to what fits together.
func anyDefinition(t *rapid.T) Definition {
	number := func(label string, usual ...int) int { return rapid.SampledFrom(usual).Draw(t, label) }
	span := func(label string, usual ...time.Duration) time.Duration {
		if rapid.IntRange(0, 19).Draw(t, label+" wild") == 0 {
			return time.Duration(rapid.Int64().Draw(t, label))
		}
		return rapid.SampledFrom(usual).Draw(t, label)
	}
	text := func(label string, usual ...string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(usual), 0, 2).Draw(t, label)
	}
	instant := func(label string) time.Time {
		return rapid.SampledFrom([]time.Time{
			{}, {}, time.UnixMilli(t0 - 3_600_000), time.UnixMilli(t0 + 45_000), time.UnixMilli(t0 + 86_400_000),
		}).Draw(t, label)
	}
	jitter := func(label string) backoff.Jitter {
		return backoff.Jitter{
			Kind:     backoff.JitterKind(rapid.IntRange(0, int(backoff.JitterEqual)).Draw(t, label)),
			Fraction: rapid.SampledFrom([]float64{0, 0.1, 1}).Draw(t, label+" fraction"),
		}
	}
	d := def()
	d.Schedule = schedule.Spec{
		Kind:       schedule.Kind(rapid.IntRange(0, int(schedule.KindCron)).Draw(t, "kind")),
		StartAt:    instant("start"),
		EndAt:      instant("end"),
		Jitter:     span("jitter", 0, 0, time.Second, time.Hour),
		MaxRuns:    number("max runs", 0, 0, 1, 7),
		FixedDelay: rapid.Bool().Draw(t, "fixed delay"),
		Exclude: schedule.Exclusions{
			Cron:    text("exclude cron", "* 12 * * *", "H H * * *", "*"),
			Dates:   text("dates", "12-25", "2026-03-01/2026-03-02", "2026-02-30"),
			Windows: text("windows", "22:00-06:00", "Sat,Sun", "Mon-Fri 12:00-13:00", "25:00-26:00"),
		},
	}
	switch d.Schedule.Kind {
	case schedule.KindInterval:
		d.Schedule.Every = span("every", 5*time.Second, time.Minute, 36*time.Hour)
	case schedule.KindOnce:
		d.Schedule.At = instant("at")
	case schedule.KindCron:
		d.Schedule.Cron = text("cron", "* * * * *", "30 2 * * *", "H/15 * * * *", "0 0 L * *", "0 12 * * 1#2", "@hourly", "61 * * * *")
		d.Schedule.TimeZone = rapid.SampledFrom([]string{"", "Europe/Berlin", "Australia/Lord_Howe", "Mars/X"}).Draw(t, "zone")
		d.Schedule.Gap = schedule.GapPolicy(rapid.IntRange(0, 1).Draw(t, "gap"))
		d.Schedule.Repeat = schedule.RepeatPolicy(rapid.IntRange(0, 2).Draw(t, "repeat"))
	}
	d.Retry = backoff.Retry{
		Strategy:     backoff.Strategy(rapid.IntRange(0, 3).Draw(t, "strategy")),
		Base:         span("base", time.Millisecond, time.Second, time.Hour),
		Multiplier:   rapid.SampledFrom([]float64{1, 2, 1.5, 100}).Draw(t, "multiplier"),
		Offset:       number("offset", 0, 1),
		MaxDoublings: number("doublings", 0, 3, 100),
		MaxDelay:     span("max delay", time.Second, time.Hour),
		MaxAttempts:  number("attempts", 1, 2, 3, 1000, 0),
		MaxElapsed:   span("elapsed", 0, 0, time.Minute),
		Jitter:       jitter("retry jitter"),
	}
	d.Backoff = backoff.Recurring{
		Disabled:    rapid.Bool().Draw(t, "disabled"),
		Multiplier:  rapid.SampledFrom([]float64{1, 2, 100}).Draw(t, "backoff multiplier"),
		MaxExponent: number("exponent", 0, 5, 62),
		MaxDelay:    span("backoff max delay", 0, time.Minute, time.Hour),
		MaxRatio:    rapid.SampledFrom([]float64{0, 0, 1, 10, -1}).Draw(t, "ratio"),
		Jitter:      jitter("backoff jitter"),
		StaleAfter:  span("stale", 0, time.Minute),
		StaleHalve:  rapid.Bool().Draw(t, "halve"),
		WithinSlot:  rapid.Bool().Draw(t, "within slot"),
	}
	d.MinInterval = span("min interval", 0, 0, 10*time.Second)
	d.MaxInterval = span("max interval", 0, 0, time.Hour)
	d.Overlap = Overlap(rapid.IntRange(0, int(OverlapTerminateOther)).Draw(t, "overlap"))
	d.OverlapLimit = number("overlap limit", 0, 1, 3, 64, 1000)
	d.Misfire = Misfire{
		Policy:     MisfirePolicy(rapid.IntRange(0, int(MisfireRunAll)).Draw(t, "misfire")),
		Window:     span("window", 0, time.Minute, time.Hour),
		MaxCatchUp: number("catch up", 0, 0, 5, 10_000),
	}
	d.PauseAfter = number("pause after", 0, 0, 2)
	return d
}

// mended takes out of a definition what is wrong with it, as far as one can
// without losing what it is about.
func mended(d Definition) Definition {
	usual := def()
	for range 3 {
		for _, v := range Validate(d, Limits{}.WithDefaults()) {
			switch v.Field {
			case "job.schedule.end_time", "job.schedule.start_time":
				d.Schedule.StartAt, d.Schedule.EndAt = time.Time{}, time.Time{}
			case "job.schedule.jitter":
				d.Schedule.Jitter = 0
			case "job.schedule.max_runs":
				d.Schedule.MaxRuns = 0
			case "job.schedule.interval.fixed_delay":
				d.Schedule.FixedDelay = false
			case "job.schedule.exclusions":
				d.Schedule.Exclude = schedule.Exclusions{}
			case "job.schedule.once":
				d.Schedule.At = time.UnixMilli(t0 + 1000)
			case "job.backoff_policy.within_slot":
				d.Backoff.WithinSlot = false
			case "job.backoff_policy.stale_halve":
				d.Backoff.StaleHalve = false
			case "job.backoff_policy.max_ratio":
				d.Backoff.MaxRatio = 0
			case "job.misfire_policy.max_catch_up":
				d.Misfire.MaxCatchUp = 0
			case "job.overlap_limit":
				d.OverlapLimit = 0
			default:
				if strings.HasPrefix(v.Field, "job.retry_policy") {
					d.Retry = usual.Retry
				}
			}
		}
	}
	return d
}

// walkAnyDefinition: whatever passes validation compiles, and no sequence of
// events breaks a job that has it. A delay is never negative: no run becomes due
// before what the job had already counted.
func walkAnyDefinition(t *rapid.T) {
	d := anyDefinition(t)
	if rapid.IntRange(0, 9).Draw(t, "mend") > 0 {
		d = mended(d)
	}
	wrong := Validate(d, Limits{}.WithDefaults())
	c, err := Compile(d)
	if len(wrong) > 0 {
		return
	}
	if err != nil {
		t.Fatalf("valid, but: %v\n%+v", err, d)
	}
	f := &family{c: c, parent: New(c, t0).State, children: map[int]State{}, now: t0, live: map[uint64]bool{}}
	acts := familyActs(c)
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		able := slices.DeleteFunc(slices.Clone(acts), func(a act) bool { return !a.enabled(f) })
		settledAt, failures := f.now, f.parent.Failures
		f.step(t, able[rapid.IntRange(0, len(able)-1).Draw(t, "step")])
		if f.gone {
			return
		}
		if f.parent.Source == DelayBackoff && f.parent.Failures > failures && f.parent.Due < settledAt {
			t.Fatalf("backs off into the past: due %d, at %d\n%+v\n%+v", f.parent.Due, settledAt, f.parent, d)
		}
		if e := Explain(f.c, f.parent, nil, Facts{}, f.now); e.Summary == "" {
			t.Fatalf("not explained: %+v", f.parent)
		}
	}
}

func TestAnyValidDefinitionHoldsTogether(t *testing.T) { rapid.Check(t, walkAnyDefinition) }

func FuzzDefinition(f *testing.F) { f.Fuzz(rapid.MakeFuzz(walkAnyDefinition)) }
