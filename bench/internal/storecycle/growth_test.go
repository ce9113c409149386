package storecycle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// BenchmarkGrowth leases and settles batches of 100 active jobs from the shards in
// turn, among so many that wait. Each iteration is one batch.
func BenchmarkGrowth(b *testing.B) {
	for _, c := range []struct{ active, waiting, shards int }{
		{10_000, 0, 64}, {10_000, 990_000, 64}, {1_000_000, 0, 64}, {10_000_000, 0, 256},
	} {
		b.Run(fmt.Sprintf("active=%d/waiting=%d", c.active, c.waiting), func(b *testing.B) { grow(b, c.active, c.waiting, c.shards) })
	}
}

func grow(b *testing.B, active, waiting, shards int) {
	server := redistest.Start(b)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ReadTimeout: time.Minute})
	b.Cleanup(func() { _ = client.Close() })
	w := storetest.NewWorld(b, client, func(o *redisstore.Options) { o.Shards = shards })
	w.Damaged() // an audit would count for the benchmark
	ctx := context.Background()
	spread(ctx, b, w, active, waiting, shards)
	w.Advance(every)
	done, looks, before := 0, 0, 0.0
	// After one round of the shards each of them has a batch due again.
	step := max(every*batch/time.Duration(active), time.Millisecond)
	visit := func() int {
		shard := looks % shards
		looks++
		w.Advance(step)
		leased := w.Store.Lease(ctx, []job.LeaseRequest{storetest.LeaseRequest(shard, batch, "")})[0].Leased
		if len(leased) == 0 {
			return 0
		}
		writes := make([]job.Write, len(leased))
		for i, l := range leased {
			writes[i] = w.Settle(l, job.OutcomeSucceeded)
		}
		if r := w.Store.Apply(ctx, shard, writes); r.Err != nil {
			b.Fatal(r.Err)
		}
		return len(leased)
	}
	for range 2 * shards { // until the backlog of the beginning is gone, or begun
		visit()
	}
	before = cpu(b, client)
	for b.Loop() {
		done += visit()
	}
	b.ReportMetric((cpu(b, client)-before)*1e6/float64(done), "redis-us/job")
	b.ReportMetric(float64(done)/float64(b.N), "jobs/batch")
}

// spread registers the jobs in random order, the active ones due at instants of their
// own within an interval, the waiting ones in a year.
func spread(ctx context.Context, b *testing.B, w *storetest.World, active, waiting, shards int) {
	b.Helper()
	all := active + waiting
	order := rand.Perm(all)
	for from, shard := 0, 0; from < all; from, shard = from+batch, (shard+1)%shards {
		var records []job.Record
		for _, i := range order[from:min(all, from+batch)] {
			d := storetest.Definition(fmt.Sprintf("bench-%018d", i))
			d.HistoryLimit, d.Payload, d.Schedule.Every = 0, make([]byte, 200), every
			d.AnchorMS += unixtime.Milli(rand.Int64N(every.Milliseconds()))
			if i >= active {
				d.Schedule.StartAt = time.UnixMilli(storetest.Start).Add(365 * 24 * time.Hour).UTC()
			}
			records = append(records, w.Record(d))
		}
		if r := storetest.Create(ctx, w.Store, shard, records); r.Err != nil {
			b.Fatal(r.Err)
		}
	}
}
