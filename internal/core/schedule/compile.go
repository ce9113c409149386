package schedule

import (
	"fmt"
	"time"
	_ "time/tzdata" // zones must load on machines without a tz database
)

const (
	compileYears = 40
	maxMaxRuns   = 1_000_000_000
)

// Compile checks s and makes it answerable. anchor is the creation time of
// this generation of the schedule: the phase of an interval without StartAt
// and the begin of the 40 years in which each cron expression must have an
// instant. seed belongs to the job: it settles what H stands for in an expression
// and how due times are spread. The same arguments give the same Schedule on
// every node.
//
// An error is a join of *FieldError, one for each fault found.
func Compile(s Spec, anchor time.Time, seed uint64) (*Schedule, error) {
	return CompileWithin(s, anchor, seed, nil)
}

// CompileWithin is Compile with a budget: a schedule without a nominal time within the budget counts as one that
// has none.
func CompileWithin(s Spec, anchor time.Time, seed uint64, b *Budget) (*Schedule, error) {
	return compileSpec(s, anchor, seed, b, nil)
}

// Zones are time zones that were loaded, by name. Loading one takes longer than all else of a compilation, and each
// loaded one takes some kilobytes. They are not safe for concurrent use.
type Zones map[string]*time.Location

// CompileSharing is Compile for many schedules: those of one zone share it.
func CompileSharing(s Spec, anchor time.Time, seed uint64, zones Zones) (*Schedule, error) {
	return compileSpec(s, anchor, seed, nil, zones)
}

func compileSpec(s Spec, anchor time.Time, seed uint64, b *Budget, zones Zones) (*Schedule, error) {
	var p problems
	c := &Schedule{kind: s.Kind, start: minInstant, end: maxInstant + 1, jitter: s.Jitter, seed: seed}
	c.compileWindow(s, &p)
	checkForeign(s, &p)
	checkBounds(s, &p)
	switch s.Kind {
	case KindNone:
	case KindOnce:
		c.compileOnce(s, &p)
	case KindInterval:
		c.compileInterval("every", s.Every, s, anchor, &p)
		c.exclude = compileExclusions(s, loadZone(s, zones, &p), seed, &p)
	case KindCron:
		c.compileCron(s, anchor, zones, &p)
	case KindCalendar:
		c.compileCalendar(s, anchor, zones, &p)
	default:
		p.addError("kind", "unknown kind %d", s.Kind)
	}
	if p.joinErrors() == nil && c.exclude != nil {
		if _, ok := c.NextWithin(timeFromMillis(max(ceilMillis(anchor), c.start)-1), b); !ok {
			p.addError("exclude", "leaves no nominal time")
		}
	}
	// Checked last: a schedule that an earlier version accepted because of a gap alone still compiles.
	for i := range c.rules {
		c.rules[i].exclude = c.exclude
	}
	if err := p.joinErrors(); err != nil {
		return nil, err
	}
	return c, nil
}

// checkBounds refuses values that no kind allows.
func checkBounds(s Spec, p *problems) {
	recurs := s.Kind.Recurs()
	switch {
	case s.Jitter < 0 || s.Jitter > maxJitter:
		p.addError("jitter", "is %v, want 0 to %v", s.Jitter, maxJitter)
	case s.Jitter%time.Millisecond != 0:
		p.addError("jitter", "must be whole milliseconds, is %v", s.Jitter)
	case s.Jitter > 0 && s.FixedDelay:
		p.addError("jitter", "not with fixed_delay, whose times spread by themselves")
	case s.Jitter > 0 && s.Kind == KindNone:
		p.addError("jitter", "needs a schedule")
	}
	if s.MaxRuns < 0 || s.MaxRuns > maxMaxRuns {
		p.addError("max_runs", "is %d, want 0 to %d", s.MaxRuns, maxMaxRuns)
	} else if s.MaxRuns > 0 && !recurs {
		p.addError("max_runs", "only for kinds interval, cron and calendar, not %s", s.Kind)
	}
	if !s.Exclude.Empty() && !recurs {
		p.addError("exclude", "only for kinds interval, cron and calendar, not %s", s.Kind)
	}
}

// checkForeign refuses fields that the kind would silently ignore.
func checkForeign(s Spec, p *problems) {
	foreign := func(kind Kind, field string, set bool) {
		if set && s.Kind != kind {
			p.addError(field, "only for kind %s, not %s", kind, s.Kind)
		}
	}
	local := func(field string, set bool) {
		if set && !s.Kind.Local() {
			p.addError(field, "only for kinds cron and calendar, not %s", s.Kind)
		}
	}
	foreign(KindOnce, "at", !s.At.IsZero())
	foreign(KindInterval, "every", s.Every != 0)
	foreign(KindInterval, "fixed_delay", s.FixedDelay)
	foreign(KindCron, "cron", len(s.Cron) > 0)
	foreign(KindCalendar, "calendar", !s.Calendar.Empty())
	local("time_zone", s.TimeZone != "" && (s.Kind != KindInterval || s.Exclude.Empty()))
	foreign(KindCron, "seconds", s.Seconds)
	local("gap", s.Gap != GapShift)
	local("repeat", s.Repeat != RepeatFirst)
}

func (s *Schedule) compileWindow(spec Spec, p *problems) {
	if !spec.StartAt.IsZero() {
		s.start = checkMillis("start_at", RoundUp(spec.StartAt), p)
	}
	if !spec.EndAt.IsZero() {
		s.end = checkMillis("end_at", RoundDown(spec.EndAt), p)
	}
	if s.end <= s.start {
		p.addError("end_at", "not after start_at")
	}
}

func checkMillis(field string, t time.Time, p *problems) int64 {
	ms := floorMillis(t)
	if ms < minInstant || ms > maxInstant {
		p.addError(field, "outside years 1 to 9999")
	}
	return ms
}

func (s *Schedule) compileOnce(spec Spec, p *problems) {
	if spec.At.IsZero() {
		p.addError("at", "required for kind once")
		return
	}
	s.at = checkMillis("at", RoundUp(spec.At), p)
	if s.at < s.start || s.at >= s.end {
		p.addError("at", "outside start_at and end_at")
	}
}

// compileInterval sets the grid. field is the field that set the interval: an @every is set in cron.
func (s *Schedule) compileInterval(field string, every time.Duration, spec Spec, anchor time.Time, p *problems) {
	switch {
	case every <= 0:
		p.addError(field, "interval must be positive, is %v", every)
		return
	case every%time.Millisecond != 0:
		p.addError(field, "interval must be whole milliseconds, is %v", every)
		return
	}
	s.kind = KindInterval
	s.intervalMS = every.Milliseconds()
	s.fixedDelay = spec.FixedDelay
	if spec.StartAt.IsZero() {
		s.first = ceilMillis(anchor) + s.intervalMS
	} else {
		s.first = s.start
	}
}

func (s *Schedule) compileCron(spec Spec, anchor time.Time, zones Zones, p *problems) {
	zone := loadZone(spec, zones, p)
	s.exclude = compileExclusions(spec, zone, s.seed, p)
	if len(spec.Cron) == 0 || len(spec.Cron) > maxExpressions {
		p.addError("cron", "%d expressions, 1 to %d are allowed", len(spec.Cron), maxExpressions)
		return
	}
	if len(spec.Cron) == 1 && len(spec.Cron[0]) <= maxExpressionLen && isEvery(spec.Cron[0]) {
		every, err := parseEvery(spec.Cron[0])
		if err != nil {
			p.addError("cron[0]", "%v", err)
			return
		}
		s.compileInterval("cron[0]", every, spec, anchor, p)
		return
	}
	from := max(ceilMillis(anchor), s.start)
	for i, text := range spec.Cron {
		r, err := compileRule(text, spec, zone, from, s.seed)
		if err != nil {
			p.addError(fmt.Sprintf("cron[%d]", i), "%v", err)
			continue
		}
		s.rules = append(s.rules, r)
	}
}

func compileRule(text string, s Spec, zone *time.Location, from int64, seed uint64) (rule, error) {
	if err := checkText(text); err != nil {
		return rule{}, err
	}
	if isEvery(text) {
		return rule{}, fmt.Errorf("@every must be the only expression")
	}
	f, wild, err := parseFields(text, s.Seconds, seed)
	if err != nil {
		return rule{}, err
	}
	r := newRule(&f, wild, zone, s.Gap, s.Repeat)
	return r, r.checkNext(from)
}

// checkNext refuses a rule without an instant in the years from then on.
func (r *rule) checkNext(from int64) error {
	at, ok := r.nextInstant(ceilSecond(from))
	if !ok || timeFromMillis(at*1000).After(timeFromMillis(from).AddDate(compileYears, 0, 0)) {
		return fmt.Errorf("no instant within %d years", compileYears)
	}
	return nil
}

func (s *Schedule) compileCalendar(spec Spec, anchor time.Time, zones Zones, p *problems) {
	zone := loadZone(spec, zones, p)
	s.exclude = compileExclusions(spec, zone, s.seed, p)
	from := spec.firstInstant(anchor)
	days := compileCalendar(spec.Calendar, timeFromMillis(from).In(zone), p)
	if p.joinErrors() != nil {
		return
	}
	r := newRule(days, false, zone, spec.Gap, spec.Repeat)
	if err := r.checkNext(max(from, (days.from-1)*secondsPerDay*1000)); err != nil {
		p.addError("calendar", "%v", err)
		return
	}
	s.rules = []rule{r}
}

// loadZone returns UTC where it reports a problem.
func loadZone(s Spec, zones Zones, p *problems) *time.Location {
	if s.Gap > GapSkip {
		p.addError("gap", "unknown policy %d", s.Gap)
	}
	if s.Repeat > RepeatBoth {
		p.addError("repeat", "unknown policy %d", s.Repeat)
	}
	if s.TimeZone == "" || s.TimeZone == "UTC" {
		return time.UTC
	}
	zone, ok := zones[s.TimeZone]
	if ok {
		return zone
	}
	zone, ok = lookupZone(s.TimeZone)
	if ok && zones != nil {
		zones[s.TimeZone] = zone
	}
	if !ok {
		p.addError("time_zone", "unknown IANA time zone %.64q", s.TimeZone)
		return time.UTC
	}
	return zone
}

// lookupZone accepts IANA names only. All of them begin with a capital, unlike
// the other files of a zoneinfo directory (localtime, right/, posix/), and
// "Local" would differ from node to node.
func lookupZone(name string) (*time.Location, bool) {
	if len(name) > 64 || name[0] < 'A' || name[0] > 'Z' || name == "Local" {
		return nil, false
	}
	zone, err := time.LoadLocation(name)
	return zone, err == nil
}
