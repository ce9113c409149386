package acceptance

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/redis/conn"
)

// clockKey is where tests keep the virtual time, Unix milliseconds.
const clockKey = "test:{clock}"

// virtualConfig configures a node whose clock a test sets.
type virtualConfig struct {
	Name     string   `json:"name"`
	RedisURL string   `json:"redis_url"`
	Join     []string `json:"join"`
}

// spawnRole starts the test binary in another role.
func spawnRole(t testing.TB, role, name string, config any) *process {
	t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProcess(t, name, []string{roleEnv + "=" + role, configEnv + "=" + string(text)}, self)
}

// startVirtual runs a node with a virtual clock.
func (c *cluster) startVirtual(id string) *schedulerNode {
	c.t.Helper()
	c.virtual = true
	config := virtualConfig{Name: id, RedisURL: c.redisURL}
	for _, n := range c.nodes {
		config.Join = append(config.Join, n.gossip)
	}
	return c.awaitNodeUp(id, spawnRole(c.t, "virtual-node", "node-"+id, config))
}

// runVirtualNode is the node process. It reads the clock every few milliseconds
// and looks for due work as often, since its timers know nothing of the clock.
func runVirtualNode(text []byte) error {
	var config virtualConfig
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	clock, err := followClock(ctx, config.RedisURL)
	if err != nil {
		return err
	}
	limits := job.DefaultLimits()
	limits.MinInterval = time.Second
	n, err := node.New(node.Config{
		Name: config.Name, GRPCAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
		Join: config.Join, Redis: conn.ClientOptions{URL: config.RedisURL}, Shards: shards,
		Durability: conn.DurabilityLocal, Virtual: true, Now: func() unixtime.Milli { return unixtime.Milli(clock.Load()) }, Limits: limits,
		LockTTL: lockTTL, LeaseTTL: time.Hour, Rescan: 20 * time.Millisecond,
		Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := n.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	drain, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return n.Stop(drain)
}

// followClock polls the virtual time. The first reading is made before it returns.
func followClock(ctx context.Context, url string) (*atomic.Int64, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	var clock atomic.Int64
	read := func() error {
		text, err := client.Get(ctx, clockKey).Result()
		if err != nil {
			return err
		}
		ms, err := strconv.ParseInt(text, 10, 64)
		if err == nil {
			clock.Store(ms)
		}
		return err
	}
	if err := read(); err != nil {
		return nil, err
	}
	go func() {
		defer client.Close()
		poll := time.NewTicker(2 * time.Millisecond)
		defer poll.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-poll.C:
				_ = read() // the clock stands while Redis is away
			}
		}
	}()
	return &clock, nil
}
