package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

const (
	maxCalendarEvery = 1000
	maxCalendarTimes = 24
)

// CalendarUnit is the unit in which a [Calendar] counts.
type CalendarUnit uint8

const (
	CalendarDay   CalendarUnit = iota
	CalendarWeek               // begins on Monday
	CalendarMonth              // begins on the 1st
)

// String returns "day", "week", "month", or "invalid".
func (u CalendarUnit) String() string { return indexedName(int(u), "day", "week", "month") }

// ShortMonthPolicy selects what happens to a day that a month does not have.
type ShortMonthPolicy uint8

const (
	ShortMonthLastDay ShortMonthPolicy = iota // the month's last day
	ShortMonthSkip                            // nothing in that month
)

// String returns "last-day", "skip", or "invalid".
func (p ShortMonthPolicy) String() string { return indexedName(int(p), "last-day", "skip") }

// Calendar is an interval that keeps local time: local times of day in every n-th day, week
// or month.
type Calendar struct {
	// Every is n, 1 to 1000; 0 means 1.
	Every int
	Unit  CalendarUnit
	// Times are local times of day, "09:00" or "09:00:30"; 1 to 24.
	Times []string
	// Weekdays are the days in a week that counts. CalendarWeek only; empty: that of From.
	Weekdays []time.Weekday
	// MonthDays are the days in a month that counts: 1 to 31, or -1 (the last day) to -31.
	// CalendarMonth only; empty: that of From.
	MonthDays  []int
	ShortMonth ShortMonthPolicy
	// From is a local day, "2026-11-30": the first day, week or month that counts is the one it is in, and no
	// nominal time lies before it. Empty: the local day of the anchor, or of StartAt if that is later.
	From string
}

// Empty reports whether c is the zero value.
func (c Calendar) Empty() bool { return c.Equal(Calendar{}) }

// Equal reports whether c and o are the same as written.
func (c Calendar) Equal(o Calendar) bool {
	return c.Every == o.Every && c.Unit == o.Unit && c.ShortMonth == o.ShortMonth && c.From == o.From &&
		slices.Equal(c.Times, o.Times) && slices.Equal(c.Weekdays, o.Weekdays) && slices.Equal(c.MonthDays, o.MonthDays)
}

// calendar is a compiled Calendar: like fields it works in civil time.
type calendar struct {
	every, from       int64   // from is a day number
	first             int64   // the period that From lies in: its day, its Monday, or its month since year 0
	timesOfDay        []int64 // seconds of the day, in order
	unit              CalendarUnit
	weekdays          uint64 // bit 0 is Monday
	days, daysFromEnd uint64 // of a month: bit n is day n, or day n from the end
	skip              bool
}

// compileCalendar adds all errors to p; its result is not valid then.
func compileCalendar(c Calendar, today time.Time, p *problems) *calendar {
	out := &calendar{every: int64(max(c.Every, 1)), unit: c.Unit, skip: c.ShortMonth == ShortMonthSkip}
	if c.Every < 0 || c.Every > maxCalendarEvery {
		p.addError("calendar.every", "is %d, want 1 to %d", c.Every, maxCalendarEvery)
	}
	if c.Unit > CalendarMonth {
		p.addError("calendar.unit", "unknown unit %d", c.Unit)
	}
	if c.ShortMonth > ShortMonthSkip {
		p.addError("calendar.short_month", "unknown policy %d", c.ShortMonth)
	}
	if c.From != "" {
		day, err := time.Parse(time.DateOnly, c.From)
		if err != nil || day.Year() < 1 {
			p.addError("calendar.from", "%.64q is no day: want one such as 2026-11-30", c.From)
			return out
		}
		today = day
	}
	y, m, d := today.Date()
	out.from = dayNumber(y, int(m), d)
	out.timesOfDay = compileTimesOfDay(c.Times, p)
	out.setWeekdays(c, today.Weekday(), p)
	out.setMonthDays(c, d, p)
	out.first = out.periodOf(out.from)
	return out
}

func compileTimesOfDay(texts []string, p *problems) []int64 {
	if len(texts) == 0 || len(texts) > maxCalendarTimes {
		p.addError("calendar.times", "%d times, 1 to %d are required", len(texts), maxCalendarTimes)
		return nil
	}
	var clocks []int64
	for i, text := range texts {
		at, err := time.Parse("15:04", text)
		if err != nil {
			at, err = time.Parse(time.TimeOnly, text)
		}
		if err != nil || at.Nanosecond() != 0 {
			p.addError(fmt.Sprintf("calendar.times[%d]", i), "%.64q is no time of day: want 09:00 or 09:00:30", text)
			continue
		}
		clocks = append(clocks, secondOfDay(at.Hour(), at.Minute(), at.Second()))
	}
	slices.Sort(clocks)
	return slices.Compact(clocks)
}

func (c *calendar) setWeekdays(spec Calendar, today time.Weekday, p *problems) {
	if len(spec.Weekdays) > 0 && spec.Unit != CalendarWeek {
		p.addError("calendar.weekdays", "only for unit week, not %s", spec.Unit)
	}
	if len(spec.Weekdays) == 0 {
		spec.Weekdays = []time.Weekday{today}
	}
	for i, day := range spec.Weekdays {
		if day < time.Sunday || day > time.Saturday {
			p.addError(fmt.Sprintf("calendar.weekdays[%d]", i), "unknown day %d", day)
			continue
		}
		c.weekdays |= 1 << ((day + 6) % 7)
	}
}

func (c *calendar) setMonthDays(spec Calendar, today int, p *problems) {
	if len(spec.MonthDays) > 0 && spec.Unit != CalendarMonth {
		p.addError("calendar.month_days", "only for unit month, not %s", spec.Unit)
	}
	if spec.ShortMonth != ShortMonthLastDay && spec.Unit != CalendarMonth {
		p.addError("calendar.short_month", "only for unit month, not %s", spec.Unit)
	}
	if len(spec.MonthDays) == 0 {
		spec.MonthDays = []int{today}
	}
	for i, day := range spec.MonthDays {
		switch {
		case day >= 1 && day <= 31:
			c.days |= 1 << day
		case day >= -31 && day <= -1:
			c.daysFromEnd |= 1 << -day
		default:
			p.addError(fmt.Sprintf("calendar.month_days[%d]", i),
				"is %d, want 1 to 31, or -1 (the last day) to -31", day)
		}
	}
}

// periodOf returns what counts of a day: itself, its Monday, or its month since year 0.
func (c *calendar) periodOf(day int64) int64 {
	switch c.unit {
	case CalendarWeek:
		return day - floorMod(day+3, 7) // 1970-01-01 was a Thursday
	case CalendarMonth:
		y, m, _ := dateOfDay(day)
		return int64(y)*12 + int64(m) - 1
	}
	return day
}

// periodLength returns how far apart two periods that follow each other are.
func (c *calendar) periodLength() int64 {
	if c.unit == CalendarWeek {
		return 7
	}
	return 1
}

// periodStart returns the day on which a period begins.
func (c *calendar) periodStart(period int64) int64 {
	if c.unit == CalendarMonth {
		return dayNumber(int(floorDiv(period, 12)), int(floorMod(period, 12))+1, 1)
	}
	return period
}

// matchingDays returns the days of a period that count: bit n is the day n after its begin.
func (c *calendar) matchingDays(period int64) uint64 {
	switch c.unit {
	case CalendarWeek:
		return c.weekdays
	case CalendarMonth:
		return c.monthDays(int(c.periodStart(period+1) - c.periodStart(period)))
	}
	return 1
}

// monthDays returns the days that count in a month of so many.
func (c *calendar) monthDays(length int) uint64 {
	has := uint64(1)<<(length+1) - 2 // days 1 to length
	days := c.days & has
	for set := c.daysFromEnd & has; set != 0; set &= set - 1 {
		days |= 1 << (length + 1 - bits.TrailingZeros64(set))
	}
	if !c.skip && c.days&^has != 0 {
		days |= 1 << length
	}
	if !c.skip && c.daysFromEnd&^has != 0 {
		days |= 1 << 1
	}
	return days >> 1
}

// nextMatch returns the first match at or after civil time t.
func (c *calendar) nextMatch(t int64) (int64, bool) {
	day := max(floorDiv(t, secondsPerDay), c.from)
	found, ok := c.nextDay(day)
	if !ok {
		return 0, false
	}
	if found*secondsPerDay < t { // the same day, begun
		if i, _ := slices.BinarySearch(c.timesOfDay, t-found*secondsPerDay); i < len(c.timesOfDay) {
			return found*secondsPerDay + c.timesOfDay[i], true
		}
		found, ok = c.nextDay(found + 1)
		if !ok {
			return 0, false
		}
	}
	return found*secondsPerDay + c.timesOfDay[0], true
}

// prevMatch returns the last match at or before civil time t.
func (c *calendar) prevMatch(t int64) (int64, bool) {
	found, ok := c.prevDay(floorDiv(t, secondsPerDay))
	if !ok {
		return 0, false
	}
	i := len(c.timesOfDay)
	if found == floorDiv(t, secondsPerDay) {
		i, _ = slices.BinarySearch(c.timesOfDay, t-found*secondsPerDay+1)
	}
	if i == 0 {
		found, ok = c.prevDay(found - 1)
		if !ok {
			return 0, false
		}
		i = len(c.timesOfDay)
	}
	return found*secondsPerDay + c.timesOfDay[i-1], true
}

// nextDay returns the first day that counts from this one on.
func (c *calendar) nextDay(day int64) (int64, bool) {
	stride := c.every * c.periodLength()
	period := c.periodOf(day)
	if past := floorMod(period-c.first, stride); past != 0 {
		period += stride - past
	}
	for limit := day + searchYears*366; ; period += stride {
		begin := c.periodStart(period)
		if begin > limit {
			return 0, false
		}
		days := c.matchingDays(period)
		if skip := day - begin; skip > 0 {
			days = days >> skip << skip
		}
		if days != 0 {
			return begin + int64(bits.TrailingZeros64(days)), true
		}
	}
}

// prevDay returns the last day that counts up to this one.
func (c *calendar) prevDay(day int64) (int64, bool) {
	stride := c.every * c.periodLength()
	period := c.periodOf(day)
	period -= floorMod(period-c.first, stride)
	for limit := max(c.from, day-searchYears*366); ; period -= stride {
		begin := c.periodStart(period)
		days := c.matchingDays(period)
		if keep := day - begin + 1; keep < 64 {
			days &= 1<<keep - 1
		}
		if days != 0 {
			found := begin + int64(bits.Len64(days)) - 1
			return found, found >= c.from
		}
		if begin <= limit {
			return 0, false
		}
	}
}
