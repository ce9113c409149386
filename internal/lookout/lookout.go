package lookout

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/scaling"
	"github.com/fermata-io/fermata/internal/shares"
)

// Count counts queues in the whole cluster. Queues that are not in its answer are empty.
type Count func(context.Context, []job.QueueKey) (map[job.QueueKey]scaling.Size, error)

const (
	// every is the time from one look to the next.
	every = time.Second
	// share is how much longer than a look the time from its end to the next one is,
	// within bounds.
	share        = 10
	longestPause = 10 * time.Second
	longestLook  = 5 * time.Second
	// kept is how long a queue is counted along after it was last asked for. KEDA asks
	// every 30 seconds, if it was not told otherwise.
	kept = 2 * time.Minute

	// maxWatches and maxQueues bound what one node does for autoscalers. One namespace, or one
	// identity, alone may have half of each.
	maxWatches = 4000
	maxQueues  = 4000
)

// Options configure a lookout. Count is required.
type Options struct {
	Count      Count
	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil registers nothing
}

// Lookout counts queues for those who ask. It has a goroutine from New to Stop.
type Lookout struct {
	count   Count
	logger  *slog.Logger
	metrics metrics
	wake    chan struct{} // somebody waits for a look
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}

	mu       sync.Mutex
	queues   map[job.QueueKey]*queue
	places   *shares.Table // of queues
	watches  map[*watch]struct{}
	streams  *shares.Table              // of watches
	asked    map[chan struct{}]struct{} // those who wait for the next look to end
	good     bool                       // of the last look
	lastErr  error
	finished time.Time // when the last look ended
	pause    time.Duration
}

// New starts a lookout.
func New(o Options) (*Lookout, error) {
	if o.Count == nil {
		return nil, errors.New("lookout: Count is required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Lookout{
		count: o.Count, logger: o.Logger, wake: make(chan struct{}, 1), done: make(chan struct{}), pause: every, good: true,
		queues: make(map[job.QueueKey]*queue), watches: make(map[*watch]struct{}), asked: make(map[chan struct{}]struct{}),
		places:  shares.New(shares.Limits{Places: maxQueues, Namespace: 1, Identity: 1}),
		streams: shares.New(shares.Limits{Places: maxWatches, Namespace: 1, Identity: 1}),
	}
	if err := l.metrics.register(o.Registerer, wants{l}); err != nil {
		return nil, err
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	go l.run()
	return l, nil
}

// Stop ends all watches and calls, and waits for the look that is under way.
func (l *Lookout) Stop() {
	l.cancel()
	<-l.done
}

// Size tells how much there is to do in some queues together, as it was at most a pause ago.
// It waits for a look, if it has to. A look that failed answers for as long as one that did
// not. Errors: that of the look, of the context, job.ErrTooManyWatches, or
// job.ErrUnavailable after Stop.
func (l *Lookout) Size(ctx context.Context, who shares.Holder, keys []job.QueueKey) (scaling.Size, error) {
	began := time.Now()
	for {
		size, looked, err := l.known(who, keys, began)
		if err != nil || looked == nil {
			return size, err
		}
		l.nudge()
		select {
		case <-looked:
		case <-ctx.Done():
			l.forget(looked)
			return scaling.Size{}, ctx.Err()
		case <-l.ctx.Done():
			return scaling.Size{}, job.ErrUnavailable
		}
	}
}

// known is the answer to who has asked at a time, or what is closed when there may be one.
func (l *Lookout) known(who shares.Holder, keys []job.QueueKey, began time.Time) (scaling.Size, chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	queues, err := l.ofLocked(who, keys)
	if err != nil {
		return scaling.Size{}, nil, err
	}
	if size, ok := l.togetherLocked(queues, began); ok {
		return size, nil, nil
	}
	if !l.good && began.Sub(l.finished) < l.pause {
		return scaling.Size{}, nil, l.lastErr
	}
	looked := make(chan struct{})
	l.asked[looked] = struct{}{}
	return scaling.Size{}, looked, nil
}

// Watch calls tell with what each look finds of some queues together, until the context ends,
// tell returns an error, which it returns, or the lookout stops: nil. It returns
// job.ErrTooManyWatches without having called tell, if there are too many, or too many of who
// asks.
func (l *Lookout) Watch(ctx context.Context, who shares.Holder, keys []job.QueueKey, tell func(scaling.Size) error) error {
	w, err := l.enter(who, keys)
	if err != nil {
		return err
	}
	defer l.leave(w)
	l.nudge()
	for {
		select {
		case size := <-w.news:
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

func (l *Lookout) enter(who shares.Holder, keys []job.QueueKey) (*watch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.streams.Take(who) {
		l.metrics.refused.Inc()
		return nil, job.ErrTooManyWatches
	}
	queues, err := l.ofLocked(who, keys)
	if err != nil {
		l.streams.Give(who)
		return nil, err
	}
	w := &watch{queues: queues, holder: who, news: make(chan scaling.Size, 1)}
	for _, q := range queues {
		q.watches++
	}
	l.watches[w] = struct{}{}
	l.metrics.watches.Set(float64(len(l.watches)))
	if size, ok := l.togetherLocked(queues, time.Now()); ok {
		w.news <- size
	}
	return w, nil
}

func (l *Lookout) leave(w *watch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range w.queues {
		q.watches--
	}
	delete(l.watches, w)
	l.streams.Give(w.holder)
	l.metrics.watches.Set(float64(len(l.watches)))
}

func (l *Lookout) forget(looked chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asked, looked)
}

func (l *Lookout) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
