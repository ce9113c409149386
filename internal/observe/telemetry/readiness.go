package telemetry

import (
	"sync"
	"time"
)

// readinessAge is how old an answer of /readyz may be. A check asks Redis or another process, so that a flood of
// requests would take their connections.
const readinessAge = 100 * time.Millisecond

// readiness shares a check of readiness among the requests that come while it runs, and soon after it.
type readiness struct {
	check func() []string
	now   func() time.Time

	mu      sync.Mutex
	missing []string
	at      time.Time // when the check ended
}

func newReadiness(check func() []string) *readiness { return &readiness{check: check, now: time.Now} }

// findMissing returns what is missing for readiness.
func (r *readiness) findMissing() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if age := r.now().Sub(r.at); r.at.IsZero() || age >= readinessAge {
		r.missing = r.check()
		r.at = r.now()
	}
	return r.missing
}
