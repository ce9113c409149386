package schedule

import cron "github.com/netresearch/go-cron"

// month describes one month: its length and the weekday of its first day.
type month struct{ length, first int }

func newMonth(y, m int) month {
	start := dayNumber(y, m, 1)
	const thursday = 4 // 1970-01-01
	return month{
		length: monthLength(y, m),
		first:  int((start%7 + 7 + thursday) % 7),
	}
}

func monthLength(y, m int) int {
	switch m {
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

const (
	minMonth, maxMonth = 28, 31 // days
	monthKinds         = (maxMonth - minMonth + 1) * 7
)

// kind numbers the kinds of months: those of equal length that begin on the same weekday have the same days.
func (m month) kind() int { return (m.length-minMonth)*7 + m.first }

// weekdayOf of day d of the month; Sunday is 0.
func (m month) weekdayOf(d int) int { return (m.first + d - 1) % 7 }

// matchingDays returns the matching days of a month as a set.
func (f *fields) matchingDays(y, m int) uint64 {
	if f.month&(1<<m) == 0 {
		return 0
	}
	mon := newMonth(y, m)
	if f.resolved != nil {
		return uint64(f.resolved[mon.kind()])
	}
	return f.resolveDays(mon)
}

// resolveForms resolves the forms of days for each kind of month: an expression may have a hundred, and a search asks
// for their days at each time that it passes over.
func (f *fields) resolveForms() {
	if len(f.domRule)+len(f.dowRule) == 0 {
		return
	}
	f.resolved = new([monthKinds]uint32)
	for length := minMonth; length <= maxMonth; length++ {
		for first := range 7 {
			mon := month{length, first}
			f.resolved[mon.kind()] = uint32(f.resolveDays(mon))
		}
	}
}

// resolveDays is matchingDays for a month that the expression names.
func (f *fields) resolveDays(mon month) uint64 {
	all := uint64(1)<<(mon.length+1) - 2 // days 1 to length
	dom, dow := f.dom, mon.daysOfWeekdays(f.dow)
	for _, c := range f.domRule {
		dom |= mon.resolveDate(c)
	}
	for _, c := range f.dowRule {
		dow |= mon.resolveWeekday(c)
	}
	if f.both {
		return dom & dow & all
	}
	return (dom | dow) & all
}

// daysOfWeekdays turns a set of weekdays into the set of the days that bear them.
func (m month) daysOfWeekdays(dow uint64) uint64 {
	week := (dow>>m.first | dow<<(7-m.first)) & (1<<7 - 1)
	return (week | week<<7 | week<<14 | week<<21 | week<<28) << 1
}

// resolveDate returns the day that L, L-n, nW or LW means, or nothing if the month
// has no such day.
func (m month) resolveDate(c cron.DomConstraint) uint64 {
	d := 0
	switch c.Type {
	case cron.DomLast:
		d = m.length
	case cron.DomLastOffset:
		d = m.length - c.N
	case cron.DomLastWeekday:
		d = m.nearestWorkday(m.length)
	case cron.DomNearestWeekday:
		if c.N <= m.length {
			d = m.nearestWorkday(c.N)
		}
	}
	if d < 1 {
		return 0
	}
	return 1 << d
}

// nearestWorkday returns the day from Monday to Friday nearest to d within the month.
func (m month) nearestWorkday(d int) int {
	const sunday, saturday = 0, 6
	switch wd := m.weekdayOf(d); {
	case wd == saturday && d > 1:
		return d - 1
	case wd == saturday:
		return d + 2
	case wd == sunday && d < m.length:
		return d + 1
	case wd == sunday:
		return d - 2
	}
	return d
}

// resolveWeekday returns the day that FRI#n or FRI#L means, or nothing.
func (m month) resolveWeekday(c cron.DowConstraint) uint64 {
	d := 1 + (c.Weekday-m.first+7)%7
	if c.N < 0 {
		d += (m.length - d) / 7 * 7
	} else {
		d += (c.N - 1) * 7
	}
	return 1 << d
}
