package job

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// A run whose nominal time has come, and which jitter holds back, is not skipped by an edit that leaves that
// nominal time in place.
func TestEditKeepsAReachedNominalTime(t *testing.T) {
	at := t0.Time().UTC()
	cron := schedule.Spec{Kind: schedule.KindCron, Cron: []string{"0 * * * *"}, Jitter: 50 * time.Minute}
	every := schedule.Spec{Kind: schedule.KindInterval, Every: time.Hour, Jitter: 50 * time.Minute}
	for _, c := range []struct {
		name       string
		before     schedule.Spec
		edit       func(*schedule.Spec)
		kept       bool
		generation uint32
	}{
		{"jitter of cron", cron, func(s *schedule.Spec) { s.Jitter = 40 * time.Minute }, true, 1},
		{"no more jitter", cron, func(s *schedule.Spec) { s.Jitter = 0 }, true, 1},
		{"jitter of an interval", every, func(s *schedule.Spec) { s.Jitter = 40 * time.Minute }, true, 1},
		{"an end", cron, func(s *schedule.Spec) { s.EndAt = at.AddDate(0, 0, 7) }, true, 2},
		{"an end of an interval", every, func(s *schedule.Spec) { s.EndAt = at.AddDate(0, 0, 7) }, true, 2},
		{"a bound", every, func(s *schedule.Spec) { s.MaxRuns = 3 }, true, 2},
		{"an exclusion of another time", cron, func(s *schedule.Spec) { s.Exclude.Dates = []string{"12-25"} }, true, 2},
		{"one more expression", cron, func(s *schedule.Spec) { s.Cron = []string{"0 * * * *", "15 3 * * *"} }, true, 2},
		{"another expression", cron, func(s *schedule.Spec) { s.Cron = []string{"30 * * * *"} }, false, 2},
		{"an end before it", cron, func(s *schedule.Spec) { s.EndAt = at.Add(time.Minute) }, false, 2},
		{"an exclusion of it", every, func(s *schedule.Spec) {
			s.Exclude.Periods = []schedule.Period{{From: at, To: at.Add(90 * time.Minute)}}
		}, false, 2},
		{"another interval", every, func(s *schedule.Spec) { s.Every = 2 * time.Hour }, false, 2},
		{"one time", cron, func(s *schedule.Spec) {
			*s = schedule.Spec{Kind: schedule.KindOnce, At: at.Add(10 * time.Hour)}
		}, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := def()
			d.Schedule = c.before
			w := walk(t, d)
			for int64(w.s.Due-w.s.Nominal) < 2 { // one that jitter holds back
				w.lease().succeed()
			}
			nominal := w.s.Nominal
			w.now = nominal + 1
			c.edit(&d.Schedule)
			skipped := w.s.Skipped
			w.on(Update{New: compile(t, d)})
			if got := w.s.Nominal == nominal; got != c.kept {
				t.Fatalf("nominal time %v, was %v; skipped %d", w.s.Nominal.Time().UTC(), nominal.Time().UTC(), w.s.Skipped-skipped)
			}
			if w.c.Generation != c.generation || w.s.Generation != c.generation && w.s.Region == RegionDue {
				t.Errorf("generation %d of the job and %d of its run, want %d", w.c.Generation, w.s.Generation, c.generation)
			}
			if !c.kept {
				return
			}
			if want := w.c.planJittered(nominal, true).due; w.s.Due != want || w.s.Skipped != skipped {
				t.Errorf("due %d after the nominal time, want %d; skipped %d", int64(w.s.Due-nominal), int64(want-nominal), w.s.Skipped-skipped)
			}
			w.lease().succeed()
			if w.s.Nominal != nominal.Add(time.Hour) || w.s.Skipped != skipped {
				t.Errorf("next comes %v, skipped %d", w.s.Nominal.Time().UTC(), w.s.Skipped-skipped)
			}
		})
	}
}

// A job without a run has none that an edit could supersede, whatever the run before left behind.
func TestEditOfAJobWithoutARunEndsNone(t *testing.T) {
	for name, end := range map[string]func(*walker) Decision{
		"succeeded": (*walker).succeed,
		"failed":    (*walker).fail,
		"returned":  func(w *walker) Decision { return w.on(ReturnLease{Token: w.s.Token}) },
		"cancelled": func(w *walker) Decision {
			w.on(CancelRun{RunID: w.s.RunID()})
			return w.on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeCancelled, StartedMS: w.now})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := def()
			d.Schedule.MaxRuns = 1
			w := walk(t, d)
			w.lease()
			d.Schedule.EndAt = w.now.Time()
			w.on(Update{New: compile(t, d)})
			end(w)
			if name == "returned" {
				w.on(CancelRun{RunID: w.s.RunID()})
			}
			if w.s.Region != RegionDone {
				t.Fatalf("the schedule has ended, but the job is %s", w.s.Region)
			}
			w.s.LastLoss = Loss{Token: w.s.SettledToken + 1} // as a version that does not know the field leaves it
			runs := w.s.Runs
			d.Schedule.EndAt = w.now.Add(time.Hour).Time()
			update := w.on(Update{New: compile(t, d)})
			if update.Ended != nil || w.s.Runs != runs {
				t.Errorf("run %+v ended, %d runs, %d before the edit", update.Ended, w.s.Runs, runs)
			}
			if w.s.Region != RegionDue || w.s.Generation != w.c.Generation {
				t.Errorf("%s of generation %d, want a run of generation %d", w.s.Region, w.s.Generation, w.c.Generation)
			}
		})
	}
}

// Jitter moves no phase: an edit of it before the nominal time leaves that where it is.
func TestEditOfJitterKeepsThePhase(t *testing.T) {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindInterval, Every: time.Hour}
	w := walk(t, d)
	nominal := w.s.Nominal
	d.Schedule.Jitter = 10 * time.Minute
	w.after(20 * time.Minute).on(Update{New: compile(t, d)})
	if w.s.Nominal != nominal || w.c.Generation != 1 || w.s.Due != w.c.planJittered(nominal, true).due {
		t.Errorf("%+v", w.s)
	}
}
