package ledger

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// withRuns makes a job that lets runs overlap, with n of them live: tokens 101 and
// up, in slots 0 and up.
func withRuns(t *testing.T, store *fakeStore, l *Ledger, n int) {
	t.Helper()
	r := store.records["ns/a"]
	r.Definition.Overlap, r.Definition.OverlapLimit = job.OverlapAllowAll, 10
	for i := range n {
		token := uint64(101 + i)
		r.State = r.State.Leased(token)
		got := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.RunLeased{Token: token}})[0]
		if got.Err != nil || got.Arrival != job.ArrivalSpawn || got.Spawn == nil || got.Spawn.Slot != i || got.Record.State.Live() {
			t.Fatalf("run %d does not become a record: %+v", i, got)
		}
	}
}

func TestARunOfItsOwnChangesItsJobToo(t *testing.T) {
	l, store, rec := setup(t, Options{}, "a")
	withRuns(t, store, l, 2)
	notices := len(rec.notices)
	r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a#r1", Input: job.FinishAttempt{Token: 102, Outcome: job.OutcomeSucceeded}})[0]
	if r.Err != nil || r.Answer != job.Applied || !r.Deleted || r.Record.State.Lane != (job.Lane{}) {
		t.Errorf("%+v", r)
	}
	parent := store.records["ns/a"].State
	if store.records["ns/a#r1"] != nil || parent.Children != 1 || parent.Succeeded != 1 || r.Parent.State.Succeeded != 1 {
		t.Errorf("parent %+v, told %+v", parent, r.Parent.State)
	}
	if n := len(rec.notices) - notices; n != 1 {
		t.Errorf("%d notices: %+v", n, rec.notices)
	}
	// The run has gone: a repeat finds nothing.
	r = l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a#r1", Input: job.FinishAttempt{Token: 102, Outcome: job.OutcomeSucceeded}})[0]
	if !errors.Is(r.Err, job.ErrNotFound) {
		t.Errorf("a repeat: %+v", r)
	}
	// One that is not the run's changes neither, and answers both.
	r = l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a#r0", Input: job.FinishAttempt{Token: 7, Outcome: job.OutcomeSucceeded}})[0]
	if r.Err != nil || r.Answer != job.Stale || r.Record.State.Token != 101 || r.Parent.State.Children != 1 {
		t.Errorf("a stale result: %+v", r)
	}
}

func TestAConflictOfEitherIsDecidedAgainOnBoth(t *testing.T) {
	for _, moving := range []job.RecordID{"ns/a", "ns/a#r0"} {
		l, store, _ := setup(t, Options{}, "a")
		withRuns(t, store, l, 1)
		races := 5
		store.before = func([]job.Write) {
			if races > 0 {
				races--
				store.records[moving].State.Revision++
			}
		}
		known := *store.records["ns/a#r0"]
		r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a#r0", Input: job.FinishAttempt{Token: 101, Outcome: job.OutcomeSucceeded}, Known: &known})[0]
		if r.Err != nil || store.records["ns/a"].State.Succeeded != 1 || store.records["ns/a#r0"] != nil || races != 0 {
			t.Errorf("%s moves: %+v, races left %d", moving, r, races)
		}
	}
}

func TestChangesOfOneJobNeverShareARound(t *testing.T) {
	l, store, _ := setup(t, Options{}, "a", "b")
	withRuns(t, store, l, 3)
	store.batches = nil
	changes := []job.Change{
		{Record: "ns/a#r0", Input: job.FinishAttempt{Token: 101, Outcome: job.OutcomeSucceeded}},
		{Record: "ns/a#r1", Input: job.FinishAttempt{Token: 102, Outcome: job.OutcomeSucceeded}},
		{Record: "ns/a", Input: job.Pause{Note: "n"}},
		{Record: "ns/b", Input: job.Pause{Note: "n"}},
		{Record: "ns/a#r2", Input: job.FinishAttempt{Token: 103, Outcome: job.OutcomeSucceeded}},
	}
	for i, r := range l.SubmitAndWait(t.Context(), changes...) {
		if r.Err != nil {
			t.Errorf("change %d: %v", i, r.Err)
		}
	}
	for _, batch := range store.batches {
		seen := map[job.RecordID]bool{}
		for _, w := range batch {
			if seen[w.Record] {
				t.Errorf("%s twice in %d writes", w.Record, len(batch))
			}
			seen[w.Record] = true
		}
	}
	if s := store.records["ns/a"].State; s.Succeeded != 3 || s.Children != 0 || !s.Paused {
		t.Errorf("%+v", s)
	}
}

func TestADeadLetterIsRedrivenIntoItsJob(t *testing.T) {
	l, store, _ := setup(t, Options{}, "a")
	letter := job.State{Region: job.RegionDead, Token: 5, Revision: 1, Lane: store.records["ns/a"].State.Lane, Generation: 1, Nominal: now - 1000}
	store.records["ns/a#d0"] = &job.Record{Definition: store.records["ns/a"].Definition, State: letter}
	r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a#d0", Input: job.Redrive{}})[0]
	if r.Err != nil || r.Answer != job.Applied || !r.Deleted || r.Spawn == nil || r.Parent.State.Children != 1 {
		t.Fatalf("%+v", r)
	}
	run := store.records["ns/a#r0"]
	if store.records["ns/a#d0"] != nil || run == nil || run.State.Nominal != letter.Nominal || run.State.Region != job.RegionDue {
		t.Errorf("run %+v", run)
	}
	for record, want := range map[job.RecordID]error{"ns/a#d0": job.ErrNotFound, "ns/none#d0": job.ErrNotFound} {
		if r := l.SubmitAndWait(t.Context(), job.Change{Record: record, Input: job.Redrive{}})[0]; !errors.Is(r.Err, want) {
			t.Errorf("%s: %+v", record, r)
		}
	}
	if r := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.Redrive{}})[0]; r.Err != nil || r.Answer != job.NotDead {
		t.Errorf("a job that is not dead: %+v", r)
	}
}

// edited is a copy to be changed: definitions are shared.
func edited(d *job.Definition) *job.Definition {
	other := *d
	return &other
}

func TestOverlapStopsTheReplacedRun(t *testing.T) {
	l, store, _ := setup(t, Options{}, "a")
	withRuns(t, store, l, 2)
	r := store.records["ns/a"]
	for overlap, want := range map[job.Overlap]string{job.OverlapCancelOther: "[0 1] []", job.OverlapTerminateOther: "[] [0 1]"} {
		before := *r
		r.Definition = edited(r.Definition)
		r.Definition.Overlap, r.Definition.Revision = overlap, 10+uint32(overlap)
		r.State = r.State.Leased(201)
		got := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a", Input: job.RunLeased{Token: 201}})[0]
		if text := fmt.Sprint(got.CancelChildren, " ", got.TerminateChildren); got.Err != nil || text != want {
			t.Errorf("%v: %s, %+v", overlap, text, got)
		}
		*r = before
		delete(store.records, "ns/a#r2")
	}
}

// A run whose job cannot be used ends with its lease and gives its slot back, so that
// the job can still be deleted or mended.
func TestARunThatCannotBeUsedEnds(t *testing.T) {
	l, store, _ := setup(t, Options{}, "a")
	withRuns(t, store, l, 1)
	r := store.records["ns/a"]
	r.Definition = edited(r.Definition)
	r.Definition.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}, TimeZone: "Mars/Olympus"}
	r.Definition.Revision++
	if got := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a#r0", Input: job.Delete{}})[0]; !errors.Is(got.Err, job.ErrCorrupt) || store.records["ns/a#r0"] == nil {
		t.Errorf("a run is not deleted by request: %+v", got)
	}
	got := l.SubmitAndWait(t.Context(), job.Change{Record: "ns/a#r0", Input: job.LoseLease{Token: 101}})[0]
	if !errors.Is(got.Err, job.ErrCorrupt) || store.records["ns/a#r0"] != nil {
		t.Errorf("%+v, stored %+v", got, store.records["ns/a#r0"])
	}
	if s := store.records["ns/a"].State; s.Children != 0 || s.Dead != 1 {
		t.Errorf("parent %+v", s)
	}
}
