package client

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// maxBatchesInFlight is the number of calls in flight, with one job or a batch, at which further
	// registrations wait for a batch: one that the cluster works on, and one on its way.
	maxBatchesInFlight = 2
	// maxBatchDelay is how long a registration waits for the calls in flight before it is sent alone: they may be
	// stuck at a dead node. Where batches take long because everything is busy, it waits for slowBatches times the
	// duration of the last one, up to maxBusyDelay: many more calls would only make that worse.
	maxBatchDelay = 50 * time.Millisecond
	maxBusyDelay  = time.Second
	slowBatches   = 4
	// maxGatheredJobs and maxGatheredBytes bound a batch, so that no call waits for too many others. Larger
	// requests are always sent alone.
	maxGatheredJobs  = 100
	maxGatheredBytes = 256 << 10
	maxSingleCalls   = 32 << 10
)

// createBatcher coalesces registrations of concurrent goroutines into batches. A registration
// is a call of its own while fewer than maxBatchesInFlight are in flight. Others wait and are
// sent as a batch when a call ends. So a single registration has no delay, and many concurrent
// ones need a call for dozens of jobs. Registrations with different tokens never share a batch.
//
// Each caller encodes its request and decodes its result itself, so that the work of a batch is
// spread over its callers. If a job of a batch fails, its caller retries it alone: see
// [Client.CreateJob].
type createBatcher struct {
	// send sends a batch whose registrations have the same token, and sets their results.
	send func(context.Context, []*pendingCreate) error
	// token returns the token of a call; nil: there is none.
	token    func(context.Context) (string, error)
	maxDelay time.Duration
	shared   sharedFieldsCache

	mu            sync.Mutex
	freeBatches   int // batches in flight, up to maxBatchesInFlight
	callsInFlight int // registrations in them
	waiting       []*pendingCreate
	timerRuns     bool          // releaseLate will be called
	lastTook      time.Duration // duration of the last batch that was answered
}

// pendingCreate is one waiting registration.
type pendingCreate struct {
	ctx        context.Context
	token      string
	request    []byte        // encoded
	assignedID string        // id that the batch gave the job; empty: it has one
	needsID    bool          // the batch gives it one
	since      time.Time     // when it began to wait
	turn       chan struct{} // closed when it no longer waits: it was sent with others, or has to be sent alone
	result     []byte        // encoded, of the batch; nil: there is none
	shared     []*sharedFields
}

// enqueue returns place if the caller may make its own call, after which it calls endCalls. Otherwise it waits
// for the result of a batch. Without a result the caller makes its own call, without a place, under the id that
// the batch gave its job.
func (g *createBatcher) enqueue(ctx context.Context, q *fermatav1.CreateJobRequest) (place bool, result *CreateResult,
	err error) {
	if g.takePlace() {
		return true, nil, nil
	}
	w, err := g.prepare(ctx, q)
	if err != nil {
		return false, nil, nil // a call of its own has the same error
	}
	g.mu.Lock()
	if g.freeBatches < maxBatchesInFlight {
		g.freeBatches++
		g.callsInFlight++
		g.mu.Unlock()
		return true, nil, nil
	}
	g.enqueueLocked(w)
	g.mu.Unlock()
	select {
	case <-w.turn:
		return false, w.takeResult(q), nil
	case <-ctx.Done():
		return false, nil, ctx.Err()
	}
}

// enqueueLocked lets a registration wait. One timer serves all that wait.
func (g *createBatcher) enqueueLocked(w *pendingCreate) {
	w.since = time.Now()
	g.waiting = append(g.waiting, w)
	if !g.timerRuns {
		g.timerRuns = true
		time.AfterFunc(g.delayLocked(), g.releaseLate)
	}
}

// delayLocked is how long a registration waits at most.
func (g *createBatcher) delayLocked() time.Duration {
	return max(g.maxDelay, min(slowBatches*g.lastTook, maxBusyDelay))
}

// releaseLate ends the wait of registrations that have waited for too long. Their callers send them alone.
func (g *createBatcher) releaseLate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	late, delay := 0, g.delayLocked()
	for late < len(g.waiting) && time.Since(g.waiting[late].since) >= delay {
		close(g.waiting[late].turn)
		late++
	}
	g.waiting = slices.Delete(g.waiting, 0, late)
	g.timerRuns = len(g.waiting) > 0
	if g.timerRuns {
		time.AfterFunc(delay-time.Since(g.waiting[0].since), g.releaseLate)
	}
}

// takePlace reports whether the caller may make its own call.
func (g *createBatcher) takePlace() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.freeBatches == maxBatchesInFlight {
		return false
	}
	g.freeBatches++
	g.callsInFlight++
	return true
}

// prepare encodes a registration: a caller that gives up may change its job afterwards.
func (g *createBatcher) prepare(ctx context.Context, q *fermatav1.CreateJobRequest) (w *pendingCreate, err error) {
	w = &pendingCreate{ctx: ctx, needsID: q.GetJobId() == "", turn: make(chan struct{})}
	if g.token != nil {
		if w.token, err = g.token(ctx); err != nil {
			return nil, err
		}
	}
	w.request, err = proto.Marshal(q)
	return w, err
}

// takeResult returns the result of the batch, or nil. The request gets the id that the batch gave the job.
func (w *pendingCreate) takeResult(q *fermatav1.CreateJobRequest) *CreateResult {
	if w.assignedID != "" {
		q.JobId = w.assignedID
	}
	if w.result == nil {
		return nil
	}
	r := &fermatav1.BatchCreateJobsResponse_Result{}
	if err := proto.Unmarshal(w.result, r); err != nil {
		return nil
	}
	if err := completeJob(r, w.shared, q.GetJob()); err != nil {
		return nil
	}
	result := newCreateResult(r)
	return &result
}

// endCalls ends a call of n registrations and sends the waiting ones in the background, so that no caller works
// for others.
func (g *createBatcher) endCalls(n int) {
	if batch := g.takeBatch(n); len(batch) > 0 {
		go g.sendBatches(batch)
	}
}

// sendBatches sends batches while registrations wait, all from one goroutine: that a stack has grown pays for many
// batches.
func (g *createBatcher) sendBatches(batch []*pendingCreate) {
	for len(batch) > 0 {
		start := time.Now()
		answered := g.sendAll(batch)
		if took := time.Since(start); answered {
			g.mu.Lock()
			g.lastTook = took
			g.mu.Unlock()
		}
		batch = g.takeBatch(len(batch))
	}
}

// takeBatch ends a call of n registrations and takes the batch that has its place now. The callers with results run
// first: they may register more, which would otherwise wait for the next call.
func (g *createBatcher) takeBatch(n int) []*pendingCreate {
	runtime.Gosched()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.callsInFlight -= n
	batch := g.nextBatch()
	if len(batch) == 0 {
		g.freeBatches--
	}
	g.callsInFlight += len(batch)
	return batch
}

// nextBatch returns the next batch, without registrations that were given up: the first that waits, and others with
// its token. It takes no more than its share of all present registrations: if a large and a small batch were in
// flight together, the small one would end, and cost, many times as often.
func (g *createBatcher) nextBatch() []*pendingCreate {
	var batch []*pendingCreate
	share := min(maxGatheredJobs, (len(g.waiting)+g.callsInFlight+maxBatchesInFlight-1)/maxBatchesInFlight)
	bytes, left := 0, g.waiting[:0]
	for i, w := range g.waiting {
		if len(batch) == share || len(batch) > 0 && bytes+len(w.request) > maxGatheredBytes {
			left = append(left, g.waiting[i:]...)
			break
		}
		switch {
		case w.ctx.Err() != nil:
		case len(batch) > 0 && w.token != batch[0].token:
			left = append(left, w)
		default:
			bytes += len(w.request)
			batch = append(batch, w)
		}
	}
	clear(g.waiting[len(left):])
	g.waiting = left
	return batch
}

// sendAll sends a batch, and reports whether it was answered. Its deadline is the latest of the callers' deadlines.
func (g *createBatcher) sendAll(batch []*pendingCreate) (answered bool) {
	ctx, cancel := lastDeadline(batch)
	defer cancel()
	err := g.send(ctx, batch)
	for _, w := range batch {
		if err != nil {
			w.result = nil
		}
		close(w.turn)
	}
	return err == nil
}

func lastDeadline(batch []*pendingCreate) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, w := range batch {
		deadline, ok := w.ctx.Deadline()
		if !ok {
			return context.WithCancel(context.Background())
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(context.Background(), last)
}

// isBatched reports whether a registration may share a batch. Calls with metadata of their own or with a sampled
// trace need their own call, and large ones would delay the others.
func isBatched(ctx context.Context, size int) bool {
	_, own := metadata.FromOutgoingContext(ctx)
	return !own && !trace.SpanContextFromContext(ctx).IsSampled() && size <= maxSingleCalls
}
