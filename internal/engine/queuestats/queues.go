package queuestats

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// sampledQueue is a queue that was asked for.
type sampledQueue struct {
	size        autoscale.Demand
	sampledAt   time.Time // of the look that found it; zero: none has
	lastAskedAt time.Time
	watchCount  int
	// holder asked first, and takes a place of the table.
	holder fairshare.Holder
	// lastNeededAt and lastNotNeededAt are when a caller was last advised that workers are needed, or not.
	lastNeededAt, lastNotNeededAt time.Time
}

// queueWatch receives the total size of some queues.
type queueWatch struct {
	queues  []*sampledQueue
	holder  fairshare.Holder
	updates chan autoscale.Demand
}

// trackQueuesLocked returns the queues, and keeps sampling them. New queues take places of the holder.
func (l *Sampler) trackQueuesLocked(who fairshare.Holder, keys []job.QueueKey) ([]*sampledQueue, error) {
	now := time.Now()
	queues := make([]*sampledQueue, len(keys))
	for i, key := range keys {
		q := l.queues[key]
		if q == nil {
			if !l.takePlaceLocked(who, now) {
				return nil, job.ErrTooManyWatches
			}
			q = &sampledQueue{holder: who}
			l.queues[key] = q
		}
		q.lastAskedAt, queues[i] = now, q
	}
	return queues, nil
}

// takePlaceLocked takes a place for a queue, if need be one of a queue that is not asked for
// any more.
func (l *Sampler) takePlaceLocked(who fairshare.Holder, now time.Time) bool {
	if l.queueShares.Acquire(who) {
		return true
	}
	l.dropUnusedLocked(now)
	if l.queueShares.Acquire(who) {
		return true
	}
	l.metrics.refused.Inc()
	return false
}

// sumSizesLocked adds queues up; false if one of them was not counted within a pause before
// a time.
func (l *Sampler) sumSizesLocked(queues []*sampledQueue, before time.Time) (all autoscale.Demand, ok bool) {
	for _, q := range queues {
		if q.sampledAt.IsZero() || before.Sub(q.sampledAt) >= l.pause {
			return autoscale.Demand{}, false
		}
		all = all.And(q.size)
	}
	return all, true
}

// dropUnusedLocked drops queues that were not asked for recently. Empty queues are dropped at once: most of them
// do not exist.
func (l *Sampler) dropUnusedLocked(now time.Time) {
	for key, q := range l.queues {
		if q.watchCount == 0 && now.Sub(q.lastAskedAt) > l.retentionOf(q) {
			delete(l.queues, key)
			l.queueShares.Release(q.holder)
		}
	}
}

// retentionOf is how long a queue is sampled after it was last asked for. An empty queue is kept for one pause,
// for the callers that wait for its sample.
func (l *Sampler) retentionOf(q *sampledQueue) time.Duration {
	if !q.sampledAt.IsZero() && q.size == (autoscale.Demand{}) {
		return l.pause
	}
	return queueRetention
}

// RecordAdvice records whether the caller that asked for queues was advised that workers are needed.
func (l *Sampler) RecordAdvice(keys []job.QueueKey, needed bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		q := l.queues[key]
		switch {
		case q == nil: // it was dropped meanwhile
		case needed:
			q.lastNeededAt = now
		default:
			q.lastNotNeededAt = now
		}
	}
}

// maxAdviceSeries bounds the number of queues that [adviceCollector] exports.
const maxAdviceSeries = 200

var adviceDesc = prometheus.NewDesc("fermata_scaler_wants_workers",
	"This node's answer to the autoscalers that asked for a queue within two minutes: 1 if workers are needed for "+
		"at least one of them, 0 if the due runs may wait. Queues without due runs have no series.",
	[]string{"namespace", "queue"}, nil)

// adviceCollector exports the advice given to autoscalers for queues with due runs. Queues that do not exist
// leave no series.
type adviceCollector struct{ l *Sampler }

func (adviceCollector) Describe(out chan<- *prometheus.Desc) { out <- adviceDesc }

func (w adviceCollector) Collect(out chan<- prometheus.Metric) {
	for key, needed := range w.l.lastAdvice(time.Now()) {
		out <- prometheus.MustNewConstMetric(adviceDesc, prometheus.GaugeValue, needed, key.Namespace, key.Queue)
	}
}

// lastAdvice returns the recent advice for queues with due runs: equally many of each namespace, the first ones
// by name.
func (l *Sampler) lastAdvice(now time.Time) map[job.QueueKey]float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[job.QueueKey]float64)
	for key, q := range l.queues {
		switch {
		case q.size.Waiting == 0:
		case now.Sub(q.lastNeededAt) <= queueRetention:
			all[key] = 1
		case now.Sub(q.lastNotNeededAt) <= queueRetention:
			all[key] = 0
		}
	}
	if len(all) <= maxAdviceSeries {
		return all
	}
	sorted := slices.SortedFunc(maps.Keys(all), func(a, b job.QueueKey) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Queue, b.Queue))
	})
	few := make(map[job.QueueKey]float64, maxAdviceSeries)
	for _, key := range fairshare.Pick(sorted, maxAdviceSeries, func(k job.QueueKey) string { return k.Namespace }) {
		few[key] = all[key]
	}
	return few
}
