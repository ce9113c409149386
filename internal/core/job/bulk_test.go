package job

import (
	"testing"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// TestAPauseOfManyJobsStopsAJobOnce, and not if it is paused for another reason.
func TestAPauseOfManyJobsStopsAJobOnce(t *testing.T) {
	c := compile(t, def())
	s := State{Revision: 3, Region: RegionDue, Due: 100, Generation: 1, Nominal: 100}
	pause := Pause{Note: "outage", ID: "op"}
	paused := Decide(c, s, pause, 50)
	if paused.Answer != Applied || !paused.State.PausedBy("op") || paused.State.PausedBy("") ||
		paused.State.PausedBy("other") {
		t.Fatalf("%+v", paused.State)
	}
	if d := Decide(c, paused.State, pause, 51); d.Answer != Duplicate || d.Changed {
		t.Errorf("repeated: %+v", d)
	}
	if d := Decide(c, paused.State, Pause{Note: "x", ID: "other"}, 51); d.Answer != Stale || d.Changed {
		t.Errorf("of another pause: %+v", d)
	}
	if d := Decide(c, paused.State, Pause{Note: "mine"}, 51); !d.State.Paused || d.State.PausedBy("op") {
		t.Errorf("paused by hand with another reason: %+v", d.State)
	}
	if d := Decide(c, paused.State, Resume{PausedMS: 49}, 60); d.Answer != Stale || !d.State.Paused {
		t.Errorf("the end of another pause: %+v", d)
	}
	resumed := Decide(c, paused.State, Resume{PausedMS: 50}, 60)
	if resumed.Answer != Applied || resumed.State.Paused || resumed.State.PausedBy("op") {
		t.Fatalf("%+v", resumed)
	}
	if d := Decide(c, resumed.State, pause, 70); d.Answer != Duplicate || d.State.Paused {
		t.Errorf("repeated after its end: %+v", d)
	}
	again := Decide(c, resumed.State, Pause{Note: "outage"}, 80)
	if !again.State.Paused || again.State.PausedBy("op") {
		t.Errorf("paused again by hand: %+v", again.State)
	}
	// A node of an earlier version pauses the job, and carries along what it does not know.
	older := resumed.State
	older.Paused, older.PausedMS, older.BulkPause = true, 90, paused.State.BulkPause
	if older.PausedBy("op") {
		t.Error("the pause of an earlier version passes for that of many jobs")
	}
}

// TestDiscardIsAboutOneDeath: a run that died again since stays.
func TestDiscardIsAboutOneDeath(t *testing.T) {
	parent := State{Revision: 5, Region: RegionDue, Due: 100, Dead: 1, Lane: Lane{Namespace: "ns", Queue: "q"}}
	letter := State{Revision: 2, Region: RegionDead, Generation: 1, Nominal: 50, LastFinished: 60, Lane: parent.Lane}
	once := State{Revision: 3, Region: RegionDead, LastNominal: 50, LastFinished: 60}
	for finished, want := range map[unixtime.Milli]Answer{0: Applied, 60: Applied, 59: NotDead} {
		ev := Discard{RunID: "1-50", FinishedMS: finished}
		pair := DecideChild(compile(t, def()), parent, letter, ev, 70)
		if pair.Child.Answer != want || pair.Child.Delete != (want == Applied) {
			t.Errorf("letter, %d: %+v", finished, pair.Child)
		}
		if d := Decide(compile(t, onceJob()), once, ev, 70); d.Answer != want || d.Delete != (want == Applied) {
			t.Errorf("one-time job, %d: %+v", finished, d)
		}
	}
}
