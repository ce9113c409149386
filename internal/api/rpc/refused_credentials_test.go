package rpc

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestRefusedCredentialsAreRated: a connection that has proved an identity may send few credentials that are refused.
// Beyond them no credential is checked for a while, except the one that the connection has proved.
func TestRefusedCredentialsAreRated(t *testing.T) {
	f := serveFlooded(t, Options{}, &floodJobs{}, nil)
	conn := f.dial(t)
	known := as(t.Context(), "flood")
	if err := listNodes(known, conn); err != nil {
		t.Fatal(err)
	}
	count := func(ctx context.Context, n int) map[codes.Code]int {
		answers := map[codes.Code]int{}
		for range n {
			answers[status.Code(listNodes(ctx, conn))]++
		}
		return answers
	}
	got := count(as(t.Context(), "bad"), 2000)
	if got[codes.Unauthenticated] < 50 || got[codes.ResourceExhausted] < 500 || len(got) != 2 {
		t.Errorf("answers to 2,000 calls with a wrong token: %v", got)
	}
	if err := listNodes(known, conn); err != nil {
		t.Errorf("with the right token: %v", err)
	}
	if err := listNodes(as(t.Context(), "healthy"), f.healthy); err != nil {
		t.Errorf("somebody else: %v", err)
	}
}
