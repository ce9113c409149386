package rpc

import (
	"context"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/internal/api/apierror"
)

// keyspaceGuard refuses calls that would change a keyspace which is known to be lost: what they stored would be lost
// again when it is restored. Such calls fail until it has been restored. Calls that read are answered.
type keyspaceGuard func() (fault string)

func (fault keyspaceGuard) interceptUnary(ctx context.Context, q any,
	info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if _, writes := auditRules[info.FullMethod]; writes {
		if text := fault(); text != "" {
			return nil, apierror.WithDetails(codes.FailedPrecondition, text,
				&errdetails.ErrorInfo{Reason: "KEYSPACE_GONE", Domain: apierror.Domain}).Err()
		}
	}
	return next(ctx, q)
}
