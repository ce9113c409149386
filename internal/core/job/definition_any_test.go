package job

import (
	"math"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// anyDefinition draws definitions whose fields may contradict each other. Some have absurd numbers.
func anyDefinition(t *rapid.T) Definition {
	tame := rapid.IntRange(0, 3).Draw(t, "tame") > 0
	wild := func(label string) bool { return !tame && rapid.IntRange(0, 7).Draw(t, label+" wild") == 0 }
	number := func(label string, usual ...int) int {
		if wild(label) {
			return rapid.Int().Draw(t, label)
		}
		return rapid.SampledFrom(usual).Draw(t, label)
	}
	factor := func(label string, usual ...float64) float64 {
		if wild(label) {
			return rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64, math.SmallestNonzeroFloat64}).Draw(t, label)
		}
		return rapid.SampledFrom(usual).Draw(t, label)
	}
	span := func(label string, usual ...time.Duration) time.Duration {
		if wild(label) {
			return time.Duration(rapid.Int64().Draw(t, label))
		}
		return rapid.SampledFrom(usual).Draw(t, label)
	}
	text := func(label string, usual ...string) []string {
		return rapid.SliceOfN(rapid.SampledFrom(usual), 0, 2).Draw(t, label)
	}
	instant := func(label string) time.Time {
		return rapid.SampledFrom([]time.Time{
			{}, {}, (t0 - 3_600_000).Time(), (t0 + 45_000).Time(), (t0 + 86_400_000).Time(),
		}).Draw(t, label)
	}
	jitter := func(label string) backoff.Jitter {
		return backoff.Jitter{
			Kind:     backoff.JitterKind(rapid.IntRange(0, int(backoff.JitterEqual)).Draw(t, label)),
			Fraction: factor(label+" fraction", 0, 0.1, 1),
		}
	}
	d := def()
	zone := rapid.SampledFrom([]string{"", "", "Europe/Berlin", "Australia/Lord_Howe", "Mars/X"}).Draw(t, "zone")
	d.Schedule = schedule.Spec{
		Kind:       schedule.Kind(rapid.IntRange(0, int(schedule.KindCalendar)).Draw(t, "kind")),
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
	for range rapid.IntRange(0, 2).Draw(t, "periods") {
		d.Schedule.Exclude.Periods = append(d.Schedule.Exclude.Periods, schedule.Period{From: instant("from"), To: instant("to")})
	}
	switch d.Schedule.Kind {
	case schedule.KindInterval:
		d.Schedule.Every = span("every", time.Millisecond, 5*time.Second, time.Minute, 36*time.Hour)
		d.Schedule.TimeZone = zone
	case schedule.KindOnce:
		d.Schedule.At = instant("at")
	case schedule.KindCron:
		d.Schedule.Cron = text("cron", "* * * * *", "30 2 * * *", "H/15 * * * *", "0 0 L * *", "0 12 * * 1#2", "@hourly", "61 * * * *")
		d.Schedule.TimeZone = zone
		d.Schedule.Gap = schedule.GapPolicy(rapid.IntRange(0, 1).Draw(t, "gap"))
		d.Schedule.Repeat = schedule.RepeatPolicy(rapid.IntRange(0, 2).Draw(t, "repeat"))
	case schedule.KindCalendar:
		d.Schedule.Calendar = schedule.Calendar{
			Every: number("calendar every", 0, 1, 2, 3, 1001), Unit: schedule.CalendarUnit(rapid.IntRange(0, 2).Draw(t, "unit")),
			Times: text("times", "00:00", "09:00", "02:30:15", "23:59", "24:00"), From: rapid.SampledFrom([]string{"", "", "2026-11-30", "2026-02-30"}).Draw(t, "from day"),
		}
		switch d.Schedule.Calendar.Unit {
		case schedule.CalendarWeek:
			d.Schedule.Calendar.Weekdays = rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 6), func(n int) time.Weekday { return time.Weekday(n) }), 0, 2).Draw(t, "weekdays")
		case schedule.CalendarMonth:
			d.Schedule.Calendar.MonthDays = rapid.SliceOfN(rapid.SampledFrom([]int{1, 30, 31, -1, -31}), 0, 2).Draw(t, "month days")
			d.Schedule.Calendar.ShortMonth = schedule.ShortMonthPolicy(rapid.IntRange(0, 1).Draw(t, "short month"))
		}
		d.Schedule.TimeZone = zone
	}
	d.Retry = backoff.Retry{
		Strategy:     backoff.Strategy(rapid.IntRange(0, 3).Draw(t, "strategy")),
		Base:         span("base", time.Millisecond, time.Second, time.Hour),
		Multiplier:   factor("multiplier", 1, 2, 1.5, 100),
		Offset:       number("offset", 0, 1),
		MaxDoublings: number("doublings", 0, 3, 100),
		MaxDelay:     span("max delay", time.Second, time.Hour),
		MaxAttempts:  number("attempts", 1, 2, 3, 1000, 0),
		MaxElapsed:   span("elapsed", 0, 0, time.Minute),
		Jitter:       jitter("retry jitter"),
	}
	d.Backoff = backoff.Recurring{
		Disabled:    rapid.Bool().Draw(t, "disabled"),
		Multiplier:  factor("backoff multiplier", 1, 2, 100),
		MaxExponent: number("exponent", 0, 5, 62),
		MaxDelay:    span("backoff max delay", 0, time.Minute, time.Hour),
		MaxRatio:    factor("ratio", 0, 0, 1, 10, 0.5),
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
	d.MaxLag = span("max lag", 0, 0, time.Second, time.Hour)
	for range rapid.IntRange(0, MaxLocks+1).Draw(t, "locks") {
		d.Locks = append(d.Locks, Lock{Key: rapid.SampledFrom([]string{"a", "b", "c", "d", ""}).Draw(t, "key"), Limit: number("units", 1, 5, 0)})
	}
	d.Target = rapid.SampledFrom([]string{"", "x", "\x00"}).Draw(t, "target")
	d.Timeout = span("timeout", time.Second, time.Hour)
	d.TimeoutGrace = span("grace", 0, time.Second)
	d.Retention = span("retention", 0, time.Hour)
	d.DeadLetterTTL = span("dead letter ttl", 0, time.Hour)
	d.HistoryLimit = number("history", 0, 10)
	d.Priority = uint8(number("priority", 0, 9))
	return d
}

// anyLimits draws the limits of a cluster; most of the time none is set.
func anyLimits(t *rapid.T) Limits {
	return Limits{
		MinInterval: rapid.SampledFrom([]time.Duration{0, 0, 0, time.Millisecond, time.Minute}).Draw(t, "least interval"),
	}.WithDefaults()
}

// mended takes out of a definition what is wrong with it, as far as one can
// without losing what it is about.
func mended(d Definition, l Limits) Definition {
	for range 4 {
		for _, v := range Validate(&d, l) {
			mend(&d, v.Field)
		}
	}
	return d
}

func mend(d *Definition, field string) {
	usual := def()
	switch field {
	case "job.schedule.end_time", "job.schedule.start_time":
		d.Schedule.StartAt, d.Schedule.EndAt = time.Time{}, time.Time{}
	case "job.schedule.jitter":
		d.Schedule.Jitter = 0
	case "job.schedule.max_runs":
		d.Schedule.MaxRuns = 0
	case "job.schedule.interval.fixed_delay":
		d.Schedule.FixedDelay = false
	case "job.schedule.interval.every":
		d.Schedule.Every = usual.Schedule.Every
	case "job.schedule.exclusions.time_zone", "job.schedule.cron.time_zone":
		d.Schedule.TimeZone = ""
	case "job.schedule.cron.expressions", "job.schedule.cron.expressions[0]", "job.schedule.cron.expressions[1]":
		d.Schedule.Cron = []string{"*/2 * * * *"}
	case "job.schedule.once":
		d.Schedule.At = (t0 + 1000).Time()
	case "job.backoff_policy.within_period":
		d.Backoff.WithinSlot = false
	case "job.backoff_policy.stale_halve":
		d.Backoff.StaleHalve = false
	case "job.backoff_policy.max_ratio":
		d.Backoff.MaxRatio = 0
	case "job.backoff_policy.max_interval":
		d.MaxInterval = 0
	case "job.misfire_policy.max_catch_up":
		d.Misfire.MaxCatchUp = 0
	case "job.overlap_limit":
		d.OverlapLimit = 0
	case "job.target":
		d.Target = ""
	}
	switch {
	case strings.HasPrefix(field, "job.schedule.exclusions"):
		d.Schedule.Exclude = schedule.Exclusions{}
	case strings.HasPrefix(field, "job.retry_policy"):
		d.Retry = usual.Retry
	case strings.HasPrefix(field, "job.locks"):
		d.Locks = nil
	}
}
