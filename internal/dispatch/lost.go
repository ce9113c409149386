package dispatch

import "github.com/fermata-io/fermata/internal/job"

// Lost takes the worker's word that it has given leases up while its process went on: see
// [job.ForgiveLoss]. Most are of other nodes, or of earlier streams. What this node has still
// to say about one, a loss for instance, goes first.
func (s *Session) Lost(leaseIDs []string) {
	d := s.d
	var fx effects
	d.mu.Lock()
	for _, id := range leaseIDs {
		a := d.mu.attempts[id]
		switch {
		case a == nil:
			if s.owed >= s.hello.MaxLive() {
				continue // it comes again
			}
			if a = d.foreign(s, id); a != nil {
				s.owed++
				d.forgive(a, &fx)
			}
		case a.session != nil && a.session.key != s.key:
		default:
			d.lostHere(s, a, &fx)
		}
	}
	d.mu.Unlock()
	d.finish(&fx)
}

// lostHere takes a worker's word about a lease that this node knows.
func (d *Dispatcher) lostHere(s *Session, a *attempt, fx *effects) {
	d.free(a, fx)
	d.bind(a, s)
	switch a.pending.(type) {
	case nil:
		d.forgive(a, fx)
	case job.ForgiveLoss:
	default:
		a.lost = true
	}
}

// forgive sends the word that a loss does not count.
func (d *Dispatcher) forgive(a *attempt, fx *effects) {
	a.lost = false
	d.leave(a, job.ForgiveLoss{Token: a.token}, fx)
}

// forgiven acknowledges it.
func (d *Dispatcher) forgiven(a *attempt, status job.AckStatus, fx *effects) {
	if _, ok := a.pending.(job.ForgiveLoss); ok && a.live() {
		d.ack(a.session, a.id, status, fx)
	}
}
