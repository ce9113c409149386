package storetest_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// dialRedis makes a client as the product does.
func dialRedis(t testing.TB, url string) redis.UniversalClient {
	t.Helper()
	c, err := conn.NewClient(conn.ClientOptions{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// asOptions has the store use a client of its own. What a test looks at beside the store goes
// by the client of its world, which may do more.
func asOptions(t testing.TB, url string) func(*redisstore.Options) {
	client := dialRedis(t, url)
	return func(o *redisstore.Options) { o.Client = client }
}

// newObserver makes a client as the product does that may do what the harness may.
func newObserver(t testing.TB, server *redistest.Server, url string) redis.UniversalClient {
	t.Helper()
	admin := server.Client().Options()
	c, err := conn.NewClient(conn.ClientOptions{URL: url, Username: admin.Username, Password: admin.Password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	storetest.Run(t, func(testing.TB) redis.UniversalClient { return server.Client() },
		asOptions(t, server.URL()))
	if refused := server.Refused(); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
}

func TestEmbedded(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	storetest.Run(t, func(t testing.TB) redis.UniversalClient { return dialRedis(t, "redis://"+server.Addr()) })
}

// TestEveryInterleaving explores what two nodes and an operator can do to one job,
// in every order, on a real server.
func TestEveryInterleaving(t *testing.T) {
	t.Parallel()
	depth := 5
	if text := os.Getenv("FERMATA_EXPLORE_DEPTH"); text != "" {
		var err error
		if depth, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	server := redistest.Start(t)
	states, steps := storetest.Explore(storetest.NewWorld(t, server.Client(), asOptions(t, server.URL())), depth)
	t.Logf("depth %d: %d states, %d steps", depth, states, steps)
}

// TestEveryOrderKeepsTheRunsPayload: whatever two nodes do, in whatever order, a run with a payload of its own has it.
func TestEveryOrderKeepsTheRunsPayload(t *testing.T) {
	server := redistest.Start(t)
	states, steps := storetest.ExplorePayloads(storetest.NewWorld(t, server.Client(), asOptions(t, server.URL())), 4)
	t.Logf("%d states, %d steps", states, steps)
}
