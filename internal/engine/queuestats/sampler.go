package queuestats

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/autoscale"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/callturn"
	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// CountFunc counts queues in the whole cluster. Queues that are not in its answer are empty.
type CountFunc func(context.Context, []job.QueueKey) (map[job.QueueKey]autoscale.Demand, error)

const (
	// samplePeriod is the time from one look to the next.
	samplePeriod = time.Second
	// pauseFactor is how much longer than a look the time from its end to the next one is,
	// within bounds.
	pauseFactor   = 10
	maxPause      = 10 * time.Second
	sampleTimeout = 5 * time.Second
	// queueRetention is how long a queue is sampled after it was last asked for. KEDA asks every 30 seconds by
	// default.
	queueRetention = 2 * time.Minute

	// maxWatches and maxQueues bound the work of one node for autoscalers. See newShares.
	maxWatches = 4000
	maxQueues  = 4000
)

// Options configure a lookout. Count is required.
type Options struct {
	Count      CountFunc
	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil registers nothing
}

// Sampler samples queue sizes for its callers. It has a goroutine from New to Stop.
type Sampler struct {
	count   CountFunc
	logger  *slog.Logger
	metrics metrics
	wake    chan struct{} // a sample is requested
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}

	mu            sync.Mutex
	queues        map[job.QueueKey]*sampledQueue
	queueShares   *fairshare.Table // of queues
	watches       map[*queueWatch]struct{}
	watchShares   *fairshare.Table           // of watches
	waiters       map[chan struct{}]struct{} // those who wait for the next look to end
	lastSucceeded bool                       // of the last look
	lastErr       error
	lastFinished  time.Time // when the last look ended
	pause         time.Duration
}

// New starts a lookout.
func New(o Options) (*Sampler, error) {
	if o.Count == nil {
		return nil, errors.New("lookout: Count is required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Sampler{
		count: o.Count, logger: o.Logger, wake: make(chan struct{}, 1), done: make(chan struct{}),
		pause: samplePeriod, lastSucceeded: true,
		queues: make(map[job.QueueKey]*sampledQueue), watches: make(map[*queueWatch]struct{}),
		waiters:     make(map[chan struct{}]struct{}),
		queueShares: newShares(maxQueues), watchShares: newShares(maxWatches),
	}
	if err := l.metrics.registerWith(o.Registerer, adviceCollector{l}); err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	go l.run()
	return l, nil
}

// newShares makes a table of what autoscalers take. One namespace alone may have half, and one identity a quarter, so
// that it cannot have all that its namespace may have.
func newShares(places int) *fairshare.Table {
	return fairshare.New(fairshare.Limits{Places: places, Namespace: 1, Identity: 3})
}

// Stop ends all watches and calls, and waits for the look that is under way.
func (l *Sampler) Stop() {
	l.cancel()
	<-l.done
}

// Size returns the size of some queues together, as sampled at most one pause ago. If necessary it waits for a
// sample, without its turn on the node (see callturn). A failed sample is used for as long as a successful one. Errors:
// that of the sample, of the context, job.ErrTooManyWatches, or job.ErrUnavailable after Stop.
func (l *Sampler) Size(ctx context.Context, who fairshare.Holder, keys []job.QueueKey) (autoscale.Demand, error) {
	began := time.Now()
	for {
		size, looked, err := l.lookUpSize(who, keys, began)
		if err != nil || looked == nil {
			return size, err
		}
		l.requestSample()
		err = callturn.Wait(ctx, func() error { return l.waitForSample(ctx, looked) })
		if err != nil {
			return autoscale.Demand{}, err
		}
	}
}

// waitForSample waits until the next sample has ended.
func (l *Sampler) waitForSample(ctx context.Context, looked chan struct{}) error {
	select {
	case <-looked:
		return nil
	case <-ctx.Done():
		l.cancelWaiter(looked)
		return ctx.Err()
	case <-l.ctx.Done():
		return job.ErrUnavailable
	}
}

// lookUpSize returns the size for a caller that asked at began, or a channel that is closed after the next
// sample.
func (l *Sampler) lookUpSize(who fairshare.Holder, keys []job.QueueKey,
	began time.Time) (autoscale.Demand, chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queues, err := l.trackQueuesLocked(who, keys)
	if err != nil {
		return autoscale.Demand{}, nil, err
	}
	if size, ok := l.sumSizesLocked(queues, began); ok {
		return size, nil, nil
	}
	if !l.lastSucceeded && began.Sub(l.lastFinished) < l.pause {
		return autoscale.Demand{}, nil, l.lastErr
	}
	looked := make(chan struct{})
	l.waiters[looked] = struct{}{}
	return autoscale.Demand{}, looked, nil
}

// Watch calls tell with the total size of some queues after each sample. It ends when the context ends, when tell
// returns an error, which Watch returns, or, with nil, when the sampler stops. It returns job.ErrTooManyWatches without
// a call of tell if there are too many watches, on this node or of this holder.
func (l *Sampler) Watch(ctx context.Context, who fairshare.Holder, keys []job.QueueKey,
	tell func(autoscale.Demand) error) error {
	w, err := l.addWatch(who, keys)
	if err != nil {
		return err
	}
	defer l.removeWatch(w)
	l.requestSample()
	for {
		select {
		case size := <-w.updates:
			if err := tell(size); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-l.ctx.Done():
			return nil
		}
	}
}

func (l *Sampler) addWatch(who fairshare.Holder, keys []job.QueueKey) (*queueWatch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.watchShares.Acquire(who) {
		l.metrics.refused.Inc()
		return nil, job.ErrTooManyWatches
	}
	queues, err := l.trackQueuesLocked(who, keys)
	if err != nil {
		l.watchShares.Release(who)
		return nil, err
	}
	w := &queueWatch{queues: queues, holder: who, updates: make(chan autoscale.Demand, 1)}
	for _, q := range queues {
		q.watchCount++
	}
	l.watches[w] = struct{}{}
	l.metrics.watches.Set(float64(len(l.watches)))
	if size, ok := l.sumSizesLocked(queues, time.Now()); ok {
		w.updates <- size
	}
	return w, nil
}

func (l *Sampler) removeWatch(w *queueWatch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range w.queues {
		q.watchCount--
	}
	delete(l.watches, w)
	l.watchShares.Release(w.holder)
	l.metrics.watches.Set(float64(len(l.watches)))
}

func (l *Sampler) cancelWaiter(looked chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiters, looked)
}

func (l *Sampler) requestSample() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
