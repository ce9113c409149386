package storetest_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

// TestWritesShareRoundTrips: where many write at a time, the server reads less often than
// they write, and each gets the result of its own write.
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
		before := countReads(t, server)
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
		if n := countReads(t, server) - before; n >= len(leased) {
			return fmt.Errorf("%d reads of %d writes", n, len(leased))
		}
		return nil
	})
}

// TestLostReplyOfManyWrites: where the answers to several writes that went out together
// are lost, each of the writers gets the result of its own, which took place once.
func TestLostReplyOfManyWrites(t *testing.T) {
	const writers = 60
	w, proxy, faulty, registry := behindProxy(t, redistest.Start(t))
	for _, id := range w.InShard(0, writers) {
		w.Add(storetest.Definition(id))
	}
	redistest.Eventually(t, time.Minute, "more writes repeated than answers lost", func(context.Context) error {
		w.Clock.Add(90_000)
		leased := w.Lease(0, writers)
		lost, repeated := proxy.Counters().Cut, countReplays(t, registry, "apply")
		var writing sync.WaitGroup
		for i, l := range leased {
			write := w.Settle(l, job.OutcomeSucceeded)
			writing.Go(func() {
				if i == writers/2 { // by then writes wait for each other
					proxy.CutNextReplies(2)
				}
				reply := callUntilAvailable(t, func() (job.ApplyReply, error) {
					r := faulty.Apply(t.Context(), 0, []job.Write{write})
					return r, r.Err
				})
				if reply.Results[0].Code != job.Written {
					t.Errorf("%s: %+v", l.Record, reply)
				}
			})
		}
		writing.Wait()
		for _, l := range leased {
			if r := w.Get(l.Known.Definition.Key.ID); r.State.Runs != l.Known.State.Runs+1 {
				t.Errorf("%s: %d runs, had %d before", l.Record, r.State.Runs, l.Known.State.Runs)
			}
		}
		lost, repeated = proxy.Counters().Cut-lost, countReplays(t, registry, "apply")-repeated
		if len(leased) != writers || repeated <= float64(lost) {
			return fmt.Errorf("%d of %d leased; %v writes repeated for %d answers lost", len(leased), writers, repeated, lost)
		}
		return nil
	})
}

// countReads is how often the server has read from connections.
func countReads(t *testing.T, server *redistest.Server) int {
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
