package main

import (
	"os"
	"strings"
	"testing"

	"github.com/fermata-io/fermata/internal/cli/workercheck"
)

// asCheckProgram makes the test binary the check program.
const asCheckProgram = "CHECK_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asCheckProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestGoWorkerConforms: package worker passes all cases.
func TestGoWorkerConforms(t *testing.T) {
	o := workercheck.Options{
		Command: []string{os.Args[0]}, Env: []string{asCheckProgram + "=yes"}, Profile: workercheck.ProfileFull,
		Parallel: 8, Scale: 1,
	}
	s, err := workercheck.Run(t.Context(), o, func(r workercheck.Result) {
		if r.Status != workercheck.Passed {
			t.Errorf("%s: %s %v %s\n%s", r.Case.Name, r.Status, r.Faults, r.Why, strings.Join(r.Output, "\n"))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "Fermata worker: conformant, full profile, protocol v1"; s.Badge != want {
		t.Errorf("badge %q, want %q", s.Badge, want)
	}
}
