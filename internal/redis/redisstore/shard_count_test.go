package redisstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestShardsOfAKeyspaceStay: a keyspace has the number of shards that its first process asked for, or the default.
// Later processes that ask for none take it, and those that ask for another one are refused.
func TestShardsOfAKeyspaceStay(t *testing.T) {
	server := redistest.Start(t)
	open := func(prefix string, shards int) (int, error) {
		t.Helper()
		client, err := conn.NewClient(conn.ClientOptions{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		s, err := Open(t.Context(), Options{Client: client, Shards: shards, Prefix: prefix, AllowUnsafe: true})
		if err != nil {
			return 0, err
		}
		return s.Shards(), nil
	}
	for prefix, c := range map[string]struct{ first, stored int }{
		"default": {0, 16}, "previous": {64, 64}, "one": {1, 1}, "many": {256, 256},
	} {
		for _, asked := range []int{c.first, 0, c.stored} {
			if got, err := open(prefix, asked); got != c.stored || err != nil {
				t.Errorf("%s: %d shards are asked for: it has %d, %v, want %d", prefix, asked, got, err, c.stored)
			}
		}
		_, err := open(prefix, c.stored+1)
		if !errors.Is(err, rediserr.ErrKeyspace) || !strings.Contains(err.Error(), "the number is fixed") {
			t.Errorf("%s: another number is asked for: %v", prefix, err)
		}
		if got, err := open(prefix, 0); got != c.stored || err != nil {
			t.Errorf("%s: after that it has %d shards, %v", prefix, got, err)
		}
	}
	if single, cluster := defaultShards(false), defaultShards(true); single != 16 || cluster != 64 {
		t.Errorf("a new keyspace has %d shards, in a Redis Cluster %d", single, cluster)
	}
}
