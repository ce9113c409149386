package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/tlstest"
)

// TestUntrustedRedisIsNotOpened shows what an operator reads, and that a client
// behaves as with a server that cannot be reached: nothing was sent.
func TestUntrustedRedisIsNotOpened(t *testing.T) {
	client, err := conn.NewClient(conn.ClientOptions{URL: newTLSServer(t, tlstest.New(t, "ours")).URL(), DialTimeout: 20 * time.Second, ReadTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = Open(t.Context(), Options{Client: client})
	if err == nil || !strings.Contains(err.Error(), "signed by unknown authority") {
		t.Errorf("%v", err)
	}
	if v := rediserr.Classify(client.Ping(t.Context()).Err()); v.Kind != "dial" || v.MayHaveRun {
		t.Errorf("judged %+v", v)
	}
}

// newTLSServer is a Redis server that requires TLS with client certificates of ours.
func newTLSServer(t *testing.T, ours *tlstest.Authority) *redistest.Server {
	t.Helper()
	files := tlstest.NewDir(t, ours.Issue(tlstest.Identity{Name: "redis", DNS: []string{"redis.example"}}), ours)
	return redistest.Start(t, redistest.WithTLS(redistest.TLS{
		Cert: files.Cert, Key: files.Key, CA: files.CA, Client: ours.Client(ours.Issue(tlstest.Identity{Name: "test"})),
	}))
}
