package schedule

import (
	"math"
	"time"
)

const (
	// maxOwedGap is the longest gap whose fixed times are run after it. Longer gaps are corrections of the
	// calendar, as in Vixie cron.
	maxOwedGap = 3 * 60 * 60
	// maxUTCOffset exceeds every offset from UTC a zone ever had (Manila: 15:56).
	maxUTCOffset = secondsPerDay
	// searchSeconds is searchYears of instants.
	searchSeconds = searchYears * 366 * secondsPerDay
)

// civilTimes are matches in civil time, as a wall clock shows it, in seconds as if the zone were UTC.
type civilTimes interface {
	// nextMatch returns the first match at or after c, prev the last one at or before it.
	nextMatch(c int64) (int64, bool)
	prevMatch(c int64) (int64, bool)
}

// rule is one expression, or one calendar, in one zone. Instants are seconds since the epoch.
type rule struct {
	times    civilTimes
	zone     *time.Location
	exclude  *exclusions // nil for none
	makeUp   bool        // a gap's matches run once at its end
	oncePass bool        // only the first pass of a repeat counts
	lastPass bool        // only the last one does
}

func newRule(times civilTimes, wild bool, zone *time.Location, gap GapPolicy, repeat RepeatPolicy) rule {
	return rule{
		times:    times,
		zone:     zone,
		makeUp:   !wild && gap == GapShift,
		oncePass: !wild && repeat == RepeatFirst,
		lastPass: !wild && repeat == RepeatLast,
	}
}

// segment is a stretch [start, end) of instants with one offset from UTC.
// Within it civil time is instant + offset, with neither gap nor repeat.
// before and after are the offsets on the other sides of its ends. It is the segment of all instants in [valid, end).
type segment struct{ start, end, offset, before, after, valid int64 }

const unbounded = math.MaxInt64

func (r *rule) segmentAt(t int64) segment { return offsetSegmentAt(r.zone, t) }

// updateSegment looks up the segment of an instant, unless it is the last one of the search.
func (r *rule) updateSegment(last *segment, t int64) {
	if t < last.valid || t >= last.end {
		*last = r.segmentAt(t)
	}
}

func offsetSegmentAt(zone *time.Location, t int64) segment {
	if zone == time.UTC {
		return segment{start: -unbounded, end: unbounded, valid: -unbounded}
	}
	at := time.Unix(t, 0).In(zone)
	start, end := at.ZoneBounds()
	_, offset := at.Zone()
	s := segment{start: -unbounded, end: unbounded, offset: int64(offset), before: int64(offset), after: int64(offset),
		valid: -unbounded}
	if !start.IsZero() {
		s.start = start.Unix()
		s.valid = s.start
		_, before := start.Add(-time.Second).Zone()
		s.before = int64(before)
	}
	if !end.IsZero() {
		s.end = end.Unix()
	}
	if s.end <= t {
		// Past the last transition listed, the time package cuts segments at
		// the turn of a UTC year and puts that of a leap year a day early, so
		// that December 31 lies beyond its own segment. The day's end is right.
		day := floorDiv(t, secondsPerDay)
		s.valid, s.end = max(s.end, day*secondsPerDay), (day+1)*secondsPerDay
	}
	if s.end != unbounded {
		_, after := time.Unix(s.end, 0).In(zone).Zone()
		s.after = int64(after)
	}
	return s
}

// nextInstant returns the first instant at or after t.
func (r *rule) nextInstant(t int64) (int64, bool) { return r.nextInstantIn(&segment{}, t) }

// nextInstantIn is nextInstant for a search that keeps the segment in which it was last.
func (r *rule) nextInstantIn(last *segment, t int64) (int64, bool) {
	for limit := t + searchSeconds; t <= limit; {
		r.updateSegment(last, t)
		seg := *last
		if t == seg.start && r.isGapOwed(seg) {
			return t, true
		}
		if c, ok := r.times.nextMatch(max(t+seg.offset, r.firstCivil(seg))); ok && c < r.endCivil(seg) {
			return c - seg.offset, true
		}
		if seg.end == unbounded {
			return 0, false
		}
		// No instant of the next segments can show a matching civil time
		// before this one, so they need not be visited.
		c, ok := r.times.nextMatch(seg.end - maxUTCOffset)
		if !ok {
			return 0, false
		}
		t = max(seg.end, c-maxUTCOffset)
	}
	return 0, false
}

// prevInstant returns the last instant at or before t.
func (r *rule) prevInstant(t int64) (int64, bool) { return r.prevInstantIn(&segment{}, t) }

// prevInstantIn is prevInstant for a search that keeps the segment in which it was last.
func (r *rule) prevInstantIn(last *segment, t int64) (int64, bool) {
	for limit := t - searchSeconds; t >= limit; {
		r.updateSegment(last, t)
		seg := *last
		if c, ok := r.times.prevMatch(min(t+seg.offset, r.endCivil(seg)-1)); ok && c >= r.firstCivil(seg) {
			return c - seg.offset, true
		}
		if r.isGapOwed(seg) {
			return seg.start, true
		}
		if seg.start == -unbounded {
			return 0, false
		}
		c, ok := r.times.prevMatch(seg.start - 1 + maxUTCOffset)
		if !ok {
			return 0, false
		}
		t = min(seg.start-1, c+maxUTCOffset)
	}
	return 0, false
}

// firstCivil returns the first civil time of the segment that may match: times that the clock already showed
// before it was set back are not new.
func (r *rule) firstCivil(seg segment) int64 {
	switch {
	case seg.start == -unbounded:
		return -unbounded
	case r.oncePass:
		return seg.start + max(seg.offset, seg.before)
	}
	return seg.start + seg.offset
}

// endCivil returns the end of the civil times of the segment that may match: times that the clock will show
// again do not count yet if only the last pass counts.
func (r *rule) endCivil(seg segment) int64 {
	switch {
	case seg.end == unbounded:
		return unbounded
	case r.lastPass:
		return seg.end + min(seg.offset, seg.after)
	}
	return seg.end + seg.offset
}

// isGapOwed reports whether the gap in front of the segment swallowed a match that
// is to be made up for at its start.
func (r *rule) isGapOwed(seg segment) bool {
	_, ok := r.firstSwallowed(seg)
	return ok
}

// firstSwallowed returns the first civil time in the gap in front of the segment that is to be
// made up for. One that is excluded is not: it would not run if the clock showed it.
func (r *rule) firstSwallowed(seg segment) (civil int64, ok bool) {
	gap := seg.offset - seg.before
	if !r.makeUp || gap <= 0 || gap > maxOwedGap {
		return 0, false
	}
	for from := seg.start + seg.before; ; {
		c, ok := r.times.nextMatch(from)
		if !ok || c >= seg.start+seg.offset {
			return 0, false
		}
		if r.exclude == nil {
			return c, true
		}
		around, excluded := r.exclude.localStretchAt(c)
		if !excluded {
			return c, true
		}
		from = around.until
	}
}
