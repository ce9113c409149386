package main

import (
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
	measure := func(name string, s Sample, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if s["rate"] <= 0 {
			t.Errorf("%s: %v", name, s)
		}
	}
	s, err := backlogFermata(t.Context(), r, backlog{n: 500, slots: 20, keep: time.Second})
	measure("fermata", s, err)
	if s["drained"] < s["rate"] {
		t.Errorf("jobs drained and deleted at a higher rate than drained: %v", s)
	}
	s, err = backlogFermata(t.Context(), r, backlog{n: 200, slots: 20, failFirst: true})
	measure("fermata, retries", s, err)
	s, err = backlogAsynq(t.Context(), r, backlog{n: 500, slots: 20})
	measure("asynq", s, err)
	for _, end := range []rawredis.End{rawredis.Complete, rawredis.Reschedule} {
		s, err = drainRaw(t.Context(), r, 500, end, false)
		measure("raw redis", s, err)
	}
	s, err = onTime(func(begin beginFunc) (Sample, error) {
		return lagRecurring(t.Context(), r, pace{rate: 40, over: 5 * time.Second, every: 5 * time.Second, slots: 20, nodes: 2, workers: 2}, begin)
	})
	measure("fermata, recurring jobs on two nodes", s, err)
}
