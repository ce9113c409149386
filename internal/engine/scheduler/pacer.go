package scheduler

import "time"

// pacer delays leasing calls when they are frequent and small. At high rates spread over many shards a call for
// one record costs ten times its share of a full one.
type pacer struct {
	windowStart time.Time
	calls       int
	minGap      time.Duration
	last        time.Time
}

const (
	paceWindow = 50 * time.Millisecond
	// fullCallSlots is the number of slots from which on a call is large enough.
	fullCallSlots = 100
)

// noteCall records one call with a number of slots.
func (p *pacer) noteCall(now time.Time, slots int) {
	if slots >= fullCallSlots {
		p.last = time.Time{}
		return
	}
	p.last = now
	p.calls++
	if span := now.Sub(p.windowStart); span >= paceWindow {
		perSecond := float64(p.calls) / span.Seconds()
		switch {
		case perSecond > 3000:
			p.minGap = 3 * time.Millisecond
		case perSecond > 1000:
			p.minGap = max(p.minGap, time.Millisecond)
		case perSecond < 250:
			p.minGap = 0
		}
		p.windowStart, p.calls = now, 0
	}
}

// nextCallAt returns when the next call may be made.
func (p *pacer) nextCallAt() time.Time { return p.last.Add(p.minGap) }
