package storecycle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// BenchmarkLife creates one-time jobs, leases and settles each of them, and deletes them after their retention. It
// reports what each part takes of Redis. They are due at random instants, in the lane of jobs that name none. Each
// iteration is the life of all jobs.
func BenchmarkLife(b *testing.B) {
	const jobs = 50_000
	for _, size := range []int{batch, 16} {
		for _, history := range []int{0, 10} {
			b.Run(fmt.Sprintf("jobs=%d/history=%d/batch=%d", jobs, history, size), func(b *testing.B) {
				life(b, jobs, history, size)
			})
		}
	}
}

func life(b *testing.B, jobs, history, size int) {
	server := redistest.Start(b)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	b.Cleanup(func() { _ = client.Close() })
	w := storetest.NewWorld(b, client, func(o *redisstore.Options) { o.Shards = 1 })
	w.Damaged() // an audit would count for the benchmark
	ctx, spent := context.Background(), map[string]float64{}
	lane := job.Lane{Namespace: "ns", Queue: job.DefaultQueue, Priority: job.DefaultPriority}
	holder := client.Get(ctx, w.Store.LockKey(0)).Val()
	phase := func(name string, f func()) {
		before := cpu(b, client)
		f()
		spent[name] += cpu(b, client) - before
	}
	for b.Loop() {
		phase("create", func() { createOnce(ctx, b, w, jobs, history) })
		w.Advance(every)
		phase("run", func() { runAll(ctx, b, w, jobs, size, lane) })
		w.Advance(time.Hour)
		phase("delete", func() {
			for left := jobs; left > 0; {
				n, err := w.Store.Sweep(ctx, 0, holder, []job.Lane{lane}, 1000)
				if err != nil || n == 0 {
					b.Fatalf("%d are left (%v)", left, err)
				}
				left -= n
			}
		})
	}
	total := 0.0
	for name, seconds := range spent {
		total += seconds
		b.ReportMetric(seconds*1e6/float64(jobs*b.N), name+"-us/job")
	}
	b.ReportMetric(total*1e6/float64(jobs*b.N), "redis-us/job")
}

// createOnce creates one-time jobs that are due within the next minute.
func createOnce(ctx context.Context, b *testing.B, w *storetest.World, jobs, history int) {
	b.Helper()
	var records []job.Record
	for k, i := range rand.Perm(jobs) {
		since := time.Duration(w.Clock.Load()-storetest.Start) * time.Millisecond
		d := storetest.Once(fmt.Sprintf("bench-%018d", i), since+rand.N(every))
		d.Queue, d.HistoryLimit, d.Payload = job.DefaultQueue, history, make([]byte, 200)
		records = append(records, w.Record(d))
		if len(records) < batch && k < jobs-1 {
			continue
		}
		if r := storetest.Create(ctx, w.Store, 0, records); r.Err != nil {
			b.Fatal(r.Err)
		}
		records = nil
	}
}

// runAll leases and settles all jobs.
func runAll(ctx context.Context, b *testing.B, w *storetest.World, jobs, size int, lane job.Lane) {
	b.Helper()
	for left := jobs; left > 0; {
		reply := w.Store.Lease(ctx, []job.LeaseRequest{storetest.LeaseRequest(0, size, "", lane)})[0]
		if reply.Err != nil || len(reply.Leased) == 0 {
			b.Fatalf("%d are left (%v)", left, reply.Err)
		}
		writes := make([]job.Write, len(reply.Leased))
		for i, l := range reply.Leased {
			writes[i] = w.Settle(l, job.OutcomeSucceeded)
		}
		if r := w.Store.Apply(ctx, 0, writes); r.Err != nil {
			b.Fatal(r.Err)
		}
		left -= len(writes)
	}
}
