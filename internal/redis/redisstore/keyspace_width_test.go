package redisstore

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestAServerOf32BitsIsRefused: a server whose Lua cuts integers short would store other
// scores and tokens than those that were decided. Its way of formatting stands in for it.
func TestAServerOf32BitsIsRefused(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	whole := loadScripts(false, false).keyspace.Source
	short := strings.Replace(whole, "return fmt('%d', n)", "return fmt('%d', n % 4294967296)", 1)
	if short == whole {
		t.Fatal("the prelude formats integers in another way: this test looks at the wrong thing")
	}
	ctx, key := t.Context(), "fermata:{meta}"
	err := client.Eval(ctx, short, []string{key}, 4, 2, "0").Err()
	if err == nil || !strings.Contains(err.Error(), "64-bit") {
		t.Errorf("a server of 32 bits: %v", err)
	}
	if n := client.Exists(ctx, key).Val(); n != 0 {
		t.Error("it has a keyspace all the same")
	}
	if err := client.Eval(ctx, whole, []string{key}, 4, 2, "0").Err(); err != nil {
		t.Errorf("a server of 64 bits: %v", err)
	}
}
