package storetest_test

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/internal/test/storetest"
)

var commandCalls = regexp.MustCompile(`cmdstat_([a-z]+):calls=(\d+)`)

// countCommands is how often the server has run each command.
func countCommands(t *testing.T, server *redistest.Server) map[string]int {
	t.Helper()
	info, err := server.Client().Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, m := range commandCalls.FindAllStringSubmatch(info, -1) {
		counts[m[1]], _ = strconv.Atoi(m[2])
	}
	return counts
}

// At a steady rate a script handles one record, and its cost is that of its commands. The lease of a small quota reads
// its lane once, and a run that ends for good changes no due time, so that no index is looked at.
func TestScriptsOfOneRecordMakeFewCalls(t *testing.T) {
	server := redistest.Start(t)
	w := storetest.NewWorld(t, server.Client())
	ids := w.InShard(0, 30)
	for _, id := range ids {
		d := storetest.Once(id, 0)
		d.Retention = time.Hour
		w.Add(d)
	}
	for quota, want := range map[int]int{1: 1, 8: 1, 9: 2} {
		before := countCommands(t, server)
		leased := w.Lease(0, quota)
		if n := countCommands(t, server)["zrange"] - before["zrange"]; len(leased) != quota || n != want {
			t.Errorf("a lease of %d: %d ranges, want %d", len(leased), n, want)
		}
		for i, l := range leased {
			write, looks := w.Settle(l, job.OutcomeSucceeded), 0
			if i == 0 { // it is due again
				write, looks = w.Settle(l, job.OutcomeFailed), 1
			}
			before := countCommands(t, server)
			w.MustWrite(0, write)
			after := countCommands(t, server)
			scores, ranges := after["zmscore"]-before["zmscore"], after["zrange"]-before["zrange"]
			if scores != looks || ranges != looks {
				t.Errorf("%d calls of zmscore and %d of zrange by a settlement, want %d", scores, ranges, looks)
			}
		}
	}
	w.CheckConsistency()
}

// TestSweepIsOneScript: finished jobs are deleted by one script, which reads their states only.
func TestSweepIsOneScript(t *testing.T) {
	server := redistest.Start(t)
	w := storetest.NewWorld(t, server.Client())
	ids := w.InShard(0, 51)
	w.Add(storetest.Once(ids[50], 1000*time.Hour)) // its lane is not empty afterwards
	for _, id := range ids[:50] {
		w.Add(storetest.Once(id, 0))
	}
	for _, l := range w.Lease(0, 50) {
		w.MustWrite(0, w.Settle(l, job.OutcomeSucceeded))
	}
	holder := w.Client.Get(t.Context(), w.Store.LockKey(0)).Val()
	sweep := func(want int) {
		t.Helper()
		n, err := w.Store.Sweep(t.Context(), 0, holder, []job.Lane{storetest.Lane()}, 100)
		if n != want || err != nil {
			t.Errorf("%d were deleted (%v), want %d", n, err, want)
		}
	}
	sweep(0) // loads the script
	w.Advance(time.Hour)
	before := countCommands(t, server)
	sweep(50)
	after := countCommands(t, server)
	for name, want := range map[string]int{"evalsha": 1, "eval": 0, "hmget": 1, "zrem": 1, "hdel": 2} {
		if n := after[name] - before[name]; n != want {
			t.Errorf("%d calls of %s, want %d", n, name, want)
		}
	}
}
