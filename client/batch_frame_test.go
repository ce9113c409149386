package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestBatchesAreEncodedAsProtobuf: a batch of encoded requests is the message that protobuf would encode, also with ids
// that the batch gives, and results are decoded one by one.
func TestBatchesAreEncodedAsProtobuf(t *testing.T) {
	requests := []*fermatav1.CreateJobRequest{
		{Parent: "namespaces/a", JobId: "named", RequestId: "r1", Job: &Job{Handler: "h", Payload: make([]byte, 300)}},
		{Parent: "namespaces/a", RequestId: "r2", Job: &Job{Labels: map[string]string{"k": "v"}}},
		{},
	}
	batch := createBatch{parent: "namespaces/a"}
	for i, q := range requests {
		encoded, err := proto.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		w := &pendingCreate{request: encoded}
		if q.JobId == "" {
			w.assignedID = fmt.Sprint("given-", i)
			q.JobId = w.assignedID
		}
		batch.calls = append(batch.calls, w)
	}
	frame := batch.AppendFrame(nil)
	got, want := &fermatav1.BatchCreateJobsRequest{}, &fermatav1.BatchCreateJobsRequest{Parent: "namespaces/a", Requests: requests, Compact: true}
	if err := proto.Unmarshal(frame, got); err != nil || !proto.Equal(got, want) || len(frame) != batch.FrameSize() {
		t.Errorf("%v, %d bytes of %d: %v", err, len(frame), batch.FrameSize(), got)
	}
	answer, err := proto.Marshal(&fermatav1.BatchCreateJobsResponse{Results: []*fermatav1.BatchCreateJobsResponse_Result{
		{Job: &Job{Name: "n"}}, {Code: int32(codes.AlreadyExists), Message: "no"}, {},
	}, Shared: []*Job{{Queue: "q"}}})
	if err != nil {
		t.Fatal(err)
	}
	answer = append([]byte{0x78, 1}, answer...) // a field of a later version
	var results createResults
	if err := results.ReadFrame(answer); err != nil || len(results.results) != 3 || results.results[2] == nil || len(results.shared) != 1 {
		t.Fatalf("%v: %q", err, results)
	}
	clear(answer)
	for i, code := range []codes.Code{codes.OK, codes.AlreadyExists, codes.OK} {
		r := (&pendingCreate{result: results.results[i]}).takeResult(requests[i])
		if r == nil || hasCode(r.Err, code) != (code != codes.OK) || r.Err == nil != (code == codes.OK) {
			t.Errorf("result %d: %+v", i, r)
		}
	}
	for _, broken := range [][]byte{{0x0a, 200}, {0xff}, {0x0d, 1}} {
		if err := new(createResults).ReadFrame(broken); err == nil {
			t.Errorf("%x is accepted", broken)
		}
	}
}

type tenantKey struct{}

// tenantToken is a token that depends on the caller's context.
func tenantToken(ctx context.Context) (string, error) {
	if tenant, ok := ctx.Value(tenantKey{}).(string); ok {
		return tenant, nil
	}
	return "", errors.New("the context has no tenant")
}

// TestCallsWithDifferentTokensDoNotShare: a job is created with the token of its caller's context.
func TestCallsWithDifferentTokensDoNotShare(t *testing.T) {
	r, c, release := busyWith(t, Options{Token: tenantToken}, context.WithValue(t.Context(), tenantKey{}, "first"))
	const each = 20
	var all sync.WaitGroup
	for i := range each {
		for _, tenant := range []string{"a", "b", "c"} {
			ctx := context.WithValue(t.Context(), tenantKey{}, tenant)
			all.Go(func() {
				if _, err := c.CreateJob(ctx, fmt.Sprint(tenant, "-", i), &Job{}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	redistest.Eventually(t, redistest.Patience, "all wait", func() bool { return c.createBatcher.line() == 3*each })
	if _, err := c.CreateJob(t.Context(), "nobody", &Job{}); err == nil {
		t.Error("a job without a token was created")
	}
	release()
	all.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.batches) < 3 || len(r.batches) > 12 {
		t.Errorf("batches of %v", r.batches)
	}
	for id, token := range r.tokens {
		if token != "Bearer "+id[:1] {
			t.Errorf("job %s was created with %q", id, token)
		}
	}
	if len(r.tokens) != 3*each {
		t.Errorf("%d of %d jobs came in batches", len(r.tokens), 3*each)
	}
}

// TestRequestIDsOfCallersAreKept: a job with an id may share a call and keeps the request id of its caller. A job
// without an id is sent alone: its id has to follow from the request id.
func TestRequestIDsOfCallersAreKept(t *testing.T) {
	r, c, release := busy(t)
	var all sync.WaitGroup
	create := func(id, requestID string) {
		all.Go(func() {
			if _, err := c.CreateJob(WithRequestID(t.Context(), requestID), id, &Job{}); err != nil {
				t.Error(err)
			}
		})
	}
	create("named", "mine")
	redistest.Eventually(t, redistest.Patience, "it waits", func() bool { return c.createBatcher.line() == 1 })
	create("", "other")
	redistest.Eventually(t, redistest.Patience, "the call without an id has come", func() bool { return r.singly("") == 1 })
	release()
	all.Wait()
	if !slices.Equal(r.asked, []string{"named"}) || !slices.Equal(r.requestIDs, []string{"mine"}) {
		t.Errorf("batches had jobs %v with request ids %v", r.asked, r.requestIDs)
	}
}

// TestLostReplyIsRepeatedWithTheSameIDs: what a batch may have created is asked for again under the id and the request id
// of the batch.
func TestLostReplyIsRepeatedWithTheSameIDs(t *testing.T) {
	r, c, release := busy(t)
	r.broken = true
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if _, err := c.CreateJob(t.Context(), "", &Job{}); err != nil {
				t.Error(err)
			}
		})
	}
	redistest.Eventually(t, redistest.Patience, "all wait", func() bool { return c.createBatcher.line() == 3 })
	release()
	all.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.asked) != 3 {
		t.Fatalf("batches had jobs %v", r.asked)
	}
	for i, id := range r.asked {
		if id == "" || r.requestIDs[i] == "" || r.calls[id] != 1 || r.single[id] != r.requestIDs[i] {
			t.Errorf("job %q with request id %q: %d calls of its own, with request id %q", id, r.requestIDs[i], r.calls[id], r.single[id])
		}
	}
}

// TestErrorsOfABatchKeepTheirDetails: the caller of an invalid job has its fields, and the others their jobs.
func TestErrorsOfABatchKeepTheirDetails(t *testing.T) {
	r, c, release := busy(t)
	r.refuse["job-1"] = codes.InvalidArgument
	detail, err := anypb.New(&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
		{Field: "job.handler", Description: "is empty"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.details = []*anypb.Any{detail}
	done := create(t, c, 3)
	release()
	for i, err := range done() {
		if i != 1 {
			if err != nil {
				t.Errorf("job %d: %v", i, err)
			}
			continue
		}
		if v := Violations(err); !errors.Is(err, ErrInvalid) || len(v) != 1 || v[0].Field != "job.handler" {
			t.Errorf("job %d: %v, %v", i, err, v)
		}
	}
}

// TestSeparateCreates: no call is shared.
func TestSeparateCreates(t *testing.T) {
	r, c, release := busyWith(t, Options{SeparateCreates: true}, t.Context())
	errs := make(chan error)
	for i := range 3 {
		go func() {
			_, err := c.CreateJob(t.Context(), fmt.Sprint("job-", i), &Job{})
			errs <- err
		}()
	}
	redistest.Eventually(t, redistest.Patience, "each has come by a call of its own", func() bool {
		return r.singly("job-0")+r.singly("job-1")+r.singly("job-2") == 3
	})
	release()
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if len(r.batches) != 0 {
		t.Errorf("batches of %v", r.batches)
	}
}
