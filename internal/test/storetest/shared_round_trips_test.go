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
	redistest.Eventually(t, redistest.Patience, "fewer reads than writes", func(context.Context) error {
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
	redistest.Eventually(t, redistest.Patience, "more writes repeated than answers lost", func(context.Context) error {
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

// TestCreationsShareScripts: where many create single jobs of a shard at a time, the server runs fewer scripts than
// there are calls, and each call has the result of its own job.
func TestCreationsShareScripts(t *testing.T) {
	const callers = 60
	server := redistest.Start(t)
	w := storetest.NewWorld(t, server.Client())
	taken := w.InShard(0, 1)[0]
	w.Add(storetest.Once(taken, time.Hour))
	round := 0
	redistest.Eventually(t, redistest.Patience, "fewer scripts than creations", func(context.Context) error {
		ids := w.InShard(0, 1+(round+1)*callers)[1+round*callers:]
		round++
		before := countScripts(t, server)
		var creating sync.WaitGroup
		for i, id := range ids {
			want := job.Created
			if i == callers/2 {
				id, want = taken, job.Exists
			}
			d := storetest.Once(id, time.Hour+time.Duration(i)*time.Minute)
			creating.Go(func() {
				reply := storetest.Create(t.Context(), w.Store, 0, []job.Record{w.Record(d)})
				if reply.Err != nil || reply.Results[0].Code != want {
					t.Errorf("%s: %+v", d.ID, reply)
				}
				if e := reply.Results; want == job.Exists && reply.Err == nil && (e[0].Existing == nil || e[0].Existing.Definition.ID != taken) {
					t.Errorf("%s exists as %+v", d.ID, e[0].Existing)
				}
			})
		}
		creating.Wait()
		scripts := countScripts(t, server) - before
		for i, id := range ids {
			if got := w.Get(id); (got != nil) != (i != callers/2) {
				t.Errorf("%s is stored as %+v", id, got)
			}
		}
		if scripts >= callers {
			return fmt.Errorf("%d scripts for %d creations", scripts, callers)
		}
		return nil
	})
}

// TestLostReplyOfManyCreations: where the answers to jobs that were stored together are lost, each caller has its own
// job, created once.
func TestLostReplyOfManyCreations(t *testing.T) {
	const callers = 60
	w, proxy, faulty, registry := behindProxy(t, redistest.Start(t))
	round := 0
	redistest.Eventually(t, redistest.Patience, "more creations repeated than answers lost", func(context.Context) error {
		ids := w.InShard(0, (round+1)*callers)[round*callers:]
		round++
		lost, repeated := proxy.Counters().Cut, countReplays(t, registry, "create")
		var creating sync.WaitGroup
		for i, id := range ids {
			record := w.Record(storetest.Definition(id))
			creating.Go(func() {
				if i == callers/2 { // by then some wait for each other
					proxy.CutNextReplies(2)
				}
				reply := callUntilAvailable(t, func() (job.CreateReply, error) {
					r := storetest.Create(t.Context(), faulty, 0, []job.Record{record})
					return r, r.Err
				})
				if reply.Results[0].Code != job.Created {
					t.Errorf("%s: %+v", id, reply)
				}
			})
		}
		creating.Wait()
		for _, id := range ids {
			if w.Get(id) == nil {
				t.Errorf("%s is not stored", id)
			}
		}
		lost, repeated = proxy.Counters().Cut-lost, countReplays(t, registry, "create")-repeated
		if repeated <= float64(lost) {
			return fmt.Errorf("%v creations repeated for %d answers lost", repeated, lost)
		}
		return nil
	})
}

// countScripts is how many scripts the server has run.
func countScripts(t *testing.T, server *redistest.Server) int {
	t.Helper()
	info, err := server.Client().Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, command := range []string{"eval", "evalsha", "fcall"} {
		_, rest, found := strings.Cut(info, "cmdstat_"+command+":calls=")
		n := 0
		if _, err := fmt.Sscanf(rest, "%d", &n); found && err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return total
}
