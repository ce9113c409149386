package main

import (
	"os"
	"testing"

	"github.com/fermata-io/fermata/bench/internal/fermata"
	"github.com/fermata-io/fermata/bench/internal/load"
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
	s, err := backlogFermata(t.Context(), r, backlog{n: 500, slots: 20})
	measure("fermata", s, err)
	s, err = backlogFermata(t.Context(), r, backlog{n: 200, slots: 20, failFirst: true})
	measure("fermata, retries", s, err)
	s, err = backlogAsynq(t.Context(), r, backlog{n: 500, slots: 20})
	measure("asynq", s, err)
	s, err = cycleRaw(t.Context(), r, 500, false)
	measure("raw redis", s, err)
}
