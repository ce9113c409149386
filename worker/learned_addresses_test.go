package worker_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/test/tlstest"
	"github.com/fermata-io/fermata/worker"
)

// TestLearnedAddressesNeedACertificateForAConfiguredHost: the authority gives anybody a certificate for a name of
// their own. A node at a learnt address has to have one for the host that was configured.
func TestLearnedAddressesNeedACertificateForAConfiguredHost(t *testing.T) {
	ours := tlstest.New(t, "everybody's")
	serving := func(id tlstest.Identity) grpc.ServerOption {
		dir := tlstest.NewDir(t, ours.Issue(id), ours)
		source, err := tlsfiles.Open(tlsfiles.Options{Files: tlsfiles.Files{Cert: dir.Cert, Key: dir.Key, Authorities: dir.CA}})
		if err != nil {
			t.Fatal(err)
		}
		server, err := source.Server(tlsfiles.NoClientCert)
		if err != nil {
			t.Fatal(err)
		}
		return grpc.Creds(server)
	}
	client, err := tlsfiles.Open(tlsfiles.Options{Files: tlsfiles.Files{Authorities: tlstest.NewDir(t, tlstest.Pair{},
		ours).CA}})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]worker.Options{
		"TLS":         {TLS: ours.Client(tlstest.Pair{})},
		"DialOptions": {DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(client.Client())}},
		"gRPC's own":  {DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(ours.Client(tlstest.Pair{})))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := newNode(t, serving(tlstest.Identity{}))
			other := newNode(t, serving(tlstest.Identity{}))
			// Its certificate is for the name at which it is reached, and for that alone.
			evil := newNode(t, serving(tlstest.Identity{DNS: []string{"localhost"}, Elsewhere: true}))
			o.Addresses = append(o.Addresses, first.addr)
			o.Token = func(context.Context) (string, error) { return "token", nil }
			tried := make(chan string, 1000)
			o.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
				tried <- address
				return (&net.Dialer{}).DialContext(ctx, "tcp", address)
			}
			run(t, o, newGates().handlers())
			byName := func(n *node) string { return "localhost" + n.addr[len("127.0.0.1"):] }
			first.accept(ttl).drain(byName(evil), "unix:///run/evil:1")
			again := first.accept(ttl) // nobody else is there
			tries := 0
			for len(tried) > 0 {
				if <-tried == byName(evil) {
					tries++
				}
			}
			if tries == 0 {
				t.Error("the address that was learnt was not tried: this proves nothing")
			}
			again.drain(byName(other))
			other.accept(ttl)
			select {
			case s := <-evil.streams:
				t.Errorf("the worker said Hello to somebody else: %v", s.hello)
			default:
			}
		})
	}
}
