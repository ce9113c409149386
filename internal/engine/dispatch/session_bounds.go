package dispatch

import (
	"runtime/debug"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// Bounds of what sessions cost a node. A unit is about the memory that a session takes for one of its queues.
const (
	sessionUnitBytes = 1500
	// sessionBaseUnits is what a session takes beside its queues: buffers of its stream, and goroutines.
	sessionBaseUnits = 16
	// maxSessionUnits are the units of a node without a limit of memory.
	maxSessionUnits = 1 << 20
	minSessionUnits = 1 << 14
)

// Bounds of how many leases a session returns unstarted beyond those that it starts.
const (
	returnsPerSecond = 100
	freeReturns      = 64
	maxReturnRest    = 5 * time.Second
)

// newSessionShares makes the table of the units of all sessions: a quarter of the memory that the process is to keep
// to. One identity may have half of them.
func newSessionShares(memory int64) *fairshare.Table {
	units := max(minSessionUnits, min(maxSessionUnits, memory/4/sessionUnitBytes))
	return fairshare.New(fairshare.Limits{Places: int(units), Identity: 1})
}

// memoryLimit is the memory that the process is to keep to.
func memoryLimit() int64 { return debug.SetMemoryLimit(-1) }

// unitsOf is what a session takes of the units.
func unitsOf(h job.Hello) int { return sessionBaseUnits + len(h.Queues) }

// takeUnits takes the units of a session, or returns job.ErrTooManySessions. The caller holds the mutex.
func (d *Dispatcher) takeUnits(s *Session) error {
	if !d.mu.sessionShares.AcquireMany(fairshare.Holder{Identity: s.key.identity}, unitsOf(s.hello)) {
		d.metrics.refusedSessions.Inc()
		return job.ErrTooManySessions
	}
	return nil
}

// returnUnits returns the units of a session that has closed. The caller holds the mutex.
func (d *Dispatcher) returnUnits(s *Session) {
	d.mu.sessionShares.ReleaseMany(fairshare.Holder{Identity: s.key.identity}, unitsOf(s.hello))
}

// returnBudget bounds the leases that a session returns unstarted. A worker that returns what it is given keeps the
// node and Redis busy, and no attempt is used up. Each lease that it starts pays for one that it returns.
type returnBudget struct {
	excess    float64 // returned leases that nothing has paid for yet
	updatedAt time.Time
	resting   bool
}

// addReturned counts returned leases, and returns how long the session is to rest.
func (b *returnBudget) addReturned(n, maxLive int, now time.Time) time.Duration {
	free := float64(freeReturns + maxLive)
	b.excess = max(0, b.excess-returnsPerSecond*now.Sub(b.updatedAt).Seconds()) + float64(n)
	b.excess = min(b.excess, free+returnsPerSecond*maxReturnRest.Seconds())
	b.updatedAt = now
	return max(0, time.Duration((b.excess-free)/returnsPerSecond*float64(time.Second)))
}

// addStarted counts started leases.
func (b *returnBudget) addStarted(n int) { b.excess = max(0, b.excess-float64(n)) }

// chargeReturned counts leases that the worker returned unstarted, and lets the session rest if they are too many: it
// gets no slots reserved meanwhile. The caller holds the mutex.
func (s *Session) chargeReturned(n int) {
	if n == 0 {
		return
	}
	rest := s.returns.addReturned(n, s.hello.MaxLive(), time.Now())
	if rest == 0 || s.returns.resting {
		return
	}
	s.returns.resting = true
	s.markOutdated()
	s.d.metrics.rests.Inc()
	time.AfterFunc(rest, s.endRest)
}

// endRest gives the session its slots back, or extends the rest by what was returned meanwhile.
func (s *Session) endRest() {
	var fx pendingEffects
	s.d.mu.Lock()
	if more := s.returns.addReturned(0, s.hello.MaxLive(), time.Now()); more > time.Millisecond && !s.closed {
		s.d.mu.Unlock()
		time.AfterFunc(more, s.endRest)
		return
	}
	s.returns.resting = false
	s.markOutdated()
	if n := s.freeSlots(); n > 0 {
		fx.addFreed(s, n)
	}
	s.d.mu.Unlock()
	s.d.runEffects(&fx)
}
