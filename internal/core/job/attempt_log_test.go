package job

import (
	"reflect"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// attempt lets the next attempt of the run take two seconds, and end.
func (w *walker) attempt(outcome Outcome) Decision {
	w.lease().ack()
	start := w.now
	w.after(2 * time.Second)
	if outcome == OutcomeLost {
		return w.on(LoseLease{Token: w.s.Token})
	}
	return w.on(FinishAttempt{Token: w.s.Token, Outcome: outcome, StartedMS: start, Worker: "w1", Error: "boom"})
}

// retrying is a one-time job with many attempts.
func retrying() Definition {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: t0.Time()}
	d.Retry.MaxAttempts = 20
	return d
}

// TestRunKeepsTheTimesOfItsAttempts: due time, start, end, outcome and worker of each attempt are with the run, live
// and ended.
func TestRunKeepsTheTimesOfItsAttempts(t *testing.T) {
	w := walk(t, retrying())
	w.attempt(OutcomeFailed)
	first := Attempt{Number: 1, Outcome: OutcomeFailed, DueMS: t0, StartedMS: t0, FinishedMS: t0 + 2000, Worker: "w1"}
	retry := w.s.Due
	w.attempt(OutcomeLost)
	lost := Attempt{Number: 2, Outcome: OutcomeLost, Source: DelayRetry, DueMS: retry, StartedMS: retry, FinishedMS: retry + 2000}
	if v, ok := w.s.CurrentRun(); !ok || !reflect.DeepEqual(v.AttemptLog, []Attempt{first, lost}) {
		t.Errorf("while it waits: %+v", v.AttemptLog)
	}
	w.lease()
	if v, ok := w.s.CurrentRun(); !ok || !reflect.DeepEqual(v.AttemptLog, []Attempt{first, lost}) {
		t.Errorf("while it runs: %+v", v.AttemptLog)
	}
	w.on(ReturnLease{Token: w.s.Token})
	w.after(time.Second).attempt(OutcomeSucceeded)
	last := Attempt{Number: 2, Outcome: OutcomeSucceeded, Source: DelayRetry, DueMS: retry, StartedMS: retry + 3000, FinishedMS: retry + 5000, Worker: "w1"}
	if got := w.last.Ended.AttemptLog; !reflect.DeepEqual(got, []Attempt{first, lost, last}) {
		t.Errorf("at the end:\n%+v", got)
	}
	if w.s.AttemptLog != nil {
		t.Errorf("the log stays in the state: %+v", w.s.AttemptLog)
	}
}

// TestRunOfOneAttemptKeepsNoLog: what succeeds at once costs nothing.
func TestRunOfOneAttemptKeepsNoLog(t *testing.T) {
	w := walk(t, def())
	for range 3 {
		w.attempt(OutcomeSucceeded)
		if w.last.Ended.AttemptLog != nil || w.s.AttemptLog != nil {
			t.Fatalf("%+v, %+v", w.last.Ended, w.s.AttemptLog)
		}
	}
	w.attempt(OutcomeTimedOut)
	if log := w.last.Ended.AttemptLog; len(log) != 1 || log[0].Outcome != OutcomeTimedOut || w.last.Ended.Outcome != OutcomeDead {
		t.Errorf("a run that is dead after one attempt: %+v", log)
	}
	if w.attempt(OutcomeSucceeded); w.last.Ended.AttemptLog != nil {
		t.Errorf("the next run: %+v", w.last.Ended.AttemptLog)
	}
}

// TestLogIsBounded keeps the latest attempts, and changes no log that another state has.
func TestLogIsBounded(t *testing.T) {
	w := walk(t, retrying())
	var before *AttemptLog
	for range MaxLoggedAttempts + 4 {
		before = w.s.AttemptLog
		w.attempt(OutcomeFailed)
	}
	log := w.s.AttemptLog
	if len(log.Attempts) != MaxLoggedAttempts || log.Attempts[0].Number != 5 || log.Attempts[MaxLoggedAttempts-1].Number != MaxLoggedAttempts+4 {
		t.Errorf("%+v", log)
	}
	if before.Attempts[0].Number != 4 || before.Attempts[MaxLoggedAttempts-1].Number != MaxLoggedAttempts+3 {
		t.Errorf("the log before is now %+v", before)
	}
}

// TestLogEndsWithItsRun: whatever ends a run, or makes another one current, the next run does not have its attempts.
func TestLogEndsWithItsRun(t *testing.T) {
	d := def()
	d.Retry.MaxAttempts = 3
	for name, test := range map[string]struct {
		end    func(*walker)
		logged int // of the run that ended
	}{
		"cancelled while it waits": {func(w *walker) { w.on(CancelRun{RunID: w.s.RunID()}) }, 1},
		"superseded":               {func(w *walker) { w.on(RequestManualRun{RequestID: "m"}) }, 1},
		"cancelled while live": {func(w *walker) {
			w.lease().on(CancelRun{RunID: w.s.RunID()})
			w.on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeCancelled, StartedMS: w.now})
		}, 2},
		"permanent": {func(w *walker) {
			w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed, Permanent: true, StartedMS: w.now})
		}, 2},
		"quarantined": {func(w *walker) { w.lost(); w.lost(); w.lost() }, 4},
		"lost, and cancelled": {func(w *walker) {
			w.lease().on(CancelRun{RunID: w.s.RunID()})
			w.on(LoseLease{Token: w.s.Token})
		}, 2},
		"succeeded": {func(w *walker) { w.attempt(OutcomeSucceeded) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := walk(t, d)
			w.attempt(OutcomeFailed)
			test.end(w)
			if w.last.Ended == nil || len(w.last.Ended.AttemptLog) != test.logged {
				t.Fatalf("ended %+v", w.last.Ended)
			}
			if v, _ := w.s.CurrentRun(); w.s.AttemptLog != nil || v.AttemptLog != nil {
				t.Errorf("the next run has %+v", w.s.AttemptLog)
			}
		})
	}
}

// TestLogOfAnOlderVersionIsDropped: a node that does not know the log keeps it unchanged, whatever it decides.
func TestLogOfAnOlderVersionIsDropped(t *testing.T) {
	d := def()
	d.Retry.MaxAttempts = 4
	once := retrying()
	for name, test := range map[string]struct {
		def   Definition
		older func(*walker)
		want  int // attempts in the log after one more
	}{
		"nothing":                    {d, func(*walker) {}, 2},
		"an attempt was given back":  {d, func(w *walker) { w.lease().on(ReturnLease{Token: w.s.Token}) }, 2},
		"another attempt failed":     {d, func(w *walker) { w.attempt(OutcomeFailed) }, 1},
		"another attempt was lost":   {d, func(w *walker) { w.attempt(OutcomeLost) }, 1},
		"the run was cancelled":      {d, func(w *walker) { w.on(CancelRun{RunID: w.s.RunID()}) }, 1},
		"the run ended":              {d, func(w *walker) { w.attempt(OutcomeSucceeded) }, 1},
		"the next run has failed":    {d, func(w *walker) { w.attempt(OutcomeSucceeded); w.attempt(OutcomeFailed) }, 1},
		"it died, and was redriven":  {once, func(w *walker) { w.on(permanent(w.lease())); w.on(Redrive{}) }, 1},
		"a manual run took its turn": {d, func(w *walker) { w.on(RequestManualRun{RequestID: "m"}) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := walk(t, test.def)
			w.attempt(OutcomeFailed)
			log := w.s.AttemptLog
			w.s.AttemptLog = nil
			test.older(w)
			w.s.AttemptLog = log
			if v, _ := w.s.CurrentRun(); len(v.AttemptLog) != test.want-1 {
				t.Errorf("the current run is shown with %+v", v.AttemptLog)
			}
			w.attempt(OutcomeFailed)
			if got := w.s.AttemptLog; got == nil || len(got.Attempts) != test.want {
				t.Errorf("log %+v, want %d attempts", got, test.want)
			}
		})
	}
}

func permanent(w *walker) FinishAttempt {
	return FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed, Permanent: true, StartedMS: w.now}
}

// TestRunsBesideKeepTheirAttempts: a run that moves into a record of its own takes its attempts along, and does not
// leave them to the next one.
func TestRunsBesideKeepTheirAttempts(t *testing.T) {
	d := def()
	d.Overlap = OverlapAllowAll
	d.Retry.MaxAttempts = 3
	c := compile(t, d)
	parent := New(c, t0).State
	now := parent.Due
	parent = parent.Leased(100)
	arrived := Decide(c, parent, RunLeased{Token: 100}, now)
	if arrived.Spawn == nil {
		t.Fatalf("%+v", arrived)
	}
	parent, child := arrived.State, arrived.Spawn.State
	fail := func(token uint64) (pair ParentChildPair) {
		pair = DecideChild(c, parent, child, FinishAttempt{Token: token, Outcome: OutcomeFailed, StartedMS: now, Worker: "w1"}, now)
		parent, child = pair.Parent.State, pair.Child.State
		return pair
	}
	fail(100)
	now = max(now, child.Due)
	child = child.Leased(200)
	fail(200)
	if child.AttemptLog == nil || len(child.AttemptLog.Attempts) != 2 || parent.AttemptLog != nil {
		t.Fatalf("child %+v, parent %+v", child.AttemptLog, parent.AttemptLog)
	}
	now = max(now, child.Due)
	child = child.Leased(300)
	if pair := fail(300); pair.Parent.Ended == nil || len(pair.Parent.Ended.AttemptLog) != 3 || pair.Parent.State.AttemptLog != nil {
		t.Errorf("at its end: %+v", pair.Parent.Ended)
	}
}

// TestLossStartsWithItsLease: the start of a lost attempt is not known; it was leased at this instant at the earliest.
func TestLossStartsWithItsLease(t *testing.T) {
	w := walk(t, retrying())
	w.token = uint64(t0+700) * 1000
	w.after(time.Second).attempt(OutcomeLost)
	if a := w.s.AttemptLog.Attempts[0]; a.StartedMS != unixtime.Milli(t0+700) || a.FinishedMS != t0+3000 {
		t.Errorf("%+v", a)
	}
}
