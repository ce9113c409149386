package tlsfiles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/fermata-io/fermata/internal/test/tlstest"
)

func TestServerTakesOnlyTheClientsItShould(t *testing.T) {
	ours, theirs := tlstest.New(t, "ours"), tlstest.New(t, "theirs")
	files := all(tlstest.NewDir(t, ours.Issue(tlstest.Identity{Name: "server"}), ours))
	good := ours.Issue(tlstest.Identity{Name: "client"})
	expired := ours.Issue(tlstest.Identity{Name: "late", NotAfter: time.Now().Add(-time.Hour)})
	old := ours.Client(good)
	old.MinVersion, old.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
	for name, c := range map[string]struct {
		with credentials.TransportCredentials
		want [3]string // by ClientAuth
	}{
		"its own": {credentials.NewTLS(ours.Client(good)), [3]string{"", "", ""}},
		"no certificate": {credentials.NewTLS(ours.Client(tlstest.Pair{})),
			[3]string{"", "", "didn't provide a certificate"}},
		"wrong authority": {credentials.NewTLS(ours.Client(theirs.Issue(tlstest.Identity{Name: "client"}))),
			[3]string{"", "unknown authority", "unknown authority"}},
		"expired": {credentials.NewTLS(ours.Client(expired)), [3]string{"", "has expired", "has expired"}},
		"their authority under our name": {credentials.NewTLS(ours.Client(tlstest.New(t,
			"ours").Issue(tlstest.Identity{Name: "client"}))),
			[3]string{"", "unknown authority", "unknown authority"}},
		"for servers": {credentials.NewTLS(ours.Client(ours.Issue(tlstest.Identity{Usage: serving}))),
			[3]string{"", wrongUse, wrongUse}},
		"plain text": {insecure.NewCredentials(), [3]string{notTLS, notTLS, notTLS}},
		"TLS 1.1":    {oldTLS{credentials.NewTLS(old), old}, [3]string{tooOld, tooOld, tooOld}},
	} {
		for auth, want := range c.want {
			t.Run(fmt.Sprint(name, auth), func(t *testing.T) {
				var log lines
				source := open(t, Options{Files: files, Use: "clients", Logger: log.logger()})
				addr := serve(t, grpc.Creds(must(t)(source.Server(ClientAuth(auth)))))
				log.wants(t, try(t, addr, c.with), want)
			})
		}
	}
}

// Usages of certificates that are for one side only.
var serving, calling = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

const wrongUse = "incompatible key usage"

// What servers say of clients that do not speak what they do.
const (
	notTLS = "does not look like a TLS handshake"
	tooOld = "client offered only unsupported versions"
)

func TestClientTrustsOnlyTheServerItShould(t *testing.T) {
	ours, theirs := tlstest.New(t, "ours"), tlstest.New(t, "theirs")
	server := func(a *tlstest.Authority, id tlstest.Identity) string {
		source := open(t, Options{Files: all(tlstest.NewDir(t, a.Issue(id), a))})
		return serve(t, grpc.Creds(must(t)(source.Server(NoClientCert))))
	}
	good := server(ours, tlstest.Identity{Name: "server", DNS: []string{"fermata.example"}})
	ca := tlstest.NewDir(t, tlstest.Pair{}, ours).CA
	for name, c := range map[string]struct {
		addr, name, want string
	}{
		"by address":      {good, "", ""},
		"by name":         {good, "fermata.example", ""},
		"wrong name":      {good, "other.example", "not other.example"},
		"wrong authority": {server(theirs, tlstest.Identity{Name: "server"}), "", "unknown authority"},
		"expired":         {server(ours, tlstest.Identity{NotAfter: time.Now().Add(-time.Hour)}), "", "expired"},
		"of another place": {server(ours, tlstest.Identity{DNS: []string{"fermata.example"}, Elsewhere: true}), "",
			"127.0.0.1"},
		"for clients": {server(ours, tlstest.Identity{Usage: calling}), "", wrongUse},
		"plain text":  {serve(t), "", "first record does not look like a TLS handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			source := open(t, Options{Files: Files{Authorities: ca, ServerName: c.name}})
			wants(t, try(t, c.addr, source.Client()), c.want)
		})
	}
}

// TestNameHoldsForAListOfAddresses is about resolvers that name the host of each
// address, which gRPC's own credentials prefer to the configured name.
func TestNameHoldsForAListOfAddresses(t *testing.T) {
	ours := tlstest.New(t, "ours")
	source := open(t, Options{Files: all(tlstest.NewDir(t,
		ours.Issue(tlstest.Identity{DNS: []string{"fermata.example"}, Elsewhere: true}), ours))})
	addr := serve(t, grpc.Creds(must(t)(source.Server(NoClientCert))))
	for name, want := range map[string]string{"fermata.example": "", "": "127.0.0.1"} {
		list := manual.NewBuilderWithScheme("list")
		list.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: addr, ServerName: "127.0.0.1"}}})
		client := open(t, Options{Files: Files{Authorities: source.o.Authorities, ServerName: name}})
		conn, err := grpc.NewClient("list:///x", grpc.WithResolvers(list),
			grpc.WithTransportCredentials(client.Client()))
		if err != nil {
			t.Fatal(err)
		}
		wants(t, check(t, conn), want)
		_ = conn.Close()
	}
}

func TestPeersKnowEachOther(t *testing.T) {
	ours, theirs := tlstest.New(t, "ours"), tlstest.New(t, "theirs")
	const role, workers = "spiffe://fermata.example/node", "spiffe://fermata.example/worker"
	creds := func(t *testing.T, a *tlstest.Authority, id tlstest.Identity,
		names ...string) credentials.TransportCredentials {
		t.Helper()
		return must(t)(open(t, Options{Files: all(tlstest.NewDir(t, a.Issue(id), ours))}).Peers(names))
	}
	node := tlstest.Identity{Name: "node", URIs: []string{role + "/a"}, DNS: []string{"a.nodes.example"}}
	other := tlstest.Identity{Name: "node", URIs: []string{role + "/b"}, DNS: []string{"b.nodes.example"},
		Elsewhere: true}
	same := tlstest.Identity{Name: "node", URIs: []string{role + "/a"}, Elsewhere: true}
	worker := tlstest.Identity{Name: "worker", URIs: []string{workers}, DNS: []string{"w.workers.example"}}
	// two are not made by Peers, which would refuse a certificate of its own with two URIs.
	two := func(uris ...string) credentials.TransportCredentials {
		return credentials.NewTLS(ours.Client(ours.Issue(tlstest.Identity{URIs: uris, DNS: node.DNS})))
	}
	for name, c := range map[string]struct {
		names []string
		with  credentials.TransportCredentials
		want  string
	}{
		"same identity":      {nil, creds(t, ours, same), ""},
		"another identity":   {nil, creds(t, ours, other, role+"/a"), "not that of a peer"},
		"the service's name": {nil, creds(t, ours, tlstest.Identity{DNS: node.DNS}, role+"/a"), "not that of a peer"},
		"its URI as a name": {nil, creds(t, ours,
			tlstest.Identity{DNS: []string{"fermata.example"}, URIs: []string{workers}}, role+"/a"), "not that of a peer"},
		"path":       {[]string{role + "/*"}, creds(t, ours, other, role+"/a"), ""},
		"domain":     {[]string{"*.nodes.example"}, creds(t, ours, other, "a.nodes.example"), ""},
		"one name":   {[]string{"B.nodes.example"}, creds(t, ours, other, role+"/*"), ""},
		"other name": {[]string{"c.nodes.example"}, creds(t, ours, other, role+"/*"), "not that of a peer"},
		"a worker":   {nil, creds(t, ours, worker, role+"/a"), "not that of a peer"},
		"a worker, by names": {[]string{role + "/*", "*.nodes.example"}, creds(t, ours, worker, role+"/a"),
			"not that of a peer"},
		"wrong authority":    {nil, creds(t, theirs, same, role+"/a"), "unknown authority"},
		"two URIs":           {nil, two(role+"/a", role+"/b"), "has 2 URIs"},
		"two URIs, by names": {[]string{role + "/*", "a.nodes.example"}, two(workers, role+"/a"), "has 2 URIs"},
		"expired": {nil, creds(t, ours,
			tlstest.Identity{URIs: same.URIs, NotAfter: time.Now().Add(-time.Hour)}), "expired"},
		"for servers":    {nil, creds(t, ours, tlstest.Identity{URIs: same.URIs, Usage: serving}), wrongUse},
		"no certificate": {nil, credentials.NewTLS(ours.Client(tlstest.Pair{})), "didn't provide a certificate"},
		"plain text":     {nil, insecure.NewCredentials(), notTLS},
		"TLS 1.2":        {nil, upTo12(ours.Client(ours.Issue(same))), tooOld},
	} {
		t.Run(name, func(t *testing.T) {
			var log lines
			source := open(t, Options{Files: all(tlstest.NewDir(t, ours.Issue(node), ours)), Logger: log.logger()})
			addr := serve(t, grpc.Creds(must(t)(source.Peers(c.names))))
			log.wants(t, try(t, addr, c.with), c.want)
		})
	}
	t.Run("nodes without URIs", func(t *testing.T) {
		byName := tlstest.Identity{DNS: []string{"nodes.example"}}
		addr := serve(t, grpc.Creds(creds(t, ours, byName)))
		wants(t, try(t, addr, creds(t, ours, byName)), "")
	})
	t.Run("a node that is dialled by the service's name", func(t *testing.T) {
		addr := serve(t, grpc.Creds(creds(t, ours, tlstest.Identity{DNS: node.DNS}, role+"/a")))
		wants(t, try(t, addr, creds(t, ours, node)), "not that of a peer")
	})
	t.Run("not who is asked for", func(t *testing.T) {
		addr := serve(t, grpc.Creds(creds(t, ours, worker, role+"/a")))
		wants(t, try(t, addr, creds(t, ours, node)), "not that of a peer")
	})
	t.Run("server with two URIs", func(t *testing.T) {
		two := ours.Issue(tlstest.Identity{URIs: []string{role + "/a", role + "/b"}, DNS: node.DNS})
		pair, err := tls.X509KeyPair(two.Cert, two.Key)
		if err != nil {
			t.Fatal(err)
		}
		addr := serve(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair},
			ClientCAs: ours.Pool(), ClientAuth: tls.RequireAndVerifyClientCert})))
		wants(t, try(t, addr, creds(t, ours, node)), "has 2 URIs")
	})
	t.Run("an own certificate with two URIs", func(t *testing.T) {
		files := all(tlstest.NewDir(t, ours.Issue(tlstest.Identity{URIs: []string{role + "/a", role + "/b"}}), ours))
		if _, err := open(t, Options{Files: files}).Peers(nil); err == nil ||
			!strings.Contains(err.Error(), "has 2 URIs") {
			t.Errorf("%v", err)
		}
	})
	t.Run("for clients", func(t *testing.T) {
		addr := serve(t, grpc.Creds(creds(t, ours, tlstest.Identity{URIs: node.URIs, Usage: calling})))
		wants(t, try(t, addr, creds(t, ours, node)), wrongUse)
	})
	t.Run("server of another authority", func(t *testing.T) {
		impostor := theirs.Issue(same)
		pair, err := tls.X509KeyPair(impostor.Cert, impostor.Key)
		if err != nil {
			t.Fatal(err)
		}
		addr := serve(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}})))
		wants(t, try(t, addr, creds(t, ours, node)), "unknown authority")
	})
}

func upTo12(c *tls.Config) credentials.TransportCredentials {
	c.MaxVersion = tls.VersionTLS12
	return credentials.NewTLS(c)
}

func TestNamesOfPeersAreChecked(t *testing.T) {
	ours := tlstest.New(t, "ours")
	s := open(t, Options{Files: all(tlstest.NewDir(t, ours.Issue(tlstest.Identity{}), ours))})
	for _, name := range []string{"", "*", "*.", "a.*.example", "node example", "spiffe://*", "spiffe:///*", "a/b",
		"**.example"} {
		if _, err := s.Peers([]string{name}); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
	if _, err := s.Peers(nil); err == nil {
		t.Error("a certificate for localhost alone says who a peer is")
	}
	if _, err := s.Peers([]string{"a.example"}); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name, id string
		want     bool
	}{
		{"*.nodes.example", "a.nodes.example", true},
		{"*.nodes.example", "nodes.example", false},
		{"*.nodes.example", ".nodes.example", false},
		{"*.nodes.example", "a.b.nodes.example", false},
		{"*.nodes.example", "*.nodes.example", false},
		{"*.nodes.example", "spiffe://a.nodes.example", false},
		{"spiffe://e/node/*", "spiffe://e/node/a/b", true},
		{"spiffe://e/node/*", "spiffe://e/node/", false},
		{"spiffe://e/node/*", "spiffe://e/nodes/a", false},
		{"a.example", "a.example.evil", false},
	} {
		if got := matchesPattern(c.name, c.id); got != c.want {
			t.Errorf("%q stands for %q: %v", c.name, c.id, got)
		}
	}
}

// oldTLS speaks a version that gRPC's credentials do not offer.
type oldTLS struct {
	credentials.TransportCredentials
	config *tls.Config
}

func (o oldTLS) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := o.config.Clone()
	c.ServerName, c.NextProtos = "localhost", []string{"h2"}
	secured := tls.Client(conn, c)
	return secured, nil, secured.HandshakeContext(ctx)
}
