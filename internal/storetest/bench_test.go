package storetest_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/redisstore"
	"github.com/fermata-io/fermata/internal/redistest"
	"github.com/fermata-io/fermata/internal/storetest"
)

// BenchmarkCycle leases and settles batches of 100 recurring jobs of one shard,
// with everything that the product does besides: definitions, history, lanes.
func BenchmarkCycle(b *testing.B) {
	for _, history := range []int{0, 10} {
		b.Run(fmt.Sprintf("history=%d", history), func(b *testing.B) { cycle(b, history) })
	}
}

func cycle(b *testing.B, history int) {
	const jobs, batch = 10_000, 100
	server := redistest.Start(b)
	client := dial(b, server.URL())
	w := storetest.NewWorld(b, client, func(o *redisstore.Options) { o.Shards = 1 })
	w.Damaged() // an audit would count for the benchmark
	ctx := context.Background()
	for from := 0; from < jobs; from += batch {
		var records []job.Record
		for i := range batch {
			d := storetest.Definition(fmt.Sprintf("bench-%08d", from+i))
			d.HistoryLimit = history
			records = append(records, w.Record(d))
		}
		if r := w.Store.Create(ctx, 0, records); r.Err != nil {
			b.Fatal(r.Err)
		}
	}
	done := 0
	before := cpu(b, server)
	for b.Loop() {
		w.Advance(time.Second)
		leased := w.Store.Lease(ctx, []job.LeaseRequest{storetest.LeaseRequest(0, batch, "")})[0].Leased
		if len(leased) == 0 {
			w.Advance(time.Minute)
			continue
		}
		writes := make([]job.Write, len(leased))
		for i, l := range leased {
			writes[i] = w.Settle(l, job.OutcomeSucceeded)
		}
		if r := w.Store.Apply(ctx, 0, writes); r.Err != nil {
			b.Fatal(r.Err)
		}
		done += len(leased)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(done), "us/job")
	b.ReportMetric((cpu(b, server)-before)*1e6/float64(done), "redis-us/job")
}

// cpu is the processor time that the server has used, in seconds.
func cpu(b *testing.B, server *redistest.Server) float64 {
	b.Helper()
	text, err := server.Client().Info(context.Background(), "cpu").Result()
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
