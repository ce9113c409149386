package runner

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/redis/conn"
)

// onEmbedded makes a runner for two shards of an embedded server, whose clocks it has read.
func onEmbedded(t testing.TB, adjust ...func(*Options)) (*Runner, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client, err := conn.NewClient(conn.ClientOptions{URL: "redis://" + server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	o := Options{
		Client: client, Prefix: "fermata", Clock: LoadClock(NewLoader(true)), Replicas: 1, WaitTimeout: time.Second,
		OpTimeout: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range adjust {
		f(&o)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.AddShards(2)
	if err := r.TouchShards(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r, server
}

// TestShed: a call that gets no connection fails when its patience with the pool
// ends, if the store sheds, and stands in line again if it does not.
func TestShed(t *testing.T) {
	for _, shed := range []bool{true, false} {
		m, err := newMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		r := &Runner{metrics: m}
		if shed {
			r.maxQueueWait = time.Second
		}
		left := r.opsToRetry([]*Op{{Err: redis.ErrPoolTimeout}, {Err: io.EOF}})
		if want := map[bool]int{true: 1, false: 2}[shed]; len(left) != want {
			t.Errorf("shed %v: %d of 2 calls are tried again, want %d", shed, len(left), want)
		}
	}
}
