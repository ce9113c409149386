package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
)

// QueueSize is the size of one queue in the shards that a node holds.
type QueueSize struct {
	Namespace, Queue                               string
	Backlog, Scheduled, Leased, Paused, Dead, Done int64
	Overdue                                        int64 // part of the backlog
	OldestOverdue                                  time.Duration
	// DeadFor is how long the dead letter that is deleted first is still kept;
	// meaningless when there is none.
	DeadFor time.Duration
	// OldestDead is how long ago the oldest dead letter that was looked at died.
	OldestDead time.Duration
	// QueuePaused: the queue as a whole is paused; Paused counts jobs.
	QueuePaused bool

	unserved int64 // the backlog, if no worker serves the queue
}

// addStat puts another queue's numbers to these.
func (q *QueueSize) addStat(o QueueSize) {
	if q.Dead == 0 || o.Dead > 0 && o.DeadFor < q.DeadFor {
		q.DeadFor = o.DeadFor
	}
	q.Backlog += o.Backlog
	if !o.QueuePaused { // what people have paused is not late
		q.Overdue += o.Overdue
	}
	q.unserved += o.unserved
	q.Scheduled += o.Scheduled
	q.Leased += o.Leased
	q.Paused += o.Paused
	q.Dead += o.Dead
	q.Done += o.Done
	q.OldestOverdue = max(q.OldestOverdue, o.OldestOverdue)
	q.OldestDead = max(q.OldestDead, o.OldestDead)
	q.QueuePaused = q.QueuePaused || o.QueuePaused
}

// SetQueues replaces the sizes of all queues.
func (t *Telemetry) SetQueues(stats []QueueSize) {
	sums := make(map[queueKey]*QueueSize, len(stats))
	t.queues.mu.RLock()
	defer t.queues.mu.RUnlock()
	for _, o := range stats {
		if !t.waits.isServed(job.QueueKey{Namespace: o.Namespace, Queue: o.Queue}) {
			o.unserved = o.Backlog
		}
		s := t.queues.seriesOf(queueKey{o.Namespace, o.Queue})
		k := queueKey{s.namespace, s.queue}
		if k != (queueKey{o.Namespace, o.Queue}) {
			o.QueuePaused = false // the others that are summed up with it are not
		}
		if sums[k] == nil {
			sums[k] = &QueueSize{Namespace: k.namespace, Queue: k.queue}
		}
		sums[k].addStat(o)
	}
	t.sizes.now.Store(&sums)
}

var (
	byQueue     = []string{"namespace", "queue"}
	backlogDesc = prometheus.NewDesc("fermata_queue_backlog",
		"Due runs that wait for a slot, in the shards this node holds.", byQueue, nil)
	unservedDesc = prometheus.NewDesc("fermata_queue_unserved_backlog",
		"Due runs of queues that no worker of any node serves, as far as this node knows, in the shards this "+
			"node holds.", byQueue, nil)
	recordsDesc = prometheus.NewDesc("fermata_queue_records",
		"Records by region of the index, in the shards this node holds.", append(byQueue, "region"), nil)
	overdueDesc = prometheus.NewDesc("fermata_queue_oldest_overdue_seconds",
		"Time that the oldest due run has waited, in the shards this node holds.", byQueue, nil)
	lateDesc = prometheus.NewDesc("fermata_runs_overdue",
		"Runs that have waited for more than a second since they were due, in the shards this node holds; 0 for a "+
			"paused queue.", byQueue, nil)
	deadForDesc = prometheus.NewDesc("fermata_queue_dead_letter_kept_seconds",
		"Time until the next dead letter is deleted, in the shards this node holds.", byQueue, nil)
	deadAgeDesc = prometheus.NewDesc("fermata_queue_oldest_dead_letter_seconds",
		"Time since the oldest dead letter died, among those that are deleted first, in the shards this "+
			"node holds.",
		byQueue, nil)
	queuePausedDesc = prometheus.NewDesc("fermata_queue_paused",
		"1 for a paused queue that has records in the shards this node holds. Other queues have no series.", byQueue, nil)
)

// sizeCollector collects the sizes that were counted last. They are counted by a loop, so
// that a scrape costs Redis nothing, however many jobs there are.
type sizeCollector struct {
	now atomic.Pointer[map[queueKey]*QueueSize]
}

func (*sizeCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{backlogDesc, unservedDesc, recordsDesc, overdueDesc, lateDesc, deadForDesc,
		deadAgeDesc, queuePausedDesc} {
		out <- d
	}
}

func (s *sizeCollector) Collect(out chan<- prometheus.Metric) {
	sums := s.now.Load()
	if sums == nil {
		return
	}
	for _, q := range *sums {
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v,
				append([]string{q.Namespace, q.Queue}, labels...)...)
		}
		gauge(backlogDesc, float64(q.Backlog))
		gauge(unservedDesc, float64(q.unserved))
		gauge(overdueDesc, q.OldestOverdue.Seconds())
		gauge(lateDesc, float64(q.Overdue))
		gauge(recordsDesc, float64(q.Backlog+q.Scheduled), "due")
		gauge(recordsDesc, float64(q.Leased), "leased")
		gauge(recordsDesc, float64(q.Paused), "paused")
		gauge(recordsDesc, float64(q.Dead), "dead")
		gauge(recordsDesc, float64(q.Done), "done")
		if q.Dead > 0 {
			gauge(deadForDesc, q.DeadFor.Seconds())
			gauge(deadAgeDesc, q.OldestDead.Seconds())
		}
		if q.QueuePaused {
			gauge(queuePausedDesc, 1)
		}
	}
}
