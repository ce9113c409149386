package storetest

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// runTo leases the job when it is due and settles it until a run has ended.
func (w *World) runTo(id string, outcome job.Outcome) job.State {
	w.T.Helper()
	shard := w.Store.ShardOf(job.Key{Namespace: "ns", ID: id})
	runs := w.Get(id).State.Runs
	for range 10 {
		if due := w.Get(id).IndexMS; due > unixtime.Milli(w.Clock.Load()) {
			w.Clock.Store(int64(due))
		}
		leased := w.Lease(shard, 1)
		if len(leased) != 1 || leased[0].Known.Definition.ID != id {
			w.T.Fatalf("leased %v, want %s", leasedRecords(leased), id)
		}
		write := w.Settle(leased[0], outcome)
		w.MustWrite(shard, write)
		if write.Decision.State.Runs > runs {
			return write.Decision.State
		}
	}
	w.T.Fatalf("%s does not end", id)
	return job.State{}
}

func testHistory(w *World) {
	id := w.InShard(0, 1)[0]
	d := Definition(id)
	w.Add(d)
	ctx := w.T.Context()
	outcomes := []job.Outcome{
		job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeSucceeded, job.OutcomeSucceeded, job.OutcomeFailed,
	}
	for _, o := range outcomes {
		w.runTo(id, o)
	}
	runs, err := w.Store.Runs(ctx, d.Key, d.HistoryLimit)
	if err != nil {
		w.T.Fatal(err)
	}
	// Three runs are kept, newest first, then the dead letter that was forgotten.
	want := []struct {
		outcome job.Outcome
		dead    bool
	}{{job.OutcomeDead, true}, {job.OutcomeSucceeded, false}, {job.OutcomeSucceeded, false}, {job.OutcomeDead, true}}
	if len(runs) != len(want) {
		w.T.Fatalf("runs %+v", runs)
	}
	for i, r := range runs {
		if r.Outcome != want[i].outcome || r.DeadLetter != want[i].dead || r.FinishedMS == 0 || r.ID == "" {
			w.T.Errorf("run %d: %+v", i, r)
		}
	}
	w.wantRecentRuns(id, 2, runs[:2])
	w.wantRecentRuns(id, 10, runs[:3])
	if runs[0].Error != "no luck" || runs[0].Attempts != 2 || runs[0].Worker != "w1" {
		w.T.Errorf("dead run %+v", runs[0])
	}
	record := "ns/" + id
	letters, err := w.Store.GetRecords(ctx, 0, []job.RecordID{
		job.RecordID(record + "#d0"), job.RecordID(record + "#d1"), job.RecordID(record + "#d2"),
	})
	if err != nil || letters[0] == nil || letters[1] == nil || letters[2] != nil {
		w.T.Fatalf("dead letters %+v (%v)", letters, err)
	}
	l := letters[0]
	if l.State.Region != job.RegionDead || string(l.Definition.Payload) != string(d.Payload) ||
		l.State.LastError != "no luck" {
		w.T.Errorf("dead letter %+v", l)
	}
}

// wantRecentRuns checks the latest runs of a job, beside one that never ran and one whose history keeps none.
func (w *World) wantRecentRuns(id string, most int, want []job.Run) {
	w.T.Helper()
	none := w.Get(id)
	without := *none.Definition
	without.HistoryLimit = 0
	none.Definition = &without
	never := Definition(w.InShard(1, 1)[0])
	lists, err := w.Store.RecentRuns(w.T.Context(), []job.Record{{Definition: &never}, *w.Get(id), *none}, most)
	if err != nil {
		w.T.Fatal(err)
	}
	if len(lists[0])+len(lists[2]) != 0 || len(lists[1]) != len(want) {
		w.T.Fatalf("recent runs %+v, want %+v", lists, want)
	}
	for i, r := range lists[1] {
		if r.ID != want[i].ID || r.Outcome != want[i].Outcome || r.FinishedMS != want[i].FinishedMS {
			w.T.Errorf("recent run %d: %+v, want %+v", i, r, want[i])
		}
	}
}

func testHistoryShrinks(w *World) {
	id := w.InShard(0, 1)[0]
	d := Definition(id)
	w.Add(d)
	for range 3 {
		w.runTo(id, job.OutcomeSucceeded)
	}
	edited := *w.Get(id).Definition
	edited.HistoryLimit = 1
	w.MustWrite(0, w.Decide(d.Record(), w.Get(id).Definition, w.Get(id).State,
		job.Update{New: w.compileDefinition(&edited)}))
	if n := w.Client.HLen(w.T.Context(), w.Key(0, "hist")).Val(); n != 1 {
		w.T.Errorf("%d runs are kept, want 1", n)
	}
	edited.HistoryLimit = 0
	w.MustWrite(0, w.Decide(d.Record(), w.Get(id).Definition, w.Get(id).State,
		job.Update{New: w.compileDefinition(&edited)}))
	w.runTo(id, job.OutcomeSucceeded)
	if n := w.Client.HLen(w.T.Context(), w.Key(0, "hist")).Val(); n != 0 {
		w.T.Errorf("%d runs are kept, want none", n)
	}
}

// testEditEndsRun: an edit that ends a run and changes the limit of the history loses neither that run nor earlier
// ones.
func testEditEndsRun(w *World) {
	for i, id := range w.InShard(0, 4) {
		w.Add(Definition(id))
		for range 5 {
			w.runTo(id, job.OutcomeSucceeded)
		}
		w.Clock.Store(int64(w.Get(id).IndexMS))
		w.MustWrite(0, w.Settle(w.Lease(0, 1)[0], job.OutcomeFailed)) // it waits for its next attempt
		w.Advance(time.Millisecond)
		limit := []int{5, 4, 2, 1}[i]
		w.editJob(id, func(d *job.Definition) { d.Schedule.Every, d.HistoryLimit = 1000*time.Hour, limit })
		want := []job.Outcome{job.OutcomeCancelled, job.OutcomeSucceeded, job.OutcomeSucceeded, job.OutcomeSucceeded}
		w.wantRuns(id, want[:min(limit, len(want))]...)
		w.wantStoredRuns(id, min(limit, len(want)), false)
	}
}

func testDelete(w *World) {
	id := w.InShard(0, 1)[0]
	d := Definition(id)
	w.Add(d)
	for range 4 { // one more than there are places for dead letters
		w.runTo(id, job.OutcomeFailed)
	}
	w.runTo(id, job.OutcomeSucceeded)
	ctx := w.T.Context()
	if n := w.Client.HLen(ctx, w.Key(0, "st")).Val(); n != 1+job.DeadLettersPerJob {
		w.T.Fatalf("%d records", n)
	}
	stale := w.Decide(d.Record(), &d, w.Get(id).State, job.Delete{})
	stale.Revision++
	if r := w.Apply(0, stale).Results[0]; r.Code != job.Conflict {
		w.T.Errorf("stale deletion: %+v", r)
	}
	if n := w.Client.HLen(ctx, w.Key(0, "st")).Val(); n != 1+job.DeadLettersPerJob {
		w.T.Errorf("a stale deletion left %d records", n)
	}
	w.MustWrite(0, w.Decide(d.Record(), &d, w.Get(id).State, job.Delete{}))
	for _, name := range []string{"st", "def", "hist", "lanes", "l:" + Lane().String()} {
		if n := w.Client.Exists(ctx, w.Key(0, name)).Val(); n != 0 {
			w.T.Errorf("%s is left", name)
		}
	}
	w.Advance(time.Second)
	w.Add(d) // the id is free
}
