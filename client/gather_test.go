package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// registrar is a server that holds back single registrations until it is to go
// on, and counts how jobs arrive.
type registrar struct {
	fermatav1.UnimplementedJobServiceServer
	held chan struct{}

	mu         sync.Mutex
	calls      map[string]int // of CreateJob, by id
	batches    []int
	asked      []string              // ids of jobs in batches
	requestIDs []string              // of jobs in batches
	single     map[string]string     // request ids of CreateJob, by id
	tokens     map[string]string     // of batches, by id
	details    []*anypb.Any          // of what is refused
	refuse     map[string]codes.Code // in batches, by id
	broken     bool                  // batches fail as a whole
}

func (r *registrar) CreateJob(_ context.Context, q *fermatav1.CreateJobRequest) (*fermatav1.Job, error) {
	r.mu.Lock()
	r.calls[q.GetJobId()]++
	r.single[q.GetJobId()] = q.GetRequestId()
	r.mu.Unlock()
	<-r.held
	return &fermatav1.Job{Name: q.GetParent() + "/jobs/" + q.GetJobId(), Handler: "alone"}, nil
}

func (r *registrar) BatchCreateJobs(ctx context.Context, q *fermatav1.BatchCreateJobsRequest) (*fermatav1.BatchCreateJobsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches = append(r.batches, len(q.GetRequests()))
	for _, item := range q.GetRequests() {
		r.asked, r.requestIDs = append(r.asked, item.GetJobId()), append(r.requestIDs, item.GetRequestId())
		if token := metadata.ValueFromIncomingContext(ctx, "authorization"); len(token) == 1 {
			r.tokens[item.GetJobId()] = token[0]
		}
	}
	if r.broken {
		return nil, status.Error(codes.ResourceExhausted, "no batches")
	}
	response := &fermatav1.BatchCreateJobsResponse{}
	for _, item := range q.GetRequests() {
		result := &fermatav1.BatchCreateJobsResponse_Result{Job: &fermatav1.Job{Name: q.GetParent() + "/jobs/" + item.GetJobId()}}
		if code := r.refuse[item.GetJobId()]; code != codes.OK {
			result = &fermatav1.BatchCreateJobsResponse_Result{Code: int32(code), Message: "no", Details: r.details}
		}
		response.Results = append(response.Results, result)
	}
	return response, nil
}

func (r *registrar) singly(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[id]
}

// busy returns a client with as many registrations under way as go alone, and a
// function that lets them end and waits for them.
func busy(t *testing.T) (r *registrar, c *Client, release func()) {
	t.Helper()
	return busyWith(t, Options{}, t.Context())
}

// busyWith is busy with a client of these options, whose first registrations have this context.
func busyWith(t *testing.T, o Options, ctx context.Context) (r *registrar, c *Client, release func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r = &registrar{
		held: make(chan struct{}), calls: map[string]int{}, refuse: map[string]codes.Code{}, single: map[string]string{}, tokens: map[string]string{},
	}
	server := grpc.NewServer()
	fermatav1.RegisterJobServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if c, err = Dial([]string{listener.Addr().String()}, o); err != nil {
		t.Fatal(err)
	}
	c.createBatcher.maxDelay = time.Hour
	t.Cleanup(func() { c.Close(); server.Stop(); <-served })
	var first sync.WaitGroup
	for i := range maxBatchesInFlight {
		first.Go(func() {
			if _, err := c.CreateJob(ctx, fmt.Sprint("first-", i), &Job{}); err != nil {
				t.Error(err)
			}
		})
	}
	redistest.Eventually(t, redistest.Patience, "the first are under way", func() bool {
		n := 0
		for i := range maxBatchesInFlight {
			n += r.singly(fmt.Sprint("first-", i))
		}
		return n == maxBatchesInFlight
	})
	return r, c, func() { close(r.held); first.Wait() }
}

func (g *createBatcher) line() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// create registers jobs at once, each from a goroutine of its own, and waits until they
// are in line.
func create(t *testing.T, c *Client, n int) (done func() []error) {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			id := fmt.Sprint("job-", i)
			j, err := c.CreateJob(t.Context(), id, &Job{})
			if err == nil && j.GetName() != "namespaces/default/jobs/"+id {
				err = fmt.Errorf("job %s was answered by %s", id, j.GetName())
			}
			errs[i] = err
		})
	}
	redistest.Eventually(t, redistest.Patience, "all are in line", func() bool { return c.createBatcher.line() == n })
	return func() []error { all.Wait(); return errs }
}

// TestConcurrentCreateJobsShareCalls: registrations that would wait for one another share calls, and
// each gets its own answer.
func TestConcurrentCreateJobsShareCalls(t *testing.T) {
	r, c, release := busy(t)
	const n = 2*maxGatheredJobs + 10
	r.refuse["job-7"] = codes.AlreadyExists
	done := create(t, c, n)
	release()
	for i, err := range done() {
		if want := r.refuse[fmt.Sprint("job-", i)]; status.Code(err) != want {
			t.Errorf("job %d: %v, want %v", i, err, want)
		}
		if singly := r.singly(fmt.Sprint("job-", i)); singly != 0 {
			t.Errorf("job %d came by %d calls of its own", i, singly)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	total := 0
	for _, size := range r.batches {
		total += size
		if size > maxGatheredJobs {
			t.Errorf("a batch of %d", size)
		}
	}
	// Three, if each batch ends after the next has been filled; a place's share is smaller where they end early.
	if total != n || len(r.batches) < 3 || len(r.batches) > 8 {
		t.Errorf("batches of %v, want %d jobs in few", r.batches, n)
	}
	redistest.Eventually(t, redistest.Patience, "nothing is under way", func() bool {
		c.createBatcher.mu.Lock()
		defer c.createBatcher.mu.Unlock()
		return c.createBatcher.freeBatches == 0 && c.createBatcher.callsInFlight == 0
	})
}

// TestCreateJobAloneAfterBatch: what a batch could not do is tried by itself: a job that
// may go better, and all if the batch failed.
func TestCreateJobAloneAfterBatch(t *testing.T) {
	for _, broken := range []bool{false, true} {
		r, c, release := busy(t)
		r.broken = broken
		r.refuse["job-1"] = codes.Unavailable
		done := create(t, c, 3)
		release()
		if err := errors.Join(done()...); err != nil {
			t.Error(err)
		}
		for i := range 3 {
			if again := r.singly(fmt.Sprint("job-", i)); (again == 1) != (broken || i == 1) {
				t.Errorf("broken %v: job %d came by %d calls of its own", broken, i, again)
			}
		}
	}
}

// TestCreateJobGivesUp: a caller in line leaves when its context ends, and its job is
// not sent; one with metadata of its own does not stand in line.
func TestCreateJobGivesUp(t *testing.T) {
	r, c, release := busy(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := c.CreateJob(ctx, "gone", &Job{})
		gone <- err
	}()
	redistest.Eventually(t, redistest.Patience, "it is in line", func() bool { return c.createBatcher.line() == 1 })
	cancel()
	if err := <-gone; status.Code(err) != codes.Canceled {
		t.Errorf("it left with %v", err)
	}
	own := make(chan error, 1)
	go func() {
		_, err := c.CreateJob(metadata.AppendToOutgoingContext(t.Context(), "trace", "1"), "own", &Job{})
		own <- err
	}()
	redistest.Eventually(t, redistest.Patience, "the call with metadata has come", func() bool { return r.singly("own") == 1 })
	traced := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled})
	if isBatched(trace.ContextWithSpanContext(t.Context(), traced), 1) || !isBatched(t.Context(), maxSingleCalls) || isBatched(t.Context(), maxSingleCalls+1) {
		t.Error("a traced call is not by itself, or sizes are not bounded")
	}
	release()
	if err := <-own; err != nil {
		t.Error(err)
	}
	if len(r.batches) != 0 || r.singly("gone") != 0 {
		t.Errorf("batches of %v, %d calls for who had left", r.batches, r.singly("gone"))
	}
}

// crowded returns a gather with a registration in each of its places.
func crowded(patience time.Duration) *createBatcher {
	return &createBatcher{freeBatches: maxBatchesInFlight, callsInFlight: maxBatchesInFlight, maxDelay: patience}
}

// succeed gives each call an empty result.
func succeed(calls []*pendingCreate) error {
	for _, w := range calls {
		w.result = []byte{}
	}
	return nil
}

// TestBatchesTakeTheirShare: no call takes all that wait while others are under way, or from then
// on large and small calls would go side by side.
func TestBatchesTakeTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := crowded(time.Hour)
		var sizes []int
		end := make(chan struct{})
		g.send = func(_ context.Context, calls []*pendingCreate) error {
			sizes = append(sizes, len(calls))
			<-end
			return succeed(calls)
		}
		const callers = 30 * maxBatchesInFlight
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if place, result, err := g.enqueue(t.Context(), &fermatav1.CreateJobRequest{}); place || result == nil || err != nil {
					t.Errorf("place %v, result %v, error %v", place, result, err)
				}
			})
		}
		for range maxBatchesInFlight {
			synctest.Wait()
			g.endCalls(1)
		}
		synctest.Wait()
		total := 0
		for _, n := range sizes {
			total += n
			if n < 29 || n > 31 {
				t.Errorf("batches of %v for %d callers", sizes, callers)
			}
		}
		if total != callers {
			t.Errorf("batches of %v have %d of %d callers", sizes, total, callers)
		}
		close(end)
		all.Wait()
	})
}

// TestBatchEndsWithItsCallers: a batch has the latest of its callers' deadlines, none
// if one has none.
func TestBatchEndsWithItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := crowded(time.Hour)
		var until []time.Duration
		start := time.Now()
		g.send = func(ctx context.Context, calls []*pendingCreate) error {
			deadline, ok := ctx.Deadline()
			if !ok {
				deadline = start
			}
			until = append(until, deadline.Sub(start))
			return succeed(calls)
		}
		enter := func(ctx context.Context) {
			if place, result, err := g.enqueue(ctx, &fermatav1.CreateJobRequest{}); place || result == nil || err != nil {
				t.Errorf("place %v, result %v, error %v", place, result, err)
			}
		}
		for _, limits := range [][]time.Duration{{time.Second, time.Minute}, {time.Second, 0}} {
			for _, limit := range limits {
				ctx := t.Context()
				if limit > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, limit)
					defer cancel()
				}
				go enter(ctx)
			}
			synctest.Wait()
			g.endCalls(1)
			synctest.Wait()
			g.freeBatches, g.callsInFlight = g.freeBatches+1, g.callsInFlight+1
		}
		if len(until) != 2 || until[0] != time.Minute || until[1] != 0 {
			t.Errorf("batches ended after %v", until)
		}
	})
}

// TestBatchDelayIsBounded: calls that are stuck hold up nobody for long, and what left the
// line is in no batch.
func TestBatchDelayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := crowded(maxBatchDelay)
		g.send = func(_ context.Context, calls []*pendingCreate) error {
			t.Errorf("%d sent after they left the line", len(calls))
			return nil
		}
		start := time.Now()
		for range 3 {
			go func() {
				place, result, err := g.enqueue(t.Context(), &fermatav1.CreateJobRequest{})
				if place || result != nil || err != nil || time.Since(start) != maxBatchDelay {
					t.Errorf("place %v, result %v, error %v after %v", place, result, err, time.Since(start))
				}
			}()
		}
		time.Sleep(maxBatchDelay)
		synctest.Wait()
		g.endCalls(1)
		synctest.Wait()
		if len(g.waiting) != 0 || g.freeBatches != maxBatchesInFlight-1 || g.callsInFlight != maxBatchesInFlight-1 {
			t.Errorf("%d in line, %d under way in %d places", len(g.waiting), g.callsInFlight, g.freeBatches)
		}
	})
}

// TestBusyBatchesAreWaitedFor: where batches take long, registrations wait longer for them, up to a bound, instead of
// making more calls.
func TestBusyBatchesAreWaitedFor(t *testing.T) {
	for _, tt := range []struct{ took, want time.Duration }{
		{time.Millisecond, maxBatchDelay}, {100 * time.Millisecond, 400 * time.Millisecond}, {time.Minute, maxBusyDelay},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := crowded(maxBatchDelay)
			g.send = func(_ context.Context, calls []*pendingCreate) error {
				time.Sleep(tt.took)
				return succeed(calls)
			}
			enter := func() (alone bool) {
				_, result, err := g.enqueue(t.Context(), &fermatav1.CreateJobRequest{})
				if err != nil {
					t.Error(err)
				}
				return result == nil
			}
			first := make(chan bool)
			go func() { first <- enter() }()
			synctest.Wait()
			g.endCalls(1) // the first is sent
			if <-first {
				t.Fatalf("batches of %v: the first was not sent", tt.took)
			}
			synctest.Wait()
			g.freeBatches, g.callsInFlight = maxBatchesInFlight, maxBatchesInFlight
			start := time.Now()
			if alone := enter(); !alone || time.Since(start) != tt.want {
				t.Errorf("batches of %v: alone %v after %v, want %v", tt.took, alone, time.Since(start), tt.want)
			}
		})
	}
}
