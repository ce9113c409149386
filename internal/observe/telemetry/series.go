package telemetry

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// MaxQueues bounds how many queues have series of their own. The others share the labels of [OtherQueues], so
// that clients that make up namespaces cannot fill the memory of nodes, or of their scrapers.
const MaxQueues = 200

// OtherQueues is the namespace and the queue of those beyond [MaxQueues].
const OtherQueues = "other"

// idleParts is for how many parts of the last minute a queue keeps its series without records in the shards of
// this node, without a worker here, and without an event: a quarter of an hour.
const idleParts = 15 * recentParts

// queueKey names a queue.
type queueKey struct{ namespace, queue string }

var otherQueues = queueKey{OtherQueues, OtherQueues}

// queueTable has the series of each queue, resolved once. If all places are taken, a queue of a
// namespace with fewer places takes one of the namespace that has most: that of the queue that
// was unused for longest. So each namespace gets an equal part if it needs one, and no place
// changes hands twice for the same queue.
//
// Users of series hold mu for reading, so that none is created while it is deleted.
type queueTable struct {
	metrics           *metrics
	mu                sync.RWMutex
	known             map[queueKey]*queueSeries
	placesByNamespace map[string]int // places by namespace
	maxPlaces         int            // the largest of held
	ticks             atomic.Int64   // counts calls of Tick
}

// seriesOf returns the series of a queue, and creates them if it is new and has a place. The caller has mu for
// reading; meanwhile another one may change the table.
func (t *queueTable) seriesOf(k queueKey) *queueSeries {
	for {
		if s := t.known[k]; s != nil {
			s.lastSeen.Store(t.ticks.Load())
			return s
		}
		if !t.hasPlace(k) {
			if s := t.known[otherQueues]; s != nil {
				return s
			}
		}
		t.mu.RUnlock()
		t.addSeries(k)
		t.mu.RLock()
	}
}

// ensureSeries makes the series of a queue, if it has a place.
func (t *queueTable) ensureSeries(k queueKey) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.seriesOf(k)
}

// hasPlace reports whether a new queue may have series of its own.
func (t *queueTable) hasPlace(k queueKey) bool {
	return k == otherQueues || len(t.known) < MaxQueues || t.maxPlaces > t.placesByNamespace[k.namespace]+1
}

// addSeries makes the series of a queue, or of all others if it has no place.
func (t *queueTable) addSeries(k queueKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hasPlace(k) {
		k = otherQueues
	}
	if t.known[k] != nil {
		return
	}
	if k != otherQueues {
		if len(t.known) >= MaxQueues {
			t.removeSeries(t.longestUnused())
		}
		t.countPlaces(k.namespace, 1)
	}
	s := newQueueSeries(t.metrics, k)
	s.lastSeen.Store(t.ticks.Load())
	t.known[k] = s
}

// longestUnused is the queue, in the namespace with most places, that was unused for longest.
func (t *queueTable) longestUnused() (least queueKey) {
	since := int64(math.MaxInt64)
	for k, s := range t.known {
		if seen := s.lastSeen.Load(); k != otherQueues && t.placesByNamespace[k.namespace] == t.maxPlaces &&
			seen < since {
			least, since = k, seen
		}
	}
	return least
}

// expireSeries deletes the series of queues that were unused for a while, unless they are served.
func (t *queueTable) expireSeries(served func(job.QueueKey) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.ticks.Load() - idleParts
	for k, s := range t.known {
		if k != otherQueues && s.lastSeen.Load() < before &&
			!served(job.QueueKey{Namespace: k.namespace, Queue: k.queue}) {
			t.removeSeries(k)
		}
	}
}

func (t *queueTable) removeSeries(k queueKey) {
	delete(t.known, k)
	t.countPlaces(k.namespace, -1)
	t.metrics.forgetQueue(k)
	if t.placesByNamespace[k.namespace] == 0 && k.namespace != OtherQueues {
		t.metrics.jobs.DeletePartialMatch(prometheus.Labels{"namespace": k.namespace})
	}
}

func (t *queueTable) countPlaces(namespace string, n int) {
	t.placesByNamespace[namespace] += n
	if t.placesByNamespace[namespace] == 0 {
		delete(t.placesByNamespace, namespace)
	}
	t.maxPlaces = 0
	for _, n := range t.placesByNamespace {
		t.maxPlaces = max(t.maxPlaces, n)
	}
}

// queueSeries are the series of one queue. Those that alerts use exist from the start, so that their first
// increase shows; the others are created with their first value.
type queueSeries struct {
	metrics          *metrics
	namespace, queue string

	lag, attemptSeconds, runSeconds prometheus.Observer
	backoffDepth                    prometheus.Observer
	onTime, late                    prometheus.Counter // starts
	early, retries                  prometheus.Counter
	succeeded                       prometheus.Counter // attempts
	attempts                        [noticeKinds]prometheus.Counter
	scheduled                       [noticeKinds]prometheus.Counter    // runs by the schedule
	retry                           atomic.Pointer[prometheus.Counter] // held back after a failure
	worker, slot                    prometheus.Counter                 // held back for lack of one
	breaches                        prometheus.Counter                 // by starting late
	recent                          recentCounts
	lastSeen                        atomic.Int64 // tick of the table at the last event of the queue
}

func newQueueSeries(m *metrics, k queueKey) *queueSeries {
	ns, q := k.namespace, k.queue
	s := &queueSeries{
		metrics: m, namespace: ns, queue: q,
		lag: m.lag.WithLabelValues(ns, q), attemptSeconds: m.attemptSeconds.WithLabelValues(ns, q),
		runSeconds: m.runSeconds.WithLabelValues(ns, q), backoffDepth: m.backoffDepth.WithLabelValues(ns, q),
		onTime: m.starts.WithLabelValues(ns, q, "on_time"), late: m.starts.WithLabelValues(ns, q, "late"),
		early: m.early.WithLabelValues(ns, q), retries: m.retries.WithLabelValues(ns, q),
		succeeded: m.attempts.WithLabelValues(ns, q, "succeeded"),
		worker:    m.held.WithLabelValues(ns, q, heldWorker),
		slot:      m.held.WithLabelValues(ns, q, heldSlot),
		breaches:  m.breaches.WithLabelValues(ns, q, job.LagLate),
	}
	for kind, outcome := range attemptOutcome {
		s.attempts[kind] = m.attempts.WithLabelValues(ns, q, outcome)
	}
	for kind, outcome := range runOutcome {
		s.scheduled[kind] = m.runs.WithLabelValues(ns, q, outcome, triggerName(job.TriggerSchedule))
	}
	// One of these is cause for an alert, and the first of a series is no increase of it.
	for _, trigger := range []job.Trigger{job.TriggerManual, job.TriggerBackfill} {
		m.runs.WithLabelValues(ns, q, runOutcome[job.RunQuarantined], triggerName(trigger))
	}
	for _, reason := range job.DeadReasons() {
		m.deadLetters.WithLabelValues(ns, q, reason)
	}
	m.breaches.WithLabelValues(ns, q, job.LagMissed)
	return s
}

func (s *queueSeries) countStart(n *job.Notice, now time.Time) {
	lag := float64(n.AtMS-n.DueMS) / 1000
	observeWithTrace(s.lag, lag, n.TraceID)
	if int64(n.AtMS-n.DueMS) > onTimeMS {
		s.late.Inc()
	} else {
		s.onTime.Inc()
	}
	s.recent.started.Add(1)
	s.recent.noteLag(int64(n.AtMS - n.DueMS))
	switch {
	case lag < 0:
		s.early.Inc()
	case lag > 0:
		s.countWait(n, now)
	}
	if n.Attempt > 1 {
		s.retries.Inc()
	}
	if n.Held != job.HeldNone {
		s.countHeldTime(n.Held.String(), n.HeldMS)
	}
}

// countWait counts the lag of a start by its causes.
func (s *queueSeries) countWait(n *job.Notice, now time.Time) {
	lag := n.AtMS.Sub(n.DueMS)
	if lag < minExplainedLag {
		s.slot.Add(lag.Seconds())
		return
	}
	w := s.metrics.waits.splitWait(job.QueueKey{Namespace: n.Key.Namespace, Queue: n.Queue}, now.Add(-lag), now)
	s.worker.Add(w.worker.Seconds())
	s.countHeldTime(heldPaused, w.paused.Milliseconds())
	s.countHeldTime(heldRate, w.rate.Milliseconds())
	s.countHeldTime(job.HeldQueue.String(), w.room.Milliseconds())
	s.slot.Add(w.slot.Seconds())
}

func (s *queueSeries) countAttemptEnd(n *job.Notice) {
	s.attempts[n.Kind].Inc()
	s.observeAttemptTime(n)
}

func (s *queueSeries) observeAttemptTime(n *job.Notice) {
	if n.StartedMS > 0 {
		observeWithTrace(s.attemptSeconds, secondsBetween(n.StartedMS, n.AtMS), n.TraceID)
	}
}

func (s *queueSeries) countRunEnd(n *job.Notice) {
	if n.Trigger == job.TriggerSchedule {
		s.scheduled[n.Kind].Inc()
	} else {
		s.metrics.runs.WithLabelValues(s.namespace, s.queue, runOutcome[n.Kind], triggerName(n.Trigger)).Inc()
	}
	if n.FirstMS > 0 {
		observeWithTrace(s.runSeconds, secondsBetween(n.FirstMS, n.AtMS), n.TraceID)
	}
	switch n.Kind {
	case job.RunSucceeded:
		s.succeeded.Inc()
		s.recent.succeeded.Add(1)
		s.observeAttemptTime(n)
	case job.RunDead, job.RunQuarantined:
		s.metrics.deadLetters.WithLabelValues(s.namespace, s.queue, n.Reason).Inc()
	}
}

// countBreach counts broken lateness objectives.
func (s *queueSeries) countBreach(n *job.Notice) {
	s.recent.breaches.Add(n.Count)
	if n.Reason == job.LagLate {
		s.breaches.Add(float64(n.Count))
		return
	}
	s.metrics.breaches.WithLabelValues(s.namespace, s.queue, n.Reason).Add(float64(n.Count))
}

// countRetryDelay counts the time until the next attempt, which may be of each attempt.
func (s *queueSeries) countRetryDelay(ms int64) {
	if ms <= 0 {
		return
	}
	c := s.retry.Load()
	if c == nil {
		made := s.metrics.held.WithLabelValues(s.namespace, s.queue, "retry") // the same however often
		c = &made
		s.retry.Store(c)
	}
	(*c).Add(float64(ms) / 1000)
}

// countHeldTime counts time that something held a run back.
func (s *queueSeries) countHeldTime(reason string, ms int64) {
	if ms > 0 {
		s.metrics.held.WithLabelValues(s.namespace, s.queue, reason).Add(float64(ms) / 1000)
	}
}

// secondsBetween is in seconds; clocks that disagree make it zero, not negative.
func secondsBetween(fromMS, toMS unixtime.Milli) float64 {
	return float64(max(0, int64(toMS-fromMS))) / 1000
}
