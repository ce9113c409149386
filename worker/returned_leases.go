package worker

import (
	"errors"
	"io"
	"slices"
	"time"
)

// Returned leases are not acknowledged: a node reads them, or the stream is cut before that. So leases returned
// shortly before a stream was cut are returned again on the next one. A node that had read them finds that the
// lease has ended.

// returnRepeatPeriod is how long a dead stream may go unnoticed.
const returnRepeatPeriod = keepaliveTime + keepaliveTimeout

// returnedLease is a lease that a session has returned, and when.
type returnedLease struct {
	id string
	at time.Time
}

// returnLease returns a lease on the session, and remembers it for returnRepeatPeriod.
func (s *session) returnLease(id string) {
	s.out.returned = append(s.out.returned, id)
	now := time.Now()
	old := 0
	for old < len(s.recentReturns) && now.Sub(s.recentReturns[old].at) > returnRepeatPeriod {
		old++
	}
	s.recentReturns = append(slices.Delete(s.recentReturns, 0, old), returnedLease{id, now})
}

// unconfirmedReturns returns the leases that an ended session has returned, or should have, without proof that
// its node read them. If the node was notified that the worker stops, and ended the stream without error after
// the worker had closed its side, it has read everything, and returns by itself what it sent later.
func (s *session) unconfirmedReturns() []string {
	if s.stopAnnounced && errors.Is(s.err, io.EOF) {
		return nil
	}
	ids, now := s.out.returned, time.Now()
	for _, r := range s.recentReturns {
		if now.Sub(r.at) <= returnRepeatPeriod && !slices.Contains(s.out.returned, r.id) {
			ids = append(ids, r.id)
		}
	}
	return ids
}

// sendPendingReturns returns the leases that no session has returned yet.
func (w *Worker) sendPendingReturns(s *session) {
	for _, id := range w.table.pendingReturns {
		s.returnLease(id)
	}
	w.table.pendingReturns = nil
}

// hasPendingReturns reports whether leases must be returned on another stream.
func (w *Worker) hasPendingReturns() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.table.pendingReturns) > 0
}
