package rpc

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/fermata-io/fermata/internal/core/authz"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// BenchmarkGate is what authentication and authorization add to a call, once the
// connection has been proved.
func BenchmarkGate(b *testing.B) {
	rules := []authz.Rule{}
	for range 50 {
		rules = append(rules, allow(authz.Viewer, "elsewhere", "nobody"))
	}
	g, err := newGate(Options{Authority: newAuthority(b, authz.Limits{Rate: 1e6, Burst: 1e6}, append(rules, allow(authz.Editor, "team-a", "ann"))...)})
	if err != nil {
		b.Fatal(err)
	}
	_, info, err := insecure.NewCredentials().ServerHandshake(nil)
	if err != nil {
		b.Fatal(err)
	}
	ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs("authorization", "Bearer ann"))
	ctx = peer.NewContext(ctx, &peer.Peer{AuthInfo: &connection{AuthInfo: info}})
	q := &fermatav1.GetJobRequest{Name: "namespaces/team-a/jobs/ping"}
	call := &grpc.UnaryServerInfo{FullMethod: fermatav1.JobService_GetJob_FullMethodName}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	b.ReportAllocs()
	for b.Loop() {
		if _, err := g.unary(ctx, q, call, handler); err != nil {
			b.Fatal(err)
		}
	}
}
