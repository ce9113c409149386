package lookout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/scaling"
)

// run looks as often as somebody needs it.
func (l *Lookout) run() {
	defer close(l.done)
	next := time.NewTimer(0)
	defer next.Stop()
	<-next.C // is set again as soon as somebody wants a look
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
				next.Reset(l.rest())
			}
		case <-timer:
			if due = l.look(); due {
				next.Reset(l.rest())
			}
		}
	}
}

// rest is how long it is until the next look may begin.
func (l *Lookout) rest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.pause-time.Since(l.finished))
}

// look counts all queues of interest and tells. It returns whether another look is due.
func (l *Lookout) look() bool {
	keys := l.wanted()
	began := time.Now()
	sizes, err := l.counted(keys)
	took := time.Since(began)
	if l.ctx.Err() == nil {
		l.metrics.looks.Observe(took.Seconds())
		l.note(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.good, l.lastErr = err == nil, err
	l.finished, l.pause = time.Now(), every
	if err == nil {
		l.pause = min(longestPause, max(every, share*took))
		for _, key := range keys {
			if q := l.queues[key]; q != nil { // it may have been dropped meanwhile
				q.size, q.at = sizes[key], began
			}
		}
		for w := range l.watches {
			l.tellLocked(w, began)
		}
	}
	for looked := range l.asked { // whose queue was not among them yet asks again
		close(looked)
	}
	clear(l.asked)
	return len(l.watches) > 0
}

// counted counts, within bounds of time.
func (l *Lookout) counted(keys []job.QueueKey) (map[job.QueueKey]scaling.Size, error) {
	ctx, cancel := context.WithTimeout(l.ctx, longestLook)
	defer cancel()
	sizes, err := l.count(ctx, keys)
	switch {
	case l.ctx.Err() != nil:
		return nil, job.ErrUnavailable
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: counting queues takes longer than %v", job.ErrUnavailable, longestLook)
	}
	return sizes, err
}

// wanted are the queues to count.
func (l *Lookout) wanted() []job.QueueKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetOldLocked(time.Now())
	return slices.Collect(maps.Keys(l.queues))
}

// tellLocked leaves a watch the newest size of its queues, if all were counted.
func (l *Lookout) tellLocked(w *watch, at time.Time) {
	size, ok := l.togetherLocked(w.queues, at)
	if !ok {
		return // it came after the look had begun
	}
	select {
	case <-w.news:
	default:
	}
	w.news <- size // has room: things are put in under the lock only
}

// note logs when looks begin to fail, and when they succeed again.
func (l *Lookout) note(err error) {
	l.mu.Lock()
	was := l.good
	l.mu.Unlock()
	switch {
	case err != nil:
		l.metrics.failures.Inc()
		if was {
			l.logger.Warn("queues cannot be counted for autoscalers, which are told nothing until they can", "error", err)
		}
	case !was:
		l.logger.Info("queues are counted for autoscalers again")
	}
}

type metrics struct {
	watches  prometheus.Gauge
	looks    prometheus.Histogram
	failures prometheus.Counter
	refused  prometheus.Counter
}

func (m *metrics) register(r prometheus.Registerer, more prometheus.Collector) error {
	m.watches = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fermata_scaler_watches", Help: "Streams by which autoscalers watch queues at this node.",
	})
	m.looks = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fermata_scaler_look_seconds", Help: "Time that it took to count the queues that autoscalers ask for.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 7),
	})
	m.failures = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fermata_scaler_look_failures_total", Help: "Times that the queues that autoscalers ask for could not be counted.",
	})
	m.refused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fermata_scaler_refused_total", Help: "Times that an autoscaler was refused since all places of queues or of streams, or its share of them, were taken.",
	})
	if r == nil {
		return nil
	}
	return errors.Join(r.Register(m.refused), r.Register(m.watches), r.Register(m.looks), r.Register(m.failures), r.Register(more))
}
