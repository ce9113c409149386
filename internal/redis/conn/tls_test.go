package conn

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/auth/tlsfiles"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
)

// tlsServer is a Redis server that requires TLS with client certificates of ours.
func tlsServer(t *testing.T, ours *tlstest.Authority) *redistest.Server {
	t.Helper()
	files := tlstest.NewDir(t, ours.Issue(tlstest.Identity{Name: "redis", DNS: []string{"redis.example"}}), ours)
	return redistest.Start(t, redistest.WithTLS(redistest.TLS{
		Cert: files.Cert, Key: files.Key, CA: files.CA, Client: ours.Client(ours.Issue(tlstest.Identity{Name: "test"})),
	}))
}

func TestRedisOverTLS(t *testing.T) {
	ours, theirs := tlstest.New(t, "ours"), tlstest.New(t, "theirs")
	server := tlsServer(t, ours)
	mine := ours.Issue(tlstest.Identity{Name: "fermata"})
	files := func(p tlstest.Pair, a *tlstest.Authority) tlsfiles.Files {
		d := tlstest.NewDir(t, p, a)
		return tlsfiles.Files{Cert: d.Cert, Key: d.Key, Authorities: d.CA}
	}
	good := files(mine, ours)
	named, misnamed, anonymous := good, good, good
	named.ServerName, misnamed.ServerName = "redis.example", "other.example"
	anonymous.Cert, anonymous.Key = "", ""
	for name, c := range map[string]struct {
		url, want string
		files     tlsfiles.Files
	}{
		"its own":                 {server.URL(), "", good},
		"by name":                 {server.URL(), "", named},
		"cluster":                 {strings.Replace(server.URL(), "rediss://", "rediss+cluster://", 1), "cluster support disabled", good},
		"wrong name":              {server.URL(), "certificate is valid for redis.example, localhost, not other.example", misnamed},
		"wrong authority":         {server.URL(), "certificate signed by unknown authority", files(mine, theirs)},
		"system's authorities":    {server.URL(), "certificate signed by unknown authority", tlsfiles.Files{}},
		"no certificate":          {server.URL(), "certificate required", anonymous},
		"certificate of a forger": {server.URL(), "unknown certificate authority", files(theirs.Issue(tlstest.Identity{Name: "fermata"}), ours)},
		"plain text":              {"redis://" + server.Addr(), "read: ", tlsfiles.Files{}},
	} {
		t.Run(name, func(t *testing.T) {
			o := ClientOptions{URL: c.url}
			if strings.HasPrefix(c.url, "rediss") {
				source, err := tlsfiles.Open(tlsfiles.Options{Files: c.files})
				if err != nil {
					t.Fatal(err)
				}
				o.TLS = source.ClientConfig
			}
			err := ping(t, o)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestARefusalIsReadAfterAReset has a server that refuses the client's certificate and
// resets the connection before the client's first write.
func TestARefusalIsReadAfterAReset(t *testing.T) {
	ours, theirs := tlstest.New(t, "ours"), tlstest.New(t, "theirs")
	forged := tlstest.NewDir(t, theirs.Issue(tlstest.Identity{Name: "fermata"}), ours)
	source, err := tlsfiles.Open(tlsfiles.Options{Files: tlsfiles.Files{Cert: forged.Cert, Key: forged.Key, Authorities: forged.CA}})
	if err != nil {
		t.Fatal(err)
	}
	pair := ours.Issue(tlstest.Identity{Name: "redis"})
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.Pool()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if err := tls.Server(conn, config).HandshakeContext(t.Context()); err == nil {
			t.Error("the server accepted the certificate")
		}
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}()
	conn, err := ClientOptions{TLS: source.ClientConfig}.tlsDialer()(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-hungUp
	if _, err := conn.Write([]byte("PING\r\n")); err == nil || !strings.Contains(err.Error(), "unknown certificate authority") {
		t.Errorf("%v", err)
	}
}

// TestRedisAuthorityIsReplaced changes both sides to another authority while a client
// is connected.
func TestRedisAuthorityIsReplaced(t *testing.T) {
	first, second := tlstest.New(t, "first"), tlstest.New(t, "second")
	old, fresh := tlsServer(t, first), tlsServer(t, second)
	dir := tlstest.NewDir(t, first.Issue(tlstest.Identity{}), first)
	var later atomic.Bool
	now := func() time.Time {
		if later.Load() {
			return time.Now().Add(time.Minute)
		}
		return time.Now()
	}
	source, err := tlsfiles.Open(tlsfiles.Options{Files: tlsfiles.Files{Cert: dir.Cert, Key: dir.Key, Authorities: dir.CA}, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	connected, err := NewClient(ClientOptions{URL: old.URL(), TLS: source.ClientConfig, DialTimeout: 20 * time.Second, ReadTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	if err := connected.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	dir.Replace(second.Issue(tlstest.Identity{}), second)
	later.Store(true)
	if err := ping(t, ClientOptions{URL: fresh.URL(), TLS: source.ClientConfig}); err != nil {
		t.Errorf("with the new files: %v", err)
	}
	if err := ping(t, ClientOptions{URL: old.URL(), TLS: source.ClientConfig}); err == nil {
		t.Error("the old authority is still trusted")
	}
	if err := connected.Ping(t.Context()).Err(); err != nil {
		t.Errorf("what was open is not any more: %v", err)
	}
}

func ping(t *testing.T, o ClientOptions) error {
	t.Helper()
	o.DialTimeout, o.ReadTimeout = 20*time.Second, 20*time.Second // handshakes take their time on a busy machine
	client, err := NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ClusterInfo(ctx).Err()
	}
	return client.Ping(ctx).Err()
}
