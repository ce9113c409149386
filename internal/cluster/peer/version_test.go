package peer

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/sharding"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// helloOf is the hello of a node without version fields, as the first builds sent it.
func helloOf(node string) *fermatav1.LinkRequest {
	return &fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_Hello{Hello: &fermatav1.LinkHello{Node: node}}}
}

func TestCompatibleProtocols(t *testing.T) {
	for _, tt := range []struct {
		self, other handshake
		fits        bool
	}{
		{handshake{protocol: 1, minProtocol: 1}, handshake{protocol: 1, minProtocol: 1}, true},
		{handshake{protocol: 1, minProtocol: 1}, handshake{protocol: 2, minProtocol: 1}, true},
		{handshake{protocol: 2, minProtocol: 1}, handshake{protocol: 1, minProtocol: 1}, true},
		{handshake{protocol: 1, minProtocol: 1}, handshake{protocol: 3, minProtocol: 2}, false},
		{handshake{protocol: 3, minProtocol: 2}, handshake{protocol: 1, minProtocol: 1}, false},
		{handshake{protocol: 3, minProtocol: 2}, handshake{protocol: 2, minProtocol: 1}, true},
	} {
		if err := tt.self.checkCompatible(tt.other); (err == nil) != tt.fits {
			t.Errorf("%+v and %+v: %v", tt.self, tt.other, err)
		}
	}
	if a := handshakeFromHello(&fermatav1.LinkHello{Node: "x"}); a.protocol != 1 || a.minProtocol != 1 {
		t.Errorf("a node that does not say: %+v", a)
	}
	if a := handshakeFromHeader("x", metadata.MD{}); a.protocol != 1 || a.minProtocol != 1 {
		t.Errorf("a node that does not say: %+v", a)
	}
	want := handshake{node: "x", version: "1.2.3", protocol: 4, minProtocol: 2, keyspace: "k"}
	if a := handshakeFromHeader("x", want.responseHeader()); a != want {
		t.Errorf("header: %+v", a)
	}
	with := want
	with.process, with.features = "p", 1<<31+5
	if a := handshakeFromHeader("x", with.responseHeader()); a != with {
		t.Errorf("header: %+v", a)
	}
	if a := handshakeFromHello(want.helloRequest().GetHello()); a != want {
		t.Errorf("hello: %+v", a)
	}
}

// A node refuses the link of a node with a later protocol, and gives the reason.
func TestServedLinkOfIncompatibleProtocolIsRefused(t *testing.T) {
	n := start(t, "n", "127.0.0.1:0", nil)
	s := dial(t, n)
	send(t, s, handshake{node: "x", version: "9.0.0", protocol: 9, minProtocol: 8}.helloRequest())
	_, err := s.Recv()
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "9.0.0") || !strings.Contains(err.Error(), "upgrade over") {
		t.Errorf("%v", err)
	}
	// A node with additions that may be ignored is accepted, and receives this node's version.
	s = dial(t, n)
	send(t, s, handshake{node: "x", version: "1.9.0", protocol: 9, minProtocol: 1}.helloRequest())
	header, err := s.Header()
	if err != nil || firstValue(header, protocolHeader) != fmt.Sprint(Protocol) {
		t.Errorf("%v %v", header, err)
	}
	send(t, s, cancelToPB("ns/j", 1))
	n.waitFor("cancel ns/j 1")
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	n.waitFor("down x")
}

// laterNode is a node of a later version that no longer understands this one's protocol.
type laterNode struct {
	fermatav1.UnimplementedPeerServiceServer
}

func (laterNode) Link(stream servedStream) error {
	if err := stream.SendHeader(handshake{protocol: 9, minProtocol: 8}.responseHeader()); err != nil {
		return err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.GetHello() == nil {
			return status.Error(codes.Internal, "it goes on talking")
		}
	}
}

// A node does not talk on a link that it dialled to one that it does not understand.
func TestDialledLinkToIncompatibleProtocolIsNotUsed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	fermatav1.RegisterPeerServiceServer(server, laterNode{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		<-served
	}()
	n := start(t, "n", "127.0.0.1:0", nil)
	n.peer.OfferSlots([]job.QueueDemand{{Namespace: "ns", Queue: "q", Free: 1}})
	l, err := n.peer.newLink(sharding.Member{Name: "later", PeerAddr: listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	defer l.conn.Close()
	defer l.cancel()
	begun := time.Now()
	if opened, err := l.serveStream(); opened || status.Code(err) != codes.FailedPrecondition || time.Since(begun) > time.Minute {
		t.Errorf("session: %v %v", opened, err)
	}
}
