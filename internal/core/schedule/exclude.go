package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Bounds of exclusions.
const (
	maxExcludeCron    = 16
	maxExcludeDates   = 400
	maxExcludeWindows = 32
	// MaxExcludePeriods is how many periods a schedule may exclude.
	MaxExcludePeriods = 100
	// maxSkippedTimes bounds how many excluded nominal times one search may skip. A schedule with so many in a
	// row counts as ended there.
	maxSkippedTimes = 2_000
)

// exclusions answer whether an instant is excluded. Local times are the zone's,
// as its clock shows them.
type exclusions struct {
	zone     *time.Location
	cron     []fields
	cronStep int64 // seconds that an expression covers: 60, or 1
	days     []dayRange
	windows  []window
	periods  [][2]int64 // ms
}

// dayRange is a range of local days, both ends included, as days since 1970; or,
// yearly, one day of a year.
type dayRange struct {
	from, to   int64
	yearly     bool
	month, day int
}

// window is a stretch of the local day on some weekdays, in seconds. One past
// midnight ends on the following day.
type window struct {
	days     uint8 // bit 0 is Sunday
	from, to int64 // to may be beyond the day
}

func compileExclusions(s Spec, zone *time.Location, seed uint64, p *problems) *exclusions {
	if s.Exclude.Empty() {
		return nil
	}
	e := &exclusions{zone: zone, cronStep: 60}
	if s.Seconds {
		e.cronStep = 1
	}
	limit := func(field string, n, most int) {
		if n > most {
			p.addError(field, "%d entries, at most %d are allowed", n, most)
		}
	}
	limit("exclude.cron", len(s.Exclude.Cron), maxExcludeCron)
	limit("exclude.dates", len(s.Exclude.Dates), maxExcludeDates)
	limit("exclude.windows", len(s.Exclude.Windows), maxExcludeWindows)
	limit("exclude.periods", len(s.Exclude.Periods), MaxExcludePeriods)
	if p.joinErrors() != nil {
		return nil
	}
	for i, text := range s.Exclude.Cron {
		if f, err := excludedFields(text, s.Seconds, seed); err != nil {
			p.addError(fmt.Sprintf("exclude.cron[%d]", i), "%v", err)
		} else {
			e.cron = append(e.cron, f)
		}
	}
	for i, text := range s.Exclude.Dates {
		if d, err := parseDates(text); err != nil {
			p.addError(fmt.Sprintf("exclude.dates[%d]", i), "%v", err)
		} else {
			e.days = append(e.days, d)
		}
	}
	for i, text := range s.Exclude.Windows {
		if w, err := parseWindow(text); err != nil {
			p.addError(fmt.Sprintf("exclude.windows[%d]", i), "%v", err)
		} else {
			e.windows = append(e.windows, w)
		}
	}
	for i, period := range s.Exclude.Periods {
		field := fmt.Sprintf("exclude.periods[%d]", i)
		from, to := checkMillis(field, RoundUp(period.From), p), checkMillis(field, RoundUp(period.To), p)
		if !period.To.After(period.From) {
			p.addError(field, "ends before it begins")
		}
		e.periods = append(e.periods, [2]int64{from, to})
	}
	return e
}

func excludedFields(text string, seconds bool, seed uint64) (fields, error) {
	if err := checkText(text); err != nil {
		return fields{}, err
	}
	if isEvery(text) {
		return fields{}, fmt.Errorf("@every names no instants that could be excluded")
	}
	f, _, err := parseFields(text, seconds, seed)
	return f, err
}

// parseDates reads "2026-12-25", "2026-12-24/2027-01-02" or "12-25".
func parseDates(text string) (dayRange, error) {
	bad := fmt.Errorf("%.40q: want a day 2026-12-25, a range 2026-12-24/2027-01-02, or a day of every year 12-25", text)
	if len(text) == len("12-25") {
		// A leap year, so that 02-29 is a day.
		t, err := time.Parse(time.DateOnly, "2024-"+text)
		if err != nil {
			return dayRange{}, bad
		}
		return dayRange{yearly: true, month: int(t.Month()), day: t.Day()}, nil
	}
	from, to, ranged := strings.Cut(text, "/")
	if !ranged {
		to = from
	}
	a, err := time.Parse(time.DateOnly, from)
	b, err2 := time.Parse(time.DateOnly, to)
	if err != nil || err2 != nil {
		return dayRange{}, bad
	}
	if b.Before(a) {
		return dayRange{}, fmt.Errorf("%q ends before it begins", text)
	}
	return dayRange{from: a.Unix() / secondsPerDay, to: b.Unix() / secondsPerDay}, nil
}

// parseWindow reads "22:00-06:00", "Sat,Sun" or "Mon-Fri 12:00-13:00".
func parseWindow(text string) (window, error) {
	bad := fmt.Errorf(`%.40q: want "22:00-06:00", "Sat,Sun" or "Mon-Fri 12:00-13:00"`, text)
	words := strings.Fields(text)
	w := window{days: 1<<7 - 1, to: secondsPerDay}
	switch {
	case len(words) == 0 || len(words) > 2:
		return window{}, bad
	case len(words) == 2 || !strings.Contains(words[0], ":"):
		days, ok := parseDays(words[0])
		if !ok {
			return window{}, bad
		}
		w.days = days
		words = words[1:]
	}
	if len(words) == 0 {
		return w, nil
	}
	from, to, ok := strings.Cut(words[0], "-")
	a, ok1 := parseClock(from)
	b, ok2 := parseClock(to)
	if !ok || !ok1 || !ok2 || a == secondsPerDay {
		return window{}, bad
	}
	if b <= a {
		b += secondsPerDay
	}
	w.from, w.to = a, b
	return w, nil
}

var dayNames = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

func parseDays(text string) (set uint8, ok bool) {
	day := func(name string) int {
		for i, n := range dayNames {
			if strings.EqualFold(n, name) {
				return i
			}
		}
		return -1
	}
	for item := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(item, "-")
		if !ranged {
			to = from
		}
		a, b := day(from), day(to)
		if a < 0 || b < 0 {
			return 0, false
		}
		for d := a; ; d = (d + 1) % 7 {
			set |= 1 << d
			if d == b {
				break
			}
		}
	}
	return set, true
}

// parseClock reads "06:30"; "24:00" is the end of a day.
func parseClock(text string) (seconds int64, ok bool) {
	h, m, found := strings.Cut(text, ":")
	hour, err := strconv.ParseUint(h, 10, 8)
	minute, err2 := strconv.ParseUint(m, 10, 8)
	if !found || len(m) != 2 || err != nil || err2 != nil || minute > 59 || hour > 24 || (hour == 24 && minute > 0) {
		return 0, false
	}
	return int64(hour*3600 + minute*60), true
}

// stretch is a span [since, until) of excluded times. It is empty where the time that was asked for is not excluded.
type stretch struct{ since, until int64 }

// include extends the stretch around a time by [from, to), if that has the time.
func (s *stretch) include(at, from, to int64) {
	if at >= from && at < to {
		s.since, s.until = min(s.since, from), max(s.until, to)
	}
}

// stretchAt returns the stretch of excluded instants around one, as far as it is found at once; false if the instant is
// not excluded.
func (e *exclusions) stretchAt(ms int64) (stretch, bool) {
	all := stretch{ms, ms}
	for _, p := range e.periods {
		all.include(ms, p[0], p[1])
	}
	if len(e.cron)+len(e.days)+len(e.windows) > 0 {
		sec := floorDiv(ms, 1000)
		seg := offsetSegmentAt(e.zone, sec)
		local, excluded := e.localStretchAt(sec + seg.offset)
		if excluded {
			// The offset is known only between two clock changes.
			from, to := max(local.since-seg.offset, seg.start), min(local.until-seg.offset, seg.end)
			all.include(ms, from*1000, to*1000)
		}
	}
	return all, all.until > ms
}

// localStretchAt returns the stretch of excluded civil times around one; false if that is not excluded.
func (e *exclusions) localStretchAt(c int64) (stretch, bool) {
	all := stretch{c, c}
	day := floorDiv(c, secondsPerDay)
	midnight := day * secondsPerDay
	y, m, d := dateOfDay(day)
	for _, r := range e.days {
		switch {
		case !r.yearly:
			all.include(c, r.from*secondsPerDay, (r.to+1)*secondsPerDay)
		case r.month == m && r.day == d:
			all.include(c, midnight, midnight+secondsPerDay)
		}
	}
	weekday := int((day%7 + 7 + 4) % 7) // 1970-01-01 was a Thursday
	for _, w := range e.windows {
		if w.days&(1<<weekday) != 0 {
			all.include(c, midnight+w.from, midnight+w.to)
		}
		if w.days&(1<<((weekday+6)%7)) != 0 { // it may be past midnight
			all.include(c, midnight-secondsPerDay+w.from, midnight-secondsPerDay+w.to)
		}
	}
	begin := floorDiv(c, e.cronStep) * e.cronStep
	for i := range e.cron {
		if e.cron[i].matchesTimeOf(y, m, d, begin-midnight) {
			all.include(c, e.cron[i].matchesSince(begin, e.cronStep), e.cron[i].matchesUntil(begin, e.cronStep))
			break
		}
	}
	return all, all.until > c
}

// Excludes reports whether the schedule excludes an instant.
func (s *Schedule) Excludes(t time.Time) bool {
	if s == nil || s.exclude == nil {
		return false
	}
	_, excluded := s.exclude.stretchAt(floorMillis(t))
	return excluded
}

// NextAllowed returns the first instant from t on, by the millisecond, that is not excluded. It returns false if there
// is none: the exclusion does not end within the supported years, or its end is more than 2,000 steps away and
// no nominal time follows.
func (s *Schedule) NextAllowed(t time.Time) (time.Time, bool) {
	if s == nil || s.exclude == nil {
		return t, true
	}
	ms := floorMillis(t)
	around, excluded := s.exclude.stretchAt(ms)
	if !excluded {
		return t, true
	}
	end, ok := s.passOver(toAllowed, around.until, s.budget, nil)
	if !ok && !s.fixedDelay {
		end, ok = s.nextInstant(around.until-1, nil) // a nominal time is not excluded
	}
	return timeFromMillis(end), ok && end <= maxInstant
}
