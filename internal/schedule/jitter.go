package schedule

import "time"

// maxJitter bounds Spec.Jitter.
const maxJitter = 24 * time.Hour

// JitterWindow is how far the due time of a nominal time may be spread: less than
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

// Jittered is the due time of a nominal time. It is a hash of job and nominal
// time: it does not accumulate, and every node computes the same.
func (s *Schedule) Jittered(nominal time.Time) time.Time {
	window := s.JitterWindow(nominal).Milliseconds()
	if window <= 0 {
		return nominal
	}
	random := mix(s.seed ^ mix(uint64(nominal.UnixMilli())))
	return nominal.Add(time.Duration(random%uint64(window)) * time.Millisecond)
}
