package storetest

import (
	"reflect"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// wantRuns reads the ended runs of a job, by both ways that there are.
func (w *World) wantRuns(id string, outcomes ...job.Outcome) []job.Run {
	w.T.Helper()
	record := w.Get(id)
	runs, err := w.Store.Runs(w.T.Context(), record.Definition.Key, record.Definition.HistoryLimit)
	if err != nil {
		w.T.Fatal(err)
	}
	recent, err := w.Store.RecentRuns(w.T.Context(), []job.Record{*record}, 10)
	if err != nil || !reflect.DeepEqual(recent[0], runs) && len(recent[0])+len(runs) > 0 {
		w.T.Errorf("recent runs %+v (%v), all %+v", recent, err, runs)
	}
	var got []job.Outcome
	for _, r := range runs {
		got = append(got, r.Outcome)
	}
	if !reflect.DeepEqual(got, outcomes) {
		w.T.Errorf("runs ended with %v, want %v", got, outcomes)
	}
	return runs
}

// wantStoredRuns checks where the runs of a job are stored.
func (w *World) wantStoredRuns(id string, inHistory int, inState bool) {
	w.T.Helper()
	n := 0
	for field := range w.Client.HGetAll(w.T.Context(), w.Key(0, "hist")).Val() {
		if strings.HasPrefix(field, "ns/"+id+".") {
			n++
		}
	}
	if kept := w.Get(id).State.KeptRun != ""; n != inHistory || kept != inState {
		w.T.Errorf("%s has %d runs in the history, want %d; one in its state: %v, want %v", id, n, inHistory, kept, inState)
	}
}

// again requests a manual run and settles it.
func (w *World) again(id string, outcome job.Outcome) {
	w.T.Helper()
	w.Advance(time.Second) // no two runs end at one instant
	r := w.Get(id)
	request := job.RequestManualRun{RequestID: "again-" + string('a'+rune(r.State.Runs))}
	w.MustWrite(0, w.Decide(r.Definition.Record(), r.Definition, r.State, request))
	w.runTo(id, outcome)
}

// testKeptRuns: the only run of a one-time job is in its state, and moves to the history when another one ends.
func testKeptRuns(w *World) {
	ok, failed := job.OutcomeSucceeded, job.OutcomeFailed
	ids := w.InShard(0, 6)
	add := func(i int, adjust func(*job.Definition)) job.Definition {
		d := Once(ids[i], 0)
		d.Retry.MaxAttempts = 1
		if adjust != nil {
			adjust(&d)
		}
		w.Add(d)
		return d
	}
	d := add(0, nil)
	w.runTo(d.ID, ok)
	w.wantStoredRuns(d.ID, 0, true)
	first := w.wantRuns(d.ID, ok)[0]
	want := job.Run{
		ID: job.RunID(job.TriggerSchedule, 1, first.NominalMS, ""), NominalMS: first.NominalMS, DueMS: first.NominalMS,
		StartedMS: w.now(), FinishedMS: w.now(), Attempts: 1, Outcome: ok, Worker: "w1",
	}
	if !reflect.DeepEqual(first, want) || int64(first.NominalMS) != d.Schedule.At.UnixMilli() {
		w.T.Errorf("the run is %+v, want %+v", first, want)
	}
	w.Advance(time.Minute)
	w.again(d.ID, ok)
	w.wantStoredRuns(d.ID, 2, false)
	if runs := w.wantRuns(d.ID, ok, ok); !reflect.DeepEqual(runs[1], first) {
		w.T.Errorf("the first run has become %+v", runs[1])
	}
	w.again(d.ID, ok)
	w.wantRuns(d.ID, ok, ok, ok)

	d = add(1, func(d *job.Definition) { d.HistoryLimit = 1 })
	w.runTo(d.ID, ok)
	w.again(d.ID, ok)
	w.wantStoredRuns(d.ID, 1, false)
	if runs := w.wantRuns(d.ID, ok); runs[0].Trigger != job.TriggerManual {
		w.T.Errorf("the latest run is %+v", runs[0])
	}

	d = add(2, func(d *job.Definition) { d.HistoryLimit = 0 })
	w.runTo(d.ID, ok)
	w.wantStoredRuns(d.ID, 0, false)
	w.wantRuns(d.ID)

	d = add(3, nil)
	w.runTo(d.ID, ok)
	w.MustWrite(0, w.editJob(d.ID, func(d *job.Definition) { d.HistoryLimit = 0 }))
	w.MustWrite(0, w.editJob(d.ID, func(d *job.Definition) { d.HistoryLimit = 5 }))
	w.wantStoredRuns(d.ID, 0, false)
	w.wantRuns(d.ID)

	d = add(4, nil)
	w.runTo(d.ID, failed)
	w.wantStoredRuns(d.ID, 1, false)
	w.wantRuns(d.ID, job.OutcomeDead)

	d = add(5, nil)
	leased := w.Lease(0, 1)[0]
	long := w.Decide(leased.Record, leased.Known.Definition, leased.Known.State, job.FinishAttempt{
		Token: leased.Known.State.Token, Outcome: ok, StartedMS: w.now(), Output: []byte(strings.Repeat("o", 1000)),
	})
	w.MustWrite(0, long)
	w.wantStoredRuns(d.ID, 1, false)
	w.wantRuns(d.ID, ok)
}

// testKeptRunsNeedTheSchema: earlier nodes, which read no run in a state, work in keyspaces of lower schemas.
func testKeptRunsNeedTheSchema(w *World) {
	meta := w.Prefix + ":{meta}"
	schema := w.Client.HGet(w.T.Context(), meta, "schema").Val()
	set := func(schema string) {
		w.Client.HSet(w.T.Context(), meta, "schema", schema)
		if err := w.Store.CheckSchema(w.T.Context()); err != nil {
			w.T.Fatal(err)
		}
	}
	ids := w.InShard(0, 2)
	set("4")
	w.Add(Once(ids[0], 0))
	w.runTo(ids[0], job.OutcomeSucceeded)
	w.wantStoredRuns(ids[0], 1, false)
	set(schema)
	w.Add(Once(ids[1], 0))
	w.runTo(ids[1], job.OutcomeSucceeded)
	w.wantStoredRuns(ids[1], 0, true)
	w.again(ids[0], job.OutcomeSucceeded)
	w.wantRuns(ids[0], job.OutcomeSucceeded, job.OutcomeSucceeded)
}
