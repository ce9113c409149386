package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// TestANodeWaitsForRedis: it says that it lives and what it waits for, and is up when
// Redis is there.
func TestANodeWaitsForRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	health := make(chan string, 1)
	started := make(chan error, 1)
	go func() {
		_, err := tryStart(t, redis.URL(), "n", func(c *node.Config) {
			c.RedisStartupTimeout = time.Minute
			c.Network.Listen = func(address string) (net.Listener, error) {
				l, err := net.Listen("tcp", address)
				if err == nil {
					select {
					case health <- l.Addr().String():
					default: // the first one is that of health
					}
				}
				return l, err
			}
		})
		started <- err
	}()
	addr := <-health
	says := func(path string, code int, text string) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, path, func(ctx context.Context) error {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
			if err != nil {
				return err
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err == nil && (answer.StatusCode != code || !strings.Contains(string(body), text)) {
				return fmt.Errorf("%d %s", answer.StatusCode, body)
			}
			return err
		})
	}
	says("/healthz", http.StatusOK, "ok")
	says("/readyz", http.StatusServiceUnavailable, "redis at "+redis.Addr())
	says("/metrics", http.StatusServiceUnavailable, "starting")
	redis.Restart()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	says("/readyz", http.StatusOK, "ready")
	says("/metrics", http.StatusOK, "fermata_build_info")
}

// TestANodeThatWaitsForRedisCanBeStopped.
func TestANodeThatWaitsForRedisCanBeStopped(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Kill()
	waits := &lines{}
	n, err := node.New(node.Config{
		Name: "n", GRPCAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
		Redis: conn.ClientOptions{URL: redis.URL()}, RedisStartupTimeout: time.Hour, Logger: waits.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() { started <- n.Start(ctx) }()
	redistest.Eventually(t, redistest.Patience, "the node waits", func(context.Context) error {
		if waits.count("waiting for redis") == 0 {
			return errors.New("it does not say so")
		}
		return nil
	})
	cancel()
	if err := <-started; err == nil || !strings.Contains(err.Error(), "redis at "+redis.Addr()) {
		t.Errorf("%v", err)
	}
}
