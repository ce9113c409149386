package historycheck

import (
	"slices"
	"testing"
	"time"
)

func TestAcknowledgedManualRunsBegin(t *testing.T) {
	asked := func(s *script, run string, ms int64) *script {
		s.h.ExpectedSchedules[0].Every = 0
		s.h.Bounds.Longest = 200 * time.Millisecond
		s.h.ManualRuns = append(s.h.ManualRuns, ManualRun{Job: "a", Run: run, AtNS: atMS(ms)})
		return s
	}
	// by hand renames the last run.
	byHand := func(s *script, run string) *script {
		for i := range s.h.Events {
			if s.h.Events[i].NominalMS == second*1000+2500 {
				s.h.Events[i].Run = "jobs/a/runs/" + run
			}
		}
		return s
	}
	cancelled := func(s *script, ms int64) *script {
		s.h.ManualRuns[0].CancelledNS = atMS(ms)
		return s
	}
	for _, tt := range []struct {
		name    string
		history *script
		want    []Kind
		judged  int
	}{
		{"it began", asked(byHand(newScript().addCalm(0, 2000).addCall(call{nominal: 2500}), "m-x"), "m-x", 2100), nil, 1},
		{"it failed", asked(byHand(newScript().addCalm(0, 2000).addCall(call{nominal: 2500, outcome: Failed}), "m-x"), "m-x", 2100), nil, 1},
		{"it never began", asked(newScript().addCalm(0, 2000), "m-x", 2100), []Kind{Dropped}, 1},
		{"another one began", asked(byHand(newScript().addCalm(0, 2000).addCall(call{nominal: 2500}), "m-y"), "m-x", 2100), []Kind{Dropped}, 1},
		{"of a job that never ran", asked(newScript(), "m-x", 2100), []Kind{Dropped}, 1},
		{"it was cancelled in time", cancelled(asked(newScript().addCalm(0, 2000), "m-x", 2100), 2200), nil, 0},
		{"it was cancelled when it ought to have begun", cancelled(asked(newScript().addCalm(0, 2000), "m-x", 2100), 9000), []Kind{Dropped}, 1},
		{"asked for just before the end", asked(newScript().addCalm(0, 2000), "m-x", 9900), nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := Check(tt.history.h)
			var got []Kind
			for _, f := range r.Findings {
				got = append(got, f.Kind)
			}
			if len(got) != len(tt.want) || r.Asked != tt.judged {
				t.Fatalf("%v (%d judged), want %v (%d)", r.Findings, r.Asked, tt.want, tt.judged)
			}
			for i := range got {
				if !slices.Contains(tt.want, got[i]) {
					t.Errorf("%v, want %v", r.Findings, tt.want)
				}
			}
		})
	}
}
