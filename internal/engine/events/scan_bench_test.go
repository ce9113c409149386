package events_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/engine/events"
	"github.com/fermata-io/fermata/internal/redis/redisstore"
	"github.com/fermata-io/fermata/internal/test/redistest"
)

// BenchmarkScan reads what 64 shards keep of other namespaces, for a watcher that wants one
// job of its own: the processor's time of the node for each event, without that of Redis.
func BenchmarkScan(b *testing.B) {
	const kept = 50_000
	server := redistest.Start(b)
	store, err := redisstore.Open(b.Context(), redisstore.Options{Client: server.Client(), KeepEvents: 2 * kept})
	if err != nil {
		b.Fatal(err)
	}
	for i := range kept {
		store.Announce(job.Event{
			Kind: job.KindRunSucceeded, AtMS: unixtime.MilliOf(time.Now()), Key: job.Key{Namespace: "team-b", ID: fmt.Sprint("report-", i)},
			Queue: "default", RunID: "1", Attempt: 1, DueMS: unixtime.MilliOf(time.Now()), StartMS: unixtime.MilliOf(time.Now()), Worker: "worker-1",
			Labels: map[string]string{"team": "b", "tier": "gold"},
		})
		if i%20_000 == 19_999 || i == kept-1 {
			for range 40 {
				if err := store.FlushEvents(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	feed, err := events.New(events.Options{Store: store})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- feed.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	query := job.EventQuery{FromMS: 1, StopAtEnd: true, Filter: job.EventFilter{Namespaces: []string{"team-a"}, Jobs: []string{"none"}}}
	before := processorTime(b)
	for b.Loop() {
		if err := feed.Watch(b.Context(), query, func(job.EventBatch) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N)/kept, "cpu-ns/event")
}

// processorTime is what this process has used of processors.
func processorTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
