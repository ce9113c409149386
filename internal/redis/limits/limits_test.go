package limits

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/conn"
	"github.com/fermata-io/fermata/internal/redis/runner"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// limitWorld opens stores on one deployment.
type limitWorld struct {
	url      string
	embedded bool
}

func (w limitWorld) client(t testing.TB, adjust ...func(*conn.ClientOptions)) redis.UniversalClient {
	t.Helper()
	o := conn.ClientOptions{URL: w.url, ReadTimeout: 20 * time.Second} // the embedded server is slow under -race
	for _, f := range adjust {
		f(&o)
	}
	client, err := conn.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// limitBed is a store of limits on a client of its own.
type limitBed struct {
	*Store
	client redis.UniversalClient
}

// store makes a new keyspace of 8 shards in real time.
func (w limitWorld) store(t testing.TB, adjust ...func(*runner.Options)) limitBed {
	t.Helper()
	o := runner.Options{Client: w.client(t), Prefix: "limits:" + rand.Text(), OpTimeout: time.Minute}
	for _, f := range adjust {
		f(&o)
	}
	return newBed(t, o, 8, w.embedded)
}

// newBed makes a keyspace that has only limits, and lanes if a test writes some.
func newBed(t testing.TB, o runner.Options, shards int, embedded bool) limitBed {
	t.Helper()
	all := runner.NewLoader(embedded)
	o.Clock, o.Replicas, o.Logger = runner.LoadClock(all), 1, slog.New(slog.DiscardHandler)
	r, err := runner.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.AddShards(shards)
	if o.Durability < conn.DurabilityReplica {
		if err := r.TouchShards(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return limitBed{client: o.Client, Store: New(r, Options{
		Scripts: LoadScripts(all), ExplainDenial: func(_ context.Context, err error) error { return err },
		EachLane: func(ctx context.Context, shard int, visit func(job.Lane)) error {
			names, err := o.Client.ZRange(ctx, r.Shards()[shard].Lanes, 0, -1).Result()
			for _, name := range names {
				if lane, ok := job.ParseLane(name); ok {
					visit(lane)
				}
			}
			return err
		},
	})}
}

// handClock is a virtual clock.
type handClock struct{ atomic.Int64 }

func (c *handClock) now() unixtime.Milli { return unixtime.Milli(c.Load()) }

func (c *handClock) pass(d time.Duration) { c.Add(d.Milliseconds()) }

func (w limitWorld) virtual(t testing.TB) (limitBed, *handClock) {
	t.Helper()
	c := &handClock{}
	c.Store(1_900_000_000_000)
	return w.store(t, func(o *runner.Options) { o.Virtual = c.now }), c
}

var limitSuite = []struct {
	name string
	test func(*testing.T, limitWorld)
}{
	{"Units", testUnits},
	{"UnitsLapse", testUnitsLapse},
	{"UnitsTellWhenTheyLapse", testUnitsTellWhenTheyLapse},
	{"UnitsFair", testUnitsFair},
	{"UnitsForgetWaiters", testUnitsForgetWaiters},
	{"UnitsBoundLine", testUnitsBoundLine},
	{"UnitsNeverTooMany", testUnitsNeverTooMany},
	{"UnitsTogether", testUnitsTogether},
	{"UnitsExpiry", testUnitsExpiry},
	{"UnitFaults", testUnitFaults},
	{"Rate", testRate},
	{"RateModel", testRateModel},
	{"RateOthers", testRateOthers},
	{"Cells", testCells},
	{"QueueSettings", testQueueSettings},
	{"ManyLimits", testManyLimits},
}

func runLimits(t *testing.T, w limitWorld) {
	for _, s := range limitSuite {
		t.Run(s.name, func(t *testing.T) { s.test(t, w) })
	}
}

func TestLimitsEmbedded(t *testing.T) {
	runLimits(t, limitWorld{url: "redis://" + miniredis.RunT(t).Addr(), embedded: true})
}

func TestLimitsRedis(t *testing.T) {
	server := redistest.Start(t)
	runLimits(t, limitWorld{url: server.URL()})
	if refused := server.Refused(); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
}

func TestLimitsCluster(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	runLimits(t, limitWorld{url: "redis+cluster://" + strings.Join(cluster.Addrs(), ",")})
}

// testManyLimits: one call is about more names than one script takes, in all
// shards, some of them refused.
func testManyLimits(t *testing.T, w limitWorld) {
	s, _ := w.virtual(t)
	const many = 1000 // more than a hundred of each shard
	asks, names := make([]job.UnitRequest, many), make([]string, many)
	rates, swaps := make([]job.RateRequest, many), make([]job.CellSwap, many)
	shards := map[int]bool{}
	for i := range many {
		names[i] = fmt.Sprint("lock/ns/{key}", i/2)
		asks[i] = job.UnitRequest{Name: names[i], Limit: 1, Holder: fmt.Sprint("holder", i), TTL: time.Minute}
		rates[i] = job.RateRequest{Name: names[i], N: 1, Interval: time.Hour}
		swaps[i] = job.CellSwap{Name: names[i], New: fmt.Sprint(i)}
		shards[s.homeShard(names[i])] = true
	}
	asks[7].Limit, rates[7].Interval, swaps[7].Name = 0, 0, ""
	if len(shards) != 8 {
		t.Fatalf("names fall into %d shards", len(shards))
	}
	grants, starts, swapped := s.AcquireUnits(t.Context(), asks), s.TakeRate(t.Context(), rates), s.SwapCells(t.Context(), swaps)
	cells := s.ReadCells(t.Context(), names)
	for i := range many {
		if i == 7 {
			if grants[i].Err == nil || starts[i].Err == nil || swapped[i].Err == nil {
				t.Errorf("nonsense is accepted: %+v, %+v, %+v", grants[i], starts[i], swapped[i])
			}
			continue
		}
		first := i%2 == 0
		if g := grants[i]; g.Err != nil || g.Granted != first || !first && g.By != fmt.Sprint("holder", i-1) {
			t.Fatalf("unit %d: %+v", i, g)
		}
		if g := starts[i]; g.Err != nil || (g.N == 1) != first {
			t.Fatalf("start %d: %+v", i, g)
		}
		want := fmt.Sprint(i - i%2)
		if c := swapped[i]; c.Err != nil || c.Swapped != first || c.Text != want {
			t.Fatalf("swap %d: %+v", i, c)
		}
		if c := cells[i]; c.Err != nil || c.Text != want {
			t.Fatalf("cell %d: %+v", i, c)
		}
	}
}
