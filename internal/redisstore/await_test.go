package redisstore

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/faultproxy"
	"github.com/fermata-io/fermata/internal/redistest"
)

// TestAwait waits for what passes by itself and for nothing else.
func TestAwait(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, url string) Options {
		t.Helper()
		client, err := NewClient(ClientOptions{URL: url, DialTimeout: 20 * time.Second, ReadTimeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return Options{Client: client}
	}
	// await calls first at the first reason to wait, which it returns.
	await := func(t *testing.T, ctx context.Context, o Options, first func()) (string, error) {
		t.Helper()
		said := ""
		err := Await(ctx, o, func(reason error) {
			if said == "" {
				said = reason.Error()
				first()
			}
		})
		return said, err
	}
	t.Run("is there", func(t *testing.T) {
		said, err := await(t, t.Context(), open(t, redistest.Start(t).URL()), func() {})
		if said != "" || err != nil {
			t.Errorf("%q, %v", said, err)
		}
	})
	t.Run("comes later", func(t *testing.T) {
		s := redistest.Start(t)
		s.Kill()
		said, err := await(t, t.Context(), open(t, s.URL()), s.Restart)
		if !strings.Contains(said, "refused") || err != nil {
			t.Errorf("%q, %v", said, err)
		}
	})
	t.Run("is loading", func(t *testing.T) {
		s := redistest.Start(t)
		proxy := faultproxy.NewAnswerer(t, s.Addr())
		proxy.Say(0, 1000, "LOADING Redis is loading the dataset in memory", "info")
		said, err := await(t, t.Context(), open(t, strings.Replace(s.URL(), s.Addr(), proxy.Addr(), 1)), func() { proxy.Say(0, 0, "", "info") })
		if !strings.Contains(said, "LOADING") || err != nil {
			t.Errorf("%q, %v", said, err)
		}
	})
	t.Run("its replica comes later", func(t *testing.T) {
		s := redistest.StartSentinel(t, 1, 1, 1, redistest.WithMinReplicas(1, 2))
		replica := s.Nodes()[1]
		replica.Kill()
		o := open(t, s.Master().URL())
		o.Durability, o.Replicas = DurabilityReplica, 1
		said, err := await(t, t.Context(), o, replica.Restart)
		if !strings.Contains(said, "durability class replica") || err != nil {
			t.Errorf("%q, %v", said, err)
		}
	})
	t.Run("keeps nothing", func(t *testing.T) {
		o := open(t, redistest.Start(t).URL())
		o.Durability = DurabilityLocal
		if said, err := await(t, t.Context(), o, func() {}); said != "" || err != nil {
			t.Errorf("waits for a setting: %q, %v", said, err)
		}
	})
	t.Run("lacks a setting for replicas", func(t *testing.T) {
		o := open(t, redistest.Start(t, redistest.WithAOF("no")).URL())
		o.Durability, o.Replicas = DurabilityReplica, 1
		if said, err := await(t, t.Context(), o, func() {}); said != "" || err != nil {
			t.Errorf("waits for a setting: %q, %v", said, err)
		}
	})
	t.Run("knows another password", func(t *testing.T) {
		s := redistest.Start(t)
		if said, err := await(t, t.Context(), open(t, "redis://nobody:wrong@"+s.Addr()), func() {}); said != "" || err != nil {
			t.Errorf("waits for a password: %q, %v", said, err)
		}
	})
	t.Run("never comes", func(t *testing.T) {
		s := redistest.Start(t)
		s.Kill()
		ctx, cancel := context.WithCancel(t.Context())
		if said, err := await(t, ctx, open(t, s.URL()), cancel); err == nil || err.Error() != said {
			t.Errorf("%q, %v", said, err)
		}
	})
}
