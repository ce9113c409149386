package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// readBackups takes the checkpoints of jobs of shard 0.
func (w *World) readBackups(ids []string) map[string]job.Backup {
	w.T.Helper()
	records := make([]job.Record, len(ids))
	for i, id := range ids {
		records[i].Definition = &job.Definition{Key: job.Key{Namespace: "ns", ID: id}}
	}
	snaps, err := w.Store.Snapshots(w.T.Context(), 0, records)
	if err != nil {
		w.T.Fatal(err)
	}
	out := map[string]job.Backup{}
	for i, snap := range snaps {
		if snap == nil {
			continue
		}
		cp, ok := w.compileDefinition(snap.Record.Definition).Checkpoint(*snap, unixtime.Milli(w.Clock.Load()))
		if ok == snap.Record.State.Deleting {
			w.T.Fatalf("%s: a checkpoint %v of %+v", ids[i], ok, snap.Record.State)
		}
		if ok {
			out[ids[i]] = job.Backup{Definition: *snap.Record.Definition, Checkpoint: &cp}
		}
	}
	return out
}

// planRestore plans a backup's write over what is there.
func (w *World) planRestore(b job.Backup, present *job.Record) job.Restoration {
	w.T.Helper()
	r, err := job.Restore(b.Definition, *b.Checkpoint, present, unixtime.Milli(w.Clock.Load()), job.DefaultLimits())
	if err != nil {
		w.T.Fatalf("restore %s: %v\n%+v", b.Definition.ID, err, b.Checkpoint.State)
	}
	return r
}

// mustRestore restores and wants each job to be written.
func (w *World) mustRestore(plans ...job.Restoration) {
	w.T.Helper()
	reply := w.Store.Restore(w.T.Context(), 0, plans)
	if reply.Err != nil {
		w.T.Fatal(reply.Err)
	}
	for i, r := range reply.Results {
		if r.Code != job.Created {
			w.T.Fatalf("restore %s: code %d", plans[i].Record.Definition.ID, r.Code)
		}
	}
}

// backupMeaning is what of a checkpoint has to be the same after a restore: all but how
// an overdue run is paced, and a lane that is the definition's from then on.
func backupMeaning(b job.Backup) string {
	cp := *b.Checkpoint
	cp.UpdatedMS = 0 // is not set in tests
	plain := func(s job.State) job.State {
		s.Recovery, s.Paced, s.Lane = false, false, job.Lane{}
		if !s.HasRun() {
			s.Generation = 0
		}
		return s
	}
	cp.State = plain(cp.State)
	cp.Children = slices.Clone(cp.Children)
	for i := range cp.Children {
		cp.Children[i].State = plain(cp.Children[i].State)
	}
	return fmt.Sprintf("%+v", cp)
}

// testBackups: what is restored into an empty keyspace has the same checkpoint, and
// is sound.
func testBackups(w *World) {
	h := newHistory(w, 4, 7)
	var children, letters, at int
	for step := range 1200 {
		h.applyRandomStep()
		if step%200 != 199 {
			continue
		}
		kept := w.readBackups(h.ids)
		to := NewWorld(w.T, w.Client)
		to.Clock.Store(w.Clock.Load())
		var plans []job.Restoration
		for _, b := range kept {
			plans = append(plans, to.planRestore(b, nil))
			children, letters, at = children+len(b.Checkpoint.Children), letters+len(b.Checkpoint.DeadLetters), at+1
		}
		to.mustRestore(plans...)
		to.mustRestore(plans...) // an answer was lost
		to.CheckConsistency()
		again := to.readBackups(h.ids)
		for id, b := range kept {
			if got, ok := again[id]; !ok || backupMeaning(got) != backupMeaning(b) {
				w.T.Fatalf("%s is restored as\n%s, was\n%s", id, backupMeaning(got), backupMeaning(b))
			}
		}
		to.Advance(time.Hour)
		for _, l := range to.Lease(0, 20) {
			back := job.ReturnLease{Token: l.Known.State.Token}
			to.MustWrite(0, changedWrites(to.Decide(l.Record, l.Known.Definition, l.Known.State, back))...)
			break // runs of their own need their parent for a decision
		}
	}
	if at < 20 || children < 3 || letters < 3 {
		w.T.Errorf("%d jobs, %d runs of their own, %d dead letters", at, children, letters)
	}
}

// testRestore: over what is there, only as it was when the restore was planned.
func testRestore(w *World) {
	id := w.InShard(0, 1)[0]
	d := Definition(id)
	w.Add(d)
	w.runTo(id, job.OutcomeFailed)
	old := w.readBackups([]string{id})[id]
	w.runTo(id, job.OutcomeFailed)
	w.runTo(id, job.OutcomeSucceeded)
	now := w.Get(id)
	moved := *now.Definition
	moved.Queue = "bulk"
	w.MustWrite(0, w.Decide(d.Record(), now.Definition, now.State, job.Update{New: w.compileDefinition(&moved)}))

	for what, present := range map[string]*job.Record{"nothing": nil, "what was": now} {
		reply := w.Store.Restore(w.T.Context(), 0, []job.Restoration{w.planRestore(old, present)})
		if reply.Err != nil || reply.Results[0].Code != job.Exists || reply.Results[0].Existing.Definition.Queue != "bulk" {
			w.T.Errorf("in place of %s: %+v", what, reply)
		}
	}
	present := w.Get(id)
	plan := w.planRestore(old, present)
	w.mustRestore(plan)
	got := w.Get(id)
	if got.State.Failures != 1 || got.State.Dead != 2 || got.State.Token != present.State.Token ||
		got.State.Revision != present.State.Revision+1 || got.Definition.Queue != "mail" ||
		got.Definition.Etag() == present.Definition.Etag() {
		w.T.Errorf("restored %+v\nover %+v", got, present)
	}
	w.mustRestore(plan)
	// The dead letter that came later is still there.
	if letters := w.readLetters("ns", 1000); len(letters) != 2 {
		w.T.Errorf("%d dead letters: %+v", len(letters), letters)
	}
	w.CheckConsistency()
	w.runTo(id, job.OutcomeSucceeded)
	w.MustWrite(0, w.Decide(d.Record(), w.Get(id).Definition, w.Get(id).State, job.Delete{}))
	if n := len(w.readLetters("ns", 1000)); n != 0 {
		w.T.Errorf("%d dead letters of a deleted job", n)
	}
	w.mustRestore(w.planRestore(old, nil))
	w.runTo(id, job.OutcomeSucceeded)
}

// testRestoreOverRuns: nothing is left of a job that was restored over one with more runs, or with others, once it is
// deleted or over.
func testRestoreOverRuns(w *World) {
	ok, failed := job.OutcomeSucceeded, job.OutcomeFailed
	ids := w.InShard(0, 4)
	add := func(i int, d job.Definition) string {
		d.ID, d.CreateRequestID = ids[i], "create-"+ids[i]
		w.Add(d)
		return ids[i]
	}
	restore := func(id string, b job.Backup) { w.mustRestore(w.planRestore(b, w.Get(id))) }

	id := add(0, Once("", 0)) // it had not run
	old := w.readBackups([]string{id})[id]
	w.runTo(id, failed)
	restore(id, old)
	w.wantStoredRuns(id, 0, false)
	w.runTo(id, ok)
	w.wantStoredRuns(id, 0, true)
	w.wantRuns(id, ok)

	id = add(1, Once("", 0)) // it was dead
	w.runTo(id, failed)
	old = w.readBackups([]string{id})[id]
	w.MustWrite(0, w.Decide(w.Get(id).Definition.Record(), w.Get(id).Definition, w.Get(id).State, job.Delete{}))
	id = add(1, Once("", 0))
	w.runTo(id, ok)
	restore(id, old)
	w.wantStoredRuns(id, 1, false)
	w.wantRuns(id, job.OutcomeDead)

	id = add(2, Once("", 0)) // it is as it was, but for its labels
	w.runTo(id, ok)
	old = w.readBackups([]string{id})[id]
	w.editJob(id, func(d *job.Definition) { d.Handler = "other" })
	restore(id, old)
	w.wantStoredRuns(id, 0, true)
	w.wantRuns(id, ok)

	d := Definition("")
	d.HistoryLimit = 10
	id = add(3, d) // it had run once
	w.runTo(id, ok)
	old = w.readBackups([]string{id})[id]
	old.Definition.HistoryLimit = 4
	for range 8 {
		w.runTo(id, ok)
	}
	restore(id, old)
	w.wantStoredRuns(id, 1, false)
	w.MustWrite(0, w.Decide(w.Get(id).Definition.Record(), w.Get(id).Definition, w.Get(id).State, job.Delete{}))

	w.Advance(1000 * time.Hour)
	if n, err := w.Store.Sweep(w.T.Context(), 0, lockValue, []job.Lane{Lane()}, 100); n != 3 || err != nil {
		w.T.Errorf("%d were deleted (%v)", n, err)
	}
	if left := w.Client.HGetAll(w.T.Context(), w.Key(0, "hist")).Val(); len(left) != 0 {
		w.T.Errorf("runs are left: %v", left)
	}
}
