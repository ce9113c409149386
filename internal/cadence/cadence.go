// Package cadence has the periodic work of a node fall together.
//
// A node with nothing to do costs what its wake-ups cost, and each of them wakes threads, and
// often Redis, for some microseconds of work. So what a node does once a period is done at
// whole periods since one instant, its origin: work of periods that divide one another wakes
// it once instead of once each. Nodes have origins of their own, so that they do not act in
// step.
//
// Invariant: between two turns of one kind of work lies a period, but for the first one, which
// comes sooner, and for turns that took longer than a period: those that were missed meanwhile
// are left out. With times that have a reading of the monotonic clock, a jump of the wall clock
// moves nothing.
package cadence

import "time"

// Cadence tells when periodic work has its turn. The zero value has no origin: each kind of
// work counts its periods from its own last turn.
type Cadence struct{ origin time.Time }

// Since returns a cadence with this origin.
func Since(origin time.Time) Cadence { return Cadence{origin: origin} }

// Until is how long it is from now, which is after the origin, until the next turn of work
// that has this period: more than zero, at most the period, and without an origin just that.
func (c Cadence) Until(now time.Time, period time.Duration) time.Duration {
	if c.origin.IsZero() {
		return period
	}
	return period - now.Sub(c.origin)%period
}
