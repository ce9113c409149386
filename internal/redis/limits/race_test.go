package limits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// span is a time during which somebody surely held a unit: from the grant until it
// lapses or, at the latest, what the clock showed before the release was sent.
type span struct{ from, to int64 }

// testUnitsNeverTooMany: eight goroutines take, keep, lose and release units of a
// limit of three, while time passes.
func testUnitsNeverTooMany(t *testing.T, w limitWorld) {
	const limit, workers, rounds = 3, 8, 150
	s, clock := w.virtual(t)
	var mu sync.Mutex
	var spans []span
	latest := int64(0) // of the shard's clock
	see := func(ms int64) {
		mu.Lock()
		defer mu.Unlock()
		latest = max(latest, ms)
	}
	seen := func() int64 {
		mu.Lock()
		defer mu.Unlock()
		return latest
	}
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 3))
			ctx := context.Background()
			for round := range rounds {
				ttl := time.Duration(5+rng.IntN(40)) * time.Millisecond
				ask := job.UnitRequest{
					Name: "n", Limit: limit, Holder: fmt.Sprintf("%d@%d", round, worker), TTL: ttl,
					Waiter: job.RecordID(fmt.Sprint("w", worker)), Rank: int64(rng.IntN(5)),
				}
				g := s.AcquireUnits(ctx, []job.UnitRequest{ask})[0]
				clock.Add(int64(rng.IntN(4)))
				if g.Err != nil {
					t.Errorf("acquire: %v", g.Err)
					return
				}
				see(int64(g.NowMS))
				if !g.Granted {
					continue
				}
				held := span{int64(g.NowMS), int64(g.NowMS.Add(ttl))}
				for range rng.IntN(3) {
					clock.Add(int64(rng.IntN(10)))
					sent := seen()
					if lost, err := s.RenewUnits(ctx, []job.UnitRenewal{{Name: "n", Holder: ask.Holder, TTL: ttl}}); err != nil || len(lost) > 0 {
						break
					}
					held.to = max(held.to, sent+ttl.Milliseconds())
				}
				released := rng.IntN(4) > 0
				if released {
					held.to = min(held.to, seen())
				}
				mu.Lock()
				spans = append(spans, held)
				mu.Unlock()
				if !released {
					continue
				}
				r := s.ReleaseUnits(ctx, []job.UnitRelease{{Name: "n", Holder: ask.Holder, Limit: limit}})[0]
				if r.Err != nil {
					t.Errorf("release: %v", r.Err)
				}
			}
		})
	}
	wg.Wait()
	if len(spans) < rounds {
		t.Errorf("only %d grants", len(spans))
	}
	if most := overlap(spans); most != limit {
		t.Errorf("%d units were held at once, want %d at the most and at times", most, limit)
	}
}

// overlap is the greatest number of spans that have an instant in common.
func overlap(spans []span) int {
	type edge struct {
		at   int64
		step int
	}
	var edges []edge
	for _, s := range spans {
		if s.from < s.to {
			edges = append(edges, edge{s.from, 1}, edge{s.to, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.step - b.step // what ends at an instant makes room at that instant
	})
	most, n := 0, 0
	for _, e := range edges {
		n += e.step
		most = max(most, n)
	}
	return most
}
