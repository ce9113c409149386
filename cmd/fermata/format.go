package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/lib/visible"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// noValue is shown for a missing value.
const noValue = "-"

// durationText writes a duration with at most two units: 250ms, 12s, 1m30s, 3d4h.
func durationText(d time.Duration) string {
	if d < 0 {
		return noValue + durationText(-d)
	}
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	d = d.Round(time.Second)
	units := []struct {
		size time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, u := range units {
		if d < u.size {
			continue
		}
		text := fmt.Sprintf("%d%s", d/u.size, u.name)
		if i+1 < len(units) {
			if rest := d % u.size / units[i+1].size; rest > 0 {
				text += fmt.Sprintf("%d%s", rest, units[i+1].name)
			}
		}
		return text
	}
	return "0s"
}

func durationPBText(d *durationpb.Duration) string {
	if d.AsDuration() == 0 {
		return noValue
	}
	return durationText(d.AsDuration())
}

// agoText writes how long something is past.
func (a *app) agoText(t *timestamppb.Timestamp) string {
	if t == nil {
		return noValue
	}
	return durationText(max(0, a.now().Sub(t.AsTime()))) + " ago"
}

// ageText is agoText without "ago".
func (a *app) ageText(t *timestamppb.Timestamp) string {
	if t == nil {
		return noValue
	}
	return durationText(max(0, a.now().Sub(t.AsTime())))
}

// untilText writes a due time.
func (a *app) untilText(t *timestamppb.Timestamp) string {
	if t == nil {
		return noValue
	}
	if d := t.AsTime().Sub(a.now()); d > 0 {
		return "in " + durationText(d)
	}
	return "due " + a.agoText(t)
}

// nextRun returns when the job's next run starts.
func (a *app) nextRun(j *fermatav1.Job) string {
	s := j.GetStatus()
	switch s.GetState() {
	case fermatav1.JobStatus_STATE_RUNNING:
		return "running"
	case fermatav1.JobStatus_STATE_SCHEDULED:
		return a.untilText(s.GetNextDueTime())
	}
	return noValue
}

// nextText is nextRun as the end of a sentence.
func (a *app) nextText(j *fermatav1.Job) string {
	switch text := a.nextRun(j); {
	case text == "running":
		return "it is running"
	case text != noValue:
		return "next run " + text
	case j.GetStatus().GetState() == fermatav1.JobStatus_STATE_PAUSED:
		return "it is paused"
	case j.GetSchedule().GetRule() == nil:
		return "it runs on request"
	}
	return "no run is planned"
}

// formatTime writes a time in full, for detailed views.
func formatTime(t *timestamppb.Timestamp) string {
	if t == nil {
		return noValue
	}
	return t.AsTime().Format("2006-01-02T15:04:05.000Z07:00")
}

// enumName writes an enum value without its prefix, in lower case.
func enumName(e fmt.Stringer) string {
	name := e.String()
	for _, prefix := range []string{"STATE_", "OUTCOME_", "DELAY_SOURCE_", "TRIGGER_", "STRATEGY_", "KIND_",
		"OVERLAP_POLICY_", "POLICY_", "SOURCE_", "REASON_", "FAULT_"} {
		name = strings.TrimPrefix(name, prefix)
	}
	if name == "UNSPECIFIED" {
		return noValue
	}
	return strings.ReplaceAll(strings.ToLower(name), "_", "-")
}

// scheduleText returns a short description of a schedule.
func scheduleText(s *fermatav1.Schedule) string {
	switch rule := s.GetRule().(type) {
	case *fermatav1.Schedule_Interval:
		text := "every " + durationText(rule.Interval.GetEvery().AsDuration())
		if rule.Interval.GetFixedDelay() {
			text += " after end"
		}
		return text
	case *fermatav1.Schedule_Cron:
		text := strings.Join(rule.Cron.GetExpressions(), " | ")
		if zone := rule.Cron.GetTimeZone(); zone != "" {
			text += " " + zone
		}
		return text
	case *fermatav1.Schedule_Calendar:
		return calendarText(rule.Calendar)
	case *fermatav1.Schedule_Once:
		return "once " + rule.Once.AsTime().Format(time.RFC3339)
	}
	return "manual"
}

// calendarText is such as "every 2 weeks on MON, THU at 09:00 from 2026-11-30 Europe/Berlin".
func calendarText(c *fermatav1.CalendarSchedule) string {
	text := "every " + calendarUnit(c)
	if c.GetEvery() > 1 {
		text = fmt.Sprintf("every %d %ss", c.GetEvery(), calendarUnit(c))
	}
	if days := calendarDays(c); len(days) > 0 {
		text += " on " + strings.Join(days, ", ")
	}
	text += " at " + strings.Join(c.GetTimes(), ", ")
	if c.GetShortMonth() == fermatav1.CalendarSchedule_SHORT_MONTH_SKIP {
		text += ", not in shorter months,"
	}
	if from := c.GetFrom(); from != "" {
		text += " from " + from
	}
	if zone := c.GetTimeZone(); zone != "" {
		text += " " + zone
	}
	return text
}

// calendarUnit is day, week or month.
func calendarUnit(c *fermatav1.CalendarSchedule) string {
	return strings.ToLower(strings.TrimPrefix(c.GetUnit().String(), "UNIT_"))
}

// calendarDays are the days of a week or of a month that count; where none are given, that of the first day.
func calendarDays(c *fermatav1.CalendarSchedule) []string {
	from, err := time.Parse(time.DateOnly, c.GetFrom())
	switch c.GetUnit() {
	case fermatav1.CalendarSchedule_UNIT_WEEK:
		if len(c.GetWeekdays()) == 0 && err == nil {
			return []string{strings.ToUpper(from.Weekday().String()[:3])}
		}
		return c.GetWeekdays()
	case fermatav1.CalendarSchedule_UNIT_MONTH:
		days := c.GetMonthDays()
		if len(days) == 0 && err == nil {
			days = []int32{int32(from.Day())}
		}
		var texts []string
		for _, day := range days {
			switch {
			case day == -1:
				texts = append(texts, "the last day")
			case day < 0:
				texts = append(texts, fmt.Sprintf("the last day but %d", -day-1))
			default:
				texts = append(texts, fmt.Sprintf("day %d", day))
			}
		}
		return texts
	}
	return nil
}

// backoffText is the interval that failures have led to.
func backoffText(j *fermatav1.Job) string {
	s := j.GetStatus()
	every := j.GetSchedule().GetInterval().GetEvery().AsDuration()
	if effective := s.GetEffectiveInterval().AsDuration(); s.GetConsecutiveFailures() > 0 && effective > every {
		return durationText(effective)
	}
	return noValue
}

// printableText replaces characters that could move the cursor or break a line.
func printableText(s string) string { return visible.Line(s) }

// nameText is the text of a column with names, which are never shortened: others take them.
func nameText(name string) string { return fullText(name) }

// fullText is text that is shortened only to fit a table to a terminal.
func fullText(s string) string {
	s = printableText(s)
	if s == "" {
		return noValue
	}
	return s
}

// fitText shortens text on a terminal; a pipe gets all of it.
func (a *app) fitText(s string, n int) string {
	if a.terminalWidth() == 0 {
		return fullText(s)
	}
	return clipText(s, n)
}

// clipText shortens text for a column.
func clipText(s string, n int) string {
	s = printableText(s)
	if s == "" {
		return noValue
	}
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// countText counts something.
func countText(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}
