package schedule

import (
	"math/bits"
	"time"
)

const minuteMS = 60_000

// CountByMinute calls visit for each minute that has nominal times in (after, upto], in order: with the first of them
// and their number. It jumps from minute to minute: a schedule with a time in each second takes one step a minute. It
// ends early, and returns false, when visit does, or when the budget is spent. For a fixed delay it supposes runs
// that take no time.
func (s *Schedule) CountByMinute(after, upto time.Time, b *Budget, visit func(first time.Time, n int64) bool) bool {
	at, last := floorMillis(after), min(floorMillis(upto), s.end-1)
	for {
		next, ok := s.nextInstant(at, b)
		if !ok || next > last {
			return ok || b == nil || !b.Exhausted()
		}
		if next < s.start {
			at = s.start - 1
			continue
		}
		end := min(last, floorDiv(next, minuteMS)*minuteMS+minuteMS-1)
		n, reached := s.countInMinute(next, end, b)
		if !visit(timeFromMillis(next), n) {
			return false
		}
		at = reached
	}
}

// countInMinute counts the nominal times from one of them up to the end of its minute, and returns an instant up to
// which none is left.
func (s *Schedule) countInMinute(first, end int64, b *Budget) (n, reached int64) {
	switch {
	case s.exclude != nil:
	case s.kind == KindInterval:
		return (end-first)/s.intervalMS + 1, first + (end-first)/s.intervalMS*s.intervalMS
	case len(s.rules) == 1:
		if n := s.rules[0].countSeconds(first/1000, floorDiv(end, 1000)); n > 0 {
			return n, end
		}
	}
	for at := first; ; n++ {
		next, ok := s.nextInstant(at, b)
		if !ok || next > end {
			return n + 1, at
		}
		at = next
	}
}

// countSeconds counts the matches of an expression from a match up to an end in the same minute; 0: it has to be
// searched, because the offset of the zone changes on that day, or is not whole minutes.
func (r *rule) countSeconds(first, end int64) int64 {
	f, ok := r.times.(*fields)
	if !ok || first < 0 {
		return 0
	}
	seg := r.segmentAt(first)
	if seg.offset%60 != 0 || seg.start != -unbounded && first-seg.start < maxUTCOffset ||
		seg.end != unbounded && seg.end-end < maxUTCOffset {
		return 0
	}
	from, to := first%60, end%60
	return int64(bits.OnesCount64(f.second >> from << from & (1<<(to+1) - 1)))
}
