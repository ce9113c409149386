package peer

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/core/sharding"
	"github.com/fermata-io/fermata/internal/test/tlstest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// credentialsOf are those of a peer with this identity.
func credentialsOf(t *testing.T, a *tlstest.Authority, uri string) credentials.TransportCredentials {
	t.Helper()
	dir := tlstest.NewDir(t, a.Issue(tlstest.Identity{URIs: []string{uri}}), a)
	source, err := tlsfiles.Open(tlsfiles.Options{Files: tlsfiles.Files{Cert: dir.Cert, Key: dir.Key, Authorities: dir.CA}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := source.Peers(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const nodeURI = "spiffe://fermata.example/node"

// TestEndedProcessIsNoticedUnderTLS: a refused connection is proof under TLS too; another process at the address
// that fails the handshake is not.
func TestEndedProcessIsNoticedUnderTLS(t *testing.T) {
	ours, theirs := tlstest.New(t, "ours"), tlstest.New(t, "theirs")
	a := startSecured(t, "a", "127.0.0.1:0", nil, credentialsOf(t, ours, nodeURI))
	b := startSecured(t, "b", "127.0.0.1:0", nil, credentialsOf(t, ours, nodeURI))
	a.peer.SetView(sharding.NewView(1, "a", members(a, b)))
	b.peer.SetView(sharding.NewView(1, "b", members(a, b)))
	a.waitFor("back b")
	b.waitFor("back a")
	b.stop()
	a.waitFor("gone b")
	again := startSecured(t, "b", b.addr, nil, credentialsOf(t, ours, nodeURI))
	a.waitFor("back b")
	again.stop()
	a.waitFor("gone b")
	listener, err := net.Listen("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	impostor, shaken := credentialsOf(t, theirs, nodeURI), make(chan error)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				close(shaken)
				return
			}
			_, _, err = impostor.ServerHandshake(conn)
			_ = conn.Close()
			shaken <- err
		}
	}()
	for range 2 {
		if err := <-shaken; err == nil {
			t.Error("a shook hands with a stranger")
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.heard, "back b") {
		t.Error("the stranger was taken for b")
	}
	_ = listener.Close()
	for range shaken {
	}
}

// TestOnlyPeersAreServed calls the service with other identities: each is refused before the service is called.
func TestOnlyPeersAreServed(t *testing.T) {
	ours, theirs := tlstest.New(t, "ours"), tlstest.New(t, "theirs")
	n := startSecured(t, "a", "127.0.0.1:0", nil, credentialsOf(t, ours, nodeURI))
	client := ours.Issue(tlstest.Identity{Name: "client", DNS: []string{"app.example"}})
	for name, c := range map[string]credentials.TransportCredentials{
		"a client of ours":            credentials.NewTLS(ours.Client(client)),
		"a worker of ours":            credentialsOf(t, ours, "spiffe://fermata.example/worker"),
		"a node of another authority": credentialsOf(t, theirs, nodeURI),
		"nobody":                      credentials.NewTLS(ours.Client(tlstest.Pair{})),
		"somebody in plain text":      insecure.NewCredentials(),
		"a node":                      credentialsOf(t, ours, nodeURI),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := grpc.NewClient("passthrough:///"+n.addr, grpc.WithTransportCredentials(c))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = fermatav1.NewPeerServiceClient(conn).DescribeNode(ctx, &fermatav1.DescribeNodeRequest{})
			if (err == nil) != (name == "a node") {
				t.Errorf("%v", err)
			}
			if name == "a node" {
				return
			}
			stream, err := fermatav1.NewPeerServiceClient(conn).Link(ctx)
			if err == nil {
				// What fails is seen when the answer is read.
				_ = stream.Send(&fermatav1.LinkRequest{Message: &fermatav1.LinkRequest_Hello{Hello: &fermatav1.LinkHello{Node: "evil"}}})
				_, err = stream.Recv()
			}
			if err == nil {
				t.Error("a link was opened")
			}
		})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.IndexFunc(n.heard, func(s string) bool { return strings.Contains(s, "evil") }); i >= 0 {
		t.Errorf("the node listened: %s", n.heard[i])
	}
}
