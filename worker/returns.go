package worker

import (
	"errors"
	"io"
	"slices"
	"time"
)

// Nobody acknowledges what is returned: a node reads it, or its stream is cut before that.
// So what was returned a short while before a stream was cut is returned once more on the
// next one. A node that had read it finds that the lease has ended.

// returnedFor is how long a stream may be dead before the worker notices.
const returnedFor = keepaliveTime + keepaliveTimeout

// returned is a lease that a session has sent back.
type returned struct {
	id string
	at time.Time
}

// sendBack returns a lease on the session, and remembers that for a while.
func (s *session) sendBack(id string) {
	s.out.returned = append(s.out.returned, id)
	now := time.Now()
	old := 0
	for old < len(s.sentBack) && now.Sub(s.sentBack[old].at) > returnedFor {
		old++
	}
	s.sentBack = append(slices.Delete(s.sentBack, 0, old), returned{id, now})
}

// unconfirmed are the leases that an ended session has sent back, or would have, without a sign
// that its node has read it. A node that has ended the stream of a worker which stops, after the
// worker had ended its side, has read everything, and takes back what it sent since.
func (s *session) unconfirmed(stopping bool) []string {
	if stopping && errors.Is(s.err, io.EOF) {
		return nil
	}
	ids, now := s.out.returned, time.Now()
	for _, r := range s.sentBack {
		if now.Sub(r.at) <= returnedFor && !slices.Contains(s.out.returned, r.id) {
			ids = append(ids, r.id)
		}
	}
	return ids
}

// sendOwed returns on a session what no session could return so far.
func (w *Worker) sendOwed(s *session) {
	for _, id := range w.table.owed {
		s.sendBack(id)
	}
	w.table.owed = nil
}

// owes reports whether leases have to be returned on another stream.
func (w *Worker) owes() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.table.owed) > 0
}
