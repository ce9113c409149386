package acceptance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
)

// service follows how the jobs of a load are served: when each one started.
type service struct {
	every  map[string]time.Duration // of jobs that keep their interval
	starts map[string][]start
	ran    map[string]bool // jobs that have ended once
	read   int             // events so far
}

// start is that of a handler, and when it was due.
type start struct{ at, due int64 }

func newService(promises []historycheck.ExpectedSchedule) *service {
	s := &service{every: map[string]time.Duration{}, starts: map[string][]start{}, ran: map[string]bool{}}
	for _, p := range promises {
		s.every[p.Job] = p.Every
	}
	return s
}

func (s *service) addEvents(events []historycheck.Event) {
	for _, e := range events[s.read:] {
		if _, known := s.every[e.Job]; !known {
			continue
		}
		switch e.Kind {
		case historycheck.Start:
			s.starts[e.Job] = append(s.starts[e.Job], start{e.AtNS, e.DueMS * 1e6})
		case historycheck.End:
			s.ran[e.Job] = true
		}
	}
	s.read = len(events)
}

func (s *service) everyJobRan(events []historycheck.Event) error {
	s.addEvents(events)
	if len(s.ran) < len(s.every) {
		return fmt.Errorf("%d of %d have", len(s.ran), len(s.every))
	}
	return nil
}

// onTime fails while any job has not started for longer than its interval and the
// lag of calm times.
func (s *service) onTime(events []historycheck.Event, lag time.Duration) error {
	now := time.Now().UnixNano()
	s.addEvents(events)
	late, worst := 0, ""
	for job, every := range s.every {
		if every == 0 {
			continue
		}
		last := int64(0)
		for _, x := range s.starts[job] {
			last = max(last, x.at)
		}
		if now-last > int64(every+lag) {
			late, worst = late+1, job
		}
	}
	if late > 0 {
		return fmt.Errorf("%d jobs are late, %s is one", late, worst)
	}
	return nil
}

// longestGap is the longest that any job waited for a start, beyond its interval, from an
// instant in a stretch of time on, with that job. A run that starts again counts like another one:
// it is not over before it has. One that was due later still, as its job backs off after a run
// that was given up, is waited for from then on.
func (s *service) longestGap(events []historycheck.Event, fromNS, toNS int64) (longest time.Duration, of string) {
	s.addEvents(events)
	for job, every := range s.every {
		if every == 0 {
			continue
		}
		all := s.starts[job]
		slices.SortFunc(all, func(a, b start) int { return cmp.Compare(a.at, b.at) })
		for i, x := range all {
			next, due := toNS, x.at+int64(every)
			if i+1 < len(all) {
				next, due = min(all[i+1].at, toNS), max(due, all[i+1].due)
			}
			if next <= fromNS || x.at >= toNS || x.at+int64(every) < fromNS {
				continue // nothing was due in it
			}
			if wait := time.Duration(next - due); wait > longest {
				longest, of = wait, job
			}
		}
	}
	return longest, of
}

func sortedCopy(lags []time.Duration) []time.Duration {
	lags = slices.Clone(lags)
	slices.Sort(lags)
	return lags
}
