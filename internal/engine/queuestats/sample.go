package queuestats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
)

// run takes samples as often as a watch or a caller needs one.
func (l *Sampler) run() {
	defer close(l.done)
	next := time.NewTimer(0)
	defer next.Stop()
	<-next.C // is reset when the next sample is requested
	due := false
	for {
		var timer <-chan time.Time
		if due {
			timer = next.C
		}
		select {
		case <-l.ctx.Done():
			return
		case <-l.wake:
			if !due {
				due = true
				next.Reset(l.pauseBeforeSample())
			}
		case <-timer:
			due = l.sampleQueues()
			if due {
				next.Reset(l.pauseBeforeSample())
			}
		}
	}
}

// pauseBeforeSample returns the time until the next sample may start.
func (l *Sampler) pauseBeforeSample() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.pause-time.Since(l.lastFinished))
}

// sampleQueues counts all tracked queues and notifies watches and callers. It reports whether another sample is
// due.
func (l *Sampler) sampleQueues() bool {
	keys := l.collectKeys()
	began := time.Now()
	sizes, err := l.countWithTimeout(keys)
	took := time.Since(began)
	if l.ctx.Err() == nil {
		l.metrics.sampleTime.Observe(took.Seconds())
		l.logTransition(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lastSucceeded, l.lastErr = err == nil, err
	l.lastFinished, l.pause = time.Now(), samplePeriod
	if err == nil {
		l.pause = min(maxPause, max(samplePeriod, pauseFactor*took))
		for _, key := range keys {
			if q := l.queues[key]; q != nil { // it may have been dropped meanwhile
				q.size, q.sampledAt = sizes[key], began
			}
		}
		for w := range l.watches {
			l.notifyLocked(w, began)
		}
	}
	for looked := range l.waiters { // whose queue was not among them yet asks again
		close(looked)
	}
	clear(l.waiters)
	return len(l.watches) > 0
}

// countWithTimeout counts, within bounds of time.
func (l *Sampler) countWithTimeout(keys []job.QueueKey) (map[job.QueueKey]autoscale.Demand, error) {
	ctx, cancel := context.WithTimeout(l.ctx, sampleTimeout)
	defer cancel()
	sizes, err := l.count(ctx, keys)
	switch {
	case l.ctx.Err() != nil:
		return nil, job.ErrUnavailable
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: counting queues takes longer than %v", job.ErrUnavailable, sampleTimeout)
	}
	return sizes, err
}

// collectKeys are the queues to count.
func (l *Sampler) collectKeys() []job.QueueKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropUnusedLocked(time.Now())
	return slices.Collect(maps.Keys(l.queues))
}

// notifyLocked leaves a watch the newest size of its queues, if all were counted.
func (l *Sampler) notifyLocked(w *queueWatch, at time.Time) {
	size, ok := l.sumSizesLocked(w.queues, at)
	if !ok {
		return // it came after the look had begun
	}
	select {
	case <-w.updates:
	default:
	}
	w.updates <- size // has room: things are put in under the lock only
}

// logTransition logs when looks begin to fail, and when they succeed again.
func (l *Sampler) logTransition(err error) {
	l.mu.Lock()
	succeededBefore := l.lastSucceeded
	l.mu.Unlock()
	switch {
	case err != nil:
		l.metrics.failures.Inc()
		if succeededBefore {
			l.logger.Warn("failed to sample queues for autoscalers", "error", err)
		}
	case !succeededBefore:
		l.logger.Info("sampling queues for autoscalers succeeds again")
	}
}

type metrics struct {
	watches    prometheus.Gauge
	sampleTime prometheus.Histogram
	failures   prometheus.Counter
	refused    prometheus.Counter
}

func (m *metrics) registerWith(r prometheus.Registerer, more prometheus.Collector) error {
	m.watches = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fermata_scaler_watches", Help: "Streams of autoscalers that watch queues at this node.",
	})
	m.sampleTime = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fermata_scaler_count_seconds", Help: "Time to count the queues that autoscalers ask for.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 7),
	})
	m.failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fermata_scaler_count_failures_total",
		Help: "Failed attempts to count the queues that autoscalers ask for.",
	})
	m.refused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fermata_scaler_refused_total", Help: "Times that an autoscaler was refused because the " +
			"limit of queues or streams, or its share of it, was used up.",
	})
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(m.refused), r.Register(m.watches), r.Register(m.sampleTime), r.Register(m.failures),
		r.Register(more))
}
