package redisstore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// jobsBed is a store with records that nobody wrote through it.
func jobsBed(t *testing.T) (*redisstore.Store, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	client, err := conn.NewClient(conn.ClientOptions{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisstore.Open(t.Context(), redisstore.Options{Client: client, Shards: 4, AllowUnsafe: true})
	if err != nil {
		t.Fatal(err)
	}
	return s, server.Client()
}
