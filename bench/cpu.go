package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/bench/internal/fermata"
	"github.com/fermata-io/fermata/bench/internal/rawredis"
)

// cpu measures what lease and settlement cost Redis, by the product's own store alone:
// recurring jobs of one shard cycle in batches of 100, due at random instants, with
// lock, tokens, definitions and history (the default keeps ten runs). It runs the Go
// benchmark in internal/storecycle. What Redis spends end to end, where batches are as
// large as what waits, is in the tables of drain and recurring.
var cpu = Scenario{
	Name: "cpu", MaxRounds: 2,
	Title: "Redis CPU of lease and settlement",
	Text: "Recurring jobs of one shard, leased and settled by the store in batches of 100, due at random instants. " +
		"History 10 is the default. Raw Redis: the same number of jobs, nothing checked.",
	Metrics: []Metric{{"cpu_redis", "Redis us/job", 2}},
	Cases: func(p Params) []Case {
		var cases []Case
		for _, jobs := range []int{10_000, 100_000} {
			if p.Quick && jobs > 10_000 {
				continue
			}
			for _, history := range []int{10, 0} {
				cases = append(cases, Case{
					Peer: peerFermata, Setting: fmt.Sprintf("%d jobs, history %d", jobs, history),
					Run: func(ctx context.Context, r *runner) (Sample, error) {
						return storeCycle(ctx, jobs, history, 1500)
					},
				})
			}
			cases = append(cases, Case{
				Peer: peerRaw, Setting: fmt.Sprintf("%d jobs", jobs),
				Run: func(ctx context.Context, r *runner) (Sample, error) {
					return drainRaw(ctx, r, jobs, rawredis.Reschedule, false)
				},
			})
		}
		return cases
	},
	Targets: func(r Results) []Target {
		at := func(setting string) float64 { return r.Of(peerFermata, setting, "cpu_redis") }
		return []Target{
			{Text: "Redis CPU of lease and settlement, 10,000 jobs", Value: at("10000 jobs, history 10"),
				Required: 9, Aimed: 7, AtMost: true, Unit: "us"},
			{Text: "Redis CPU of lease and settlement, 100,000 jobs", Value: at("100000 jobs, history 10"),
				Required: 12, Aimed: 9, AtMost: true, Unit: "us"},
		}
	},
}

// storeCycle runs the Go benchmark for so many batches.
func storeCycle(ctx context.Context, jobs, history, batches int) (Sample, error) {
	root, err := fermata.Root(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-benchtime", fmt.Sprintf("%dx", batches),
		"-bench", fmt.Sprintf("^BenchmarkCycle$/^jobs=%d$/^history=%d$", jobs, history), "./internal/storecycle")
	cmd.Dir = filepath.Join(root, "bench")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	v, err := benchmarkMetric(out, "redis-us/job")
	return Sample{"cpu_redis": v}, err
}

// benchmarkMetric finds a figure by its unit in what `go test -bench` printed.
func benchmarkMetric(out []byte, unit string) (float64, error) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		for i, f := range fields {
			if f == unit && i > 0 {
				return strconv.ParseFloat(fields[i-1], 64)
			}
		}
	}
	return 0, fmt.Errorf("no %s in\n%s", unit, out)
}
