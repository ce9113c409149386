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
	// maxBatchesInFlight is how many registrations are under way, each alone or as a batch,
	// before others wait for one another: one that the cluster works on, and others
	// that are on their way to it or back.
	maxBatchesInFlight = 2
	// maxBatchDelay is how long a registration waits for those under way, one of which
	// may be stuck with a node that is gone, before it is a call of its own.
	maxBatchDelay = 50 * time.Millisecond
	// maxGatheredJobs and gatherBytes bound a batch, so that nobody waits for very many
	// others. What is larger than gatherLone is always sent alone.
	maxGatheredJobs  = 100
	maxGatheredBytes = 256 << 10
	maxSingleCalls   = 32 << 10
)

// createBatcher brings registrations of many goroutines together. One that finds a place is a
// call of its own; what comes while all places are taken goes out in batches, the next
// one when a call ends. So a client that registers a job now and then pays nothing, and one
// that registers from many goroutines needs a call for dozens of jobs.
//
// A job of a batch that could not be registered is its own caller's to repeat, by
// itself: see [Client.CreateJob].
type createBatcher struct {
	send     func(context.Context, []*fermatav1.CreateJobRequest) ([]Created, error)
	maxDelay time.Duration

	mu            sync.Mutex
	freeBatches   int // taken, of gatherWidth
	callsInFlight int // registrations under way in them
	waiting       []*pendingCreate
}

// pendingCreate is one registration in line.
type pendingCreate struct {
	ctx     context.Context
	request *fermatav1.CreateJobRequest
	size    int
	sent    bool          // or about to be; it is not in line any more
	turn    chan struct{} // closed when it was sent with others
	result  *Created      // of the batch; nil: the batch failed as a whole
}

// enqueue gives a caller a place for a call of its own, which it gives back by leave. If
// there is none, it waits for the result of a batch; without a result it has to call for
// itself after all, without a place, and under the id that the batch gave its job.
func (g *createBatcher) enqueue(ctx context.Context, q *fermatav1.CreateJobRequest, size int) (place bool, result *Created, err error) {
	g.mu.Lock()
	if g.freeBatches < maxBatchesInFlight {
		g.freeBatches++
		g.callsInFlight++
		g.mu.Unlock()
		return true, nil, nil
	}
	// A copy: who gives up may change its job while the batch is being written.
	w := &pendingCreate{ctx: ctx, request: proto.CloneOf(q), size: size, turn: make(chan struct{})}
	g.waiting = append(g.waiting, w)
	g.mu.Unlock()
	patience := time.NewTimer(g.maxDelay)
	defer patience.Stop()
	select {
	case <-w.turn:
		q.JobId = w.request.GetJobId()
		return false, w.result, nil
	case <-ctx.Done():
		return false, nil, ctx.Err()
	case <-patience.C:
		if g.withdrawCall(w) {
			return false, nil, nil
		}
	}
	select {
	case <-w.turn:
		q.JobId = w.request.GetJobId()
		return false, w.result, nil
	case <-ctx.Done():
		return false, nil, ctx.Err()
	}
}

// withdrawCall takes a registration out of the line; false when it is under way.
func (g *createBatcher) withdrawCall(w *pendingCreate) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.sent {
		return false
	}
	g.waiting = slices.DeleteFunc(g.waiting, func(other *pendingCreate) bool { return other == w })
	return true
}

// endCalls ends a call of n registrations and sends what waits, in the background: no caller
// works for others. Those who got their results go first: they may have more to register,
// which would wait for the call after this one.
func (g *createBatcher) endCalls(n int) {
	runtime.Gosched()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.callsInFlight -= n
	batch := g.nextBatch()
	if len(batch) == 0 {
		g.freeBatches--
		return
	}
	g.callsInFlight += len(batch)
	go func() {
		defer g.endCalls(len(batch))
		g.sendAll(batch)
	}()
}

// nextBatch takes what goes out together. Those who have given up are left out. It takes no more
// than a place's share of all that is here: of a large call and a small one beside it the
// small one would end, and cost, many times as often.
func (g *createBatcher) nextBatch() []*pendingCreate {
	var batch []*pendingCreate
	share := min(maxGatheredJobs, (len(g.waiting)+g.callsInFlight+maxBatchesInFlight-1)/maxBatchesInFlight)
	n, bytes := 0, 0
	for _, w := range g.waiting {
		if len(batch) == share || len(batch) > 0 && bytes+w.size > maxGatheredBytes {
			break
		}
		n++
		w.sent = true
		if w.ctx.Err() == nil {
			bytes += w.size
			batch = append(batch, w)
		}
	}
	g.waiting = slices.Delete(g.waiting, 0, n)
	return batch
}

// sendAll sends a batch. It ends with the last of its callers' deadlines.
func (g *createBatcher) sendAll(batch []*pendingCreate) {
	ctx, cancel := lastDeadline(batch)
	defer cancel()
	requests := make([]*fermatav1.CreateJobRequest, len(batch))
	for i, w := range batch {
		requests[i] = w.request
	}
	results, err := g.send(ctx, requests)
	for i, w := range batch {
		if err == nil && i < len(results) {
			w.result = &results[i]
		}
		close(w.turn)
	}
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

// isBatched tells whether a registration may go out with others: a call with metadata of
// its own, or of a trace that is sampled, is not like another one, and a large one keeps
// others waiting.
func isBatched(ctx context.Context, size int) bool {
	_, own := metadata.FromOutgoingContext(ctx)
	return !own && !trace.SpanContextFromContext(ctx).IsSampled() && size <= maxSingleCalls
}
