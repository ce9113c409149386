package lookout

import (
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/scaling"
)

// queue is one that somebody has asked for.
type queue struct {
	size    scaling.Size
	at      time.Time // of the look that found it; zero: none has
	asked   time.Time
	watches int
}

// watch is somebody who is told of some queues together.
type watch struct {
	queues []*queue
	news   chan scaling.Size
}

// ofLocked finds queues, and counts them along from now on.
func (l *Lookout) ofLocked(keys []job.QueueKey) ([]*queue, error) {
	now := time.Now()
	if len(l.queues)+len(keys) > maxQueues {
		l.forgetOldLocked(now)
	}
	queues := make([]*queue, len(keys))
	for i, key := range keys {
		q := l.queues[key]
		if q == nil {
			if len(l.queues) >= maxQueues {
				return nil, job.ErrTooManyWatches
			}
			q = new(queue)
			l.queues[key] = q
		}
		q.asked, queues[i] = now, q
	}
	return queues, nil
}

// togetherLocked adds queues up; false if one of them was not counted within a pause before
// a time.
func (l *Lookout) togetherLocked(queues []*queue, before time.Time) (all scaling.Size, ok bool) {
	for _, q := range queues {
		if q.at.IsZero() || before.Sub(q.at) >= l.pause {
			return scaling.Size{}, false
		}
		all = all.And(q.size)
	}
	return all, true
}

// forgetOldLocked drops queues that nobody has asked for in a while.
func (l *Lookout) forgetOldLocked(now time.Time) {
	for key, q := range l.queues {
		if q.watches == 0 && now.Sub(q.asked) > kept {
			delete(l.queues, key)
		}
	}
}
