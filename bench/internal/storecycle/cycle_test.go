package storecycle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

const (
	batch = 100
	every = time.Minute
)

// BenchmarkCycle leases and settles recurring jobs of one shard in batches of 100, due
// at random instants, with all that the product does besides: locks, tokens, definitions,
// history. Each iteration is one batch.
func BenchmarkCycle(b *testing.B) {
	for _, jobs := range []int{10_000, 100_000} {
		for _, history := range []int{0, 10} {
			b.Run(fmt.Sprintf("jobs=%d/history=%d", jobs, history), func(b *testing.B) { cycle(b, jobs, history) })
		}
	}
}

func cycle(b *testing.B, jobs, history int) {
	server := redistest.Start(b)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	b.Cleanup(func() { _ = client.Close() })
	w := storetest.NewWorld(b, client, func(o *redisstore.Options) { o.Shards = 1 })
	w.Damaged() // an audit would count for the benchmark
	ctx := context.Background()
	fill(ctx, b, w, jobs, history)
	// In this step of the clock a batch becomes due.
	step := every * batch / time.Duration(jobs)
	w.Advance(every)
	done, before := 0, cpu(b, client)
	for b.Loop() {
		leased := w.Store.Lease(ctx, []job.LeaseRequest{storetest.LeaseRequest(0, batch, "")})[0].Leased
		for len(leased) == 0 {
			w.Advance(max(step, time.Millisecond))
			leased = w.Store.Lease(ctx, []job.LeaseRequest{storetest.LeaseRequest(0, batch, "")})[0].Leased
		}
		writes := make([]job.Write, len(leased))
		for i, l := range leased {
			writes[i] = w.Settle(l, job.OutcomeSucceeded)
		}
		if r := w.Store.Apply(ctx, 0, writes); r.Err != nil {
			b.Fatal(r.Err)
		}
		done += len(leased)
		w.Advance(max(step, time.Millisecond))
	}
	b.ReportMetric((cpu(b, client)-before)*1e6/float64(done), "redis-us/job")
	b.ReportMetric(float64(done)/float64(b.N), "jobs/batch")
}

// fill registers the jobs in random order, each due at an instant of its own.
func fill(ctx context.Context, b *testing.B, w *storetest.World, jobs, history int) {
	b.Helper()
	order := rand.Perm(jobs)
	for from := 0; from < jobs; from += batch {
		var records []job.Record
		for _, i := range order[from:min(jobs, from+batch)] {
			d := storetest.Definition(fmt.Sprintf("bench-%018d", i))
			d.HistoryLimit, d.Payload = history, make([]byte, 200)
			d.AnchorMS += unixtime.Milli(rand.Int64N(every.Milliseconds()))
			d.Schedule.Every = every
			records = append(records, w.Record(d))
		}
		if r := storetest.Create(ctx, w.Store, 0, records); r.Err != nil {
			b.Fatal(r.Err)
		}
	}
}

// cpu is the processor time that the server has used, in seconds.
func cpu(b *testing.B, client *redis.Client) float64 {
	b.Helper()
	text, err := client.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	total := 0.0
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			total += seconds
		}
	}
	return total
}
