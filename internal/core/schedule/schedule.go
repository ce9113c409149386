package schedule

import "time"

// Schedule is a compiled Spec. It is immutable and safe for concurrent use.
type Schedule struct {
	kind       Kind
	start, end int64 // ms; nominal times lie in [start, end)

	at int64 // once: ms

	intervalMS int64 // interval: ms
	first      int64 // interval: the first nominal time, ms
	fixedDelay bool  // interval: counted from completions

	rules []rule // cron: at least one; calendar: one

	exclude *exclusions   // nil for none
	long    *longSearches // over excluded times; nil: none is remembered
	budget  *Budget       // of searches that name none; nil: each has its own bound
	jitter  time.Duration
	seed    uint64
}

// Kind returns the kind that is in force: KindInterval for an @every text.
func (s *Schedule) Kind() Kind { return s.kind }

// FixedDelay reports whether the next nominal time counts from a completion,
// so that there is no grid of missed ones: at most one is ever outstanding.
func (s *Schedule) FixedDelay() bool { return s.fixedDelay }

// Within returns the schedule with a budget for all its searches together, but for those that name
// one of their own. It is for one task: a budget is not safe for concurrent use.
func (s *Schedule) Within(b *Budget) *Schedule {
	bounded := *s
	bounded.budget = b
	return &bounded
}

// Next returns the first nominal time strictly after the given time, or false
// if there is none ever. For a fixed delay, after is the completion of the
// previous run.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	return s.limitToWindow(s.nextInstant(floorMillis(after), nil))
}

// NextWithin is Next on a budget: false when there is no next time, or what is left of
// the budget does not suffice to find it.
func (s *Schedule) NextWithin(after time.Time, b *Budget) (time.Time, bool) {
	return s.limitToWindow(s.nextInstant(floorMillis(after), b))
}

// Prev returns the last nominal time at or before the given time, or false if
// there is none. A fixed delay has none: its nominal times depend on
// completions, which the caller knows.
func (s *Schedule) Prev(before time.Time) (time.Time, bool) {
	return s.limitToWindow(s.prevInstant(min(floorMillis(before), s.end-1)))
}

func (s *Schedule) limitToWindow(ms int64, ok bool) (time.Time, bool) {
	if !ok || ms < s.start || ms >= s.end {
		return time.Time{}, false
	}
	return timeFromMillis(ms), true
}

// nextInstant ignores end, and prev ignores start; bounded looks after both.
func (s *Schedule) nextInstant(after int64, b *Budget) (int64, bool) {
	if b == nil {
		b = s.budget
	}
	matches := b.matchesOf(s)
	t, ok := s.nextAny(after, matches)
	if s.exclude == nil || !ok {
		return t, ok
	}
	if s.fixedDelay {
		return s.passOver(toAllowed, t, s.budget, nil)
	}
	return s.passOver(toNext, t, b, matches)
}

func (s *Schedule) prevInstant(before int64) (int64, bool) {
	matches := s.budget.matchesOf(s)
	t, ok := s.prevAny(before, matches)
	if !ok || s.exclude == nil || t < s.start {
		return t, ok
	}
	return s.passOver(toPrev, t, s.budget, matches)
}

// nextAny and prevAny know nothing of exclusions. Matches may be nil.
func (s *Schedule) nextAny(after int64, matches *ruleMatches) (int64, bool) {
	switch s.kind {
	case KindOnce:
		return s.at, after < s.at
	case KindInterval:
		return s.nextInterval(after), true
	case KindCron, KindCalendar:
		return s.nextCron(after, matches)
	}
	return 0, false
}

func (s *Schedule) prevAny(before int64, matches *ruleMatches) (int64, bool) {
	switch s.kind {
	case KindOnce:
		return s.at, s.at <= before
	case KindInterval:
		return s.first + (before-s.first)/s.intervalMS*s.intervalMS, before >= s.first && !s.fixedDelay
	case KindCron, KindCalendar:
		return s.prevCron(before, matches)
	}
	return 0, false
}

func (s *Schedule) nextInterval(after int64) int64 {
	switch {
	case s.fixedDelay && after >= s.start:
		return max(after+s.intervalMS, s.first)
	case after < s.first:
		return s.first
	}
	return s.first + ((after-s.first)/s.intervalMS+1)*s.intervalMS
}

func (s *Schedule) nextCron(after int64, matches *ruleMatches) (int64, bool) {
	from := ceilSecond(max(after+1, s.start))
	best, found := int64(0), false
	for i := range s.rules {
		if t, ok := matches.nextOf(s, i, from); ok && (!found || t < best) {
			best, found = t, true
		}
	}
	return best * 1000, found
}

func (s *Schedule) prevCron(before int64, matches *ruleMatches) (int64, bool) {
	from := floorDiv(before, 1000)
	best, found := int64(0), false
	for i := range s.rules {
		if t, ok := matches.prevOf(s, i, from); ok && (!found || t > best) {
			best, found = t, true
		}
	}
	return best * 1000, found
}

func ceilSecond(ms int64) int64 { return -floorDiv(-ms, 1000) }

// Count returns how many nominal times lie in (after, upto], but at most
// limit. For an interval it takes constant time whatever the limit; for a cron,
// and with exclusions, the time grows with the result. For a fixed delay, after is a completion and
// the result is 0 or 1.
func (s *Schedule) Count(after, upto time.Time, limit int) int {
	lo, hi := floorMillis(after), min(floorMillis(upto), s.end-1)
	if limit <= 0 || lo >= hi {
		return 0
	}
	if s.kind == KindInterval && !s.fixedDelay && s.exclude == nil {
		return int(min(s.countReached(hi)-s.countReached(lo), int64(limit)))
	}
	n, b := 0, s.budget
	if b == nil {
		b = NewBudget(5)
	}
	for n < limit {
		t, ok := s.nextInstant(lo, b)
		if !ok || t > hi {
			break
		}
		n++
		if s.fixedDelay {
			break
		}
		lo = t
	}
	return n
}

// countReached returns how many times of the grid lie at or before t.
func (s *Schedule) countReached(t int64) int64 {
	if t < s.first {
		return 0
	}
	return (t-s.first)/s.intervalMS + 1
}

// Period returns how long the slot at the given time is: Every for an
// interval; for a cron the gap between the first nominal time at or after it
// and the one that follows, which ignores EndAt. It is 0 for once and none,
// and where a cron ends.
func (s *Schedule) Period(at time.Time) time.Duration {
	switch s.kind {
	case KindInterval:
		return time.Duration(s.intervalMS) * time.Millisecond
	case KindCron, KindCalendar:
		return s.estimateCronPeriod(at)
	}
	return 0
}

func (s *Schedule) estimateCronPeriod(at time.Time) time.Duration {
	// A nominal time at `at` exactly counts; one in the fraction before it does not.
	a, ok := s.nextCron(floorMillis(at.Add(time.Millisecond-1))-1, nil)
	if !ok {
		return 0
	}
	b, ok := s.nextCron(a, nil)
	if !ok {
		return 0
	}
	return time.Duration(b-a) * time.Millisecond
}

// Upcoming returns the first n nominal times strictly after the given time, or
// fewer if there are no more or the budget is spent. For a fixed delay it supposes runs
// that take no time.
func Upcoming(s *Schedule, after time.Time, n int, b *Budget) []time.Time {
	var out []time.Time
	for len(out) < n {
		t, ok := s.NextWithin(after, b)
		if !ok {
			break
		}
		out = append(out, t)
		after = t
	}
	return out
}
