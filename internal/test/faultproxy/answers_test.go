package faultproxy_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// An answer of the proxy's own keeps its place among those of the server, and its
// command has no effect.
func TestAnswererAnswersOnlyConfiguredCommands(t *testing.T) {
	s := redistest.Start(t)
	a := faultproxy.NewAnswerer(t, s.Addr())
	for _, protocol := range []int{2, 3} {
		o := *s.Client().Options() // with all rights
		o.Addr, o.MaxRetries, o.PoolSize, o.Protocol = a.Addr(), -1, 1, protocol
		c := redis.NewClient(&o)
		t.Cleanup(func() { _ = c.Close() })
		ctx := t.Context()
		if err := s.Client().FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		said := a.FailedCount()
		a.FailNext(0, 2, "LOADING not yet", "incr", "eval")
		p := c.Pipeline()
		get := p.Get(ctx, "n")
		incr := p.Incr(ctx, "n")
		hash := p.HSet(ctx, "h", "f", strings.Repeat("x", 100_000), "g", "")
		script := p.Eval(ctx, "return redis.call('incr', KEYS[1])", []string{"n"})
		again := p.Incr(ctx, "n")
		all := p.HGetAll(ctx, "h")
		_, _ = p.Exec(ctx) // each command has its own error
		if get.Err() != redis.Nil || hash.Err() != nil || again.Val() != 1 || len(all.Val()) != 2 {
			t.Errorf("protocol %d: passed as %v, %v, %v, %d fields", protocol, get, hash.Err(), again, len(all.Val()))
		}
		for _, err := range []error{incr.Err(), script.Err()} {
			if err == nil || err.Error() != "LOADING not yet" {
				t.Errorf("protocol %d: answered %v", protocol, err)
			}
		}
		if got := a.FailedCount() - said; got != 2 {
			t.Errorf("answered %d times, want 2", got)
		}
		if list, err := c.Do(ctx, "command", "list").StringSlice(); err != nil || !slices.Contains(list, "get") {
			t.Errorf("a long list: %d names (%v)", len(list), err)
		}
	}
}

func TestAnswererEndsWithItsServer(t *testing.T) {
	s := redistest.Start(t)
	a := faultproxy.NewAnswerer(t, s.Addr())
	conn := dialTCP(t, a.Addr())
	writeText(t, conn, "*1\r\n$4\r\nPING\r\n")
	expectText(t, conn, "+PONG\r\n")
	s.Kill()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection outlived its server")
	}
	if _, err := dialTCP(t, a.Addr()).Read(make([]byte, 1)); err == nil {
		t.Error("connected to nothing")
	}
}
