package rpc

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// keyspaceRetry is when a keyspace that is gone may have been restored.
const keyspaceRetry = 5 * time.Second

// keyspaceGuard refuses calls that would change a keyspace which is known to be gone:
// what they stored would be lost when it is restored. Calls that read are answered.
type keyspaceGuard func() (fault string)

func (fault keyspaceGuard) unary(ctx context.Context, q any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if _, writes := changes[info.FullMethod]; writes {
		if text := fault(); text != "" {
			return nil, withDetails(codes.Unavailable, text,
				&errdetails.ErrorInfo{Reason: "KEYSPACE_GONE", Domain: errorDomain}, retryInfo(keyspaceRetry)).Err()
		}
	}
	return next(ctx, q)
}
