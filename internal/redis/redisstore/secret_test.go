package redisstore

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/redis/runner"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

func TestSecretIsMadeOnce(t *testing.T) {
	server := redistest.Start(t)
	open := func(prefix string) *Store {
		client, err := conn.NewClient(conn.ClientOptions{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		s, err := Open(t.Context(), Options{Client: client, Shards: 2, Prefix: prefix, AllowUnsafe: true})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	get := func(s *Store, name string) []byte {
		t.Helper()
		secret, err := s.Secret(t.Context(), name)
		if err != nil || len(secret) != secretBytes {
			t.Fatalf("%d bytes, %v", len(secret), err)
		}
		return secret
	}
	a := open("one")
	first := get(a, "leases")
	if !bytes.Equal(get(a, "leases"), first) || !bytes.Equal(get(open("one"), "leases"), first) {
		t.Error("two processes have two secrets")
	}
	if bytes.Equal(get(a, "other"), first) || bytes.Equal(get(open("two"), "leases"), first) {
		t.Error("two names, or two keyspaces, have one secret")
	}
	if err := a.client.HSet(t.Context(), runner.KeyspaceKey("one"), "secret:leases", "").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Secret(t.Context(), "leases"); !errors.Is(err, rediserr.ErrKeyspace) {
		t.Errorf("an empty secret: %v", err)
	}
}
