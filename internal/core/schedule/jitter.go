package schedule

import "time"

// maxJitter bounds Spec.Jitter.
const maxJitter = 24 * time.Hour

// JitterWindow returns how far the due time of a nominal time may be spread: less than
// it, so that no due time reaches the next nominal time.
func (s *Schedule) JitterWindow(nominal time.Time) time.Duration {
	if s.jitter == 0 {
		return 0 // which saves the look
	}
	window := s.jitter
	if next, ok := s.Next(nominal); ok {
		window = min(window, next.Sub(nominal))
	}
	return window
}

// Jittered returns the due time of a nominal time. It is a hash of job and nominal
// time: it does not accumulate, and every node computes the same. One that would be
// excluded comes nearer to the nominal time, by half each time, until it is not.
func (s *Schedule) Jittered(nominal time.Time) time.Time {
	window := s.JitterWindow(nominal).Milliseconds()
	if window <= 0 {
		return nominal
	}
	random := mixBits(s.seed ^ mixBits(uint64(nominal.UnixMilli())))
	for spread := random % uint64(window); spread > 0; spread /= 2 {
		due := nominal.Add(time.Duration(spread) * time.Millisecond)
		if s.exclude == nil {
			return due
		}
		if _, excluded := s.exclude.stretchAt(floorMillis(due)); !excluded {
			return due
		}
	}
	return nominal
}
