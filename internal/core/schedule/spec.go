package schedule

import (
	"slices"
	"time"
)

// Kind is the kind of rule of a Spec.
type Kind uint8

const (
	KindNone     Kind = iota // runs on request only
	KindOnce                 // one instant
	KindInterval             // every so often, in elapsed time
	KindCron                 // calendar expressions in a time zone
	KindCalendar             // local times in every n-th day, week or month
)

// String returns "none", "once", "interval", "cron", "calendar", or "invalid".
func (k Kind) String() string {
	return indexedName(int(k), "none", "once", "interval", "cron", "calendar")
}

// Local reports whether nominal times are local times of a zone, rather than elapsed time.
func (k Kind) Local() bool { return k == KindCron || k == KindCalendar }

// Recurs reports whether the kind normally has more than one nominal time.
func (k Kind) Recurs() bool { return k == KindInterval || k.Local() }

// GapPolicy selects what happens to a fixed local time that a jump forward of the zone's clock omits. The
// package comment has the exact rules.
type GapPolicy uint8

const (
	GapShift GapPolicy = iota // once, right after the gap
	GapSkip                   // not at all
)

// String returns "shift", "skip", or "invalid".
func (p GapPolicy) String() string { return indexedName(int(p), "shift", "skip") }

// RepeatPolicy selects which pass of a fixed local time counts when a jump back of the zone's clock shows it
// twice.
type RepeatPolicy uint8

const (
	RepeatFirst RepeatPolicy = iota
	RepeatLast
	RepeatBoth
)

// String returns "first", "last", "both", or "invalid".
func (p RepeatPolicy) String() string { return indexedName(int(p), "first", "last", "both") }

// Period is a time from From (inclusive) to To (exclusive).
type Period struct{ From, To time.Time }

// Exclusions remove nominal times from a schedule of any recurring kind, and forbid starts ([Schedule.NextAllowed]).
// Local times are those of Spec.TimeZone.
type Exclusions struct {
	// Cron takes out the instants that match any of these expressions, which
	// are read as those of Spec.Cron are; at most 16.
	Cron []string
	// Dates takes out whole local days: "2026-12-25", a range of days with both
	// ends "2026-12-24/2027-01-02", or a day of every year "12-25"; at most 400.
	Dates []string
	// Windows takes out local times of the week: "22:00-06:00" (every day, past
	// midnight), "Sat,Sun", "Mon-Fri 12:00-13:00"; at most 32.
	Windows []string
	// Periods takes out single stretches of time; at most 100.
	Periods []Period
}

// Empty reports whether nothing is excluded.
func (e Exclusions) Empty() bool {
	return len(e.Cron) == 0 && len(e.Dates) == 0 && len(e.Windows) == 0 && len(e.Periods) == 0
}

// Weight returns about how many steps it takes to look at one nominal time of a schedule, and
// to compile it when it has none to pass over; a zone with changes of the clock costs more.
func (s Spec) Weight() int {
	ranges := len(s.Exclude.Dates) + len(s.Exclude.Windows) + len(s.Exclude.Periods)
	weight := 1 + len(s.Cron) + len(s.Exclude.Cron) + ranges/8
	if s.TimeZone != "" && s.TimeZone != "UTC" {
		weight *= 2
	}
	return weight
}

// Equal reports whether e and o are the same as written.
func (e Exclusions) Equal(o Exclusions) bool {
	return slices.Equal(e.Cron, o.Cron) && slices.Equal(e.Dates, o.Dates) && slices.Equal(e.Windows, o.Windows) &&
		slices.EqualFunc(e.Periods, o.Periods,
			func(a, b Period) bool { return a.From.Equal(b.From) && a.To.Equal(b.To) })
}

func indexedName(i int, names ...string) string {
	if i >= len(names) {
		return "invalid"
	}
	return names[i]
}

// Spec is a schedule as stored and sent. Fields of another kind must be zero.
// Instants are used as whole milliseconds: EndAt rounded down, all others rounded up, so
// that nothing begins before the time that was given and nothing nominal at the end or later.
type Spec struct {
	Kind Kind

	// At is the instant of KindOnce. It may lie in the past.
	At time.Time

	// Every is the period of KindInterval: a whole number of milliseconds, at least 1.
	Every time.Duration
	// FixedDelay counts Every from the completion of a run instead of keeping
	// the phase of StartAt or the anchor. KindInterval only.
	FixedDelay bool

	// Cron holds 1 to 16 expressions of at most 256 bytes for KindCron; the
	// schedule is their union.
	Cron []string
	// Calendar is the rule of KindCalendar.
	Calendar Calendar
	// TimeZone is the IANA name of the zone that Cron and Calendar are read in. Empty means UTC.
	TimeZone string
	// Seconds: Cron has a leading seconds field.
	Seconds bool
	// Gap and Repeat are the policies for jumps of the zone's clock. Defaults
	// GapShift and RepeatFirst.
	Gap    GapPolicy
	Repeat RepeatPolicy

	// StartAt (inclusive) and EndAt (exclusive) bound the nominal times; zero
	// means unbounded. StartAt is also the phase of an interval.
	StartAt, EndAt time.Time

	// Exclude removes nominal times.
	Exclude Exclusions
	// Jitter spreads due times over [nominal, nominal + Jitter), but never as
	// far as the next nominal time. 0 to 24 h.
	Jitter time.Duration
	// MaxRuns ends the schedule after this number of nominal times have had their run; 0 is no bound. The
	// schedule does not count: the caller does.
	MaxRuns int
}

// NeedsParsing reports whether compiling s requires parsing texts, which is expensive.
func (s *Spec) NeedsParsing() bool {
	return s.Kind.Local() || len(s.Exclude.Cron) > 0 || len(s.Exclude.Dates) > 0 ||
		len(s.Exclude.Windows) > 0 || len(s.Exclude.Periods) > 0
}

// Seeded reports whether the nominal or due times of the spec depend on the seed.
func (s *Spec) Seeded() bool { return s.Jitter > 0 || s.NeedsParsing() }

// EqualButJitter reports whether s and o have the same nominal times as written.
func (s Spec) EqualButJitter(o Spec) bool {
	s.Jitter = o.Jitter
	return s.Equal(o)
}

// FirstDay returns the local day that the periods of a calendar are counted from: From, or its
// default. It is "" for other kinds, and for an unknown zone.
func (s Spec) FirstDay(anchor time.Time) string {
	if s.Kind != KindCalendar || s.Calendar.From != "" {
		return s.Calendar.From
	}
	zone, ok := time.UTC, true
	if s.TimeZone != "" && s.TimeZone != "UTC" {
		zone, ok = lookupZone(s.TimeZone)
	}
	if !ok {
		return ""
	}
	return timeFromMillis(s.firstInstant(anchor)).In(zone).Format(time.DateOnly)
}

// firstInstant returns from when on there are nominal times, ms.
func (s Spec) firstInstant(anchor time.Time) int64 {
	if s.StartAt.IsZero() {
		return ceilMillis(anchor)
	}
	return max(ceilMillis(anchor), floorMillis(RoundUp(s.StartAt)))
}

// SamePhase reports whether nominal times of s and o that count from an anchor are the same from the same one,
// but for those that only one of them has.
func (s Spec) SamePhase(o Spec) bool {
	return s.Kind == o.Kind && s.Every == o.Every && s.FixedDelay == o.FixedDelay && s.StartAt.Equal(o.StartAt) &&
		s.Calendar.Equal(o.Calendar)
}

// Equal reports whether s and o are the same rule as written. Instants are
// compared as instants; a nil and an empty Cron are equal.
func (s Spec) Equal(o Spec) bool {
	return s.Kind == o.Kind &&
		s.At.Equal(o.At) &&
		s.Every == o.Every &&
		s.FixedDelay == o.FixedDelay &&
		slices.Equal(s.Cron, o.Cron) &&
		s.Calendar.Equal(o.Calendar) &&
		s.TimeZone == o.TimeZone &&
		s.Seconds == o.Seconds &&
		s.Gap == o.Gap && s.Repeat == o.Repeat &&
		s.StartAt.Equal(o.StartAt) &&
		s.EndAt.Equal(o.EndAt) &&
		s.Exclude.Equal(o.Exclude) && s.Jitter == o.Jitter && s.MaxRuns == o.MaxRuns
}
