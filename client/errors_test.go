package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

var sentinels = map[codes.Code]error{
	codes.InvalidArgument:    client.ErrInvalid,
	codes.NotFound:           client.ErrNotFound,
	codes.AlreadyExists:      client.ErrAlreadyExists,
	codes.Aborted:            client.ErrConflict,
	codes.FailedPrecondition: client.ErrFailedPrecondition,
	codes.ResourceExhausted:  client.ErrLimitExceeded,
	codes.Unauthenticated:    client.ErrUnauthenticated,
	codes.PermissionDenied:   client.ErrPermissionDenied,
	codes.Unavailable:        client.ErrUnavailable,
	codes.OutOfRange:         client.ErrEventsGone,
	codes.Canceled:           context.Canceled,
	codes.DeadlineExceeded:   context.DeadlineExceeded,
}

// Errors of calls match their sentinel, also when they are wrapped, and no other one. They remain gRPC statuses.
func TestErrorsMatchSentinels(t *testing.T) {
	n := start(t)
	c := dial(t, client.Options{Attempts: 1}, n.address)
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		n.fail = []error{failure(code)}
		_, err := c.GetJob(t.Context(), "ping")
		wrapped := fmt.Errorf("reading: %w", err)
		for other, sentinel := range sentinels {
			if got := errors.Is(wrapped, sentinel); got != (other == code) {
				t.Errorf("%v is %v: %v", code, sentinel, got)
			}
		}
		if status.Code(err) != code || status.Code(wrapped) != code {
			t.Errorf("the status of %v has the code %v", err, status.Code(err))
		}
	}
}

func TestErrorsOfItemsMatchSentinels(t *testing.T) {
	n := start(t)
	c := dial(t, client.Options{}, n.address)
	jobs := []client.NewJob{{ID: "a", Job: &client.Job{}}, {ID: "b", Job: &client.Job{}}}
	results, err := c.CreateJobs(t.Context(), jobs, client.CreateJobsOptions{})
	if err != nil || results[0].Err != nil || !errors.Is(results[1].Err, client.ErrAlreadyExists) {
		t.Errorf("created %v, %v", results, err)
	}
	change := &client.JobChange{Code: int32(codes.Aborted), Message: "changed"}
	if err := client.ChangeError(change); !errors.Is(err, client.ErrConflict) || !client.IsConflict(err) {
		t.Errorf("error of a change: %v", err)
	}
	if err := client.ChangeError(&client.JobChange{}); err != nil {
		t.Errorf("error of an applied change: %v", err)
	}
	for _, err := range c.WatchEvents(t.Context(), client.EventFilter{}) {
		if status.Code(err) != codes.Unimplemented || errors.Is(err, client.ErrNotFound) {
			t.Errorf("error of a watch that this node does not have: %v", err)
		}
	}
}

func TestErrorReason(t *testing.T) {
	err := failure(codes.FailedPrecondition, &errdetails.ErrorInfo{Reason: "EXCLUDED_TIME", Domain: "fermata.io"})
	if got := client.ErrorReason(fmt.Errorf("run: %w", err)); got != "EXCLUDED_TIME" {
		t.Errorf("reason %q", got)
	}
	if got := client.ErrorReason(failure(codes.NotFound)) + client.ErrorReason(nil); got != "" {
		t.Errorf("reason %q of an error without one", got)
	}
}

// A call that its own context ended matches the error of the context.
func TestErrorsOfEndedContexts(t *testing.T) {
	n := start(t)
	c := dial(t, client.Options{}, n.address)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.GetJob(cancelled, "ping"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	expired, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	if _, err := c.GetJob(expired, "ping"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("expired: %v", err)
	}
}

// GetRun, WaitRun and CancelRun pass the full name of a run on.
func TestRunsAreNamedInFull(t *testing.T) {
	n := start(t)
	c := dial(t, client.Options{Namespace: "shop"}, n.address)
	name := c.RunName("report", "m-1")
	run, err := c.GetRun(t.Context(), name)
	if err != nil || run.GetName() != "namespaces/shop/jobs/report/runs/m-1" {
		t.Errorf("got %v, %v", run, err)
	}
	if run, err = c.WaitRun(t.Context(), run.GetName()); err != nil || run.GetState() != client.RunFinished {
		t.Errorf("waited for %v, %v", run, err)
	}
	if run, err = c.CancelRun(t.Context(), name); err != nil || run.GetName() != name {
		t.Errorf("cancelled %v, %v", run, err)
	}
}

func (n *node) CancelRun(_ context.Context, q *fermatav1.CancelRunRequest) (*fermatav1.Run, error) {
	return &fermatav1.Run{Name: q.GetName()}, n.next("")
}
