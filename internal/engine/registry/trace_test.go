package registry

import (
	"context"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
)

// TestJobsRememberWhoRegisteredThem: the call that created a job, whoever edits it or
// asks for it again; and nobody, where nodes do not trace.
func TestJobsRememberWhoRegisteredThem(t *testing.T) {
	_, r := newFake(t)
	if d := mustCreate(t, r, "other", "").Definition; d.Trace != nil {
		t.Errorf("without tracing: %+v", d.Trace)
	}
	first, later := &job.Trace{TraceID: job.TraceID{1}}, &job.Trace{TraceID: job.TraceID{2}}
	caller := first
	r.o.Caller = func(context.Context) *job.Trace { return caller }
	mustCreate(t, r, "ping", "r1")
	caller = later
	again := mustCreate(t, r, "ping", "r1").Definition
	edited := mustUpdate(t, r, func(d *job.Definition) { d.Queue, d.Trace = "mail", nil }).Definition
	if again.Trace != first || edited.Trace != first {
		t.Errorf("created again: %+v, edited: %+v", again.Trace, edited.Trace)
	}
	if _, _, err := r.RunJob(t.Context(), ping, job.RequestManualRun{RequestID: "m1"}); err != nil {
		t.Fatal(err)
	}
	record, err := r.Get(t.Context(), ping)
	if err != nil {
		t.Fatal(err)
	}
	if trace, ok := record.State.CallerOf(); !ok || trace != *later {
		t.Errorf("of the run: %+v", record.State.Callers)
	}
}

// TestRunsTellTheirTraces: wherever a run is shown; and none, where nodes do not trace.
func TestRunsTellTheirTraces(t *testing.T) {
	f, r := newFake(t)
	mustCreate(t, r, "ping", "")
	if list, err := r.ListRuns(t.Context(), ping); err != nil || len(list) != 1 || list[0].TraceID != nil {
		t.Fatalf("without tracing: %+v, %v", list, err)
	}
	sampling := job.NewSampling(1)
	r.o.TraceID = func(d *job.Definition, run *job.Run) *job.TraceID {
		id, _ := sampling.OfRun(d, run)
		return &id
	}
	caller := &job.Trace{TraceID: job.TraceID{7}}
	r.o.Caller = func(context.Context) *job.Trace { return caller }
	f.history[ping] = []job.Run{{ID: "g1-1", FinishedMS: 1}, {ID: "m-1", Trigger: job.TriggerManual, FinishedMS: 1, Caller: &job.TraceID{8}}}
	asked, _, err := r.RunJob(t.Context(), ping, job.RequestManualRun{RequestID: "m2"})
	if err != nil || asked.TraceID == nil || *asked.TraceID != caller.TraceID {
		t.Errorf("asked for: %+v, %v", asked, err)
	}
	runs, err := r.ListRuns(t.Context(), ping)
	if err != nil || len(runs) != 3 {
		t.Fatalf("%+v, %v", runs, err)
	}
	for i, want := range []job.TraceID{0: {7}, 2: {8}} {
		if have := runs[i].TraceID; have == nil || i != 1 && *have != want {
			t.Errorf("run %s: %v, want %v", runs[i].ID, have, want)
		}
	}
	if one, err := r.GetRun(t.Context(), ping, "m-1"); err != nil || one.TraceID == nil || *one.TraceID != (job.TraceID{8}) {
		t.Errorf("by its id: %+v, %v", one, err)
	}
	if e, err := r.Explain(t.Context(), ping); err != nil || len(e.Runs) != 1 || e.Runs[0].TraceID == nil {
		t.Errorf("explained: %+v, %v", e.Runs, err)
	}
}
