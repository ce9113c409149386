package schedule

import (
	"math/bits"
	"time"
)

const (
	// maxDayKinds bounds the kinds of days that one search for a short gap looks at. A usual schedule has a few.
	maxDayKinds = 256
	// datesPerStep is how many excluded dates are compared with a month in the time of one step.
	datesPerStep = 200
)

// ShortGap is what a search for two nominal times that are close to each other has found.
type ShortGap struct {
	// Found is a gap that is shorter than was asked for; 0: there is none.
	Found time.Duration
	// Undecided: the schedule has too many kinds of days to look at all of them.
	Undecided bool
	// Steps is how much work it took, in checks of one nominal time by one expression.
	Steps int
}

// FindShortGap looks for two nominal times of a cron or calendar schedule, from an instant on, that are less than least
// apart. It does not go from time to time: it compares the local times of each kind of day, which the same expressions
// and the same exclusions have. So the answer is about all days of the next decades, however rarely expressions meet.
// Times by the clock on the wall count: a change of the clock may bring two of them closer. Excluded periods, and the
// hours of the first and the last day before and after which there is none, count as if they had nominal times.
func (s *Schedule) FindShortGap(from time.Time, least time.Duration) ShortGap {
	g := gapSearch{s: s, least: int64((least + time.Second - 1) / time.Second), kinds: map[dayKind]daySpan{}}
	if s.exclude != nil {
		g.weekdays = s.exclude.windowsOfWeek()
	}
	if len(s.rules) == 0 || g.least <= 1 || g.isEveryDayWide() {
		return ShortGap{Steps: g.steps}
	}
	g.searchDays(max(floorMillis(from), s.start))
	return ShortGap{Found: time.Duration(g.found) * time.Second, Undecided: g.undecided, Steps: g.steps}
}

// gapSearch is a search for two times that are less than least seconds apart.
type gapSearch struct {
	s         *Schedule
	least     int64
	weekdays  [7]dayKind // the windows of each, from Sunday on
	kinds     map[dayKind]daySpan
	found     int64
	undecided bool
	steps     int
}

// dayKind is what decides the times of a day, as sets of indexes: expressions that match on it, excluding ones, windows
// that begin on it, and windows of the day before that end on it.
type dayKind struct {
	rules, cron, windows, windowsBefore uint32
}

// daySpan are the first and the last time of a kind of day, in seconds of the day, and the shortest gap between two.
// First is -1 if there is no time.
type daySpan struct{ first, last, gap int64 }

// isEveryDayWide reports whether the times would be far enough apart even if all expressions matched on all days.
func (g *gapSearch) isEveryDayWide() bool {
	span := g.spanOf(dayKind{rules: 1<<len(g.s.rules) - 1})
	return span.gap >= g.least && span.first+secondsPerDay-span.last >= g.least
}

// searchDays looks at the days from an instant on, up to the end of the schedule or for as long as any search lasts.
func (g *gapSearch) searchDays(from int64) {
	day := g.dayOf(from)
	last := min(day+searchYears*366, g.dayOf(g.s.end-1))
	before := int64(-unbounded / 2) // the last time of the days before
	var days monthDays
	for ; day <= last && g.found == 0 && !g.undecided; day++ {
		if !days.holds(day) {
			days = g.daysOfMonth(day)
		}
		kind, ok := g.kindOf(day, &days)
		if !ok {
			continue
		}
		span, ok := g.kinds[kind]
		if !ok {
			g.undecided = len(g.kinds) == maxDayKinds
			span = g.spanOf(kind)
			g.kinds[kind] = span
		}
		if span.first < 0 {
			continue
		}
		gap := min(span.gap, day*secondsPerDay+span.first-before)
		if gap < g.least {
			g.found = gap
		}
		before = day*secondsPerDay + span.last
	}
}

func (g *gapSearch) dayOf(ms int64) int64 {
	sec := floorDiv(ms, 1000)
	return floorDiv(sec+g.s.rules[0].segmentAt(sec).offset, secondsPerDay)
}

// monthDays are the days of one month that expressions match, and those that dates exclude, as sets.
type monthDays struct {
	begin, end  int64 // day numbers; end is not included
	rules, cron []uint64
	excluded    uint64
}

func (m *monthDays) holds(day int64) bool { return day >= m.begin && day < m.end }

func (g *gapSearch) daysOfMonth(day int64) monthDays {
	y, m, _ := dateOfDay(day)
	days := monthDays{begin: dayNumber(y, m, 1), end: dayNumber(y, m+1, 1)}
	for i := range g.s.rules {
		days.rules = append(days.rules, g.s.rules[i].daysOfMonth(y, m, days.begin, days.end))
	}
	if e := g.s.exclude; e != nil {
		for i := range e.cron {
			days.cron = append(days.cron, e.cron[i].matchingDays(y, m))
		}
		days.excluded = e.excludedDays(m, days.begin, days.end)
		g.steps += len(e.days) / datesPerStep
	}
	g.steps += len(days.rules) + len(days.cron)
	return days
}

// daysOfMonth returns the days that a rule matches of a month, which has the days from begin to before end.
func (r *rule) daysOfMonth(y, m int, begin, end int64) (set uint64) {
	switch times := r.times.(type) {
	case *fields:
		return times.matchingDays(y, m)
	case *calendar:
		for day, ok := times.nextDay(max(begin, times.from)); ok && day < end; day, ok = times.nextDay(day + 1) {
			set |= 1 << (day - begin + 1)
		}
	}
	return set
}

// kindOf returns the kind of a day; false if it has no times.
func (g *gapSearch) kindOf(day int64, days *monthDays) (k dayKind, ok bool) {
	n := day - days.begin + 1
	k = g.weekdays[floorMod(day+4, 7)] // 1970-01-01 was a Thursday
	k.rules = membersWith(days.rules, n)
	if k.rules == 0 || days.excluded>>n&1 != 0 {
		return k, false
	}
	k.cron = membersWith(days.cron, n)
	return k, true
}

// membersWith returns the indexes of the sets that have a number.
func membersWith(sets []uint64, n int64) (indexes uint32) {
	for i, set := range sets {
		indexes |= uint32(set>>n&1) << i
	}
	return indexes
}

// spanOf computes the times of a kind of day.
func (g *gapSearch) spanOf(k dayKind) daySpan {
	var day dayTimes
	for i := range g.s.rules {
		if k.rules&(1<<i) != 0 {
			g.s.rules[i].addTimesTo(&day)
		}
	}
	if e := g.s.exclude; e != nil {
		e.removeTimes(k, &day)
	}
	g.steps += 8*(1+bits.OnesCount32(k.rules)+bits.OnesCount32(k.cron)) +
		4*(bits.OnesCount32(k.windows)+bits.OnesCount32(k.windowsBefore))
	return day.span()
}

// dayTimes are times of one local day: a bit for each second.
type dayTimes [secondsPerDay / 64]uint64

// addTimesTo adds the times of day of a rule, on a day that it matches.
func (r *rule) addTimesTo(day *dayTimes) {
	switch times := r.times.(type) {
	case *fields:
		times.eachMinute(func(at int64) { day.add(at, times.second) })
	case *calendar:
		for _, at := range times.timesOfDay {
			day.add(at, 1)
		}
	}
}

// removeTimes removes what is excluded on a kind of day.
func (e *exclusions) removeTimes(k dayKind, day *dayTimes) {
	for i := range e.cron {
		if k.cron&(1<<i) == 0 {
			continue
		}
		seconds := e.cron[i].second
		if e.cronStep == 60 {
			seconds = 1<<60 - 1
		}
		e.cron[i].eachMinute(func(at int64) { day.remove(at, seconds) })
	}
	for i, w := range e.windows {
		if k.windows&(1<<i) != 0 {
			day.removeRange(w.from, min(w.to, secondsPerDay))
		}
		if k.windowsBefore&(1<<i) != 0 {
			day.removeRange(0, w.to-secondsPerDay)
		}
	}
}

// windowsOfWeek returns the windows of each weekday: those that begin on it, and those of the day before that end on
// it.
func (e *exclusions) windowsOfWeek() (week [7]dayKind) {
	for weekday := range week {
		for i, w := range e.windows {
			week[weekday].windows |= uint32(w.days>>weekday&1) << i
			if w.to > secondsPerDay {
				week[weekday].windowsBefore |= uint32(w.days>>((weekday+6)%7)&1) << i
			}
		}
	}
	return week
}

// excludedDays returns the days that dates exclude of a month, which has the days from begin to before end.
func (e *exclusions) excludedDays(month int, begin, end int64) (set uint64) {
	for _, r := range e.days {
		from, to := max(begin, r.from), min(end-1, r.to)
		switch {
		case r.yearly && r.month == month:
			set |= 1 << r.day
		case !r.yearly && from <= to:
			set |= 1<<(to-begin+2) - 1<<(from-begin+1)
		}
	}
	return set
}

// eachMinute calls visit with the second of the day at which each matching minute begins.
func (f *fields) eachMinute(visit func(at int64)) {
	for hours := f.hour; hours != 0; hours &= hours - 1 {
		for minutes := f.minute; minutes != 0; minutes &= minutes - 1 {
			visit(secondOfDay(bits.TrailingZeros64(hours), bits.TrailingZeros64(minutes), 0))
		}
	}
}

// add adds a set of up to 60 seconds from a second of the day on.
func (d *dayTimes) add(at int64, seconds uint64) {
	d[at/64] |= seconds << (at % 64)
	if rest := seconds >> (64 - at%64); rest != 0 {
		d[at/64+1] |= rest
	}
}

func (d *dayTimes) remove(at int64, seconds uint64) {
	d[at/64] &^= seconds << (at % 64)
	if rest := seconds >> (64 - at%64); rest != 0 {
		d[at/64+1] &^= rest
	}
}

func (d *dayTimes) removeRange(from, to int64) {
	for from < to {
		n := min(to-from, 64-from%64)
		d[from/64] &^= (1<<n - 1) << (from % 64)
		from += n
	}
}

// span returns the first and the last time, and the shortest gap.
func (d *dayTimes) span() daySpan {
	out := daySpan{first: -1, last: -1, gap: unbounded}
	for i, word := range d {
		for ; word != 0; word &= word - 1 {
			at := int64(i*64 + bits.TrailingZeros64(word))
			if out.first < 0 {
				out.first = at
			} else {
				out.gap = min(out.gap, at-out.last)
			}
			out.last = at
		}
	}
	return out
}
