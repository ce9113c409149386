package guard

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// listeningPeer answers calls of other nodes, and keeps their headers.
type listeningPeer struct {
	fermatav1.UnimplementedPeerServiceServer
	mu      sync.Mutex
	headers []metadata.MD
}

func (p *listeningPeer) note(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	header, _ := metadata.FromIncomingContext(ctx)
	p.headers = append(p.headers, header)
}

func (p *listeningPeer) DescribeNode(ctx context.Context, _ *fermatav1.DescribeNodeRequest) (*fermatav1.DescribeNodeResponse, error) {
	p.note(ctx)
	return &fermatav1.DescribeNodeResponse{Node: &fermatav1.Node{Name: "described"}}, nil
}

func (p *listeningPeer) Link(s grpc.BidiStreamingServer[fermatav1.LinkRequest, fermatav1.LinkResponse]) error {
	p.note(s.Context())
	return s.Send(&fermatav1.LinkResponse{})
}

// servePeer serves a peer, and returns its address.
func servePeer(t *testing.T, p fermatav1.PeerServiceServer, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return servePeerAt(t, p, listener, options...)
}

func servePeerAt(t *testing.T, p fermatav1.PeerServiceServer, listener net.Listener, options ...grpc.ServerOption) string {
	t.Helper()
	server := grpc.NewServer(options...)
	fermatav1.RegisterPeerServiceServer(server, p)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return listener.Addr().String()
}

// callPeer describes a peer and opens a link to it, with these options and headers.
func callPeer(t *testing.T, address string, header metadata.MD, options ...grpc.DialOption) (unary, stream error) {
	t.Helper()
	conn, err := grpc.NewClient(address, append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client, ctx := fermatav1.NewPeerServiceClient(conn), metadata.NewOutgoingContext(t.Context(), header)
	answer, unary := client.DescribeNode(ctx, &fermatav1.DescribeNodeRequest{})
	if unary == nil && answer.GetNode().GetName() != "described" {
		t.Errorf("described as %q", answer.GetNode().GetName())
	}
	link, err := client.Link(ctx)
	if err != nil {
		t.Fatal(err)
	}
	got, err := link.Header()
	_, stream = link.Recv()
	if err != nil || stream != nil && len(got) > 0 {
		t.Errorf("a link that ends with %v has the header %v, %v", stream, got, err)
	}
	if stream == nil {
		_, end := link.Recv()
		if end != io.EOF {
			t.Errorf("the link ended with %v", end)
		}
	}
	return unary, stream
}

// TestNodesProveTheirKey to each other. What a node sends to something else that listens at an address of gossip is
// worth nothing at a node.
func TestNodesProveTheirKey(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	key, other := PeerKey("the key"), PeerKey("another key")
	b := Callee{Name: "b", Process: "b1", Address: listener.Addr().String()}
	check, err := PeerKeyCheck(key, b, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	options, err := PeerServerOptions(nil, check, Options{})
	if err != nil {
		t.Fatal(err)
	}
	servePeerAt(t, &listeningPeer{}, listener, append(options, key.ServerOptions("b")...)...)
	dial := func(k PeerKey, c Callee) []grpc.DialOption { return k.DialOptions(func() Callee { return c }) }
	refused := func(what string, unary, stream error) {
		t.Helper()
		if status.Code(unary) != codes.Unauthenticated || status.Code(stream) != codes.Unauthenticated {
			t.Errorf("%s: %v, %v", what, unary, stream)
		}
	}
	if unary, stream := callPeer(t, b.Address, nil, dial(key, b)...); unary != nil || stream != nil {
		t.Errorf("a node: %v, %v", unary, stream)
	}
	unary, stream := callPeer(t, b.Address, nil, dial(other, b)...)
	refused("another key", unary, stream)
	for name, c := range map[string]Callee{
		"another node": {"c", b.Process, b.Address}, "another process": {b.Name, "b2", b.Address}, "another address": {b.Name, b.Process, "127.0.0.1:1"},
	} {
		unary, stream := callPeer(t, b.Address, nil, dial(key, c)...)
		refused("a proof for "+name, unary, stream)
	}
	for name, nonce := range map[string]string{"no nonce": "", "a long nonce": strings.Repeat("x", maxNonce+1)} {
		unary, stream := callPeer(t, b.Address, metadata.Pairs(PeerProofHeader, key.CallerProof(b), PeerNonceHeader, nonce))
		refused(name, unary, stream)
	}

	// It has no key, answers with whatever it likes, and publishes any name.
	stranger := &listeningPeer{}
	answers := grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		_ = grpc.SetHeader(ctx, metadata.Pairs(peerAnswerHeader, other.calleeProof("b", nonceOf(ctx))))
		return next(ctx, q)
	})
	address := servePeer(t, stranger, answers)
	for _, name := range []string{"b", "evil"} {
		unary, stream := callPeer(t, address, nil, dial(key, Callee{name, b.Process, address})...)
		refused("a stranger as "+name, unary, stream)
	}
	if len(stranger.headers) != 4 {
		t.Fatalf("the stranger got %d calls", len(stranger.headers))
	}
	for _, header := range stranger.headers {
		sent := metadata.MD{PeerProofHeader: header.Get(PeerProofHeader), PeerNonceHeader: header.Get(PeerNonceHeader)}
		unary, stream := callPeer(t, b.Address, sent)
		refused("what the stranger got", unary, stream)
		if strings.Contains(strings.Join(header.Get(PeerProofHeader), ""), string(key)) {
			t.Error("the key itself is sent")
		}
	}
}
