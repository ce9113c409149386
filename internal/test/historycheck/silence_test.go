package historycheck

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// failingScript adds failed runs with these waits in seconds between them.
func failingScript(s *script, waits ...int64) *script {
	now := int64(0)
	s.addCall(call{nominal: now, outcome: Failed})
	for _, w := range waits {
		now += w*1000 + 70
		s.addCall(call{nominal: now, outcome: Failed})
	}
	return s
}

func TestSilencesAndBackoffs(t *testing.T) {
	unscheduled := func() *script {
		s := newScript()
		s.h.ExpectedSchedules[0].Every = 0
		s.h.EndNS = atMS(200_000)
		return s
	}
	backedOff := func(s *script) *script {
		s.h.Backoffs = []Backoff{{Job: "a", Every: time.Second, Jitter: 0.1}}
		return s
	}
	waits := func(s *script, least time.Duration) *script {
		s.h.Waits = []Wait{{Job: "a", Least: least}}
		return s
	}
	silent := func(s *script, from, to int64) *script {
		silence := NoRunPeriod{Job: "a", FromNS: atMS(from)}
		if to != 0 {
			silence.ToNS = atMS(to)
		}
		s.h.NoRunPeriods = []NoRunPeriod{silence}
		return s
	}
	for _, tt := range []struct {
		name    string
		history *script
		want    []Kind
	}{
		{"waits grow", backedOff(failingScript(unscheduled(), 2, 4, 8, 16)), nil},
		{"waits grow, with jitter and phase", backedOff(failingScript(unscheduled(), 3, 4, 8, 15, 15)), nil},
		{"a count was forgotten", backedOff(failingScript(unscheduled(), 2, 4, 8, 2, 4)), []Kind{Shrunk}},
		{"a count was halved", backedOff(failingScript(unscheduled(), 2, 4, 8, 4)), []Kind{Shrunk}},
		{"success resets it", backedOff(failingScript(unscheduled(), 2, 4, 8).
			addCall(call{nominal: 30_000}).addCall(call{nominal: 31_000, outcome: Failed}).addCall(call{nominal: 33_100, outcome: Failed})), nil},
		{"a job that never ran", backedOff(newScript()), []Kind{Lost}},

		{"waits are kept", waits(failingScript(unscheduled(), 2, 2, 2), 2000*time.Millisecond), nil},
		{"a wait is a nanosecond short", waits(failingScript(unscheduled(), 2, 2, 2), 2020*time.Millisecond+1), []Kind{Hasty, Hasty, Hasty}},
		{"attempts of one run wait", waits(unscheduled().addCall(call{nominal: 1000, outcome: Failed}).
			addCall(call{nominal: 1000, start: 1570, attempt: 2, outcome: Failed}).
			addCall(call{nominal: 1000, start: 2119, attempt: 3}), 500*time.Millisecond), []Kind{Hasty}},
		{"a result that a fault held begins no wait", waits(failingScript(unscheduled(), 2, 2), 3*time.Second).addFault(stoppedWorkers(0, 2500)), nil},
		{"who was asked for by hand need not wait", waits(failingScript(unscheduled(), 2), time.Hour).byHand(), nil},

		{"nothing while it is paused", silent(unscheduled().addCalm(0, 3000).addCalm(8000, 9000), 3500, 8000), nil},
		{"a run on its way when it was paused", silent(unscheduled().addCalm(0, 3000).addCall(call{nominal: 4000}), 3900, 0), nil},
		{"a run while it is paused", silent(unscheduled().addCalm(0, 3000).addCall(call{nominal: 5000}), 3500, 8000), []Kind{Uncalled}},
		{"runs after it was deleted", silent(unscheduled().addCalm(0, 6000), 4500, 0), []Kind{Uncalled, Uncalled}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []Kind
			for _, f := range Check(tt.history.h).Findings {
				got = append(got, f.Kind)
			}
			if len(got) != len(tt.want) {
				t.Fatalf("got %v, want %v: %v", got, tt.want, Check(tt.history.h).Findings)
			}
			for i := range got {
				if got[i] != tt.want[i] {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			}
		})
	}
	manual := silent(unscheduled().addCalm(0, 3000).addCall(call{nominal: 6000}), 3500, 0)
	for i := range manual.h.Events {
		if manual.h.Events[i].NominalMS == second*1000+6000 {
			manual.h.Events[i].Run = "a/runs/m-x"
		}
	}
	if f := Check(manual.h).Findings; len(f) > 0 {
		t.Errorf("a manual run: %v", f)
	}
}

func TestSharedLocks(t *testing.T) {
	shared := func(limit int, faults ...Fault) []Finding {
		s := newScript().addCall(call{nominal: 1000, length: 600}).addCall(call{nominal: 3000, length: 600})
		other := newScript().addCall(call{nominal: 1000, start: 1700, length: 600}).addCall(call{nominal: 3000, start: 3300, length: 600, worker: "w2"})
		for i, e := range other.h.Events {
			e.Job, e.Run = "b", fmt.Sprintf("b/%d", i/2)
			s.h.Events = append(s.h.Events, e)
		}
		s.h.ExpectedSchedules = []ExpectedSchedule{{Job: "a"}, {Job: "b"}}
		s.h.Shared, s.h.Faults = []Shared{{Lock: "l", Jobs: []string{"a", "b"}, Limit: limit}}, faults
		return Check(s.h).Findings
	}
	if got := shared(1); len(got) != 1 || got[0].Kind != Overlap || got[0].Job != "b" {
		t.Errorf("two at once: %v", got)
	}
	if got := shared(2); len(got) != 0 {
		t.Errorf("two at once of two units: %v", got)
	}
	if got := shared(1, stoppedWorkers(3200, 3250, "w2")); len(got) != 0 {
		t.Errorf("a handler that a fault held back: %v", got)
	}
}

// A result that a fault held back counts from when it came: the wait after it looks
// longer than it was.
func TestBackoffAfterDelayedResult(t *testing.T) {
	for _, held := range []bool{true, false} {
		s := failingScript(newScript(), 1, 4, 3)
		s.h.ExpectedSchedules = []ExpectedSchedule{{Job: "a"}}
		s.h.Backoffs = []Backoff{{Job: "a", Every: 500 * time.Millisecond}}
		if held {
			s.addFault(stoppedWorkers(1000, 1500))
		}
		findings := Check(s.h).Findings
		if got := slices.ContainsFunc(findings, func(f Finding) bool { return f.Kind == Shrunk }); got == held {
			t.Errorf("held %v: %v", held, findings)
		}
	}
}

// By a slow clock a run is due before its wait has passed, and starts when it has.
func TestBackoffBySlowClock(t *testing.T) {
	for _, slow := range []bool{true, false} {
		s := failingScript(newScript(), 1, 2, 4)
		last := &s.h.Events[len(s.h.Events)-2]
		if last.Kind != Start {
			t.Fatalf("%+v is no start", last)
		}
		last.DueMS -= 3000
		s.h.ExpectedSchedules = []ExpectedSchedule{{Job: "a"}}
		s.h.Backoffs = []Backoff{{Job: "a", SlowClock: slow}}
		findings := Check(s.h).Findings
		if got := slices.ContainsFunc(findings, func(f Finding) bool { return f.Kind == Shrunk }); got == slow {
			t.Errorf("slow %v: %v", slow, findings)
		}
	}
}

// byHand makes the last run a manual one.
func (s *script) byHand() *script {
	last := s.h.Events[len(s.h.Events)-1].Run
	for i := range s.h.Events {
		if s.h.Events[i].Run == last {
			s.h.Events[i].Run = "a/m-1"
		}
	}
	return s
}
