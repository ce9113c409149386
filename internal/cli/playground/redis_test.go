package playground

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func dialRedis(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// Locks rest on keys that expire by themselves, in every kind of Redis.
func TestKeysExpire(t *testing.T) {
	for _, choice := range []string{RedisEmbedded, RedisAuto} {
		t.Run(choice, func(t *testing.T) {
			s, err := startRedis(choice, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer s.stop()
			c := dialRedis(t, s.url)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			if err := c.Set(ctx, "lock", "me", 200*time.Millisecond).Err(); err != nil {
				t.Fatal(err)
			}
			for c.Exists(ctx, "lock").Val() == 1 {
			}
			if took := time.Since(began); ctx.Err() != nil || took < 199*time.Millisecond {
				t.Errorf("a key of 200 ms was gone after %v (%v)", took, ctx.Err())
			}
		})
	}
}

func TestRedisProcess(t *testing.T) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	s, err := startRedis(path, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := dialRedis(t, s.url)
	if info := c.Info(t.Context(), "persistence").Val(); !strings.Contains(info, "aof_enabled:0") || !strings.Contains(s.kind, path) {
		t.Errorf("%s: %s", s.kind, info)
	}
	s.stop()
	if conn, err := net.Dial("tcp", c.Options().Addr); err == nil {
		conn.Close()
		t.Error("it still answers after its stop")
	}
	for _, bad := range []string{filepath.Join(t.TempDir(), "none"), "/bin/false"} {
		if _, err := startRedis(bad, t.TempDir()); err == nil {
			t.Errorf("%s passes for a Redis", bad)
		}
	}
}
