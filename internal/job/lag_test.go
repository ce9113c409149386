package job

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/schedule"
)

// punctual is a job whose runs may be a second late.
func punctual() Definition {
	d := def()
	d.MaxLag = time.Second
	return d
}

// late starts the run of a walker so late, and settles it.
func (w *walker) late(by time.Duration, outcome Outcome) (n Notice, told bool) {
	w.t.Helper()
	w.lease()
	n, told = LagNotice(w.c.Definition, &w.s, w.now+by.Milliseconds())
	w.after(by)
	w.on(Settle{Token: w.s.Token, Outcome: outcome, StartedMS: w.now})
	return n, told
}

func TestAStartThatIsTooLateIsABreach(t *testing.T) {
	w := walk(t, punctual())
	if n, told := w.late(time.Second, OutcomeSucceeded); told || w.s.LateMS != 0 {
		t.Errorf("a second late is within it: %+v, lag %d", n, w.s.LateMS)
	}
	due := w.s.Due
	n, told := w.late(1001*time.Millisecond, OutcomeFailed)
	if !told || n.Kind != LagBreached || n.Reason != LagLate || n.Count != 1 || n.DueMS != due || n.AtMS != due+1001 || n.RunID == "" || n.Queue != "q" {
		t.Errorf("notice %+v", n)
	}
	if w.s.LateMS != 1001 || w.s.Ranks() != (Ranks{Failing: 1000, Late: 1001}) {
		t.Errorf("lag %d, ranks %+v", w.s.LateMS, w.s.Ranks())
	}
	// What is backed off is promised for the end of the backoff.
	if w.s.Source != DelayBackoff {
		t.Fatalf("source %s", w.s.Source)
	}
	if _, told := w.late(time.Second, OutcomeSucceeded); told || w.s.Ranks() != (Ranks{}) {
		t.Errorf("in time again: %v, ranks %+v", told, w.s.Ranks())
	}
	// Without an objective nothing is late.
	w = walk(t, def())
	if n, told := w.late(time.Hour, OutcomeSucceeded); told || w.s.LateMS != 0 {
		t.Errorf("without an objective: %+v", n)
	}
}

func TestWhatAGateHoldsBackStaysPromised(t *testing.T) {
	w := walk(t, punctual()).lease()
	due := w.s.Due
	w.after(500 * time.Millisecond)
	w.on(HoldBack{Token: w.s.Token, Reason: HeldLock, Key: "a", UntilMS: w.now + 2000})
	if w.s.LateMS != 0 || w.s.Held.DueMS != due {
		t.Errorf("held for half a second: lag %d, %+v", w.s.LateMS, w.s.Held)
	}
	w.lease()
	w.on(HoldBack{Token: w.s.Token, Reason: HeldTarget, Key: "b", UntilMS: w.now + 2000})
	if held := w.now - due; w.s.LateMS != held || w.s.Held.DueMS != due || w.s.Ranks().Late != held {
		t.Errorf("held for %d: lag %d, %+v", held, w.s.LateMS, w.s.Held)
	}
	w.lease()
	if n, told := LagNotice(w.c.Definition, &w.s, w.now); !told || n.DueMS != due {
		t.Errorf("%+v", n)
	}
	w.succeed()
	if w.s.LateMS == 0 || w.s.Held != (Hold{}) {
		t.Errorf("after the run: lag %d, %+v", w.s.LateMS, w.s.Held)
	}
	// What an earlier version held tells nothing, nor does what it left behind.
	s := State{Nominal: 5000, Due: 9000, Source: DelayHeld, Held: Hold{Reason: HeldLock}}
	if _, ok := s.Lag(99_000); ok {
		t.Error("a hold of unknown age is judged")
	}
	s = State{Nominal: 5000, Due: 5000, Held: Hold{DueMS: 4000}}
	if lag, ok := s.Lag(6000); !ok || lag != 1000 {
		t.Errorf("the promise of an earlier run counts: %d", lag)
	}
}

func TestMissedTimesAreBreaches(t *testing.T) {
	d := punctual()
	d.Misfire = Misfire{Policy: MisfireSkip, Window: 10 * time.Second}
	w := walk(t, d).lease()
	w.after(15 * time.Second)
	decision := w.on(Arrive{Token: w.s.Token})
	missed := int64(0)
	for _, n := range decision.Notices {
		if n.Kind == LagBreached && n.Reason == LagMissed {
			missed += n.Count
		}
	}
	if decision.Arrival != ArrivalSkipped || missed != 1 || w.s.LateMS != 15_000 || !decision.Ranked {
		t.Errorf("arrival %d, %d missed, lag %d, %+v", decision.Arrival, missed, w.s.LateMS, decision.Notices)
	}

	// A long downtime: the first run is late, and those that nobody came for are missed.
	w = walk(t, punctual())
	if _, told := w.late(10*time.Minute, OutcomeSucceeded); !told {
		t.Error("ten minutes late is in time")
	}
	if w.s.LateMS != 600_000 {
		t.Errorf("lag %d", w.s.LateMS)
	}
	// What the job's own run overlaps is left out, and not missed.
	w = walk(t, punctual()).lease()
	started := w.now
	w.after(5 * time.Minute)
	for _, n := range w.on(Settle{Token: w.s.Token, Outcome: OutcomeSucceeded, StartedMS: started}).Notices {
		if n.Kind == LagBreached {
			t.Errorf("%+v", n)
		}
	}
}

func TestWhatIsPromisedNothing(t *testing.T) {
	for name, s := range map[string]State{
		"a retry":        {Nominal: 1, Due: 5, Attempt: 1, Source: DelayRetry},
		"a backfill":     {Nominal: 1, Due: 5, Trigger: TriggerBackfill, Source: DelayBackfill},
		"a redriven run": {Nominal: 1, Due: 5, Source: DelayRedrive},
		"no run":         {},
	} {
		if lag, ok := s.Lag(99_000); ok {
			t.Errorf("%s is %d late", name, lag)
		}
	}
	caught := State{Nominal: 1000, Due: 9000, Source: DelayCatchUp}
	if lag, ok := caught.Lag(10_000); !ok || lag != 9000 {
		t.Errorf("a run that is caught up: %d", lag)
	}
}

func TestAPauseIsNobodysLateness(t *testing.T) {
	d := punctual()
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.UnixMilli(t0 + 1000)}
	w := walk(t, d)
	w.on(Pause{})
	w.after(time.Hour)
	w.on(Resume{})
	if lag, ok := w.s.Lag(w.now + 300); !ok || lag != 300 {
		t.Errorf("lag %d after the pause", lag)
	}
}

func TestTheObjectiveGoesWithItsEdit(t *testing.T) {
	w := walk(t, punctual())
	w.late(time.Minute, OutcomeSucceeded)
	edited := punctual()
	edited.MaxLag = 0
	d := w.on(Update{New: compile(t, edited)})
	if w.s.LateMS != 0 || !d.Ranked {
		t.Errorf("lag %d, ranked %v", w.s.LateMS, d.Ranked)
	}
}

func TestRanks(t *testing.T) {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.UnixMilli(t0 + 1000)}
	d.Retry.MaxAttempts = 5
	w := walk(t, d)
	for attempt, want := range []int64{0, 0, 3, 4, 0} { // the last makes a dead letter of it
		w.lease().fail()
		if got := w.s.Ranks().Failing; got != want {
			t.Errorf("after attempt %d: rank %d, want %d", attempt+1, got, want)
		}
	}
	w = walk(t, def())
	for range 3 {
		w.lease().fail()
	}
	if got := w.s.Ranks().Failing; got != RankOfFailures(3) {
		t.Errorf("rank %d after three failures", got)
	}
	if gone := w.on(Delete{}); !gone.Delete || !gone.Ranked {
		t.Errorf("a deleted job stays in its index: %+v", gone)
	}
}
