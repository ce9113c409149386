package gateway

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/lib/memorybudget"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// keptBatches and keptBytes bound the newest batches that a feed keeps, for readers that come back.
	keptBatches = 64
	keptBytes   = 1 << 20
	// readerBuffer is how many batches a reader may be behind.
	readerBuffer = 2 * keptBatches
	// maxReaderBytes bounds the bytes that a reader may be behind.
	maxReaderBytes = 4 << 20
	// maxFeedAttempts bounds the attempts in a row to continue a broken stream.
	maxFeedAttempts = 8
	minFeedDelay    = 50 * time.Millisecond
	maxFeedDelay    = 2 * time.Second
)

var errReaderTooSlow = errors.New("the reader does not keep up")

// eventHub shares one stream of a node among readers with the same credential and filter. Readers with different
// credentials do not share: nodes end a stream when its own credential expires or loses its role.
type eventHub struct {
	memory *memorybudget.Budget // of batches that are kept or wait for a reader

	mu          sync.Mutex
	feeds       map[feedKey][]*feed
	readerCount int
	running     sync.WaitGroup
}

// feedKey selects feeds that carry the same events.
type feedKey struct {
	credential credentialKey
	query      string
}

func newEventHub(memory *memorybudget.Budget) *eventHub {
	return &eventHub{memory: memory, feeds: map[feedKey][]*feed{}}
}

// feed reads events from a node for its readers. It is guarded by the mutex of its hub.
type feed struct {
	hub     *eventHub
	key     feedKey
	share   string // of its caller in the budget of memory
	request *fermatav1.WatchEventsRequest
	shared  bool
	cancel  context.CancelFunc
	readers map[*eventReader]struct{}
	// from is the token before the first kept batch; "" before the first batch of a feed of new events.
	from  string
	kept  []*eventBatch
	bytes int
	ended bool
}

// eventBatch is one response of WatchEvents, encoded once for all readers.
type eventBatch struct {
	token   string
	json    []byte
	isEmpty bool // it has a token only
	// memory is what the batch has of the budget, while refs feeds and readers have it.
	memory, refs int
}

// eventReader is one HTTP response that events are written to.
type eventReader struct {
	feed    *feed
	batches chan *eventBatch // closed at the end
	err     error            // why it ended; set before batches is closed
	closed  bool
	behind  int // bytes of what waits to be written
}

// openStream opens a stream of events at a node.
type openStream func(context.Context, *fermatav1.WatchEventsRequest) (eventStream, error)

type eventStream interface {
	Recv() (*fermatav1.WatchEventsResponse, error)
}

// subscribe returns a reader of a request: of a feed that has what it asks for, or of a new one. The new feed calls
// ended when it has no more use for open.
func (h *eventHub) subscribe(ctx context.Context, caller *credential, q *fermatav1.WatchEventsRequest, open openStream,
	ended func()) *eventReader {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(withoutPosition(q))
	shared := err == nil && q.GetStartTime() == nil && !q.GetStopAtEnd()
	k := feedKey{credential: caller.key, query: string(text)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readerCount++
	if shared {
		for _, f := range h.feeds[k] {
			if r := f.join(q.GetResumeToken()); r != nil {
				defer ended()
				return r
			}
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	f := &feed{
		hub: h, key: k, request: proto.CloneOf(q), shared: shared, cancel: cancel, readers: map[*eventReader]struct{}{},
		from: q.GetResumeToken(), share: caller.identity.share,
	}
	if shared {
		h.feeds[k] = append(h.feeds[k], f)
	}
	h.running.Add(1)
	go func() {
		defer h.running.Done()
		defer ended()
		f.end(f.run(ctx, open))
	}()
	return f.newReader()
}

// withoutPosition is the filter of a request.
func withoutPosition(q *fermatav1.WatchEventsRequest) *fermatav1.WatchEventsRequest {
	filter := proto.CloneOf(q)
	filter.ResumeToken = ""
	return filter
}

func (f *feed) newReader() *eventReader {
	r := &eventReader{feed: f, batches: make(chan *eventBatch, readerBuffer)}
	f.readers[r] = struct{}{}
	return r
}

// join adds a reader that continues after a token, or with new events; nil if the feed lacks what follows.
func (f *feed) join(token string) *eventReader {
	if token == "" {
		if f.request.GetResumeToken() != "" {
			return nil // it may still be sending old events
		}
		r := f.newReader()
		if n := len(f.kept); n > 0 {
			r.add(&eventBatch{token: f.kept[n-1].token, isEmpty: true})
		}
		return r
	}
	for i := range len(f.kept) + 1 {
		if f.tokenBefore(i) != token {
			continue
		}
		r := f.newReader()
		r.add(&eventBatch{token: token, isEmpty: true})
		for _, b := range f.kept[i:] {
			r.add(b)
		}
		return r
	}
	return nil
}

// tokenBefore is the token that continues with the i-th kept batch.
func (f *feed) tokenBefore(i int) string {
	if i == 0 {
		return f.from
	}
	return f.kept[i-1].token
}

// run reads streams until one ends for good, or ctx ends.
func (f *feed) run(ctx context.Context, open openStream) error {
	q := proto.CloneOf(f.request)
	for attempt := 0; ; attempt++ {
		received, err := f.readStream(ctx, q, open)
		if received {
			attempt = 0
		}
		if err == nil || ctx.Err() != nil || status.Code(err) != codes.Unavailable || attempt >= maxFeedAttempts {
			return err
		}
		delay := min(maxFeedDelay, minFeedDelay<<attempt)
		timer := time.NewTimer(delay/2 + rand.N(delay/2+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// readStream publishes what one stream brings. It updates q to continue after it.
func (f *feed) readStream(ctx context.Context, q *fermatav1.WatchEventsRequest,
	open openStream) (received bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx, q)
	if err != nil {
		return false, err
	}
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return received, nil
		}
		if err != nil {
			return received, err
		}
		received = true
		if err := f.publish(response); err != nil {
			return received, err
		}
		q.ResumeToken, q.StartTime = response.GetResumeToken(), nil
	}
}

// add gives a batch to a reader; false: it is too far behind.
func (r *eventReader) add(b *eventBatch) bool {
	if r.behind+len(b.json) > maxReaderBytes {
		return false
	}
	select {
	case r.batches <- b:
	default:
		return false
	}
	r.behind += len(b.json)
	b.refs++
	return true
}

// written is called when a batch has been written.
func (r *eventReader) written(b *eventBatch) {
	h := r.feed.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	r.behind -= len(b.json)
	r.feed.forget(b)
}

// forget gives the memory of a batch back that nobody has any more.
func (f *feed) forget(b *eventBatch) {
	b.refs--
	if b.refs == 0 {
		f.hub.memory.Give(f.share, b.memory)
	}
}

// takeMemory takes the memory of a batch. What is kept for readers that come back is given up for it.
func (f *feed) takeMemory(b *eventBatch) error {
	if f.hub.memory.TryTake(f.share, b.memory) {
		return nil
	}
	f.dropKept(0)
	if !f.hub.memory.TryTake(f.share, b.memory) {
		return errMemoryTaken
	}
	return nil
}

// publish gives a batch to all readers. Readers that are too far behind are ended.
func (f *feed) publish(response *fermatav1.WatchEventsResponse) error {
	text, err := protojson.Marshal(response)
	if err != nil {
		return err
	}
	b := &eventBatch{token: response.GetResumeToken(), json: text, isEmpty: len(response.GetEvents()) == 0}
	b.memory, b.refs = memoryPerEventByte*len(text), 1
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if err := f.takeMemory(b); err != nil {
		return err
	}
	f.keep(b)
	for r := range f.readers {
		if !r.add(b) {
			f.remove(r, errReaderTooSlow)
		}
	}
	return nil
}

func (f *feed) keep(b *eventBatch) {
	f.kept = append(f.kept, b)
	f.bytes += len(b.json)
	for len(f.kept) > keptBatches || f.bytes > keptBytes && len(f.kept) > 1 {
		f.dropKept(len(f.kept) - 1)
	}
}

// dropKept drops the oldest batches until so many are kept.
func (f *feed) dropKept(keep int) {
	for len(f.kept) > keep {
		b := f.kept[0]
		f.from, f.bytes, f.kept = b.token, f.bytes-len(b.json), f.kept[1:]
		f.forget(b)
	}
}

// remove ends a reader. The feed ends with its last one.
func (f *feed) remove(r *eventReader, err error) {
	if r.closed {
		return
	}
	r.closed, r.err = true, err
	close(r.batches)
	delete(f.readers, r)
	f.hub.readerCount--
	if len(f.readers) == 0 {
		f.leaveHub()
		f.cancel()
	}
}

// leaveHub keeps new readers from joining.
func (f *feed) leaveHub() {
	if f.ended {
		return
	}
	f.ended = true
	var others []*feed
	for _, o := range f.hub.feeds[f.key] {
		if o != f {
			others = append(others, o)
		}
	}
	if len(others) == 0 {
		delete(f.hub.feeds, f.key)
		return
	}
	f.hub.feeds[f.key] = others
}

// end ends all readers with the error of the feed.
func (f *feed) end(err error) {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.leaveHub()
	for r := range f.readers {
		f.remove(r, err)
	}
	f.dropKept(0)
	f.cancel()
}

// leave ends a reader whose request has ended.
func (r *eventReader) leave() {
	r.feed.hub.mu.Lock()
	defer r.feed.hub.mu.Unlock()
	r.feed.remove(r, context.Canceled)
	for b := range r.batches {
		r.feed.forget(b)
	}
}

// wait waits until all feeds have ended.
func (h *eventHub) wait() { h.running.Wait() }

// readers is the number of readers.
func (h *eventHub) readers() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return float64(h.readerCount)
}
