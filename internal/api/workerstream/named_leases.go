package workerstream

import (
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// maxLeaseID is more than the longest lease id has, in bytes: a signature, a token, and the id of a record.
	maxLeaseID = 512
	// returnedMargin is for what a worker returns at once beyond the leases that it may have: those that it has
	// returned in the last seconds on a stream that broke (rule N6 of the protocol).
	returnedMargin = 2048
	// maxPartLeases bounds the leases that a session is passed at once. Messages of usual workers have some 300.
	maxPartLeases = 1000
)

// namedLeases bounds the leases that one message of a worker names. An answer may have to be kept for each.
type namedLeases struct {
	most  int // leases of a message
	slots int // of the worker, for the text of a refusal
}

// namedLeasesOf are the bounds for a worker.
func namedLeasesOf(h job.Hello) namedLeases {
	return namedLeases{most: h.MaxLive() + returnedMargin, slots: h.Slots}
}

// checkNamed refuses a message that names more leases than its worker can have, or something that is too long for a
// lease. The error ends the stream.
func checkNamed[T any](bounds namedLeases, list []T, idOf func(T) string) error {
	if len(list) > bounds.most {
		return refuseNamed(codes.ResourceExhausted, "TOO_MANY_LEASES",
			fmt.Sprintf("a message names %d leases, at most %d are allowed with %d slots", len(list), bounds.most, bounds.slots))
	}
	for i := range list {
		if n := len(idOf(list[i])); n > maxLeaseID {
			return refuseNamed(codes.InvalidArgument, "LEASE_ID_TOO_LONG",
				fmt.Sprintf("a lease id has %d bytes, at most %d are allowed", n, maxLeaseID))
		}
	}
	return nil
}

func refuseNamed(code codes.Code, reason, text string) error {
	return apierror.WithDetails(code, text, &errdetails.ErrorInfo{Reason: reason, Domain: apierror.Domain}).Err()
}
