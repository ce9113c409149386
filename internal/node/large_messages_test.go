package node_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestNodesTakeLargeMessagesOfPeers: a message of more than 4 MiB, the default of gRPC, reaches the service for nodes.
func TestNodesTakeLargeMessagesOfPeers(t *testing.T) {
	redis := redistest.Start(t)
	n := start(t, redis.URL(), "a")
	conn, err := grpc.NewClient(n.PeerAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = fermatav1.NewPeerServiceClient(conn).ForecastShards(t.Context(),
		&fermatav1.ForecastShardsRequest{Namespace: strings.Repeat("n", 5<<20)}, grpc.WaitForReady(true))
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("a request of 5 MiB: %v, want that its buckets are invalid", err)
	}
}
