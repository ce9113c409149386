package job

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// interruptions are the ways in which an attempt ends without a result.
var interruptions = map[string]func(*walker){
	"lost":          func(w *walker) { w.ack().on(LoseLease{Token: w.s.Token}) },
	"undelivered":   func(w *walker) { w.on(LoseLease{Token: w.s.Token}) },
	"returned":      func(w *walker) { w.on(ReturnLease{Token: w.s.Token}) },
	"acked, return": func(w *walker) { w.ack().on(ReturnLease{Token: w.s.Token}) },
}

func onceJob() Definition {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1000).Time()}
	return d
}

func bufferingJob() Definition {
	d := def()
	d.Overlap, d.Misfire.Policy = OverlapBufferAll, MisfireRunAll
	return d
}

// A run that loses its worker, or is given back, starts again, and the manual run that was
// asked for meanwhile waits for its end.
func TestAnInterruptedRunStartsAgainBeforeTheManualRun(t *testing.T) {
	for name, d := range map[string]Definition{"once": onceJob(), "buffering": bufferingJob(), "interval": def()} {
		for how, interrupt := range interruptions {
			for _, mode := range []ManualMode{ManualReset, ManualKeep, ManualResetOnSuccess} {
				w := walk(t, d)
				w.lease()
				run := w.s.RunID()
				w.on(RequestManualRun{RequestID: "m", Mode: mode})
				interrupt(w)
				if w.last.Ended != nil || w.s.Region != RegionDue || w.s.RunID() != run || w.s.Pending != "m" {
					t.Fatalf("%s, %s, %s: ended %+v, %+v", name, how, mode, w.last.Ended, w.s)
				}
				if got := w.on(RequestManualRun{RequestID: "n", Mode: mode}); got.Answer != Joined {
					t.Errorf("%s, %s, %s: a second request answers %v", name, how, mode, got.Answer)
				}
				w.lease().succeed()
				if w.last.Ended == nil || w.last.Ended.ID != run || w.last.Ended.Outcome != OutcomeSucceeded {
					t.Errorf("%s, %s, %s: ended %+v", name, how, mode, w.last.Ended)
				}
				manual := w.s
				if w.last.Spawn != nil {
					manual = w.last.Spawn.State
				}
				if manual.Trigger != TriggerManual || manual.ManualID != "m" || manual.Due > w.now {
					t.Errorf("%s, %s, %s: after it %+v", name, how, mode, manual)
				}
			}
		}
	}
}

// A manual run is no worse off than a scheduled one.
func TestAnInterruptedManualRunStartsAgain(t *testing.T) {
	for how, interrupt := range interruptions {
		w := walk(t, def())
		w.on(RequestManualRun{RequestID: "a"})
		w.lease().on(RequestManualRun{RequestID: "b"})
		interrupt(w)
		if w.s.ManualID != "a" || w.s.Region != RegionDue || w.s.Pending != "b" {
			t.Errorf("%s: %+v", how, w.s)
		}
		w.lease().succeed()
		if w.last.Ended.ID != ManualRunID("a") || w.s.ManualID != "b" {
			t.Errorf("%s: ended %+v, then %+v", how, w.last.Ended, w.s)
		}
	}
}

// A request that comes after the loss waits for the run too; one whose attempt has failed
// gives way, as documented.
func TestAManualRunWaitsForALostRun(t *testing.T) {
	for name, d := range map[string]Definition{"once": onceJob(), "buffering": bufferingJob()} {
		d.Retry.MaxAttempts = 3
		w := walk(t, d)
		w.lease().ack().on(LoseLease{Token: w.s.Token})
		run := w.s.RunID()
		w.on(RequestManualRun{RequestID: "m"})
		if w.last.Ended != nil || w.s.RunID() != run || w.s.Pending != "m" {
			t.Fatalf("%s: ended %+v, %+v", name, w.last.Ended, w.s)
		}
		w.lease().fail()
		if w.last.Ended == nil || w.last.Ended.Outcome != OutcomeCancelled || w.s.ManualID != "m" {
			t.Errorf("%s: after a failure: ended %+v, %+v", name, w.last.Ended, w.s)
		}
	}
}

// A pause holds a lost run, but not the manual run that waits for it.
func TestAPauseDoesNotHoldAManualRunBehindALostOne(t *testing.T) {
	lose := func(w *walker) { w.ack().on(LoseLease{Token: w.s.Token}) }
	for name, d := range map[string]Definition{"once": onceJob(), "interval": def()} {
		for order, steps := range map[string][]func(*walker){
			"asked, paused, lost": {func(w *walker) { w.on(RequestManualRun{RequestID: "m"}) }, func(w *walker) { w.on(Pause{}) }, lose},
			"asked, lost, paused": {func(w *walker) { w.on(RequestManualRun{RequestID: "m"}) }, lose, func(w *walker) { w.on(Pause{}) }},
			"paused, lost, asked": {func(w *walker) { w.on(Pause{}) }, lose, func(w *walker) { w.on(RequestManualRun{RequestID: "m"}) }},
		} {
			w := walk(t, d)
			w.lease()
			run := w.s.RunID()
			for _, step := range steps {
				step(w)
			}
			if w.s.Region != RegionPaused || w.s.RunID() != run {
				t.Errorf("%s, %s: %+v", name, order, w.s)
			}
			if spawn := w.last.Spawn; spawn == nil || spawn.State.ManualID != "m" || spawn.State.Region != RegionDue {
				t.Errorf("%s, %s: the manual run is %+v", name, order, spawn)
			}
		}
	}
}

// The live run of a schedule that is edited finishes first, if it takes a second worker too.
func TestAnEditLeavesAnInterruptedRunToFinish(t *testing.T) {
	d := bufferingJob()
	for how, interrupt := range interruptions {
		edited := d
		edited.Schedule.Every = 2 * time.Minute
		w := walk(t, d)
		w.lease()
		run := w.s.RunID()
		w.on(Update{New: compile(t, edited)})
		interrupt(w)
		if w.last.Ended != nil || w.s.RunID() != run || w.s.Region != RegionDue {
			t.Fatalf("%s: ended %+v, %+v", how, w.last.Ended, w.s)
		}
		w.on(RequestManualRun{RequestID: "m"})
		if w.s.RunID() != run || w.s.Pending != "m" {
			t.Errorf("%s, then asked for another: %+v", how, w.s)
		}
		w.on(CancelRun{RunID: ManualRunID("m")})
		again := *w

		w.lease().succeed()
		if w.last.Ended.ID != run || w.last.Ended.Outcome != OutcomeSucceeded || w.s.Generation != 2 {
			t.Errorf("%s: ended %+v, %+v", how, w.last.Ended, w.s)
		}

		// One that waits when the schedule is edited gives way, and that is recorded.
		edited.Schedule.Every = 3 * time.Minute
		again.on(Update{New: compile(t, edited)})
		if again.last.Ended == nil || again.last.Ended.ID != run || again.last.Ended.Outcome != OutcomeCancelled || again.s.Generation != 3 {
			t.Errorf("%s, edited once more: ended %+v, %+v", how, again.last.Ended, again.s)
		}
	}
}

// A checkpoint has both the run that was live and the manual run that waited for it.
func TestACheckpointKeepsAWaitingManualRun(t *testing.T) {
	w := walk(t, onceJob())
	w.lease()
	run := w.s.RunID()
	w.on(RequestManualRun{RequestID: "m"})
	s, children, ok := WithoutLeases(w.c, w.s, nil, w.now)
	if !ok || s.RunID() != run || len(children) != 1 || children[0].State.ManualID != "m" {
		t.Errorf("%+v, beside it %+v", s, children)
	}
}

// Nor does the overlap policy end a manual run beside the schedule that was given back.
func TestAManualRunThatWasGivenBackIsNotStopped(t *testing.T) {
	for _, o := range []Overlap{OverlapCancelOther, OverlapTerminateOther} {
		d := def()
		d.Overlap = o
		f := newFamily(t, d)
		f.ask(RequestManualRun{RequestID: "m", Mode: ManualKeep})
		f.leaseChild(0)
		f.onChild(0, ReturnLease{Token: f.children[0].Token})
		delete(f.live, f.token)
		f.lease()
		manual := f.children[0]
		if manual.ManualID != "m" || manual.Cancel || f.parent.Started&1 != 0 {
			t.Errorf("%v: %+v", o, manual)
		}
		if err := f.check(); err != nil {
			t.Errorf("%v: %v", o, err)
		}
	}
}
