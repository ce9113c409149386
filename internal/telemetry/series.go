package telemetry

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/job"
)

// MaxQueues bounds how many queues have series of their own. The others share the
// labels of [OtherQueues], so that clients who make up namespaces cannot fill the memory
// of nodes, or of those who scrape them.
const MaxQueues = 200

// OtherQueues is the namespace and the queue of those beyond [MaxQueues].
const OtherQueues = "other"

// keptIdle is for how many parts of the last minute a queue keeps its series that has no
// records in the shards of this node and no worker here, and of which nothing was heard: a
// quarter of an hour.
const keptIdle = 15 * recentParts

// queueKey names a queue.
type queueKey struct{ namespace, queue string }

var otherQueues = queueKey{OtherQueues, OtherQueues}

// queueTable has the series of each queue, resolved once. While all places are taken, a
// queue of a namespace that has fewer of them takes that of another namespace, of the one
// that has most: the queue of which nothing was heard for longest. So each namespace gets
// an equal part if it needs one, and no place changes hands twice for the same queue.
//
// Whoever uses series holds mu for reading, so that none is made anew while it is deleted.
type queueTable struct {
	metrics *metrics
	mu      sync.RWMutex
	known   map[queueKey]*queueSeries
	held    map[string]int // places by namespace
	most    int            // the largest of held
	clock   atomic.Int64   // counts calls of Tick
}

// of returns the series of a queue, and makes them when it is new and has a place. The
// caller has mu for reading; meanwhile another one may change the table.
func (t *queueTable) of(k queueKey) *queueSeries {
	for {
		if s := t.known[k]; s != nil {
			s.seen.Store(t.clock.Load())
			return s
		}
		if !t.hasPlace(k) {
			if s := t.known[otherQueues]; s != nil {
				return s
			}
		}
		t.mu.RUnlock()
		t.add(k)
		t.mu.RLock()
	}
}

// touch makes the series of a queue, if it has a place.
func (t *queueTable) touch(k queueKey) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	t.of(k)
}

// hasPlace reports whether a new queue may have series of its own.
func (t *queueTable) hasPlace(k queueKey) bool {
	return k == otherQueues || len(t.known) < MaxQueues || t.most > t.held[k.namespace]+1
}

// add makes the series of a queue, or of all others if it has no place.
func (t *queueTable) add(k queueKey) {
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
			t.remove(t.leastHeard())
		}
		t.count(k.namespace, 1)
	}
	s := newQueueSeries(t.metrics, k)
	s.seen.Store(t.clock.Load())
	t.known[k] = s
}

// leastHeard is the queue of the namespace with most places of which nothing was heard for
// longest.
func (t *queueTable) leastHeard() (least queueKey) {
	since := int64(math.MaxInt64)
	for k, s := range t.known {
		if seen := s.seen.Load(); k != otherQueues && t.held[k.namespace] == t.most && seen < since {
			least, since = k, seen
		}
	}
	return least
}

// expire deletes the series of queues of which nothing was heard in a while, unless they are
// served.
func (t *queueTable) expire(served func(job.QueueKey) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.clock.Load() - keptIdle
	for k, s := range t.known {
		if k != otherQueues && s.seen.Load() < before && !served(job.QueueKey{Namespace: k.namespace, Queue: k.queue}) {
			t.remove(k)
		}
	}
}

func (t *queueTable) remove(k queueKey) {
	delete(t.known, k)
	t.count(k.namespace, -1)
	t.metrics.forgetQueue(k)
	if t.held[k.namespace] == 0 && k.namespace != OtherQueues {
		t.metrics.jobs.DeletePartialMatch(prometheus.Labels{"namespace": k.namespace})
	}
}

func (t *queueTable) count(namespace string, n int) {
	if t.held[namespace] += n; t.held[namespace] == 0 {
		delete(t.held, namespace)
	}
	t.most = 0
	for _, n := range t.held {
		t.most = max(t.most, n)
	}
}

// queueSeries are the series of one queue. Those that matter for alerts are there
// from the start, so that their first increase shows; the others come with their
// first value.
type queueSeries struct {
	metrics          *metrics
	namespace, queue string

	lag, attemptSeconds, runSeconds prometheus.Observer
	backoffDepth                    prometheus.Observer
	onTime, late                    prometheus.Counter // starts
	early, retries                  prometheus.Counter
	succeeded                       prometheus.Counter // attempts
	attempts                        [kinds]prometheus.Counter
	scheduled                       [kinds]prometheus.Counter          // runs by the schedule
	retry                           atomic.Pointer[prometheus.Counter] // held back after a failure
	worker, slot                    prometheus.Counter                 // held back by the want of one
	breaches                        prometheus.Counter                 // by starting late
	recent                          recent
	seen                            atomic.Int64 // by the clock of the table, when something was heard of it last
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

func (s *queueSeries) started(n *job.Notice, now time.Time) {
	lag := float64(n.AtMS-n.DueMS) / 1000
	observe(s.lag, lag, n.TraceID)
	if n.AtMS-n.DueMS > onTimeMS {
		s.late.Inc()
	} else {
		s.onTime.Inc()
	}
	s.recent.started.Add(1)
	s.recent.sawLag(n.AtMS - n.DueMS)
	switch {
	case lag < 0:
		s.early.Inc()
	case lag > 0:
		s.waited(n, now)
	}
	if n.Attempt > 1 {
		s.retries.Inc()
	}
	if n.Held != job.HeldNone {
		s.hold(n.Held.String(), n.HeldMS)
	}
}

// waited counts the lag of a start by what there was to wait for.
func (s *queueSeries) waited(n *job.Notice, now time.Time) {
	lag := time.Duration(n.AtMS-n.DueMS) * time.Millisecond
	if lag < noticeable {
		s.slot.Add(lag.Seconds())
		return
	}
	w := s.metrics.waits.split(job.QueueKey{Namespace: n.Key.Namespace, Queue: n.Queue}, now.Add(-lag), now)
	s.worker.Add(w.worker.Seconds())
	s.hold(heldPaused, w.paused.Milliseconds())
	s.hold(heldRate, w.rate.Milliseconds())
	s.hold(job.HeldQueue.String(), w.room.Milliseconds())
	s.slot.Add(w.slot.Seconds())
}

func (s *queueSeries) attemptEnded(n *job.Notice) {
	s.attempts[n.Kind].Inc()
	s.attemptTook(n)
}

func (s *queueSeries) attemptTook(n *job.Notice) {
	if n.StartedMS > 0 {
		observe(s.attemptSeconds, span(n.StartedMS, n.AtMS), n.TraceID)
	}
}

func (s *queueSeries) runEnded(n *job.Notice) {
	if n.Trigger == job.TriggerSchedule {
		s.scheduled[n.Kind].Inc()
	} else {
		s.metrics.runs.WithLabelValues(s.namespace, s.queue, runOutcome[n.Kind], triggerName(n.Trigger)).Inc()
	}
	if n.FirstMS > 0 {
		observe(s.runSeconds, span(n.FirstMS, n.AtMS), n.TraceID)
	}
	switch n.Kind {
	case job.RunSucceeded:
		s.succeeded.Inc()
		s.recent.succeeded.Add(1)
		s.attemptTook(n)
	case job.RunDead, job.RunQuarantined:
		s.metrics.deadLetters.WithLabelValues(s.namespace, s.queue, n.Reason).Inc()
	}
}

// breached counts broken lateness objectives.
func (s *queueSeries) breached(n *job.Notice) {
	s.recent.breaches.Add(n.Count)
	if n.Reason == job.LagLate {
		s.breaches.Add(float64(n.Count))
		return
	}
	s.metrics.breaches.WithLabelValues(s.namespace, s.queue, n.Reason).Add(float64(n.Count))
}

// retried counts the time until the next attempt, which may be of each attempt.
func (s *queueSeries) retried(ms int64) {
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

// hold counts time that something held a run back.
func (s *queueSeries) hold(reason string, ms int64) {
	if ms > 0 {
		s.metrics.held.WithLabelValues(s.namespace, s.queue, reason).Add(float64(ms) / 1000)
	}
}

// span is in seconds; clocks that disagree make it zero, not negative.
func span(fromMS, toMS int64) float64 { return float64(max(0, toMS-fromMS)) / 1000 }
