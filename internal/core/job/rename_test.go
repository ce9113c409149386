package job

import (
	"fmt"
	"testing"
	"time"
)

// renameWorld is what the two shards of a rename have, and what each process has read.
type renameWorld struct {
	old, named, kept bool // the job is active under its old name, or its new one; or it is kept
	phase            RenamePhase
	reserved         bool // the one reservation has been made
	actors           [3]renameActor
}

// renameActor is a process that takes steps. The first one is that of the caller.
type renameActor struct {
	at      int // 0: reads the phase, 1: reads whether the job is kept, 2: takes its step
	phase   RenamePhase
	step    RenameStep
	mayTake bool // only the caller
}

// take makes the step of an actor, as the scripts do it: each compares what it needs.
func (w renameWorld) take(step RenameStep) renameWorld {
	switch step {
	case RenameStore:
		if w.phase == RenameReserved {
			w.phase, w.named = RenameDone, true
		}
	case RenameRelease:
		w.kept = false
	case RenameForget:
		w.phase = ""
	case RenameAbort:
		if w.phase == "" || w.phase == RenameReserved {
			w.phase = RenameAborted
		}
	case RenameReturn:
		if w.kept {
			w.kept, w.old = false, true
		}
	}
	return w
}

// steps returns the worlds after one action of one actor. Phases last as long as it takes, or no time at all.
func (w renameWorld) next() (out []renameWorld) {
	if !w.reserved {
		after := w
		after.reserved, after.phase = true, RenameReserved
		return append(out, after)
	}
	for i, a := range w.actors {
		switch {
		case a.mayTake: // the caller takes the job, or finds that it has changed
			for _, taken := range []bool{true, false} {
				after := w
				if taken && after.old {
					after.old, after.kept = false, true
				}
				after.actors[i].mayTake = false
				out = append(out, after)
			}
		case a.at == 0:
			after := w
			after.actors[i].phase, after.actors[i].at = w.phase, 1
			out = append(out, after)
		case a.at == 1:
			for _, age := range []time.Duration{0, RenameGrace + 1, RenameMemory + 1} {
				if w.actors[0].mayTake && age > RenameMemory {
					continue // by then the caller's call comes too late
				}
				after := w
				after.actors[i].step, after.actors[i].at = NextRenameStep(a.phase, w.kept, age), 2
				after.actors[i].phase = ""
				out = append(out, after)
				if after.actors[i].step == RenameStore { // the job may be overdue
					after.actors[i].step = RenameAbort
					out = append(out, after)
				}
			}
		case a.at == 2:
			after := w.take(a.step)
			after.actors[i].at, after.actors[i].step = 0, 0
			out = append(out, after)
		}
	}
	return out
}

// TestRenamesEndUnderOneName explores all interleavings of three processes that take the steps of a rename, of which each
// may stop for ever: the job is active under one name at most, is never lost, and one process that goes on ends the
// rename.
func TestRenamesEndUnderOneName(t *testing.T) {
	start := renameWorld{old: true, actors: [3]renameActor{{mayTake: true}, {}, {}}}
	known := map[renameWorld]bool{start: true}
	for todo := []renameWorld{start}; len(todo) > 0; {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if w.old && w.named || w.kept && w.old {
			t.Fatalf("active under two names, or kept and active: %+v", w)
		}
		if !w.old && !w.named && !w.kept {
			t.Fatalf("the job is lost: %+v", w)
		}
		if err := endsAlone(w); err != nil {
			t.Fatal(err)
		}
		for _, after := range w.next() {
			if !known[after] {
				known[after] = true
				todo = append(todo, after)
			}
		}
	}
	if len(known) < 1000 {
		t.Errorf("only %d states: nothing was explored", len(known))
	}
}

// endsAlone has a new process take steps until there are none.
func endsAlone(w renameWorld) error {
	start := w
	for range 8 {
		step := NextRenameStep(w.phase, w.kept, RenameMemory+1)
		if step == RenameOver {
			break
		}
		w = w.take(step)
	}
	if w.old == w.named || w.kept || w.phase != "" {
		return fmt.Errorf("from %+v the rename ends as %+v", start, w)
	}
	return nil
}

func TestKeptJobsAreOverdue(t *testing.T) {
	k := KeptJob{AtMS: 1000}
	for age, want := range map[time.Duration]bool{-time.Hour: false, 0: false, RenameMemory: false, RenameMemory + time.Millisecond: true} {
		if got := k.IsOverdue(k.AtMS.Add(age)); got != want {
			t.Errorf("after %v: %v", age, got)
		}
	}
}

func TestRecordsOfRenamesAreNeverChanged(t *testing.T) {
	d := Definition{Key: Key{Namespace: "ns", ID: "a"}, Queue: "mail", Handler: "h"}
	r := Rename{ID: "X", From: d.Key, To: Key{Namespace: "ns", ID: "b"}}
	for _, arriving := range []bool{true, false} {
		place := RenamePlaceholder(r, arriving, &d, Lane{Namespace: "ns", Queue: "mail"}, 1000)
		if err := place.State.Check(); err != nil {
			t.Fatal(err)
		}
		c, err := Compile(place.Definition)
		if err != nil {
			t.Fatal(err)
		}
		if at := c.IndexMS(&place.State, 1000); at != NeverMS || place.IndexMS != NeverMS {
			t.Errorf("it is deleted at %v", at)
		}
		for _, ev := range []Input{
			Pause{Note: "n"}, Resume{}, RequestManualRun{RequestID: "r"}, CancelRun{RunID: "x"}, Delete{}, Discard{}, Redrive{},
			SetHint{Hint: Hint{Source: HintOperator, AtMS: 5000}}, StartBackfill{}, StopBackfill{}, Update{New: c},
		} {
			if got := Decide(c, place.State, ev, 2000); got.Changed || got.Delete {
				t.Errorf("%T changes it to %+v", ev, got.State)
			}
		}
	}
}

func TestRenamedRunsThatWaitForAGateAreDue(t *testing.T) {
	held := func(reason HoldReason) Record {
		return Record{IndexMS: 9000, State: State{Region: RegionDue, Source: DelayHeld, Nominal: 1000, Due: 9000,
			Held: Hold{Reason: reason, Key: "db", DueMS: 1500}}}
	}
	for reason, want := range map[HoldReason]State{
		HeldLock: {Due: 2000}, HeldQueue: {Due: 2000}, HeldTarget: {Due: 2000}, HeldPace: {Due: 9000},
	} {
		r := held(reason)
		wakeRenamed(&r, 2000)
		if r.State.Due != want.Due {
			t.Errorf("%v: due at %v, want %v", reason, r.State.Due, want.Due)
		}
		if reason != HeldPace && r.IndexMS != 1500 {
			t.Errorf("%v: its place is %v, want that before the hold", reason, r.IndexMS)
		}
	}
}

// TestEarlierNodesLeaveRenamesAlone decides on records that keep a name as a node of an earlier version does, which does not
// know the mark: it deletes nothing, plans no run, and keeps what it does not know.
func TestEarlierNodesLeaveRenamesAlone(t *testing.T) {
	d := Definition{Key: Key{Namespace: "ns", ID: "a"}, Queue: "mail", Handler: "h"}
	place := RenamePlaceholder(Rename{ID: "X", From: d.Key, To: Key{Namespace: "ns", ID: "b"}}, true, &d,
		Lane{Namespace: "ns", Queue: "mail"}, 1000)
	c, err := Compile(place.Definition)
	if err != nil {
		t.Fatal(err)
	}
	s := place.State
	s.Rename, s.Unknown = nil, "|8:to X a"
	inputs := []Input{
		Pause{Note: "n"}, Resume{}, Resume{CatchUp: true}, RequestManualRun{RequestID: "r"}, RequestManualRun{RequestID: "k", Mode: ManualKeep},
		CancelRun{RunID: "x"}, Delete{}, Discard{}, Redrive{}, Wake{}, LoseLease{}, ReturnLease{}, FinishAttempt{Outcome: OutcomeSucceeded},
		SetHint{Hint: Hint{Source: HintOperator, AtMS: 5000}}, CheckLateness{}, StopBackfill{},
		StartBackfill{Backfill: Backfill{ID: "b", NextMS: 1, ToMS: 2000, Concurrency: 1}},
	}
	for _, ev := range inputs {
		for _, also := range inputs {
			now := s
			for _, ev := range []Input{ev, also} {
				got := Decide(c, now, ev, 2000)
				if got.Delete || got.Spawn != nil || got.Changed && got.IndexMS != NeverMS {
					t.Fatalf("%#v: %+v", ev, got)
				}
				now = got.State
			}
			if now.Region != RegionDone || !now.Deleting || now.HasRun() || now.Unknown != s.Unknown {
				t.Errorf("%#v, %#v: %+v", ev, also, now)
			}
		}
	}
}
