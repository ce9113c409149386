package job

import (
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func tracedJob(kind schedule.Kind) *Definition {
	d := &Definition{Key: Key{Namespace: "ns", ID: "j"}, CreatedMS: 7, Schedule: schedule.Spec{Kind: kind}}
	if kind == schedule.KindInterval {
		d.Schedule.Every = time.Minute
	}
	return d
}

// TestTraceIDsDependOnTheRunOnly: ids follow from the run, and differ between runs,
// attempts, and jobs of one name.
func TestTraceIDsDependOnTheRunOnly(t *testing.T) {
	all := NewSampling(1)
	d := tracedJob(schedule.KindInterval)
	s := State{Region: RegionLeased, Generation: 1, Nominal: 1000, Due: 1000, Token: 5}
	a, ok := all.Of(d, &s)
	retry := s
	retry.Attempt, retry.Token, retry.Due = 1, 9, 4000
	b, _ := all.Of(d, &retry)
	if !ok || a != b || a.TraceID == (TraceID{}) || a.Parent != (SpanID{}) {
		t.Fatalf("two attempts of a run are of %+v and %+v", a, b)
	}
	if a.Attempt(5) == b.Attempt(9) || a.Attempt(5) == a.Run {
		t.Error("two spans have one id")
	}
	next, again := s, *d
	next.Nominal = 2000
	again.CreatedMS = 8
	for what, other := range map[string]RunTrace{"next run": first(all.Of(d, &next)), "job created anew": first(all.Of(&again, &s))} {
		if other.TraceID == a.TraceID || other.Run == a.Run {
			t.Errorf("the %s has the ids of the first", what)
		}
	}
}

func first(r RunTrace, _ bool) RunTrace { return r }

func TestSamplingShare(t *testing.T) {
	d := tracedJob(schedule.KindInterval)
	for share, want := range map[float64]int{0: 0, 0.25: 2500, 1: 10_000} {
		n := 0
		for i := range int64(10_000) {
			if _, ok := NewSampling(share).Of(d, &State{Region: RegionDue, Generation: 1, Nominal: unixtime.Milli(i + 1), Due: unixtime.Milli(i + 1)}); ok {
				n++
			}
		}
		if n < want-200 || n > want+200 {
			t.Errorf("a share of %v traces %d of 10000 runs", share, n)
		}
	}
}

// TestSampledCallersAreFollowed: who asks for a run has it traced; a job that recurs is
// not traced for ever because it was registered in a trace.
func TestSampledCallersAreFollowed(t *testing.T) {
	none := NewSampling(0)
	caller := Trace{TraceID: TraceID{1}, SpanID: SpanID{2}, State: "v=x"}
	once, recurring := tracedJob(schedule.KindOnce), tracedJob(schedule.KindInterval)
	once.Trace, recurring.Trace = &caller, &caller
	s := State{Region: RegionDue, Generation: 1, Nominal: 1000, Due: 1000}
	if r, ok := none.Of(once, &s); !ok || r.TraceID == caller.TraceID || r.Link != &caller || r.Parent != (SpanID{}) {
		t.Errorf("one-time job: %+v, %v", r, ok)
	}
	if _, ok := none.Of(recurring, &s); ok {
		t.Error("every run of a recurring job is traced")
	}
	s.Trigger, s.ManualID, s.Callers = TriggerManual, "m", []Caller{{RequestID: "other"}, {RequestID: "m", Trace: caller}}
	if r, ok := none.Of(recurring, &s); !ok || r.TraceID != caller.TraceID || r.Parent != caller.SpanID || r.State != "v=x" {
		t.Errorf("manual run: %+v, %v", r, ok)
	}
	s.ManualID = "n"
	if _, ok := none.Of(recurring, &s); ok {
		t.Error("a run is traced for somebody who asked for another one")
	}
}

// TestCallersStayWithTheirRuns follows the callers of manual runs through all the ways
// that such a run takes, to its end.
func TestCallersStayWithTheirRuns(t *testing.T) {
	d := tracedJob(schedule.KindInterval)
	d.Queue, d.Retry.MaxAttempts = "q", 1
	c, err := Compile(d)
	if err != nil {
		t.Fatal(err)
	}
	trace := &Trace{TraceID: TraceID{1}, SpanID: SpanID{2}}
	ids := func(s State) string {
		var list []string
		for _, caller := range s.Callers {
			list = append(list, caller.RequestID)
		}
		return strings.Join(list, " ")
	}
	idle := New(c, 1000).State
	live := Decide(c, idle, RequestManualRun{RequestID: "a", Trace: trace}, 2000).State.Leased(2_000_000)
	if ids(live) != "a" {
		t.Fatalf("of the run there is %q", ids(live))
	}
	waits := Decide(c, live, RequestManualRun{RequestID: "b", Trace: trace}, 2100).State
	if ids(waits) != "a b" || ids(live) != "a" {
		t.Errorf("of the run and the one that waits there is %q, and was %q", ids(waits), ids(live))
	}
	done := FinishAttempt{Token: 2_000_000, Outcome: OutcomeSucceeded, StartedMS: 2050}
	second := Decide(c, waits, done, 2200).State
	if ids(second) != "b" || second.ManualID != "b" {
		t.Errorf("of the second run there is %q", ids(second))
	}
	second = second.Leased(2_200_001)
	done.Token = 2_200_001
	if after := Decide(c, second, done, 2300).State; ids(after) != "" {
		t.Errorf("what has ended leaves %q", ids(after))
	}
	beside := Decide(c, live, RequestManualRun{RequestID: "k", Mode: ManualKeep, Trace: trace}, 2100).State
	if ids(beside) != "a k" {
		t.Errorf("of the run and the one beside it there is %q", ids(beside))
	}
	done.Token = 2_000_000
	spawned := Decide(c, beside, done, 2200)
	if spawned.Spawn == nil || ids(spawned.Spawn.State) != "k" || ids(spawned.State) != "" {
		t.Errorf("the child has %+v, its parent %q", spawned.Spawn, ids(spawned.State))
	}
	if untraced := Decide(c, idle, RequestManualRun{RequestID: "u"}, 2000).State; untraced.Callers != nil {
		t.Errorf("nobody is %+v", untraced.Callers)
	}
}

// TestEndedRunsKeepTheirTrace: a planned, waiting or ended run shows the trace that its spans are in.
func TestEndedRunsKeepTheirTrace(t *testing.T) {
	d := tracedJob(schedule.KindInterval)
	d.Queue, d.Retry.MaxAttempts = "q", 1
	c, err := Compile(d)
	if err != nil {
		t.Fatal(err)
	}
	caller := &Trace{TraceID: TraceID{1}, SpanID: SpanID{2}}
	idle := New(c, 1000).State
	for what, state := range map[string]State{
		"of the schedule": idle.Leased(2_000_000),
		"manual":          Decide(c, idle, RequestManualRun{RequestID: "a"}, 2000).State.Leased(2_000_000),
		"manual, traced":  Decide(c, idle, RequestManualRun{RequestID: "a", Trace: caller}, 2000).State.Leased(2_000_000),
	} {
		for _, share := range []float64{0, 1} {
			s := NewSampling(share)
			want, traced := s.Of(d, &state)
			ended := Decide(c, state, FinishAttempt{Token: 2_000_000, Outcome: OutcomeSucceeded, StartedMS: 2050}, 2200).Ended
			if view, _ := state.CurrentRun(); ended == nil || view.ID != ended.ID {
				t.Fatalf("%s: %+v has not ended as %+v", what, view, ended)
			} else if have, ok := s.OfRun(d, &view.Run); ok != traced || ok && have != want.TraceID {
				t.Errorf("%s, live: %v %v, want %v %v", what, have, ok, want.TraceID, traced)
			}
			if have, ok := s.OfRun(d, ended); ok != traced || ok && have != want.TraceID {
				t.Errorf("%s, ended: %v %v, want %v %v", what, have, ok, want.TraceID, traced)
			}
		}
	}
	waits, ok := Decide(c, idle.Leased(2_000_000), RequestManualRun{RequestID: "b", Trace: caller}, 2100).State.PendingRun()
	if have, traced := NewSampling(0).OfRun(d, &waits.Run); !ok || !traced || have != caller.TraceID {
		t.Errorf("waiting: %v %v", have, traced)
	}
}

func TestTraceparent(t *testing.T) {
	const want = "00-01000000000000000000000000000000-ab00000000000000-01"
	if have := Traceparent(TraceID{1}, SpanID{0xab}); have != want {
		t.Errorf("%s, want %s", have, want)
	}
}
