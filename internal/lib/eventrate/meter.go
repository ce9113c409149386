// Package eventrate measures how many events a second there are.
package eventrate

import "time"

// window is the time over which a rate is measured.
const window = 100 * time.Millisecond

// Meter measures a rate. Its zero value has counted nothing.
type Meter struct {
	perSecond float64 // of the last window that is complete
	events    int     // since the start of the window
	start     time.Time
}

// Count counts events. A window ends with the first event after its time, so that a pause lowers the rate.
func (m *Meter) Count(events int, now time.Time) {
	if m.start.IsZero() {
		m.start = now
	}
	m.events += events
	span := now.Sub(m.start)
	if span >= window {
		m.perSecond = float64(m.events) / span.Seconds()
		m.start, m.events = now, 0
	}
}

// PerSecond is the rate of the last window.
func (m *Meter) PerSecond() float64 { return m.perSecond }
