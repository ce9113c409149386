package main

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/fermata-io/fermata/bench/internal/fermata"
	"github.com/fermata-io/fermata/bench/internal/load"
	"github.com/fermata-io/fermata/bench/internal/rawredis"
)

// TestMain lets the tests' binary be the worker process, as the program is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == load.Command {
		if err := load.Serve(os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestSmoke drains a few jobs of each peer, with real processes.
func TestSmoke(t *testing.T) {
	r := &runner{dir: t.TempDir(), log: t.Logf}
	var err error
	if r.scheduler, err = fermata.Build(t.Context(), r.dir, fermata.Tried); err != nil {
		t.Fatal(err)
	}
	for name, run := range map[string]func(context.Context) (Sample, error){
		"fermata": func(ctx context.Context) (Sample, error) {
			return backlogFermata(ctx, r, backlog{n: 500, slots: 20, keep: time.Second})
		},
		"fermata, retries": func(ctx context.Context) (Sample, error) {
			return backlogFermata(ctx, r, backlog{n: 200, slots: 20, failFirst: true})
		},
		"fermata, recurring jobs on two nodes": func(ctx context.Context) (Sample, error) {
			l := pace{rate: 40, over: 5 * time.Second, every: 5 * time.Second, slots: 20, nodes: 2, workers: 2}
			return onTime(func(begin beginFunc) (Sample, error) { return lagRecurring(ctx, r, l, begin) })
		},
		"asynq": func(ctx context.Context) (Sample, error) { return backlogAsynq(ctx, r, backlog{n: 500, slots: 20}) },
		"raw redis, one-time jobs": func(ctx context.Context) (Sample, error) {
			return drainRaw(ctx, r, 500, rawredis.Complete, false)
		},
		"raw redis, recurring jobs": func(ctx context.Context) (Sample, error) {
			return drainRaw(ctx, r, 500, rawredis.Reschedule, false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time they wait
			s, err := run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if drained, ok := s["drained"]; s["rate"] <= 0 || ok && drained < s["rate"] {
				t.Errorf("%v", s)
			}
		})
	}
}
