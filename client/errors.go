package client

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// IsNotFound tells that there is no such job or run.
func IsNotFound(err error) bool { return hasCode(err, codes.NotFound) }

// IsExists tells that the id is taken by another job.
func IsExists(err error) bool { return hasCode(err, codes.AlreadyExists) }

// IsConflict tells that the job, or the settings of the queue, were edited in between,
// or that the id belongs to a deleted job that still runs.
func IsConflict(err error) bool { return hasCode(err, codes.Aborted) }

// IsInvalid tells that the request is at fault; Violations say where.
func IsInvalid(err error) bool { return hasCode(err, codes.InvalidArgument) }

// IsUnavailable tells that no node, or no Redis behind it, could be reached.
func IsUnavailable(err error) bool { return hasCode(err, codes.Unavailable) }

func hasCode(err error, code codes.Code) bool { return err != nil && status.Code(err) == code }

// Violation says what is wrong with one field of a request.
type Violation struct{ Field, Description string }

// Violations lists what an error says of the fields of a request.
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

// itemResult is what the results of batches have in common.
type itemResult interface {
	GetCode() int32
	GetMessage() string
	GetDetails() []*anypb.Any
}

func statusProto(r itemResult) *rpcstatus.Status {
	return &rpcstatus.Status{Code: r.GetCode(), Message: r.GetMessage(), Details: r.GetDetails()}
}
