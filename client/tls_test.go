package client_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/test/tlstest"
)

// TestNodesAreVerifiedByTheConfiguredName: of one address as of several, where each comes
// with a host of its own.
func TestNodesAreVerifiedByTheConfiguredName(t *testing.T) {
	ours := tlstest.New(t, "ours")
	p := ours.Issue(tlstest.Identity{DNS: []string{"fermata.example"}, Elsewhere: true})
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	addr := listener.Addr().String()
	for _, addresses := range [][]string{{addr}, {addr, addr}} {
		for name, want := range map[string]string{"fermata.example": "", "": "127.0.0.1", "other.example": "not other.example"} {
			config := ours.Client(tlstest.Pair{})
			config.ServerName = name
			c, err := client.Dial(addresses, client.Options{TLS: config, Attempts: 1})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Admin().Nodes(t.Context())
			// Who gets through finds a server without services.
			if want == "" && status.Code(err) != codes.Unimplemented || want != "" && !strings.Contains(err.Error(), want) {
				t.Errorf("%d addresses, name %q: %v", len(addresses), name, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
