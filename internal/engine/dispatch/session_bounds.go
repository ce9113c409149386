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
	// restsAtFullRate is how many sessions of an identity rest at their full rate. More share the rate of these, up to
	// maxCrowd times as many.
	restsAtFullRate = 10
	maxCrowd        = 60
	// freeReturnsOfIdentity is how many leases the sessions of an identity may owe together before its new sessions
	// have no free returns.
	freeReturnsOfIdentity = 4096
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
	d.joinReturns(s)
	d.joinIdentity(s)
	return nil
}

// returnUnits returns the units of a session that has closed. The caller holds the mutex.
func (d *Dispatcher) returnUnits(s *Session) {
	d.mu.sessionShares.ReleaseMany(fairshare.Holder{Identity: s.key.identity}, unitsOf(s.hello))
	s.ofIdentity.sessions--
	d.leaveIdentity(s)
}

// returnBudget bounds the leases that a session returns unstarted. A worker that returns what it is given keeps the
// node and Redis busy, and no attempt is used up. Each lease that it starts pays for one that it returns.
type returnBudget struct {
	excess    float64 // returned leases that nothing has paid for yet
	updatedAt time.Time
	resting   bool
}

// addReturned counts returned leases, and returns how long the session is to rest. free is how many it may owe. The
// rate at which returned leases are forgiven is divided by crowd.
func (b *returnBudget) addReturned(n, free, crowd int, now time.Time) time.Duration {
	rate := returnsPerSecond / float64(crowd)
	b.decay(rate, now)
	b.excess = min(b.excess+float64(n), float64(free)+returnsPerSecond*maxReturnRest.Seconds())
	return max(0, time.Duration((b.excess-float64(free))/rate*float64(time.Second)))
}

// decay forgives what has passed since the last change.
func (b *returnBudget) decay(rate float64, now time.Time) {
	b.excess = max(0, b.excess-rate*now.Sub(b.updatedAt).Seconds())
	b.updatedAt = now
}

// addStarted counts started leases.
func (b *returnBudget) addStarted(n int) { b.excess = max(0, b.excess-float64(n)) }

// identityReturns are the returned leases of all sessions of one identity, so that it gains nothing by having many
// sessions, or new ones.
type identityReturns struct {
	returnBudget
	sessions int
	rests    int // sessions that rest
}

// crowd is by how much the rate of a session is divided while many of its identity rest.
func (i *identityReturns) crowd() int { return min(maxCrowd, max(1, i.rests/restsAtFullRate)) }

// decayed forgives what the sessions of an identity have returned, at the rate of ten of them.
func (i *identityReturns) decayed(now time.Time) float64 {
	i.decay(returnsPerSecond*restsAtFullRate, now)
	return i.excess
}

// joinReturns adds a session to its identity. If the identity owes many returned leases, the session has no free
// returns. The caller holds the mutex.
func (d *Dispatcher) joinReturns(s *Session) {
	now := time.Now()
	for name, i := range d.mu.returns {
		if i.sessions == 0 && i.decayed(now) == 0 {
			delete(d.mu.returns, name)
		}
	}
	i := d.mu.returns[s.key.identity]
	if i == nil {
		i = &identityReturns{}
		d.mu.returns[s.key.identity] = i
	}
	i.sessions++
	s.ofIdentity, s.returns.updatedAt = i, now
	if i.decayed(now) > freeReturnsOfIdentity {
		s.returns.excess = float64(s.freeReturns())
	}
}

// freeReturns is how many returned leases the session may owe.
func (s *Session) freeReturns() int { return freeReturns + s.hello.MaxLive() }

// chargeStarted counts leases that the worker started.
func (s *Session) chargeStarted(n int) {
	s.returns.addStarted(n)
	s.ofIdentity.addStarted(n)
}

// inheritReturns has the session owe what the previous session of its worker owed.
func (s *Session) inheritReturns(prev *Session) {
	prev.returns.decay(returnsPerSecond/float64(s.ofIdentity.crowd()), time.Now())
	s.returns.excess = max(s.returns.excess, prev.returns.excess)
}

// chargeReturned counts leases that the worker returned unstarted, and lets the session rest if they are too many: it
// gets no slots reserved meanwhile. The caller holds the mutex.
func (s *Session) chargeReturned(n int) {
	now := time.Now()
	s.ofIdentity.decayed(now)
	s.ofIdentity.excess += float64(n)
	rest := s.returns.addReturned(n, s.freeReturns(), s.ofIdentity.crowd(), now)
	if rest == 0 || s.returns.resting {
		return
	}
	s.returns.resting = true
	s.ofIdentity.rests++
	s.markOutdated()
	s.d.metrics.rests.Inc()
	time.AfterFunc(rest, s.endRest)
}

// endRest gives the session its slots back, or extends the rest by what was returned meanwhile.
func (s *Session) endRest() {
	var fx pendingEffects
	s.d.mu.Lock()
	more := s.returns.addReturned(0, s.freeReturns(), s.ofIdentity.crowd(), time.Now())
	if more > time.Millisecond && !s.closed {
		s.d.mu.Unlock()
		time.AfterFunc(more, s.endRest)
		return
	}
	s.returns.resting = false
	s.ofIdentity.rests--
	s.markOutdated()
	if n := s.freeSlots(); n > 0 {
		fx.addFreed(s, n)
	}
	s.d.mu.Unlock()
	s.d.runEffects(&fx)
}
