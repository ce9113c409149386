package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// node is a server whose answers a test scripts.
type node struct {
	fermatav1.UnimplementedJobServiceServer
	address string
	server  *grpc.Server

	mu sync.Mutex
	// fail are the errors of the next calls.
	fail     []error
	requests []string // request ids
	calls    int
	missing  []bool // allow_missing of deletions
	batches  []int
	// namesOnly is what the last batch asked for.
	namesOnly bool
	running   atomic.Bool // no run ends
	// settings are those of one queue; meddle changes them before a call replaces them.
	settings *fermatav1.QueueSettings
	meddle   func(*fermatav1.QueueSettings)
}

func (n *node) next(requestID string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	n.requests = append(n.requests, requestID)
	if len(n.fail) == 0 {
		return nil
	}
	err := n.fail[0]
	n.fail = n.fail[1:]
	return err
}

func (n *node) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls
}

func (n *node) GetJob(_ context.Context, q *fermatav1.GetJobRequest) (*fermatav1.Job, error) {
	return &fermatav1.Job{Name: q.GetName(), Queue: n.address}, n.next("")
}

func (n *node) RunJob(_ context.Context, q *fermatav1.RunJobRequest) (*fermatav1.RunJobResponse, error) {
	return &fermatav1.RunJobResponse{Coalesced: true}, n.next(q.GetRequestId())
}

func (n *node) RunJobWithPayload(_ context.Context, q *fermatav1.RunJobWithPayloadRequest) (*fermatav1.Run, error) {
	run := &fermatav1.Run{Name: q.GetName() + "/runs/m-" + q.GetRequestId()}
	run.OwnPayload = &fermatav1.RunPayload{Payload: q.GetPayload()}
	return run, n.next(q.GetRequestId())
}

func (n *node) UpdateJob(_ context.Context, q *fermatav1.UpdateJobRequest) (*fermatav1.Job, error) {
	return q.GetJob(), n.next(q.GetRequestId())
}

func (n *node) CreateJob(_ context.Context, q *fermatav1.CreateJobRequest) (*fermatav1.Job, error) {
	return &fermatav1.Job{Name: q.GetParent() + "/jobs/" + q.GetJobId()}, n.next(q.GetRequestId())
}

func (n *node) DeleteJob(_ context.Context, q *fermatav1.DeleteJobRequest) (*emptypb.Empty, error) {
	n.missing = append(n.missing, q.GetAllowMissing())
	return &emptypb.Empty{}, n.next("")
}

func (n *node) ListJobs(_ context.Context, q *fermatav1.ListJobsRequest) (*fermatav1.ListJobsResponse, error) {
	if err := n.next(""); err != nil {
		return nil, err
	}
	pages := map[string]*fermatav1.ListJobsResponse{
		"":  {Jobs: []*fermatav1.Job{{Name: "a"}, {Name: "b"}}, NextPageToken: "2"},
		"2": {NextPageToken: "3"},
		"3": {Jobs: []*fermatav1.Job{{Name: "c"}}},
	}
	return pages[q.GetPageToken()], nil
}

func (n *node) BatchCreateJobs(_ context.Context, q *fermatav1.BatchCreateJobsRequest) (*fermatav1.BatchCreateJobsResponse, error) {
	n.batches, n.namesOnly = append(n.batches, len(q.GetRequests())), q.GetNamesOnly()
	response := &fermatav1.BatchCreateJobsResponse{}
	for i, item := range q.GetRequests() {
		result := &fermatav1.BatchCreateJobsResponse_Result{Job: &fermatav1.Job{Name: item.GetJobId()}}
		if i == 1 {
			result = &fermatav1.BatchCreateJobsResponse_Result{Code: int32(codes.AlreadyExists), Message: "taken"}
		}
		response.Results = append(response.Results, result)
	}
	return response, n.next("")
}

func (n *node) GetQueueSettings(_ context.Context, q *fermatav1.GetQueueSettingsRequest) (*fermatav1.QueueSettings, error) {
	s := proto.CloneOf(n.settings)
	s.Name = q.GetName()
	return s, n.next("")
}

func (n *node) UpdateQueueSettings(_ context.Context, q *fermatav1.UpdateQueueSettingsRequest) (*fermatav1.QueueSettings, error) {
	if n.meddle != nil {
		n.meddle(n.settings)
	}
	n.settings.Name = q.GetExpected().GetName()
	if !proto.Equal(n.settings, q.GetExpected()) {
		return nil, failure(codes.Aborted)
	}
	n.settings = q.GetSettings()
	return n.settings, n.next("")
}

func start(t *testing.T) *node {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{address: listener.Addr().String(), server: grpc.NewServer(grpc.MaxRecvMsgSize(16 << 20))}
	fermatav1.RegisterJobServiceServer(n.server, n)
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(listener) }()
	t.Cleanup(func() {
		n.server.Stop()
		<-served
	})
	return n
}

func dial(t *testing.T, o client.Options, addresses ...string) *client.Client {
	t.Helper()
	c, err := client.Dial(addresses, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func failure(code codes.Code, details ...protoadapt.MessageV1) error {
	s, err := status.New(code, "scripted").WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return s.Err()
}

func soon() protoadapt.MessageV1 {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Millisecond)}
}

func TestRetryableCallsAreRetried(t *testing.T) {
	later := &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Hour)}
	tests := []struct {
		name  string
		fail  []error
		calls int
		code  codes.Code
	}{
		{"fine", nil, 1, codes.OK},
		{"unavailable", []error{failure(codes.Unavailable), failure(codes.Unavailable, soon())}, 3, codes.OK},
		{"aborted with delay", []error{failure(codes.Aborted, soon())}, 2, codes.OK},
		{"aborted", []error{failure(codes.Aborted)}, 1, codes.Aborted},
		{"not found", []error{failure(codes.NotFound)}, 1, codes.NotFound},
		{"exhausted", []error{failure(codes.ResourceExhausted)}, 1, codes.ResourceExhausted},
		{"too often", slices.Repeat([]error{failure(codes.Unavailable, soon())}, 9), 4, codes.Unavailable},
		{"too late", []error{failure(codes.Unavailable, later)}, 1, codes.Unavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := start(t)
			n.fail = tt.fail
			c := dial(t, client.Options{Attempts: 4}, n.address)
			limit := time.Minute
			if tt.name == "too late" { // no delay is that long, whoever asks for it
				limit = 8 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, _, err := c.RunJob(ctx, "ping", client.RunOptions{})
			if status.Code(err) != tt.code || n.calls != tt.calls {
				t.Errorf("%d calls, %v; want %d, %v", n.calls, err, tt.calls, tt.code)
			}
			if ids := slices.Compact(slices.Clone(n.requests)); len(ids) != 1 || ids[0] == "" {
				t.Errorf("request ids %q: each repetition must carry that of the first", n.requests)
			}
		})
	}
}

// TestRunJobWithPayloadIsRepeatedWithOneID, like every call that starts something.
func TestRunJobWithPayloadIsRepeatedWithOneID(t *testing.T) {
	n := start(t)
	n.fail = []error{status.Error(codes.Unavailable, "gone")}
	c := dial(t, client.Options{}, n.address)
	run, err := c.RunJobWithPayload(t.Context(), "ping", []byte("once"), client.RunOptions{})
	if err != nil || string(run.GetOwnPayload().GetPayload()) != "once" {
		t.Errorf("%v, %v", run, err)
	}
	if ids := slices.Compact(slices.Clone(n.requests)); n.calls != 2 || len(ids) != 1 || ids[0] == "" {
		t.Errorf("%d calls with request ids %q", n.calls, n.requests)
	}
}

func TestRequestIDsDiffer(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	a, b := client.NewRequestID(), client.NewRequestID()
	if a == b || !form.MatchString(a) {
		t.Errorf("%s %s", a, b)
	}
	n := start(t)
	c := dial(t, client.Options{}, n.address)
	ctx := t.Context()
	_, err1 := c.UpdateJob(ctx, &client.Job{Name: "ping"}, "queue")
	_, err2 := c.CreateJob(ctx, "", &client.Job{})
	_, err3 := c.CreateJob(ctx, "named", &client.Job{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if n.requests[0] == "" || n.requests[1] == "" || n.requests[0] == n.requests[1] {
		t.Errorf("request ids %q", n.requests)
	}
	if n.requests[2] != "" {
		t.Error("a named job is identified by its definition: ensuring it twice must be no conflict")
	}
}

func TestDeletionAfterALostResponse(t *testing.T) {
	n := start(t)
	n.fail = []error{failure(codes.Unavailable, soon())}
	if err := dial(t, client.Options{}, n.address).DeleteJob(t.Context(), "ping", client.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(n.missing, []bool{false, true}) {
		t.Errorf("allow_missing %v", n.missing)
	}
}

func (n *node) CancelBackfill(_ context.Context, q *fermatav1.CancelBackfillRequest) (*fermatav1.Job, error) {
	return &fermatav1.Job{Name: q.GetName()}, n.next("")
}

func TestCancellationAfterALostResponse(t *testing.T) {
	n := start(t)
	n.fail = []error{failure(codes.Unavailable, soon()), failure(codes.NotFound)}
	c := dial(t, client.Options{}, n.address)
	if j, err := c.CancelBackfill(t.Context(), client.BackfillRef{Job: "ping", ID: "b"}); err != nil || j.GetQueue() == "" {
		t.Errorf("%v, %v; want the job as it is", j, err)
	}
	n.fail = []error{failure(codes.NotFound)}
	if _, err := c.CancelBackfill(t.Context(), client.BackfillRef{Job: "ping", ID: "b"}); !client.IsNotFound(err) {
		t.Errorf("one that never was: %v", err)
	}
}

// TestPausingAQueueKeepsItsLimits: somebody changes the limits between reading and pausing.
func TestPausingAQueueKeepsItsLimits(t *testing.T) {
	n := start(t)
	n.settings = &fermatav1.QueueSettings{Rate: 1, Paused: new(false)}
	n.meddle = func(s *fermatav1.QueueSettings) { s.Rate, n.meddle = 7, nil }
	c := dial(t, client.Options{}, n.address)
	s, err := c.Admin().PauseQueue(t.Context(), "mail")
	if err != nil || !s.GetPaused() || s.GetRate() != 7 || s.GetName() != "namespaces/default/queues/mail" {
		t.Errorf("paused: %v, %v", s, err)
	}
	if s, err = c.Admin().PauseQueue(t.Context(), "mail"); err != nil || !s.GetPaused() {
		t.Errorf("paused again: %v, %v", s, err)
	}
	n.meddle = func(s *fermatav1.QueueSettings) { s.Rate++ }
	if s, err = c.Admin().ResumeQueue(t.Context(), "mail"); !client.IsConflict(err) {
		t.Errorf("limits that change all the time: %v, %v", s, err)
	}
	n.meddle = nil
	if s, err = c.Admin().ResumeQueue(t.Context(), "mail"); err != nil || s.GetPaused() || s.GetRate() < 8 {
		t.Errorf("resumed: %v, %v", s, err)
	}
}

func TestSeveralAddresses(t *testing.T) {
	a, b := start(t), start(t)
	c := dial(t, client.Options{}, a.address, b.address)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for a.count() == 0 || b.count() == 0 {
		if _, err := c.GetJob(ctx, "ping"); err != nil {
			t.Fatal(err)
		}
	}
	a.server.Stop()
	for range 20 {
		j, err := c.GetJob(ctx, "ping")
		if err != nil || j.GetQueue() != b.address {
			t.Fatalf("%v, %v; want an answer of the other node", j, err)
		}
	}
}

func TestListingReadsAllPages(t *testing.T) {
	n := start(t)
	c := dial(t, client.Options{}, n.address)
	var names []string
	for j, err := range c.Jobs(t.Context(), client.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, j.GetName())
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("names %v", names)
	}
	n.fail = []error{nil, failure(codes.NotFound)}
	var last error
	for _, err := range c.Jobs(t.Context(), client.Filter{}) {
		last = err
	}
	if !client.IsNotFound(last) {
		t.Errorf("error of the second page: %v", last)
	}
}

func TestBatchesAreSplit(t *testing.T) {
	n := start(t)
	c := dial(t, client.Options{}, n.address)
	jobs := make([]client.NewJob, 2300)
	for i := range jobs {
		jobs[i] = client.NewJob{ID: fmt.Sprint(i), Job: &client.Job{}}
	}
	results, err := c.CreateJobs(t.Context(), jobs, client.CreateJobsOptions{})
	if err != nil || len(results) != len(jobs) || !slices.Equal(n.batches, []int{1000, 1000, 300}) {
		t.Fatalf("%d results in %v, %v", len(results), n.batches, err)
	}
	if !client.IsAlreadyExists(results[1].Err) || results[2299].Job.GetName() != "2299" {
		t.Errorf("results %v %v", results[1], results[2299])
	}
	if results, err := c.CreateJobs(t.Context(), jobs[:3], client.CreateJobsOptions{NamesOnly: true}); err != nil || len(results) != 3 || !n.namesOnly {
		t.Errorf("names only: %v, %v", results, err)
	}
	n.batches = nil
	large := make([]client.NewJob, 5)
	for i := range large {
		large[i].Job = &client.Job{Payload: make([]byte, 3<<20)}
	}
	if _, err := c.CreateJobs(t.Context(), large, client.CreateJobsOptions{}); err != nil || !slices.Equal(n.batches, []int{2, 2, 1}) {
		t.Errorf("large payloads: batches of %v, %v", n.batches, err)
	}
}

func TestNamesAndErrors(t *testing.T) {
	c := dial(t, client.Options{Namespace: "n"}, "localhost:1")
	for got, want := range map[string]string{
		c.JobName("a"):                                                "namespaces/n/jobs/a",
		c.JobName("namespaces/x/jobs/a"):                              "namespaces/x/jobs/a",
		c.RunName("a", "1-2"):                                         "namespaces/n/jobs/a/runs/1-2",
		c.RunName("a", "namespaces/x/jobs/a/runs/b"):                  "namespaces/x/jobs/a/runs/b",
		client.JobID(&client.Job{Name: "namespaces/n/jobs/a"}):        "a",
		client.RunID(&client.Run{Name: "namespaces/n/jobs/a/runs/r"}): "r",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	err := failure(codes.InvalidArgument, &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "job_id", Description: "is empty"}},
	})
	if v := client.Violations(err); !client.IsInvalid(err) || len(v) != 1 || v[0] != (client.Violation{Field: "job_id", Description: "is empty"}) {
		t.Errorf("violations %v", v)
	}
	if client.IsNotFound(nil) || client.Violations(nil) != nil {
		t.Error("nil is no error")
	}
}

func TestBadOptions(t *testing.T) {
	for name, dial := range map[string]func() (*client.Client, error){
		"no address":   func() (*client.Client, error) { return client.Dial(nil, client.Options{}) },
		"no port":      func() (*client.Client, error) { return client.Dial([]string{"host"}, client.Options{}) },
		"bad attempts": func() (*client.Client, error) { return client.Dial([]string{"a:1"}, client.Options{Attempts: 21}) },
	} {
		if _, err := dial(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// One address may stand for several nodes: a connection that is refused says nothing
// about the next one.
func TestARefusedConnectionCostsOneAttempt(t *testing.T) {
	n := start(t)
	var dials atomic.Int32
	refuseTwice := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if dials.Add(1) <= 2 {
			return nil, syscall.ECONNREFUSED
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	})
	c := dial(t, client.Options{DialOptions: []grpc.DialOption{refuseTwice}}, n.address)
	if _, err := c.GetJob(t.Context(), "j"); err != nil {
		t.Errorf("after %d connections: %v", dials.Load(), err)
	}
}
