package scheduler

import "time"

// pacer makes leasing calls wait for company when they come thick and carry
// little: at high rates spread over many shards a call for one record costs ten
// times its share of a full one.
type pacer struct {
	windowStart time.Time
	calls       int
	gap         time.Duration
	last        time.Time
}

const (
	paceWindow = 50 * time.Millisecond
	// paceFull is the number of slots from which on a call carries enough.
	paceFull = 100
)

// called notes one call, made with some slots.
func (p *pacer) called(now time.Time, slots int) {
	if slots >= paceFull {
		p.last = time.Time{}
		return
	}
	p.last = now
	p.calls++
	if span := now.Sub(p.windowStart); span >= paceWindow {
		perSecond := float64(p.calls) / span.Seconds()
		switch {
		case perSecond > 3000:
			p.gap = 3 * time.Millisecond
		case perSecond > 1000:
			p.gap = max(p.gap, time.Millisecond)
		case perSecond < 250:
			p.gap = 0
		}
		p.windowStart, p.calls = now, 0
	}
}

// ready is when the next call may be made.
func (p *pacer) ready() time.Time { return p.last.Add(p.gap) }
