package guard

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/fermata-io/fermata/internal/core/authz"
)

// quotaTable are what identities have used of their limits, by subject.
type quotaTable struct {
	mu        sync.Mutex
	bySubject map[string]*quota
	changes   int // that the node runs at once
}

// maxQuotas is how many are kept before those that are not in use are forgotten.
const maxQuotas = 4096

// quotaFor finds the quota of a subject, under the limits as they are now.
func (s *quotaTable) quotaFor(subject string, l authz.Limits) *quota {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.bySubject[subject]
	if q == nil {
		if len(s.bySubject) >= maxQuotas {
			s.dropIdle()
		}
		// A bucket begins as full as its burst, to which set cuts it.
		q = &quota{
			subject: subject, bucket: rate.NewLimiter(rate.Inf, math.MaxInt32), turns: newTurnsOfIdentity(s.changes),
			refusals: newRefusalLimiter(),
		}
		s.bySubject[subject] = q
	}
	q.setLimits(l)
	return q
}

// dropIdle forgets who has no connection and a full bucket: a new one is the same.
func (s *quotaTable) dropIdle() {
	for subject, q := range s.bySubject {
		if q.connections.Load() == 0 && q.calls.Load() == 0 && q.bucket.Tokens() >= float64(q.bucket.Burst()) {
			delete(s.bySubject, subject)
		}
	}
}

// quota is what one identity has used.
type quota struct {
	subject     string
	bucket      *rate.Limiter
	limited     atomic.Bool // by the bucket
	calls       atomic.Int64
	reading     atomic.Int64 // calls whose request has not arrived
	smallUnread atomic.Int64 // bytes of small responses that were not read
	maxCalls    atomic.Int64
	connections atomic.Int64
	maxConns    atomic.Int64
	turns       turnsOfIdentity
	refusals    *rate.Limiter // of credentials
}

func (q *quota) setLimits(l authz.Limits) {
	if l.Rate > 0 {
		q.bucket.SetLimit(rate.Limit(l.Rate))
		q.bucket.SetBurst(max(1, l.Burst))
	}
	q.limited.Store(l.Rate > 0)
	q.maxCalls.Store(int64(l.MaxOpenCalls))
	q.maxConns.Store(int64(l.Connections))
}

// beginUnratedCall takes a call in of a method that is open to everybody; false if there are too
// many. The rate is not asked: load balancers that look at health share a host, and maybe
// an identity, with callers who have used theirs up.
func (q *quota) beginUnratedCall() bool {
	if n := q.calls.Add(1); q.maxCalls.Load() > 0 && n > q.maxCalls.Load() {
		q.calls.Add(-1)
		return false
	}
	return true
}

// maxReading bounds the calls of an identity whose requests have not arrived: a client sends a request together with
// its headers, so that few such calls wait.
const maxReading = 1024

// beginReading counts a call whose request has not arrived; false if there are too many. Each counted one needs
// endReading.
func (q *quota) beginReading() bool {
	n, limit := q.reading.Add(1), q.maxCalls.Load()
	if limit > 0 && n > min(limit, maxReading) {
		q.endReading()
		return false
	}
	return true
}

func (q *quota) endReading() { q.reading.Add(-1) }

// addSmallUnread counts a small response that is to be read; false if there are too many.
func (q *quota) addSmallUnread(bytes int) bool {
	if q.smallUnread.Add(int64(bytes)) > maxSmallUnread {
		q.smallUnread.Add(-int64(bytes))
		return false
	}
	return true
}

// beginCall counts a call, or returns the limit that it exceeds and when to retry. Each counted call needs endCall.
func (q *quota) beginCall() (limit string, retry time.Duration) {
	if !q.beginUnratedCall() {
		return "calls", time.Second
	}
	if q.limited.Load() && !q.bucket.Allow() {
		q.calls.Add(-1)
		missing := 1 - q.bucket.Tokens()
		return "rate", max(time.Millisecond, time.Duration(missing/float64(q.bucket.Limit())*float64(time.Second)))
	}
	return "", 0
}

// chargeCalls counts so many calls more, and waits for as long as the rate makes them take.
func (q *quota) chargeCalls(ctx context.Context, calls int) error {
	for q.limited.Load() && calls > 0 {
		n := min(calls, q.bucket.Burst())
		if err := q.bucket.WaitN(ctx, n); err != nil {
			return err
		}
		calls -= n
	}
	return nil
}

func (q *quota) endCall() { q.calls.Add(-1) }

// addConnection counts a connection; false if there are too many.
func (q *quota) addConnection() bool {
	if n := q.connections.Add(1); q.maxConns.Load() > 0 && n > q.maxConns.Load() {
		q.connections.Add(-1)
		return false
	}
	return true
}

func (q *quota) removeConnection() { q.connections.Add(-1) }
