package scheduler

import (
	"cmp"
	"maps"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// fairness shares slots between lanes by start-time fair queueing. A lane that
// is served n slots moves n/(priority+1) ahead on a virtual clock, and the lane
// that is least far ahead is served next: over time priority 9 gets ten slots for
// one of priority 0. A lane that was idle starts at the present, so that it
// neither makes up for its absence nor waits for others to.
type fairness struct {
	now   float64              // start of the service given last
	ahead map[job.Lane]float64 // where a lane's next service starts, if later than now
}

// least returns the candidate lane to serve next.
func (f *fairness) least(candidates map[job.Lane][]candidate) (job.Lane, bool) {
	best, bestStart, found := job.Lane{}, 0.0, false
	for l := range candidates {
		start := max(f.now, f.ahead[l])
		if !found || start < bestStart || (start == bestStart && before(l, best)) {
			best, bestStart, found = l, start, true
		}
	}
	return best, found
}

// before orders lanes that are equally entitled: higher priority first.
func before(a, b job.Lane) bool {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.String(), b.String())) < 0
}

// took charges a lane for the slots it got.
func (f *fairness) took(l job.Lane, n int) {
	start := max(f.now, f.ahead[l])
	f.now = start
	f.ahead[l] = start + float64(n)/float64(l.Priority+1)
}

// forget drops lanes that are level with the present: they are as good as new.
func (f *fairness) forget() {
	maps.DeleteFunc(f.ahead, func(_ job.Lane, start float64) bool { return start <= f.now })
}

// pacer makes leasing calls wait for company when they come thick and carry
// little: at high rates spread over many shards a call for one record costs ten
// times its share of a full one.
type pacer struct {
	windowStart time.Time
	calls       int
	gap         time.Duration
	last        time.Time
}

const paceWindow = 50 * time.Millisecond

// called notes one call.
func (p *pacer) called(now time.Time) {
	p.last = now
	p.calls++
	if span := now.Sub(p.windowStart); span >= paceWindow {
		perSecond := float64(p.calls) / span.Seconds()
		switch {
		case perSecond > 3000:
			p.gap = 3 * time.Millisecond
		case perSecond > 1000:
			p.gap = time.Millisecond
		case perSecond < 250:
			p.gap = 0
		}
		p.windowStart, p.calls = now, 0
	}
}

// ready is when the next call may be made.
func (p *pacer) ready() time.Time { return p.last.Add(p.gap) }
