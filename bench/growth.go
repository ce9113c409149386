package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/fermata-io/fermata/bench/internal/fermata"
)

// growth measures whether a job becomes dearer when there are more of them: what lease
// and settlement cost Redis, by the product's own store, in batches of 100 from the
// shards in turn. Jobs that are due again and again are active, the others wait. It runs
// the Go benchmark in internal/storecycle.
var growth = Scenario{
	Name: "growth", MaxRounds: 1,
	Title: "Cost of a job as their number grows",
	Text: "Recurring jobs over 64 shards (256 for ten million), leased and settled by the store in batches of 100, due " +
		"at random instants, no history. No code removes the misses of the processor's caches that come with more records " +
		"touched.",
	Metrics: []Metric{{"cpu_redis", "Redis us/job", 2}},
	Cases: func(p Params) []Case {
		var cases []Case
		for _, g := range growths {
			if g.full && p.Quick {
				continue
			}
			cases = append(cases, Case{
				Peer: peerFermata, Setting: g.name(),
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return g.run(ctx)
				},
			})
		}
		return cases
	},
	Targets: func(r Results) []Target {
		base := r.Of(peerFermata, growths[0].name(), "cpu_redis")
		times := func(i int) float64 { return r.Of(peerFermata, growths[i].name(), "cpu_redis") / base }
		return []Target{
			{Text: "10,000 active among a million, against among 10,000", Value: times(1),
				Required: 1.5, Aimed: none, AtMost: true, Unit: "x"},
			{Text: "all of a million cycling, against 10,000", Value: times(2),
				Required: 3, Aimed: 2.2, AtMost: true, Unit: "x"},
			{Text: "all of ten million cycling, against 10,000", Value: times(3),
				Required: 3, Aimed: 2.2, AtMost: true, Unit: "x"},
		}
	},
}

// growths are the cases, the one that the others are compared with first.
var growths = []growthCase{
	{active: 10_000}, {active: 10_000, waiting: 990_000}, {active: 1_000_000}, {active: 10_000_000, full: true},
}

// growthCase is a benchmark of internal/storecycle.
type growthCase struct {
	active, waiting int
	full            bool // takes minutes, and ten GB
}

func (g growthCase) name() string {
	return fmt.Sprintf("%d active of %d", g.active, g.active+g.waiting)
}

func (g growthCase) run(ctx context.Context) (Sample, error) {
	root, err := fermata.Root(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-benchtime", "4000x", "-timeout", "30m",
		"-bench", fmt.Sprintf("^BenchmarkGrowth$/^active=%d$/^waiting=%d$", g.active, g.waiting), "./internal/storecycle")
	cmd.Dir = filepath.Join(root, "bench")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	v, err := benchmarkMetric(out, "redis-us/job")
	return Sample{"cpu_redis": v}, err
}
