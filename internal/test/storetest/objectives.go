package storetest

import (
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// readObjectives are the entries of a shard's index of objectives up to an instant.
func (w *World) readObjectives(shard int, upToMS int64) []job.Objective {
	w.T.Helper()
	list, err := w.Store.Objectives(w.T.Context(), shard, unixtime.Milli(upToMS), 200)
	if err != nil {
		w.T.Fatal(err)
	}
	return list
}

// moveObjectives moves entries to where their records place them, as a holder does. Each has to be looked at
// by now.
func (w *World) moveObjectives(shard int, list []job.Objective, to func(job.Objective) int64) {
	w.T.Helper()
	var moves []job.ObjectiveMove
	for _, o := range list {
		moves = append(moves, job.ObjectiveMove{Objective: o, ToMS: unixtime.Milli(to(o))})
	}
	if err := w.Store.MoveObjectives(w.T.Context(), shard, moves); err != nil {
		w.T.Fatal(err)
	}
}

// expectedObjective is where the entry of a record belongs by now; 0: nowhere.
func (w *World) expectedObjective(r *job.Record) int64 {
	if r == nil {
		return 0
	}
	at := r.Definition.BreachAtMS(&r.State)
	if at <= unixtime.Milli(w.Clock.Load()) && r.State.Live() {
		return 0
	}
	return int64(at)
}

// findLate has the late runs of a history counted.
func (h *history) findLate() {
	list := h.readObjectives(0, h.Clock.Load())
	for _, o := range list {
		if at := h.expectedObjective(o.Known); at != 0 && at <= h.Clock.Load() {
			h.applyEvent(o.Record, job.CheckLateness{})
			h.late++
		}
	}
	expected := func(o job.Objective) int64 { return h.expectedObjective(o.Known) }
	h.moveObjectives(0, h.readObjectives(0, h.Clock.Load()), expected)
	if left := h.readObjectives(0, h.Clock.Load()); len(left) > 0 {
		h.T.Fatalf("the entry of %s is left: %+v", left[0].Record, left[0].Known)
	}
}

// compareObjectives: a run that waits has its entry, at the instant at which its objective is
// broken or earlier.
func (h *history) compareObjectives() {
	h.T.Helper()
	entries := h.readScores(h.Key(0, "objectives"))
	for record, r := range h.known {
		parent := h.known[record.Job()]
		if r == nil || parent == nil || r.State.Region != job.RegionDue {
			continue
		}
		at := parent.Definition.BreachAtMS(&r.State)
		if entry, there := entries[string(record)]; at != 0 && (!there || unixtime.Milli(entry) > at) {
			h.T.Fatalf("%s breaks its objective at %d, its entry is at %d: %+v", record, at, entry, r.State)
		}
	}
}

// testObjectives: entries come with their jobs, and are moved as their records were decided on.
func testObjectives(w *World) {
	ids := w.InShard(0, 4)
	d := Definition(ids[0])
	d.MaxLag = time.Second
	w.Add(d, Definition(ids[1]))
	none := Definition(ids[2])
	first := func() int64 {
		w.T.Helper()
		heads, err := w.Store.FirstObjectives(w.T.Context(), []int{0, 1})
		if err != nil || heads[1] != job.NeverMS {
			w.T.Fatalf("%v (%v)", heads, err)
		}
		return int64(heads[0])
	}
	record := w.Get(ids[0])
	at := record.State.Due + 1001
	if got := first(); unixtime.Milli(got) != at {
		w.T.Errorf("the first entry is at %d, want %d", got, at)
	}
	if list := w.readObjectives(0, int64(at-1)); len(list) != 0 {
		w.T.Errorf("before its time: %+v", list)
	}
	list := w.readObjectives(0, int64(at))
	if len(list) != 1 || list[0].Record != d.Record() || list[0].AtMS != at ||
		list[0].Known == nil || list[0].Known.State.Revision != record.State.Revision {
		w.T.Fatalf("%+v", list)
	}
	// The run waits until it is late; a decision that comes between look and move counts.
	w.Clock.Store(int64(at))
	late := w.Decide(d.Record(), &d, record.State, job.CheckLateness{})
	if len(late.Decision.Notices) != 1 || late.Decision.Notices[0].Kind != job.LagBreached {
		w.T.Fatalf("%+v", late.Decision.Notices)
	}
	w.MustWrite(0, late)
	w.MustWrite(0, late) // its answer was lost
	w.moveObjectives(0, list, func(job.Objective) int64 { return 0 })
	if got := first(); unixtime.Milli(got) != at {
		w.T.Errorf("what was decided since was overwritten: %d", got)
	}
	expected := func(o job.Objective) int64 { return w.expectedObjective(o.Known) }
	w.moveObjectives(0, w.readObjectives(0, int64(at)), expected)
	if got := first(); unixtime.Milli(got) != job.NeverMS {
		w.T.Errorf("an entry of a run that was counted: %d", got)
	}
	// Its next run has an entry again, which outlives a lease and goes with the job.
	w.runTo(ids[0], job.OutcomeSucceeded)
	record = w.Get(ids[0])
	if got, want := first(), record.State.Due+1001; unixtime.Milli(got) != want {
		w.T.Errorf("the next run: %d, want %d", got, want)
	}
	w.MustWrite(0, w.Decide(d.Record(), record.Definition, record.State, job.Delete{}))
	if got := first(); unixtime.Milli(got) != job.NeverMS {
		w.T.Errorf("an entry of a job that was deleted: %d", got)
	}
	// One that was deleted past its time, and is there again, keeps what it has now.
	again := Definition(ids[3])
	again.MaxLag = time.Second
	w.Add(again)
	gone := w.Get(ids[3])
	w.Clock.Store(int64(gone.State.Due + 1001))
	list = w.readObjectives(0, w.Clock.Load())
	w.MustWrite(0, w.Decide(again.Record(), gone.Definition, gone.State, job.Delete{}))
	if list := w.readObjectives(0, w.Clock.Load()); len(list) != 1 || list[0].Known != nil {
		w.T.Fatalf("%+v", list)
	}
	w.Advance(time.Second)
	w.Add(again, none)
	list[0].Known = nil
	w.moveObjectives(0, list, func(job.Objective) int64 { return 0 })
	back := w.Get(ids[3])
	if got, want := first(), again.BreachAtMS(&back.State); unixtime.Milli(got) != want || want == 0 {
		w.T.Errorf("a job that was created again: %d, want %d", got, want)
	}
	// What cannot be read is not looked at again and again.
	w.Client.HSet(w.T.Context(), w.Key(0, "st"), string(again.Record()), "nonsense")
	w.Damaged()
	list = w.readObjectives(0, w.Clock.Load())
	if len(list) != 1 || list[0].Known != nil || !list[0].Unreadable {
		w.T.Fatalf("%+v", list)
	}
	w.moveObjectives(0, list, func(job.Objective) int64 { return 0 })
	if got := first(); unixtime.Milli(got) != job.NeverMS {
		w.T.Errorf("an entry of what cannot be read: %d", got)
	}
	if keys := w.readKeys(w.Key(1, "*")); slices.Contains(keys, w.Key(1, "objectives")) {
		w.T.Error("there is an index where no job has an objective")
	}
}
