package lookout

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/scaling"
)

// queue is one that somebody has asked for.
type queue struct {
	size    scaling.Size
	at      time.Time // of the look that found it; zero: none has
	asked   time.Time
	watches int
	// needed and spared are when somebody was told last that workers are needed, or not.
	needed, spared time.Time
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

// Told notes whether who asked for queues was told that workers are needed.
func (l *Lookout) Told(keys []job.QueueKey, needed bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		q := l.queues[key]
		switch {
		case q == nil: // it was dropped meanwhile
		case needed:
			q.needed = now
		default:
			q.spared = now
		}
	}
}

// maxWants bounds the queues that [wants] tells of.
const maxWants = 200

var wantsDesc = prometheus.NewDesc("fermata_scaler_wants_workers",
	"Whether autoscalers that asked for a queue here within two minutes were told that workers are needed: 1 if any was, 0 if its due runs may wait. There is none for queues without due runs.",
	[]string{"namespace", "queue"}, nil)

// wants collects what autoscalers were told of queues that have something due: names that
// are asked for and do not exist leave nothing behind.
type wants struct{ l *Lookout }

func (wants) Describe(out chan<- *prometheus.Desc) { out <- wantsDesc }

func (w wants) Collect(out chan<- prometheus.Metric) {
	for key, needed := range w.l.told(time.Now()) {
		out <- prometheus.MustNewConstMetric(wantsDesc, prometheus.GaugeValue, needed, key.Namespace, key.Queue)
	}
}

// told is what was said lately of queues with due runs: the first ones by their names.
func (l *Lookout) told(now time.Time) map[job.QueueKey]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[job.QueueKey]float64)
	for key, q := range l.queues {
		switch {
		case q.size.Waiting == 0:
		case now.Sub(q.needed) <= kept:
			all[key] = 1
		case now.Sub(q.spared) <= kept:
			all[key] = 0
		}
	}
	if len(all) <= maxWants {
		return all
	}
	for _, key := range slices.SortedFunc(maps.Keys(all), func(a, b job.QueueKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue))
	})[maxWants:] {
		delete(all, key)
	}
	return all
}
