package convert

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (r *Reader) Schedule(field string, s *fermatav1.Schedule) schedule.Spec {
	spec := schedule.Spec{
		StartAt: r.Begin(field, ".start_time", s.GetStartTime()),
		EndAt:   r.End(field, ".end_time", s.GetEndTime()),
		Exclude: r.readExclusions(field+".exclusions", s.GetExclusions()),
		Jitter:  r.readDuration(field, ".jitter", s.GetJitter(), 0),
		MaxRuns: int(s.GetMaxRuns()),
	}
	zone := s.GetExclusions().GetTimeZone()
	switch rule := s.GetRule().(type) {
	case *fermatav1.Schedule_Interval:
		spec.Kind = schedule.KindInterval
		spec.Every = r.readDuration(field, ".interval.every", rule.Interval.GetEvery(), 0)
		spec.FixedDelay = rule.Interval.GetFixedDelay()
		spec.TimeZone = zone
	case *fermatav1.Schedule_Cron:
		spec.Kind = schedule.KindCron
		spec.Cron, spec.TimeZone = schedule.WithoutDays(rule.Cron.GetExpressions()), rule.Cron.GetTimeZone()
		spec.Seconds = rule.Cron.GetSeconds()
		spec.Gap, spec.Repeat = gapPolicies.FromPB(rule.Cron.GetDstGap()), repeatPolicies.FromPB(rule.Cron.GetDstRepeat())
	case *fermatav1.Schedule_Calendar:
		spec.Kind = schedule.KindCalendar
		spec.Calendar, spec.TimeZone = r.readCalendar(field+".calendar", rule.Calendar), rule.Calendar.GetTimeZone()
		spec.Gap = gapPolicies.FromPB(rule.Calendar.GetDstGap())
		spec.Repeat = repeatPolicies.FromPB(rule.Calendar.GetDstRepeat())
	case *fermatav1.Schedule_Once:
		spec.Kind = schedule.KindOnce
		spec.At = r.Begin(field, ".once", rule.Once)
	}
	if zone != "" && spec.Kind != schedule.KindInterval {
		r.Reject(field+".exclusions.time_zone",
			"only for an interval schedule; cron and calendar schedules have a time_zone of their own")
	}
	return spec
}

func (r *Reader) readCalendar(field string, c *fermatav1.CalendarSchedule) schedule.Calendar {
	out := schedule.Calendar{
		Every: int(c.GetEvery()), Unit: calendarUnits.FromPB(c.GetUnit()), Times: c.GetTimes(),
		ShortMonth: shortMonths.FromPB(c.GetShortMonth()), From: c.GetFrom(),
	}
	if c.GetUnit() == fermatav1.CalendarSchedule_UNIT_UNSPECIFIED {
		r.Reject(field+".unit", "is required")
	}
	for i, name := range c.GetWeekdays() {
		day := slices.IndexFunc(weekdayNames, func(n string) bool { return strings.EqualFold(n, name) })
		if day < 0 {
			r.Reject(fmt.Sprintf("%s.weekdays[%d]", field, i),
				fmt.Sprintf("%.32q is no day of the week, want one of %s", name, strings.Join(weekdayNames, ", ")))
			continue
		}
		out.Weekdays = append(out.Weekdays, time.Weekday(day))
	}
	for _, day := range c.GetMonthDays() {
		out.MonthDays = append(out.MonthDays, int(day))
	}
	return out
}

func calendarToPB(s schedule.Spec) *fermatav1.CalendarSchedule {
	return &fermatav1.CalendarSchedule{
		Every: int32(s.Calendar.Every), Unit: calendarUnits.ToPB(s.Calendar.Unit), Times: s.Calendar.Times,
		Weekdays:   Map(s.Calendar.Weekdays, func(day time.Weekday) string { return weekdayNames[day] }),
		MonthDays:  Map(s.Calendar.MonthDays, func(day int) int32 { return int32(day) }),
		ShortMonth: shortMonths.ToPB(s.Calendar.ShortMonth), From: s.Calendar.From, TimeZone: s.TimeZone,
		DstGap: gapPolicies.ToPB(s.Gap), DstRepeat: repeatPolicies.ToPB(s.Repeat),
	}
}

// weekdayNames are in the order of [time.Weekday].
var weekdayNames = []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}

func (r *Reader) readExclusions(field string, e *fermatav1.Exclusions) schedule.Exclusions {
	out := schedule.Exclusions{Cron: e.GetCron(), Dates: e.GetDates(), Windows: e.GetWindows()}
	if n := len(e.GetPeriods()); n > schedule.MaxExcludePeriods {
		r.Reject(field+".periods", fmt.Sprintf("has %d entries, at most %d are allowed", n, schedule.MaxExcludePeriods))
		return out
	}
	for i, p := range e.GetPeriods() {
		at := fmt.Sprintf("%s.periods[%d]", field, i)
		from, to := r.readTimestamp(at, ".start_time", p.GetStartTime()), r.readTimestamp(at, ".end_time", p.GetEndTime())
		if !to.After(from) {
			r.Reject(at, "ends before it begins")
		}
		// Nominal times are whole milliseconds: those from either time on are the same as
		// those from the next millisecond on.
		out.Periods = append(out.Periods, schedule.Period{From: schedule.RoundUp(from), To: schedule.RoundUp(to)})
	}
	return out
}

// definitionScheduleToPB shows the day that a calendar counts from, also where it is the default one.
func definitionScheduleToPB(d *job.Definition) *fermatav1.Schedule {
	spec := d.Schedule
	if d.AnchorMS != 0 {
		spec.Calendar.From = d.FirstDay()
	}
	return scheduleToPB(spec)
}

func scheduleToPB(s schedule.Spec) *fermatav1.Schedule {
	if s.Equal(schedule.Spec{}) {
		return nil
	}
	p := &fermatav1.Schedule{
		StartTime: TimeToPB(s.StartAt), EndTime: TimeToPB(s.EndAt), Exclusions: exclusionsToPB(s),
		Jitter: nonZeroDurationToPB(s.Jitter), MaxRuns: int32(s.MaxRuns),
	}
	switch s.Kind {
	case schedule.KindInterval:
		p.Rule = &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{
			Every: durationpb.New(s.Every), FixedDelay: s.FixedDelay,
		}}
	case schedule.KindCron:
		p.Rule = &fermatav1.Schedule_Cron{Cron: &fermatav1.CronSchedule{
			Expressions: s.Cron, TimeZone: s.TimeZone, Seconds: s.Seconds,
			DstGap: gapPolicies.ToPB(s.Gap), DstRepeat: repeatPolicies.ToPB(s.Repeat),
		}}
	case schedule.KindCalendar:
		p.Rule = &fermatav1.Schedule_Calendar{Calendar: calendarToPB(s)}
	case schedule.KindOnce:
		p.Rule = &fermatav1.Schedule_Once{Once: TimeToPB(s.At)}
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
		Periods: Map(s.Exclude.Periods, func(p schedule.Period) *fermatav1.Exclusions_Period {
			return &fermatav1.Exclusions_Period{StartTime: TimeToPB(p.From), EndTime: TimeToPB(p.To)}
		}),
	}
}

var calendarUnits = Enum[fermatav1.CalendarSchedule_Unit, schedule.CalendarUnit]{
	{fermatav1.CalendarSchedule_UNIT_UNSPECIFIED, schedule.CalendarDay}, // refused
	{fermatav1.CalendarSchedule_UNIT_DAY, schedule.CalendarDay},
	{fermatav1.CalendarSchedule_UNIT_WEEK, schedule.CalendarWeek},
	{fermatav1.CalendarSchedule_UNIT_MONTH, schedule.CalendarMonth},
}

var shortMonths = Enum[fermatav1.CalendarSchedule_ShortMonth, schedule.ShortMonthPolicy]{
	{fermatav1.CalendarSchedule_SHORT_MONTH_UNSPECIFIED, schedule.ShortMonthLastDay},
	{fermatav1.CalendarSchedule_SHORT_MONTH_LAST_DAY, schedule.ShortMonthLastDay},
	{fermatav1.CalendarSchedule_SHORT_MONTH_SKIP, schedule.ShortMonthSkip},
}

var gapPolicies = Enum[fermatav1.DstGap, schedule.GapPolicy]{
	{fermatav1.DstGap_DST_GAP_UNSPECIFIED, schedule.GapShift},
	{fermatav1.DstGap_DST_GAP_SHIFT, schedule.GapShift},
	{fermatav1.DstGap_DST_GAP_SKIP, schedule.GapSkip},
}

var repeatPolicies = Enum[fermatav1.DstRepeat, schedule.RepeatPolicy]{
	{fermatav1.DstRepeat_DST_REPEAT_UNSPECIFIED, schedule.RepeatFirst},
	{fermatav1.DstRepeat_DST_REPEAT_FIRST, schedule.RepeatFirst},
	{fermatav1.DstRepeat_DST_REPEAT_LAST, schedule.RepeatLast},
	{fermatav1.DstRepeat_DST_REPEAT_BOTH, schedule.RepeatBoth},
}

func PreviewTimeToPB(t job.PreviewTime) *fermatav1.ScheduledTime {
	return &fermatav1.ScheduledTime{
		NominalTime: TimeToPB(t.Nominal), DueTime: TimeToPB(t.Due), LatestDueTime: TimeToPB(t.Latest), DstNote: t.Remark,
	}
}
