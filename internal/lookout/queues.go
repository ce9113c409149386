package lookout

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/scaling"
	"github.com/fermata-io/fermata/internal/shares"
)

// queue is one that somebody has asked for.
type queue struct {
	size    scaling.Size
	at      time.Time // of the look that found it; zero: none has
	asked   time.Time
	watches int
	// holder is who asked first, and so takes a place of the table.
	holder shares.Holder
	// needed and spared are when somebody was told last that workers are needed, or not.
	needed, spared time.Time
}

// watch is somebody who is told of some queues together.
type watch struct {
	queues []*queue
	holder shares.Holder
	news   chan scaling.Size
}

// ofLocked finds queues, and counts them along from now on. Those that nobody has asked for
// take places of who asks.
func (l *Lookout) ofLocked(who shares.Holder, keys []job.QueueKey) ([]*queue, error) {
	now := time.Now()
	queues := make([]*queue, len(keys))
	for i, key := range keys {
		q := l.queues[key]
		if q == nil {
			if !l.takePlaceLocked(who, now) {
				return nil, job.ErrTooManyWatches
			}
			q = &queue{holder: who}
			l.queues[key] = q
		}
		q.asked, queues[i] = now, q
	}
	return queues, nil
}

// takePlaceLocked takes a place for a queue, if need be one of a queue that is not asked for
// any more.
func (l *Lookout) takePlaceLocked(who shares.Holder, now time.Time) bool {
	if l.places.Take(who) {
		return true
	}
	l.forgetOldLocked(now)
	if l.places.Take(who) {
		return true
	}
	l.metrics.refused.Inc()
	return false
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

// forgetOldLocked drops queues that nobody has asked for in a while, and at once those in
// which there is nothing: most of these do not exist.
func (l *Lookout) forgetOldLocked(now time.Time) {
	for key, q := range l.queues {
		if q.watches == 0 && now.Sub(q.asked) > l.keepFor(q) {
			delete(l.queues, key)
			l.places.Give(q.holder)
		}
	}
}

// keepFor is how long a queue is counted along after it was last asked for. The pause is for
// those who wait for the look that found nothing.
func (l *Lookout) keepFor(q *queue) time.Duration {
	if !q.at.IsZero() && q.size == (scaling.Size{}) {
		return l.pause
	}
	return kept
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

// told is what was said lately of queues with due runs: the first ones of each namespace by
// their names, as many of each.
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
	sorted := slices.SortedFunc(maps.Keys(all), func(a, b job.QueueKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue))
	})
	few := make(map[job.QueueKey]float64, maxWants)
	for _, key := range shares.Pick(sorted, maxWants, func(k job.QueueKey) string { return k.Namespace }) {
		few[key] = all[key]
	}
	return few
}
