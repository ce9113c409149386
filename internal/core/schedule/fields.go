package schedule

import (
	"math/bits"
	"time"

	cron "github.com/netresearch/go-cron"
)

const (
	secondsPerDay = 24 * 60 * 60
	// searchYears bounds every search. The longest wait in the calendar is 40
	// years: a leap day on a given weekday, across a century without leap year.
	searchYears = 41
)

// fields is one cron expression as sets of numbers: bit n of a set stands for
// n. It works in civil time: what a calendar and a clock on the wall show,
// counted in seconds as though that wall were in UTC. No set of the clock is
// empty; that of the days may be in some or all months.
type fields struct {
	second, minute, hour uint64
	dom, month, dow      uint64
	domRule              []cron.DomConstraint // L, L-n, nW, LW
	dowRule              []cron.DowConstraint // FRI#3, FRI#L
	both                 bool                 // a day must match both day fields, not either
	first, last          int64                // earliest and latest second of a matching day
	resolved             *[monthKinds]uint32  // matching days by the kind of month; nil: no forms such as 15W
}

// newFields takes the sets out of the parsed expression. Bit 63 of a set is
// the library's own mark of a star and no value.
func newFields(p *cron.SpecSchedule, allDays bool) fields {
	const values = 1<<63 - 1
	f := fields{
		second:  p.Second & values,
		minute:  p.Minute & values,
		hour:    p.Hour & values,
		dom:     p.Dom & values,
		month:   p.Month & values,
		dow:     p.Dow & values,
		domRule: p.DomConstraints,
		dowRule: p.DowConstraints,
		both:    allDays,
	}
	f.resolveForms()
	s, m, h := bits.TrailingZeros64(f.second), bits.TrailingZeros64(f.minute), bits.TrailingZeros64(f.hour)
	f.first = secondOfDay(h, m, s)
	f.last = secondOfDay(bits.Len64(f.hour)-1, bits.Len64(f.minute)-1, bits.Len64(f.second)-1)
	return f
}

// nextMatch returns the first match at or after civil time c.
func (f *fields) nextMatch(c int64) (int64, bool) {
	day := floorDiv(c, secondsPerDay)
	y, m, d := dateOfDay(day)
	days := f.matchingDays(y, m) >> d << d
	if days&(1<<d) != 0 {
		if s, ok := f.timeOfDayFrom(c - day*secondsPerDay); ok {
			return day*secondsPerDay + s, true
		}
		days &^= 1 << d
	}
	for limit := y + searchYears; days == 0; days = f.matchingDays(y, m) {
		m++
		if m > 12 {
			y, m = y+1, 1
		}
		if y > limit {
			return 0, false
		}
	}
	return dayNumber(y, m, bits.TrailingZeros64(days))*secondsPerDay + f.first, true
}

// matchesTime reports whether civil time c is a match, without looking for another one.
func (f *fields) matchesTime(c int64) bool {
	day := floorDiv(c, secondsPerDay)
	y, m, d := dateOfDay(day)
	return f.matchesTimeOf(y, m, d, c-day*secondsPerDay)
}

// matchesTimeOf is matchesTime for a second of a day.
func (f *fields) matchesTimeOf(y, m, d int, tod int64) bool {
	if f.hour&(1<<(tod/3600)) == 0 || f.minute&(1<<(tod/60%60)) == 0 || f.second&(1<<(tod%60)) == 0 {
		return false
	}
	return f.matchingDays(y, m)&(1<<d) != 0
}

// matchesUntil returns the end of the matches that follow each other without a gap from match c on, or the end of its day
// if that is earlier. A match covers step: 60 seconds for an expression without seconds, otherwise one.
func (f *fields) matchesUntil(c, step int64) int64 {
	day := floorDiv(c, secondsPerDay)
	tod := c - day*secondsPerDay
	hour, minute := tod/3600*3600, tod/60*60
	if step == 1 {
		n := consecutiveBits(f.second, tod%60)
		if tod%60+n < 60 || !isFull(f.second, 60) {
			return c + n
		}
	}
	n := consecutiveBits(f.minute, tod/60%60)
	if tod/60%60+n < 60 || !isFull(f.minute, 60) {
		return day*secondsPerDay + minute + n*60
	}
	return day*secondsPerDay + hour + consecutiveBits(f.hour, tod/3600)*3600
}

// matchesSince returns the beginning of the matches that follow each other without a gap up to match c, or that of its
// day if that is later. See matchesUntil.
func (f *fields) matchesSince(c, step int64) int64 {
	day := floorDiv(c, secondsPerDay)
	tod := c - day*secondsPerDay
	if step == 1 {
		n := consecutiveBitsDown(f.second, tod%60)
		if n <= tod%60 || !isFull(f.second, 60) {
			return c - n + 1
		}
	}
	n := consecutiveBitsDown(f.minute, tod/60%60)
	if n <= tod/60%60 || !isFull(f.minute, 60) {
		return day*secondsPerDay + (tod/60-n+1)*60
	}
	return day*secondsPerDay + (tod/3600-consecutiveBitsDown(f.hour, tod/3600)+1)*3600
}

// consecutiveBitsDown returns how many members of set follow each other from i downwards, which is one.
func consecutiveBitsDown(set uint64, i int64) int64 {
	return int64(bits.LeadingZeros64(^(set << (63 - i))))
}

// consecutiveBits returns how many members of set follow each other from i on, which is one.
func consecutiveBits(set uint64, i int64) int64 { return int64(bits.TrailingZeros64(^(set >> i))) }

// isFull reports whether set has all numbers from 0 to n-1.
func isFull(set uint64, n int) bool { return set&(1<<n-1) == 1<<n-1 }

// prevMatch returns the last match at or before civil time c.
func (f *fields) prevMatch(c int64) (int64, bool) {
	day := floorDiv(c, secondsPerDay)
	y, m, d := dateOfDay(day)
	days := f.matchingDays(y, m) & (1<<(d+1) - 1)
	if days&(1<<d) != 0 {
		if s, ok := f.timeOfDayUpto(c - day*secondsPerDay); ok {
			return day*secondsPerDay + s, true
		}
		days &^= 1 << d
	}
	for limit := y - searchYears; days == 0; days = f.matchingDays(y, m) {
		m--
		if m < 1 {
			y, m = y-1, 12
		}
		if y < limit {
			return 0, false
		}
	}
	return dayNumber(y, m, bits.Len64(days)-1)*secondsPerDay + f.last, true
}

// timeOfDayFrom returns the first matching second of a day at or after second tod.
func (f *fields) timeOfDayFrom(tod int64) (int64, bool) {
	h, m, s := int(tod/3600), int(tod/60%60), int(tod%60)
	if f.hour&(1<<h) != 0 {
		if f.minute&(1<<m) != 0 {
			if n, ok := lowestBitFrom(f.second, s); ok {
				return secondOfDay(h, m, n), true
			}
		}
		if n, ok := lowestBitFrom(f.minute, m+1); ok {
			return secondOfDay(h, n, int(f.first%60)), true
		}
	}
	n, ok := lowestBitFrom(f.hour, h+1)
	return secondOfDay(n, 0, 0) + f.first%3600, ok
}

// timeOfDayUpto returns the last matching second of a day at or before second tod.
func (f *fields) timeOfDayUpto(tod int64) (int64, bool) {
	h, m, s := int(tod/3600), int(tod/60%60), int(tod%60)
	if f.hour&(1<<h) != 0 {
		if f.minute&(1<<m) != 0 {
			if n, ok := highestBitUpto(f.second, s); ok {
				return secondOfDay(h, m, n), true
			}
		}
		if n, ok := highestBitUpto(f.minute, m-1); ok {
			return secondOfDay(h, n, int(f.last%60)), true
		}
	}
	n, ok := highestBitUpto(f.hour, h-1)
	return secondOfDay(n, 0, 0) + f.last%3600, ok
}

func secondOfDay(h, m, s int) int64 { return int64(h*3600 + m*60 + s) }

// lowestBitFrom returns the lowest member of set that is at least i; 0 <= i <= 60.
func lowestBitFrom(set uint64, i int) (int, bool) {
	set = set >> i << i
	return bits.TrailingZeros64(set), set != 0
}

// highestBitUpto returns the highest member of set that is at most i; -1 <= i <= 60.
func highestBitUpto(set uint64, i int) (int, bool) {
	set &= 1<<(i+1) - 1
	return bits.Len64(set) - 1, set != 0
}

// dateOfDay and dayNumber convert between days since 1970-01-01 and the calendar.
func dateOfDay(day int64) (y, m, d int) {
	year, month, d := time.Unix(day*secondsPerDay, 0).UTC().Date()
	return year, int(month), d
}

func dayNumber(y, m, d int) int64 {
	return time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC).Unix() / secondsPerDay
}
