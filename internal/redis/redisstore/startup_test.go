package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/rediserr"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestAwait waits for what passes by itself and for nothing else.
func TestAwait(t *testing.T) {
	t.Parallel()
	open := func(t *testing.T, url string) Options {
		t.Helper()
		client, err := conn.NewClient(conn.ClientOptions{URL: url, DialTimeout: 20 * time.Second, ReadTimeout: 20 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return Options{Client: client, Prefix: "f", Shards: 4}
	}
	// await calls first at the first reason to wait, which it returns. Once the wait is over
	// the keyspace opens, if what was waited for has come.
	await := func(t *testing.T, ctx context.Context, o Options, first func()) (string, error) {
		t.Helper()
		said := ""
		err := WaitForRedis(ctx, o, func(reason error) {
			if said == "" {
				said = reason.Error()
				first()
			}
		})
		if said != "" && err == nil {
			if _, err := Open(ctx, o); err != nil {
				t.Errorf("after a wait for %q: %v", said, err)
			}
		}
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
	// It answers INFO then, and refuses all else.
	t.Run("is loading", func(t *testing.T) {
		s := redistest.Start(t)
		proxy := faultproxy.NewAnswerer(t, s.Addr())
		proxy.FailNext(0, 1000, "LOADING Redis is loading the dataset in memory", "evalsha")
		said, err := await(t, t.Context(), open(t, strings.Replace(s.URL(), s.Addr(), proxy.Addr(), 1)), func() { proxy.FailNext(0, 0, "", "evalsha") })
		if !strings.Contains(said, "LOADING") || err != nil {
			t.Errorf("%q, %v", said, err)
		}
	})
	t.Run("has no replica to write to", func(t *testing.T) {
		s := redistest.StartSentinel(t, 1, 1, 1, redistest.WithMinReplicas(1, 2))
		o := open(t, s.Master().URL())
		if _, err := Open(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		replica := s.Nodes()[1]
		replica.Kill()
		// The server goes on for some seconds, until the replica is missed.
		redistest.Eventually(t, redistest.Patience, "no writes", func(ctx context.Context) error {
			if err := o.Client.Set(ctx, "f:{x}", "", 0).Err(); err == nil {
				return errors.New("writes are taken")
			}
			return nil
		})
		if said, err := await(t, t.Context(), o, replica.Restart); !strings.Contains(said, "NOREPLICAS") || err != nil {
			t.Errorf("%q, %v", said, err)
		}
	})
	t.Run("is a cluster that is down", func(t *testing.T) {
		s := redistest.StartCluster(t, 3, 0)
		o := open(t, "redis+cluster://"+strings.Join(s.Addrs(), ","))
		if _, err := Open(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		var servers []*redistest.Server
		for i := range 3 {
			servers = append(servers, s.Master(i))
		}
		for _, server := range servers[1:] {
			server.Kill()
		}
		servers[1].Restart()
		said, err := await(t, t.Context(), o, servers[2].Restart)
		if said == "" || err != nil {
			t.Errorf("%q, %v", said, err)
		}
	})
	t.Run("its replica comes later", func(t *testing.T) {
		s := redistest.StartSentinel(t, 1, 1, 1, redistest.WithMinReplicas(1, 2))
		replica := s.Nodes()[1]
		replica.Kill()
		o := open(t, s.Master().URL())
		o.Durability, o.Replicas = conn.DurabilityReplica, 1
		said, err := await(t, t.Context(), o, replica.Restart)
		if !strings.Contains(said, "durability class replica") || err != nil {
			t.Errorf("%q, %v", said, err)
		}
	})
	t.Run("keeps nothing", func(t *testing.T) {
		o := open(t, redistest.Start(t).URL())
		o.Durability = conn.DurabilityLocal
		if said, err := await(t, t.Context(), o, func() {}); said != "" || err != nil {
			t.Errorf("waits for a setting: %q, %v", said, err)
		}
	})
	t.Run("lacks a setting for replicas", func(t *testing.T) {
		o := open(t, redistest.Start(t, redistest.WithAOF("no")).URL())
		o.Durability, o.Replicas = conn.DurabilityReplica, 1
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

// TestLastingErrors are of connections, and yet nothing to wait for.
func TestLastingErrors(t *testing.T) {
	for _, err := range []error{
		&tls.CertificateVerificationError{Err: errors.New("unknown authority")},
		tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"},
		&net.OpError{Op: "remote error", Err: tls.AlertError(42)},
		ErrFunctions,
	} {
		if !isPermanent(rediserr.Wrap("asking for INFO", err)) {
			t.Errorf("%v is waited for", err)
		}
	}
	if err := (&net.OpError{Op: "read", Err: errors.New("reset")}); isPermanent(rediserr.Wrap("asking for INFO", err)) {
		t.Errorf("%v is not", err)
	}
}
