package node_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/gossiptest"
	"github.com/fermata-io/fermata/internal/test/keytest"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// TestForgedDeparturesMoveNothing has a holder of the gossip key tell each node, for
// as long as a lock lives, that the other has left. Each then sees itself alone; the
// shards stay where they are, and every run runs once.
func TestForgedDeparturesMoveNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	key, keys := gossipKeyFile(t)
	log := &lines{}
	// Locks that outlive a machine that stands still for a moment.
	const lockTTL = 5 * time.Second
	keyed := func(c *node.Config) {
		c.GossipKeyFile, c.Logger, c.LockTTL, c.LeaseTTL = keys, log.logger(), lockTTL, 2*lockTTL
	}
	a := startWith(t, redis.URL(), "a", keyed)
	b := startWith(t, redis.URL(), "b", keyed, a.GossipAddr())
	var mu sync.Mutex
	ran, twice := map[string]int{}, 0
	work(t, a, 8, map[string]func(context.Context,
		*worker.Task) error{"h": func(_ context.Context, task *worker.Task) error {
		mu.Lock()
		defer mu.Unlock()
		ran[task.Run]++
		if ran[task.Run] > 1 {
			twice++
		}
		return nil
	}})
	redistest.Eventually(t, redistest.Patience, "shards on both", func(context.Context) error {
		if x, y := a.Describe().ShardsHeld, b.Describe().ShardsHeld; x == 0 || y == 0 || x+y != 64 {
			return fmt.Errorf("%d and %d", x, y)
		}
		return nil
	})
	c := jobs(t, a)
	for i := range 20 {
		create(t, c, fmt.Sprint("j", i), intervalJob(200*time.Millisecond, "h"))
	}
	before := holders(t, a)
	storm := time.NewTicker(10 * time.Millisecond)
	defer storm.Stop()
	for i := range uint32(lockTTL / (10 * time.Millisecond)) {
		<-storm.C
		for victim, addr := range map[string]string{"b": a.GossipAddr(), "a": b.GossipAddr()} {
			conn, err := net.Dial("udp", addr)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(gossiptest.Labelled("fermata",
				gossiptest.Sealed(t, key, "fermata", gossiptest.Departure(victim, 1000*(i+1))))); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
		}
	}
	if n := log.count(`msg="members changed" members=1`); n < 2 {
		t.Errorf("%d nodes believed the forger", n)
	}
	if after := holders(t, a); after != before {
		t.Errorf("shards moved:\n%s\n%s", before, after)
	}
	redistest.Eventually(t, redistest.Patience, "runs", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if len(ran) < 100 {
			return fmt.Errorf("%d", len(ran))
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if twice > 0 {
		t.Errorf("%d of %d runs ran more than once", twice, len(ran))
	}
}

// lines is a log that can be asked while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// holders are the nodes that hold each shard.
func holders(t *testing.T, n *node.Node) string {
	t.Helper()
	conn := dialWith(t, n.GRPCAddr(), insecure.NewCredentials())
	answer, err := fermatav1.NewClusterServiceClient(conn).ListShards(t.Context(), &fermatav1.ListShardsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, s := range answer.GetShards() {
		fmt.Fprint(&text, s.GetHolder())
	}
	return text.String()
}

// TestInventedMembersDecideNothing: a holder of the gossip key invents a node of an earlier version, and says that a real
// one is, at another address or as another process, and that one runs that was stopped. Nodes go on to accept runs with
// another payload: Redis says who holds shards, and a process has sent its features over a link.
func TestInventedMembersDecideNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	key, keys := gossipKeyFile(t)
	log := &lines{}
	keyed := func(c *node.Config) { c.GossipKeyFile, c.Logger = keys, log.logger() }
	a := startWith(t, redis.URL(), "a", keyed)
	b := startWith(t, redis.URL(), "b", keyed, a.GossipAddr())
	c := jobs(t, a)
	create(t, c, "j", &fermatav1.Job{Handler: "h", Payload: []byte("first")})
	conn, err := net.Dial("udp", a.GossipAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	incarnation := uint32(0)
	forged := map[string]string{"invented": `{"p":"127.0.0.1:9"}`}
	forge := func() {
		t.Helper()
		incarnation += 1000
		for name, meta := range forged {
			message := gossiptest.Claim(name, incarnation, netip.MustParseAddrPort(b.GossipAddr()), []byte(meta))
			if _, err := conn.Write(gossiptest.Labelled("fermata", gossiptest.Sealed(t, key, "fermata", message))); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func() error {
		forge()
		_, err := c.RunJobWithPayload(t.Context(), &fermatav1.RunJobWithPayloadRequest{Name: name("j"), Payload: []byte("other")})
		return err
	}
	redistest.Eventually(t, redistest.Patience, "a has believed the forger", func(context.Context) error {
		forge()
		if log.count(`msg="members changed" members=3`) == 0 {
			return errors.New("no third member")
		}
		return nil
	})
	redistest.Eventually(t, redistest.Patience, "the nodes know each other", func(context.Context) error { return run() })
	process := processOf(t, redis, "b")
	for _, meta := range []string{
		fmt.Sprintf(`{"p":%q,"i":%q}`, b.PeerAddr(), process), fmt.Sprintf(`{"p":"127.0.0.1:9","i":%q}`, process),
		fmt.Sprintf(`{"p":%q,"i":"another"}`, b.PeerAddr()), "{}",
	} {
		forged["b"] = meta
		for range 8 {
			if err := run(); err != nil {
				t.Errorf("forged %s: %v", meta, err)
			}
		}
	}
	forged["b"] = fmt.Sprintf(`{"i":%q}`, process)
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if err := run(); err != nil {
			t.Errorf("a stopped node: %v", err)
		}
	}
}

// gossipKeyFile returns a gossip key, and a file with it.
func gossipKeyFile(t *testing.T) (key []byte, file string) {
	t.Helper()
	key, file = keytest.Key("gossip"), filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(base64.StdEncoding.EncodeToString(key)), 0o600); err != nil {
		t.Fatal(err)
	}
	return key, file
}

// processOf returns the process of a node that has a heartbeat.
func processOf(t *testing.T, redis *redistest.Server, name string) string {
	t.Helper()
	for _, key := range redis.Client().Keys(t.Context(), "*:life:*").Val() {
		if strings.HasSuffix(redis.Client().Get(t.Context(), key).Val(), " "+name) {
			return key[strings.LastIndexByte(key, ':')+1:]
		}
	}
	t.Fatalf("%s has no heartbeat", name)
	return ""
}
