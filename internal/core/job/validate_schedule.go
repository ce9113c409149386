package job

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// schedulePaths translates the fields of [schedule.Spec] into those of the API.
var schedulePaths = map[string]string{
	"kind":        "rule",
	"at":          "once",
	"every":       "interval.every",
	"fixed_delay": "interval.fixed_delay",
	"cron":        "cron.expressions",
	"time_zone":   "cron.time_zone",
	"seconds":     "cron.seconds",
	"gap":         "cron.dst_gap",
	"repeat":      "cron.dst_repeat",
	"jitter":      "jitter",
	"max_runs":    "max_runs",
	"exclude":     "exclusions",
	"start_at":    "start_time",
	"end_at":      "end_time",
}

// localRuleFields is the field of [schedule.Spec] that has the local times of a kind.
var localRuleFields = map[schedule.Kind]string{schedule.KindCron: "cron", schedule.KindCalendar: "calendar.times"}

// searchWorkFactor is for how many searches that each pass over as many times as one may there is a
// budget to validate a schedule: to compile it, and twice for its first time.
const searchWorkFactor = 3

// checkedPeriods is more excluded periods than a schedule may have: with as many it
// is refused for their number.
const checkedPeriods = 128

// ValidateSchedule lists invalid fields of a schedule. Paths start with prefix.
func ValidateSchedule(prefix string, s schedule.Spec, anchor time.Time, l Limits) []Violation {
	if l.Work == nil {
		l.Work = unbounded{}
	}
	if list := l.Work.Known(s, anchor); list != nil {
		return list
	}
	if l.Work.Exhausted() {
		return []Violation{{Field: prefix, Description: "was not looked at: the schedules before it in this call " +
			"took as much work as those of one call may; send it in another call, and exclude times by windows, " +
			"dates and periods rather than expressions"}}
	}
	end, err := l.Work.Begin(s)
	if err != nil {
		return []Violation{{Field: prefix, Description: "was not looked at: " + err.Error(), Cause: err}}
	}
	defer end()
	list := validateSchedule(prefix, s, anchor, l)
	if len(list) > 0 {
		l.Work.Note(s, anchor, list)
	}
	return list
}

func validateSchedule(prefix string, s schedule.Spec, anchor time.Time, l Limits) []Violation {
	v := violations{prefix: prefix + "."}
	v.checkInstant("once", s.At)
	v.checkInstant("start_time", s.StartAt)
	v.checkInstant("end_time", s.EndAt)
	for i, p := range s.Exclude.Periods[:min(len(s.Exclude.Periods), checkedPeriods)] {
		v.checkInstant(fmt.Sprintf("exclusions.periods[%d].start_time", i), p.From)
		v.checkInstant(fmt.Sprintf("exclusions.periods[%d].end_time", i), p.To)
	}
	if s.Kind == schedule.KindInterval && s.TimeZone != "" && s.Exclude.Empty() {
		v.add("exclusions.time_zone", "has no effect without exclusions")
		s.TimeZone = ""
	}
	b := schedule.NewBudget(searchWorkFactor)
	gap := schedule.ShortGap{}
	defer func() { l.Work.Charge(countSteps(s, b.Used(searchWorkFactor)) + int64(gap.Steps)) }()
	compiled, err := schedule.CompileWithin(s, anchor, 0, b)
	if err != nil {
		v.addCompileErrors(prefix, s.Kind, err)
		return v.list
	}
	if !s.Exclude.Empty() && !hasRunFrom(compiled, anchor, s, b) {
		v.add("exclusions", "leaves no nominal time")
	}
	switch {
	case s.Kind == schedule.KindInterval:
		v.addUnless(s.Every >= l.MinInterval, "interval.every", "is %v, at least %v is required", s.Every,
			l.MinInterval)
		first, ok := compiled.NextWithin(laterTime(anchor, s.StartAt).Add(-time.Millisecond), b)
		v.addUnless(!ok || unixtime.MilliOf(first) < NeverMS, "interval.every",
			"is %v: the first run would come after 2109", s.Every)
	case compiled.Kind() == schedule.KindInterval: // an @every text
		v.checkGap(s.Kind, compiled.Period(anchor), l.MinInterval)
	case s.Kind.Local():
		gap = findShortGap(compiled, anchor, s, l.MinInterval)
		v.checkGap(s.Kind, gap.Found, l.MinInterval)
		v.addUnless(!gap.Undecided, schedulePath(s.Kind, localRuleFields[s.Kind]), "matches and excludes times on too many "+
			"kinds of days to find out whether they are at least %v apart: use fewer expressions, or fewer exclusions",
			l.MinInterval)
	}
	return v.list
}

// findShortGap looks for nominal times that are too close to each other. Those of cron schedules without seconds are at
// least a minute apart.
func findShortGap(c *schedule.Schedule, anchor time.Time, s schedule.Spec, least time.Duration) schedule.ShortGap {
	if s.Kind == schedule.KindCron && !s.Seconds && least <= time.Minute {
		return schedule.ShortGap{}
	}
	return c.FindShortGap(anchor, least)
}

// checkGap refuses a gap between nominal times that is too short; 0: there is none.
func (v *violations) checkGap(kind schedule.Kind, gap, least time.Duration) {
	v.addUnless(gap == 0 || gap >= least, schedulePath(kind, localRuleFields[kind]),
		"comes every %v, at least %v is required", gap, least)
}

// hasRunFrom reports whether a schedule has a nominal time from its anchor and its start on. Compile refuses
// most schedules without one. It accepts times that only a clock change would shift out of an exclusion, because
// earlier versions ran them.
func hasRunFrom(c *schedule.Schedule, anchor time.Time, s schedule.Spec, b *schedule.Budget) bool {
	_, ok := c.NextWithin(laterTime(anchor, s.StartAt).Add(-time.Millisecond), b)
	return ok
}

func laterTime(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// checkInstant checks that a time can be stored and ordered: regions of the index
// hold the milliseconds from 1970 to 2109.
func (v *violations) checkInstant(field string, t time.Time) {
	if t.IsZero() {
		return
	}
	ms := unixtime.MilliOf(schedule.RoundUp(t))
	v.addUnless(ms > 0 && ms < NeverMS, field, "must lie after 1970-01-01T00:00:00Z and before 2109-05-15T07:35:11Z")
}

func (v *violations) addCompileErrors(prefix string, kind schedule.Kind, err error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		joined = singleError{err}
	}
	for _, e := range joined.Unwrap() {
		var fault *schedule.FieldError
		if !errors.As(e, &fault) {
			v.list = append(v.list, Violation{Field: prefix, Description: e.Error()})
			continue
		}
		v.add(schedulePath(kind, fault.Field), fault.Reason)
	}
}

type singleError struct{ error }

func (s singleError) Unwrap() []error { return []error{s.error} }

// schedulePath keeps the index of "cron[3]". The zone of a cron or calendar schedule is its own;
// others have one for their exclusions.
func schedulePath(kind schedule.Kind, field string) string {
	if field == "time_zone" && !kind.Local() {
		return "exclusions.time_zone"
	}
	if rest, ok := strings.CutPrefix(field, "exclude."); ok {
		return "exclusions." + rest
	}
	name, index, indexed := strings.Cut(field, "[")
	path, ok := schedulePaths[name]
	if rest, ofCron := strings.CutPrefix(path, "cron."); ofCron && kind == schedule.KindCalendar {
		path = "calendar." + rest
	}
	switch {
	case !ok:
		return field
	case indexed:
		return path + "[" + index
	}
	return path
}
