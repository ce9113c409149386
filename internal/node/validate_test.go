package node_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/engine/audittrail"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/redis/shardlock"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/worker"
)

// TestTheOutermostSettingsAreAccepted: what cmd/scheduler shows to be refused begins
// right beyond these.
func TestTheOutermostSettingsAreAccepted(t *testing.T) {
	for name, change := range map[string]func(*node.Config){
		"smallest": func(c *node.Config) {
			c.Redis.PoolSize, c.Redis.ReadTimeout, c.Shards, c.DurabilityReplicas, c.DurabilityTimeout = 1, time.Millisecond, 1, 1, time.Millisecond
			c.LockTTL, c.LeaseTTL, c.AuditMaxRecords, c.EventsKeep, c.MaxUnauthenticatedConnections = shardlock.MinTTL, time.Second, audittrail.MinKeep, 1000, guard.MinUnauthenticatedConnections
			c.SessionTTL, c.Limits.MaxPayload, c.Limits.MinInterval = time.Second, 1, time.Millisecond
			c.UnsuccessfulRunsKeep, c.UnsuccessfulRunsRetention = 1000, time.Hour
		},
		"largest": func(c *node.Config) {
			c.Redis.PoolSize, c.Shards, c.AuditMaxRecords, c.EventsKeep = conn.MaxPoolSize, redisstore.MaxShards, audittrail.MaxKeep, 10_000_000
			c.UnsuccessfulRunsKeep, c.UnsuccessfulRunsRetention = 10_000_000, 365*24*time.Hour
			c.MetricsTopJobs, c.NamespaceJobs, c.Limits.MaxPayload = 50, authz.MaxNamespaceJobs, rpc.MaxPayload
			c.ClientLimits.Rate, c.ClientLimits.Burst = authz.MaxRate, 1_000_000
		},
		"addresses": func(c *node.Config) {
			c.GRPCAddr, c.AdvertiseGRPC, c.AdvertisePeer, c.AdvertiseGossip = "localhost:0", "node.example:7070", "[fd00::1]:65535", "10.0.0.1:1"
		},
		"name": func(c *node.Config) { c.Name = "Node-1.example:7_~" },
	} {
		cfg := node.Config{Name: "n", Redis: conn.ClientOptions{URL: "redis://127.0.0.1:6379"}}
		change(&cfg)
		if _, err := node.New(cfg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARedisThatIsNotThereIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	l.Close()
	_, err = tryStart(t, "redis://user:s3cret@"+nobody, "n", func(*node.Config) {})
	if err == nil || !strings.HasPrefix(err.Error(), "redis at "+nobody+" (set --redis-url if it is elsewhere): ") {
		t.Errorf("said %v", err)
	}
	if strings.Contains(fmt.Sprint(err), "s3cret") {
		t.Errorf("%v shows the password", err)
	}
}

// TestTheLargestPayloadGetsThrough to its handler and back to clients, in a job whose
// other parts are large too.
func TestTheLargestPayloadGetsThrough(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	n, err := tryStart(t, redis.URL(), "n", func(c *node.Config) { c.Limits.MaxPayload = rpc.MaxPayload })
	if err != nil {
		t.Fatal(err)
	}
	payload := bytes.Repeat([]byte("x"), rpc.MaxPayload)
	arrived := make(chan bool, 1)
	work(t, n, 1, map[string]func(context.Context, *worker.Task) error{
		"large": func(_ context.Context, task *worker.Task) error {
			select {
			case arrived <- bytes.Equal(task.Payload, payload):
			default: // the test needs the first run only
			}
			return nil
		},
	})
	c, err := client.Dial([]string{n.GRPCAddr()}, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	j := intervalJob(time.Second, "large")
	j.Payload, j.Labels = payload, map[string]string{}
	for i := range 32 {
		j.Labels[fmt.Sprintf("%0128d", i)] = strings.Repeat("v", 128)
	}
	if _, err := c.CreateJob(t.Context(), "large", j); err != nil {
		t.Fatal(err)
	}
	select {
	case same := <-arrived:
		if !same {
			t.Error("the handler has another payload")
		}
	case <-time.After(redistest.Patience):
		t.Fatal("no handler has had it")
	}
	if got, err := c.GetJob(t.Context(), "large"); err != nil || !bytes.Equal(got.GetPayload(), payload) {
		t.Errorf("read back %d bytes, %v", len(got.GetPayload()), err)
	}
	j.Payload = append(payload, 'x')
	if _, err := c.CreateJob(t.Context(), "larger", j); len(client.Violations(err)) != 1 {
		t.Errorf("one byte more: %v", err)
	}
}
