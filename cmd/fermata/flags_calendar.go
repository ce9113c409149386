package main

import (
	"strconv"
	"strings"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// calendarFlags describe local times in every n-th day, week or month.
type calendarFlags struct {
	every     string
	on, times []string
	from      string
	skipShort bool
}

var calendarUnits = map[string]fermatav1.CalendarSchedule_Unit{
	"day": fermatav1.CalendarSchedule_UNIT_DAY, "week": fermatav1.CalendarSchedule_UNIT_WEEK,
	"month": fermatav1.CalendarSchedule_UNIT_MONTH,
}

func (c *calendarFlags) buildSchedule() (*fermatav1.CalendarSchedule, error) {
	out := &fermatav1.CalendarSchedule{Times: c.times, From: c.from}
	number, unit, counted := strings.Cut(strings.TrimSpace(c.every), " ")
	if !counted {
		number, unit = "1", number
	}
	n, err := strconv.ParseInt(number, 10, 32)
	out.Unit = calendarUnits[strings.TrimSuffix(unit, "s")]
	if err != nil || n < 1 || out.Unit == 0 {
		return nil, usageErrorf("--calendar %q: want day, week or month, or a number of them such as '2 weeks'",
			c.every)
	}
	if len(c.times) == 0 {
		return nil, usageErrorf("--calendar needs --time, such as --time 09:00")
	}
	if n > 1 {
		out.Every = int32(n)
	}
	if c.skipShort {
		out.ShortMonth = fermatav1.CalendarSchedule_SHORT_MONTH_SKIP
	}
	return out, c.setDays(out)
}

func (c *calendarFlags) setDays(out *fermatav1.CalendarSchedule) error {
	for _, day := range c.on {
		switch {
		case out.Unit == fermatav1.CalendarSchedule_UNIT_DAY:
			return usageErrorf("--on is for --calendar week and month")
		case out.Unit == fermatav1.CalendarSchedule_UNIT_WEEK:
			out.Weekdays = append(out.Weekdays, strings.ToUpper(day))
		case day == "last":
			out.MonthDays = append(out.MonthDays, -1)
		default:
			n, err := strconv.ParseInt(day, 10, 32)
			if err != nil {
				return usageErrorf("--on %q: want a day of the month, 1 to 31, or last", day)
			}
			out.MonthDays = append(out.MonthDays, int32(n))
		}
	}
	return nil
}
