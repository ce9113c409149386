package dispatch

import (
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// maxServedQueues bounds the different queues that the workers of a node serve: all of them are in each message to
// other nodes about free slots, at most 150 bytes each.
const maxServedQueues = 10_000

// newQueueShares makes the table of the queues that workers serve. One namespace alone may have half, and one identity
// a quarter, so that it cannot have all that its namespace may have.
func newQueueShares() *fairshare.Table {
	return fairshare.New(fairshare.Limits{Places: maxServedQueues, Namespace: 1, Identity: 3})
}

// queueHolder is the holder of the queues that a session is the first to serve.
func queueHolder(s *Session) fairshare.Holder {
	return fairshare.Holder{Namespace: s.key.namespace, Identity: s.key.identity}
}

// takeQueues takes places for the queues of a session that no other session serves, or returns
// [job.ErrTooManyServedQueues]. release returns them if the session does not begin. The caller holds the mutex.
func (d *Dispatcher) takeQueues(s *Session) (release func(), err error) {
	added := 0
	for _, q := range s.hello.Queues {
		if d.mu.queues[queueKey{s.key.namespace, q}] == nil {
			added++
		}
	}
	if added == 0 {
		return func() {}, nil
	}
	holder := queueHolder(s)
	if !d.mu.queueShares.AcquireMany(holder, added) {
		d.metrics.refusedQueues.Inc()
		return nil, job.ErrTooManyServedQueues
	}
	return func() { d.mu.queueShares.ReleaseMany(holder, added) }, nil
}

// passQueueOn gives the place of a queue to the identity of a session that still serves it, if its share allows: an
// identity does not pay for queues that only others serve. The caller holds the mutex.
func (d *Dispatcher) passQueueOn(c *queueSessions) {
	next := queueHolder(c.entries[0].s)
	if next == c.holder || !d.mu.queueShares.Acquire(next) {
		return
	}
	d.mu.queueShares.Release(c.holder)
	c.holder = next
}
