package rpc

import (
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/schedule"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (r *reader) schedule(field string, s *fermatav1.Schedule) schedule.Spec {
	spec := schedule.Spec{
		StartAt: r.begin(field, ".start_time", s.GetStartTime()),
		EndAt:   r.end(field, ".end_time", s.GetEndTime()),
		Exclude: r.exclusions(field+".exclusions", s.GetExclusions()),
		Jitter:  r.duration(field, ".jitter", s.GetJitter(), 0),
		MaxRuns: int(s.GetMaxRuns()),
	}
	zone := s.GetExclusions().GetTimeZone()
	switch rule := s.GetRule().(type) {
	case *fermatav1.Schedule_Interval:
		spec.Kind = schedule.KindInterval
		spec.Every = r.duration(field, ".interval.every", rule.Interval.GetEvery(), 0)
		spec.FixedDelay = rule.Interval.GetFixedDelay()
		spec.TimeZone = zone
	case *fermatav1.Schedule_Cron:
		spec.Kind = schedule.KindCron
		spec.Cron, spec.TimeZone = rule.Cron.GetExpressions(), rule.Cron.GetTimeZone()
		spec.Seconds = rule.Cron.GetSeconds()
		spec.Gap, spec.Repeat = gaps.model(rule.Cron.GetDstGap()), repeats.model(rule.Cron.GetDstRepeat())
	case *fermatav1.Schedule_Once:
		spec.Kind = schedule.KindOnce
		spec.At = r.begin(field, ".once", rule.Once)
	}
	if zone != "" && spec.Kind != schedule.KindInterval {
		r.refuse(field+".exclusions.time_zone", "only for an interval schedule; a cron schedule has cron.time_zone")
	}
	return spec
}

func (r *reader) exclusions(field string, e *fermatav1.Exclusions) schedule.Exclusions {
	out := schedule.Exclusions{Cron: e.GetCron(), Dates: e.GetDates(), Windows: e.GetWindows()}
	if n := len(e.GetPeriods()); n > schedule.MaxExcludePeriods {
		r.refuse(field+".periods", fmt.Sprintf("has %d entries, at most %d are allowed", n, schedule.MaxExcludePeriods))
		return out
	}
	for i, p := range e.GetPeriods() {
		at := fmt.Sprintf("%s.periods[%d]", field, i)
		from, to := r.exact(at, ".start_time", p.GetStartTime()), r.exact(at, ".end_time", p.GetEndTime())
		if !to.After(from) {
			r.refuse(at, "ends before it begins")
		}
		// Nominal times are whole milliseconds: those from either time on are the same as
		// those from the next millisecond on.
		out.Periods = append(out.Periods, schedule.Period{From: schedule.RoundUp(from), To: schedule.RoundUp(to)})
	}
	return out
}

func scheduleToPB(s schedule.Spec) *fermatav1.Schedule {
	if s.Equal(schedule.Spec{}) {
		return nil
	}
	p := &fermatav1.Schedule{
		StartTime: timeToPB(s.StartAt), EndTime: timeToPB(s.EndAt), Exclusions: exclusionsToPB(s),
		Jitter: positive(s.Jitter), MaxRuns: int32(s.MaxRuns),
	}
	switch s.Kind {
	case schedule.KindInterval:
		p.Rule = &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{
			Every: durationpb.New(s.Every), FixedDelay: s.FixedDelay,
		}}
	case schedule.KindCron:
		p.Rule = &fermatav1.Schedule_Cron{Cron: &fermatav1.CronSchedule{
			Expressions: s.Cron, TimeZone: s.TimeZone, Seconds: s.Seconds,
			DstGap: gaps.pb(s.Gap), DstRepeat: repeats.pb(s.Repeat),
		}}
	case schedule.KindOnce:
		p.Rule = &fermatav1.Schedule_Once{Once: timeToPB(s.At)}
	}
	return p
}

// exclusionsToPB carries the time zone of an interval, which has no other place.
func exclusionsToPB(s schedule.Spec) *fermatav1.Exclusions {
	zone := ""
	if s.Kind == schedule.KindInterval {
		zone = s.TimeZone
	}
	if s.Exclude.Empty() && zone == "" {
		return nil
	}
	return &fermatav1.Exclusions{
		Cron: s.Exclude.Cron, Dates: s.Exclude.Dates, Windows: s.Exclude.Windows, TimeZone: zone,
		Periods: each(s.Exclude.Periods, func(p schedule.Period) *fermatav1.Exclusions_Period {
			return &fermatav1.Exclusions_Period{StartTime: timeToPB(p.From), EndTime: timeToPB(p.To)}
		}),
	}
}

var gaps = enum[fermatav1.DstGap, schedule.GapPolicy]{
	{fermatav1.DstGap_DST_GAP_UNSPECIFIED, schedule.GapShift},
	{fermatav1.DstGap_DST_GAP_SHIFT, schedule.GapShift},
	{fermatav1.DstGap_DST_GAP_SKIP, schedule.GapSkip},
}

var repeats = enum[fermatav1.DstRepeat, schedule.RepeatPolicy]{
	{fermatav1.DstRepeat_DST_REPEAT_UNSPECIFIED, schedule.RepeatFirst},
	{fermatav1.DstRepeat_DST_REPEAT_FIRST, schedule.RepeatFirst},
	{fermatav1.DstRepeat_DST_REPEAT_LAST, schedule.RepeatLast},
	{fermatav1.DstRepeat_DST_REPEAT_BOTH, schedule.RepeatBoth},
}
