package client

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// IsNotFound reports whether the job or run does not exist.
func IsNotFound(err error) bool { return hasCode(err, codes.NotFound) }

// IsExists reports whether another job has the id.
func IsExists(err error) bool { return hasCode(err, codes.AlreadyExists) }

// IsConflict reports whether the job or the queue settings were changed concurrently, or the id belongs to a
// deleted job that still runs.
func IsConflict(err error) bool { return hasCode(err, codes.Aborted) }

// IsInvalid reports whether the request is invalid; [Violations] returns the fields.
func IsInvalid(err error) bool { return hasCode(err, codes.InvalidArgument) }

// IsUnavailable reports whether no node, or no Redis behind it, could be reached.
func IsUnavailable(err error) bool { return hasCode(err, codes.Unavailable) }

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

// itemResult is the common part of batch results.
type itemResult interface {
	GetCode() int32
	GetMessage() string
	GetDetails() []*anypb.Any
}

func statusProto(r itemResult) *rpcstatus.Status {
	return &rpcstatus.Status{Code: r.GetCode(), Message: r.GetMessage(), Details: r.GetDetails()}
}
