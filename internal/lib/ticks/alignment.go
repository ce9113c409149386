// Package ticks aligns the periodic tasks of a node, so that one wake-up serves several.
//
// An idle node costs what its wake-ups cost: each wakes threads, and often Redis, for some
// microseconds of work. So periodic tasks run at whole periods since one instant, the
// origin: tasks whose periods divide one another wake the node once instead of once each.
// Nodes have different origins, so that they do not act in step.
//
// Invariant: between two runs of one task lies a period. Exceptions are the first run, which
// comes sooner, and runs that took longer than a period: those that were missed meanwhile are
// left out. With times that have a reading of the monotonic clock, a jump of the wall clock
// has no effect.
package ticks

import "time"

// Alignment computes when periodic tasks run. The zero value has no origin: each task counts its periods from its
// own last run.
type Alignment struct{ origin time.Time }

// Since returns a cadence with this origin.
func Since(origin time.Time) Alignment { return Alignment{origin: origin} }

// UntilNext returns the time from now, which is after the origin, until the next run of a task with this period:
// more than zero, at most the period, and without an origin exactly the period.
func (c Alignment) UntilNext(now time.Time, period time.Duration) time.Duration {
	if c.origin.IsZero() {
		return period
	}
	return period - now.Sub(c.origin)%period
}
