package apierror

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
)

func TestErrorsHaveCodesAndDetails(t *testing.T) {
	const name = "namespaces/default/jobs/ping"
	tests := []struct {
		err    error
		code   codes.Code
		retry  time.Duration
		field  string
		entity string
		reason string
	}{
		{err: job.Invalid("job.timeout", "is %d", 1), code: codes.InvalidArgument, field: "job.timeout"},
		{err: &job.MissingError{Key: key}, code: codes.NotFound, entity: name},
		{err: &job.MissingError{Key: key, RunID: "1-2"}, code: codes.NotFound, entity: name + "/runs/1-2"},
		{err: &job.ExistsError{Key: key}, code: codes.AlreadyExists, entity: name},
		{err: &job.BusyError{Key: key}, code: codes.Aborted, entity: name, retry: time.Second},
		{err: &job.EtagError{Key: key, Have: "h"}, code: codes.Aborted, entity: name, reason: "ETAG_MISMATCH"},
		{err: &job.MissingPartError{Key: key, Collection: "backfills", ID: "b"}, code: codes.NotFound, entity: name + "/backfills/b"},
		{err: job.MissingRevisionError(key, 3), code: codes.NotFound, entity: name + "/revisions/3"},
		{err: &job.PreconditionError{Key: key, Reason: "TOO_MANY_BACKFILLS"}, code: codes.FailedPrecondition, entity: name, reason: "TOO_MANY_BACKFILLS"},
		{err: &job.TurnError{Work: "lookups"}, code: codes.ResourceExhausted, reason: "LIMIT_LOOKUPS", retry: time.Second},
		{err: &job.InvalidError{Violations: []job.Violation{{Field: "a", Cause: &job.TurnError{Work: "schedules"}}}}, code: codes.ResourceExhausted, reason: "LIMIT_SCHEDULES", retry: time.Second},
		{err: &job.QuotaError{Namespace: "n", Limit: 3}, code: codes.ResourceExhausted, reason: "NAMESPACE_JOBS"},
		{err: &job.QuotaError{Namespace: "n", Limit: 3, Bytes: true}, code: codes.ResourceExhausted, reason: "NAMESPACE_JOB_BYTES"},
		{err: job.ErrNoMemory, code: codes.ResourceExhausted, reason: "REDIS_OUT_OF_MEMORY"},
		{err: fmt.Errorf("mail: %w", job.ErrTooManyWatches), code: codes.ResourceExhausted, reason: "TOO_MANY_WATCHES", retry: 10 * time.Second},
		{err: fmt.Errorf("settings: %w", job.ErrTooManyQueues), code: codes.ResourceExhausted, reason: "TOO_MANY_QUEUES"},
		{err: fmt.Errorf("settings: %w", job.ErrTooManyQueuesOfNamespace), code: codes.ResourceExhausted, reason: "TOO_MANY_QUEUES"},
		{err: fmt.Errorf("settings: %w", job.ErrTooManyQueuesOfIdentity), code: codes.ResourceExhausted, reason: "TOO_MANY_QUEUES"},
		{err: job.ErrUnavailable, code: codes.Unavailable, retry: 500 * time.Millisecond, reason: "REDIS_UNAVAILABLE"},
		{err: job.ErrNodeBusy, code: codes.Unavailable, retry: 500 * time.Millisecond, reason: "NODE_BUSY"},
		{err: job.ErrDurability, code: codes.Unavailable, retry: time.Second, reason: "DURABILITY_UNCONFIRMED"},
		{err: job.ErrClockJump, code: codes.Unavailable, retry: 5 * time.Second, reason: "REDIS_CLOCK_JUMPED"},
		{err: job.ErrNotHolder, code: codes.Unavailable, retry: 100 * time.Millisecond, reason: "SHARD_MOVED"},
		{err: job.ErrConflict, code: codes.Aborted, retry: 50 * time.Millisecond, reason: "CONFLICT"},
		{err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, code: codes.Unavailable, retry: 500 * time.Millisecond, reason: "REDIS_UNAVAILABLE"},
		{err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, code: codes.Unavailable, retry: 500 * time.Millisecond, reason: "REDIS_UNAVAILABLE"},
		{err: context.DeadlineExceeded, code: codes.DeadlineExceeded},
		{err: context.Canceled, code: codes.Canceled},
		{err: status.Error(codes.PermissionDenied, "no"), code: codes.PermissionDenied},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%T %v", tt.err, tt.code), func(t *testing.T) {
			st, known := ToStatus(fmt.Errorf("wrapped: %w", tt.err))
			if !known || st.Code() != tt.code {
				t.Fatalf("got %v, known %v; want %v", st, known, tt.code)
			}
			var retry time.Duration
			var field, entity, reason string
			for _, detail := range st.Details() {
				switch d := detail.(type) {
				case *errdetails.RetryInfo:
					retry = d.GetRetryDelay().AsDuration()
				case *errdetails.BadRequest:
					field = d.GetFieldViolations()[0].GetField()
				case *errdetails.ResourceInfo:
					entity = d.GetResourceName()
				case *errdetails.ErrorInfo:
					reason = d.GetReason()
				}
			}
			if retry != tt.retry || field != tt.field || entity != tt.entity || reason != tt.reason {
				t.Errorf("retry %v field %q resource %q reason %q", retry, field, entity, reason)
			}
		})
	}
}

func TestUnknownErrorsAreNotShown(t *testing.T) {
	st, known := ToStatus(errors.New("dial tcp 10.0.0.1: password secret"))
	if known || st.Code() != codes.Internal || st.Message() != "internal error; the node's log has more" {
		t.Errorf("got %v, known %v", st, known)
	}
}

func TestErrorTextIsValidUTF8(t *testing.T) {
	st, _ := ToStatus(job.Invalid("f\xff", "bad \xff"))
	if len(st.Details()) != 1 {
		t.Fatalf("details %v", st.Details())
	}
	if _, err := convert.ParseJobName("name", "\xff\xfe"); err == nil {
		t.Fatal("no error")
	} else if st, _ := ToStatus(err); len(st.Details()) != 1 {
		t.Errorf("details of %q are lost", st.Message())
	}
}

var key = job.Key{Namespace: "default", ID: "ping"}
