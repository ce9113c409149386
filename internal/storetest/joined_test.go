package storetest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/job"
	"github.com/fermata-io/fermata/internal/redistest"
	"github.com/fermata-io/fermata/internal/storetest"
)

// TestWritesShareRoundTrips: where many write at a time, the server reads less often than
// they write, and each hears of its own write.
func TestWritesShareRoundTrips(t *testing.T) {
	const writers = 60
	server := redistest.Start(t)
	w := storetest.NewWorld(t, server.Client())
	round := 0
	redistest.Eventually(t, time.Minute, "fewer reads than writes", func(context.Context) error {
		for _, id := range w.InShard(0, (round+1)*writers)[round*writers:] {
			w.Add(storetest.Once(id, 0))
		}
		round++
		leased := w.Lease(0, writers)
		before := reads(t, server)
		var writing sync.WaitGroup
		for _, l := range leased {
			writing.Go(func() {
				reply := w.Store.Apply(t.Context(), 0, []job.Write{w.Settle(l, job.OutcomeSucceeded)})
				if reply.Err != nil || reply.Results[0].Code != job.Written {
					t.Errorf("%s: %+v", l.Record, reply)
				}
			})
		}
		writing.Wait()
		if n := reads(t, server) - before; n >= len(leased) {
			return fmt.Errorf("%d reads of %d writes", n, len(leased))
		}
		return nil
	})
}

// reads is how often the server has read from connections.
func reads(t *testing.T, server *redistest.Server) int {
	t.Helper()
	info, err := server.Client().Info(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "total_reads_processed:")
	n := 0
	if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}
