package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// The last minute of a queue is kept in parts, each as long as the time between two
// calls of [Telemetry.EndInterval]; the newest one is being filled.
const recentParts = 12

// recentCounts counts the recent events of a queue.
type recentCounts struct {
	started, succeeded, failed, breaches atomic.Int64
	maxLagMS                             atomic.Int64

	mu    sync.Mutex
	parts [recentParts]job.RecentRuns
	next  int
}

// noteLag notes the lag of a start.
func (r *recentCounts) noteLag(ms int64) {
	for {
		most := r.maxLagMS.Load()
		if ms <= most || r.maxLagMS.CompareAndSwap(most, ms) {
			return
		}
	}
}

// endPart ends a part, which took that long.
func (r *recentCounts) endPart(took time.Duration) {
	part := job.RecentRuns{
		Started: r.started.Swap(0), Succeeded: r.succeeded.Swap(0), Failed: r.failed.Swap(0),
		Breaches: r.breaches.Swap(0),
		MaxLag:   time.Duration(r.maxLagMS.Swap(0)) * time.Millisecond, Span: took,
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts[r.next] = part
	r.next = (r.next + 1) % recentParts
}

// sumParts adds the parts up.
func (r *recentCounts) sumParts() (all job.RecentRuns) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var span time.Duration
	for _, p := range r.parts {
		span += p.Span
		all.Add(p)
	}
	all.Span = span
	return all
}

// EndInterval ends a part of the last minute, for all queues, and forgets those that are gone. It
// is to be called every few seconds.
func (t *Telemetry) EndInterval() {
	now := t.now().UnixNano()
	took := time.Duration(now - t.ticks.Swap(now))
	t.queues.ticks.Add(1)
	t.queues.expireSeries(t.waits.isServedHere)
	t.queues.mu.RLock()
	defer t.queues.mu.RUnlock()
	for _, s := range t.queues.known {
		s.recent.endPart(took)
	}
}

// RecentRuns returns what this node's workers did within about the last minute, by queue.
func (t *Telemetry) RecentRuns() []job.QueueRuns {
	t.queues.mu.RLock()
	defer t.queues.mu.RUnlock()
	out := make([]job.QueueRuns, 0, len(t.queues.known))
	for k, s := range t.queues.known {
		out = append(out, job.QueueRuns{Namespace: k.namespace, Queue: k.queue, RecentRuns: s.recent.sumParts()})
	}
	return out
}
