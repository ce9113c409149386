package storetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// TestBusyServer keeps a server busy with the script of another client while connections have to
// be made anew: calls end in time with an error, and nothing is taken for an answer that
// was none.
func TestBusyServer(t *testing.T) {
	server := redistest.Start(t, redistest.WithConfig("busy-reply-threshold", "50"))
	client, err := conn.NewClient(conn.ClientOptions{URL: server.URL(), ClientName: "fermata"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	w := storetest.NewWorld(t, server.Client(), func(o *redisstore.Options) { o.Client = client }, func(o *redisstore.Options) { o.Virtual = nil })
	if n, err := server.Client().ClientKillByFilter(t.Context(), "user", "fermata").Result(); err != nil || n == 0 {
		t.Fatalf("%d connections cut (%v)", n, err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- server.Client().WithTimeout(time.Minute).Eval(t.Context(), "while true do end", nil).Err()
	}()
	redistest.Eventually(t, redistest.Patience, "busy", func(ctx context.Context) error {
		_, err := w.Store.Lanes(ctx, []int{0, 1, 2, 3})
		if !errors.Is(err, job.ErrUnavailable) {
			return errors.New("not busy")
		}
		return nil
	})
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, err := w.Store.Lanes(ctx, []int{0, 1, 2, 3}); !errors.Is(err, job.ErrUnavailable) {
			t.Errorf("while busy: %v", err)
		}
		cancel()
	}
	if err := server.Client().ScriptKill(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	<-ended
	redistest.Eventually(t, redistest.Patience, "calls", func(ctx context.Context) error {
		_, err := w.Store.Lanes(ctx, []int{0, 1, 2, 3})
		return err
	})
}
