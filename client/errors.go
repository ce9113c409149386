package client

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// Errors of calls, for [errors.Is]. An error of this package also matches [context.Canceled] and
// [context.DeadlineExceeded] if the call ended for this reason.
var (
	// ErrInvalid: the request is invalid; [Violations] returns the fields.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound: the job, the run or another object does not exist.
	ErrNotFound = errors.New("not found")
	// ErrAlreadyExists: another job has the id.
	ErrAlreadyExists = errors.New("already exists")
	// ErrConflict: the object was changed since it was read, or the id belongs to a deleted job that still runs.
	// Read it again and repeat the change.
	ErrConflict = errors.New("changed concurrently")
	// ErrFailedPrecondition: the call is not possible in the present state, for example a manual run at a time
	// that the schedule excludes. [ErrorReason] returns the reason.
	ErrFailedPrecondition = errors.New("failed precondition")
	// ErrLimitExceeded: a quota, a rate or the memory of Redis is exhausted. [ErrorReason] returns the reason.
	ErrLimitExceeded = errors.New("limit exceeded")
	// ErrUnauthenticated: the cluster does not accept the credentials.
	ErrUnauthenticated = errors.New("unauthenticated")
	// ErrPermissionDenied: the caller's roles do not have the permission.
	ErrPermissionDenied = errors.New("permission denied")
	// ErrUnavailable: no node, or no Redis behind it, could be reached.
	ErrUnavailable = errors.New("unavailable")
	// ErrEventsGone: the events after a resume token are no longer kept.
	ErrEventsGone = errors.New("events are no longer kept")
)

// sentinelCodes has the status code of each error for errors.Is.
var sentinelCodes = map[error]codes.Code{
	ErrInvalid:               codes.InvalidArgument,
	ErrNotFound:              codes.NotFound,
	ErrAlreadyExists:         codes.AlreadyExists,
	ErrConflict:              codes.Aborted,
	ErrFailedPrecondition:    codes.FailedPrecondition,
	ErrLimitExceeded:         codes.ResourceExhausted,
	ErrUnauthenticated:       codes.Unauthenticated,
	ErrPermissionDenied:      codes.PermissionDenied,
	ErrUnavailable:           codes.Unavailable,
	ErrEventsGone:            codes.OutOfRange,
	context.Canceled:         codes.Canceled,
	context.DeadlineExceeded: codes.DeadlineExceeded,
}

// callError is a gRPC status that matches the errors of this package.
type callError struct{ err error }

func (e *callError) Error() string              { return e.err.Error() }
func (e *callError) Unwrap() error              { return e.err }
func (e *callError) GRPCStatus() *status.Status { return status.Convert(e.err) }

func (e *callError) Is(target error) bool {
	code, ok := sentinelCodes[target]
	return ok && status.Code(e.err) == code
}

// wrapError makes a gRPC error match the errors of this package. It returns nil for nil.
func wrapError(err error) error {
	var wrapped *callError
	if err == nil || errors.As(err, &wrapped) {
		return err
	}
	return &callError{err}
}

// IsInvalid reports whether an error is [ErrInvalid].
func IsInvalid(err error) bool { return hasCode(err, codes.InvalidArgument) }

// IsNotFound reports whether an error is [ErrNotFound].
func IsNotFound(err error) bool { return hasCode(err, codes.NotFound) }

// IsAlreadyExists reports whether an error is [ErrAlreadyExists].
func IsAlreadyExists(err error) bool { return hasCode(err, codes.AlreadyExists) }

// IsConflict reports whether an error is [ErrConflict].
func IsConflict(err error) bool { return hasCode(err, codes.Aborted) }

// IsUnavailable reports whether an error is [ErrUnavailable].
func IsUnavailable(err error) bool { return hasCode(err, codes.Unavailable) }

// IsEventsGone reports whether an error is [ErrEventsGone].
func IsEventsGone(err error) bool { return hasCode(err, codes.OutOfRange) }

// hasCode also accepts errors of the generated stubs.
func hasCode(err error, code codes.Code) bool { return err != nil && status.Code(err) == code }

// Violation describes an invalid field of a request.
type Violation struct{ Field, Description string }

// Violations returns the invalid fields of a request from its error. It is empty if the error has none.
func Violations(err error) []Violation {
	var out []Violation
	for _, detail := range status.Convert(err).Details() {
		bad, ok := detail.(*errdetails.BadRequest)
		if !ok {
			continue
		}
		for _, v := range bad.GetFieldViolations() {
			out = append(out, Violation{Field: v.GetField(), Description: v.GetDescription()})
		}
	}
	return out
}

// ErrorReason returns the reason of an error for programs, such as "EXCLUDED_TIME" or "NAMESPACE_JOBS". It is
// empty if the error has none.
func ErrorReason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// itemResult is the common part of batch results.
type itemResult interface {
	GetCode() int32
	GetMessage() string
	GetDetails() []*anypb.Any
}

// itemError returns the error of one item of a batch, or nil.
func itemError(r itemResult) error {
	if codes.Code(r.GetCode()) == codes.OK {
		return nil
	}
	return wrapError(status.ErrorProto(&rpcstatus.Status{
		Code: r.GetCode(), Message: r.GetMessage(), Details: r.GetDetails(),
	}))
}
