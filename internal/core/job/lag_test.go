package job

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
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
	w.lease().after(by)
	return breachOf(w.on(FinishAttempt{Token: w.s.Token, Outcome: outcome, StartedMS: w.now, Worker: "w1"}))
}

// breachOf returns the first broken objective that a decision reports.
func breachOf(d Decision) (n Notice, told bool) {
	for _, n := range d.Notices {
		if n.Kind == LagBreached {
			return n, true
		}
	}
	return Notice{}, false
}

// breaches is how many broken objectives a decision counts.
func breaches(d Decision) (count int64) {
	for _, n := range d.Notices {
		if n.Kind == LagBreached {
			count += n.Count
		}
	}
	return count
}

func TestLateStartBreaksTheObjective(t *testing.T) {
	w := walk(t, punctual())
	if n, told := w.late(time.Second, OutcomeSucceeded); told || w.s.LateMS != 0 {
		t.Errorf("a second late is within it: %+v, lag %d", n, w.s.LateMS)
	}
	due := w.s.Due
	n, told := w.late(1001*time.Millisecond, OutcomeFailed)
	if !told || n.Kind != LagBreached || n.Reason != LagLate || n.Count != 1 || n.DueMS != due || n.AtMS != due+1001 || n.RunID == "" || n.Queue != "q" || n.Worker != "w1" {
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

func TestHeldRunKeepsItsExpectedStart(t *testing.T) {
	w := walk(t, punctual()).lease()
	due := w.s.Due
	w.after(500 * time.Millisecond)
	w.on(HoldBack{Token: w.s.Token, Reason: HeldLock, Key: "a", UntilMS: w.now + 2000})
	if w.s.LateMS != 0 || w.s.Held.DueMS != due {
		t.Errorf("held for half a second: lag %d, %+v", w.s.LateMS, w.s.Held)
	}
	w.lease()
	n, told := breachOf(w.on(HoldBack{Token: w.s.Token, Reason: HeldTarget, Key: "b", UntilMS: w.now + 2000}))
	if !told || n.DueMS != due || n.AtMS != w.now || n.Count != 1 || n.Reason != LagLate {
		t.Errorf("%+v", n)
	}
	if held := int64(w.now - due); w.s.LateMS != held || w.s.Held.DueMS != due || w.s.Ranks().Late != held {
		t.Errorf("held for %d: lag %d, %+v", held, w.s.LateMS, w.s.Held)
	}
	w.lease()
	if n, told := breachOf(w.succeed()); told {
		t.Errorf("it is counted twice: %+v", n)
	}
	if w.s.LateMS != int64(w.now-due) || w.s.Held != (Hold{}) {
		t.Errorf("after the run: lag %d, %+v", w.s.LateMS, w.s.Held)
	}
	// States of an earlier version are not judged.
	s := State{Nominal: 5000, Due: 9000, Source: DelayHeld, Held: Hold{Reason: HeldLock}}
	if _, ok := s.Lag(99_000); ok {
		t.Error("a hold of unknown age is judged")
	}
	s = State{Nominal: 5000, Due: 5000, Held: Hold{DueMS: 4000}}
	if lag, ok := s.Lag(6000); !ok || lag != 1000 {
		t.Errorf("the promise of an earlier run counts: %d", lag)
	}
}

func TestMissedTimesBreakTheObjective(t *testing.T) {
	d := punctual()
	d.Misfire = Misfire{Policy: MisfireSkip, Window: 10 * time.Second}
	w := walk(t, d).lease()
	w.after(15 * time.Second)
	decision := w.on(RunLeased{Token: w.s.Token})
	missed := int64(0)
	for _, n := range decision.Notices {
		if n.Kind == LagBreached && n.Reason == LagMissed {
			missed += n.Count
		}
	}
	if decision.Arrival != ArrivalSkipped || missed != 1 || w.s.LateMS != 15_000 || !decision.Ranked {
		t.Errorf("arrival %d, %d missed, lag %d, %+v", decision.Arrival, missed, w.s.LateMS, decision.Notices)
	}

	// A long downtime: the first run is late, and the others are missed.
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
	for _, n := range w.on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeSucceeded, StartedMS: started}).Notices {
		if n.Kind == LagBreached {
			t.Errorf("%+v", n)
		}
	}
}

func TestRunsWithoutAnExpectedStart(t *testing.T) {
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

func TestPauseIsNotLateness(t *testing.T) {
	d := punctual()
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1000).Time()}
	w := walk(t, d)
	w.on(Pause{})
	w.after(time.Hour)
	w.on(Resume{})
	if lag, ok := w.s.Lag(w.now + 300); !ok || lag != 300 {
		t.Errorf("lag %d after the pause", lag)
	}
}

func TestEditChangesTheObjective(t *testing.T) {
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
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1000).Time()}
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

// TestARunThatNeverStartsBreaksItsObjective: it is counted when its time has passed, once,
// whatever becomes of it then.
func TestARunThatNeverStartsBreaksItsObjective(t *testing.T) {
	w := walk(t, punctual())
	w.now = w.s.Due + 1000
	if d := w.on(CheckLateness{}); d.Changed || breaches(d) != 0 {
		t.Fatalf("a second late is within it: %+v", d)
	}
	w.after(time.Millisecond)
	if at := w.c.BreachAtMS(&w.s); at != w.now {
		t.Fatalf("broken at %d, by the index at %d", w.now, at)
	}
	due, run := w.s.Due, w.s.RunID()
	n, told := breachOf(w.on(CheckLateness{}))
	if !told || n.RunID != run || n.DueMS != due || n.AtMS != w.now || n.Count != 1 || n.Reason != LagLate || n.Queue != "q" {
		t.Fatalf("notice %+v", n)
	}
	if w.s.LateMS != 1001 || !w.last.Ranked || w.s.Due != due || w.s.Region != RegionDue || w.c.BreachAtMS(&w.s) != 0 {
		t.Errorf("state %+v", w.s)
	}
	for name, happens := range map[string]func(*walker) int64{
		"it is found again": func(w *walker) int64 { return breaches(w.on(CheckLateness{})) },
		"it starts": func(w *walker) int64 {
			w.lease()
			return breaches(w.on(CheckLateness{Token: w.s.Token, StartedMS: w.now})) + breaches(w.succeed())
		},
		"its worker is lost twice": func(w *walker) (n int64) {
			for range 2 {
				w.lease().ack()
				n += breaches(w.on(LoseLease{Token: w.s.Token}))
				n += breaches(w.after(time.Minute).on(CheckLateness{}))
			}
			return n
		},
		"it comes back unstarted": func(w *walker) int64 {
			w.lease()
			return breaches(w.on(ReturnLease{Token: w.s.Token})) + breaches(w.after(time.Minute).on(CheckLateness{}))
		},
		"a gate holds it": func(w *walker) int64 {
			w.lease()
			n := breaches(w.on(HoldBack{Token: w.s.Token, Reason: HeldLock, UntilMS: w.now + 5000}))
			return n + breaches(w.after(time.Minute).on(CheckLateness{}))
		},
		"it fails and is tried again": func(w *walker) int64 {
			w.lease()
			return breaches(w.fail())
		},
		"the objective is tightened": func(w *walker) int64 {
			d := punctual()
			d.MaxLag = time.Millisecond
			return breaches(w.on(Update{New: compile(t, d)})) + breaches(w.on(CheckLateness{}))
		},
		"it is cancelled": func(w *walker) int64 { return breaches(w.on(CancelRun{RunID: w.s.RunID()})) },
	} {
		again := &walker{t: t, c: w.c, s: w.s, now: w.now + 100, token: w.token}
		if n := happens(again); n != 0 {
			t.Errorf("%s: it is counted %d times more", name, n)
		}
	}
	w.lease().after(time.Second)
	w.succeed()
	if w.s.LateMS != 2001 {
		t.Errorf("it started %d late", w.s.LateMS)
	}
	// The next one is judged for itself.
	w.now = w.s.Due + 1001
	if d := w.on(CheckLateness{}); breaches(d) != 1 {
		t.Errorf("the next run: %+v", d)
	}
}

// TestAnyDecisionCountsALateRun: between the moment at which the objective is broken
// and the look that finds it something else may be decided.
func TestAnyDecisionCountsALateRun(t *testing.T) {
	for name, ev := range map[string]func(*walker) Input{
		"cancelled":    func(w *walker) Input { return CancelRun{RunID: w.s.RunID()} },
		"deleted":      func(*walker) Input { return Delete{} },
		"paused":       func(*walker) Input { return Pause{} },
		"run by hand":  func(*walker) Input { return RequestManualRun{RequestID: "r"} },
		"rescheduled":  func(w *walker) Input { return Update{New: compile(t, everyHour())} },
		"without goal": func(w *walker) Input { return Update{New: compile(t, def())} },
	} {
		w := walk(t, punctual())
		w.now = w.s.Due + 5000
		run := w.s.RunID()
		d := w.on(ev(w))
		if n, _ := breachOf(d); breaches(d) != 1 || n.RunID != run || n.DueMS != w.now-5000 {
			t.Errorf("%s: %+v", name, d.Notices)
		}
		if name == "without goal" && w.s.LateMS != 0 {
			t.Errorf("%s: lag %d", name, w.s.LateMS)
		}
	}
	w := walk(t, punctual())
	w.now = w.s.Due + 5000
	before := w.s
	if d := w.on(SetHint{}); d.Changed || breaches(d) != 0 || w.s.LateMS != before.LateMS || w.s.LateNominal != 0 {
		t.Errorf("what changes nothing counts it: %+v", d)
	}
}

func everyHour() Definition {
	d := punctual()
	d.Schedule = schedule.Spec{Kind: schedule.KindInterval, Every: time.Hour}
	return d
}

func TestSkippedLateRunIsCountedOnce(t *testing.T) {
	d := punctual()
	d.Misfire = Misfire{Policy: MisfireSkip, Window: 10 * time.Second}
	w := walk(t, d)
	w.now = w.s.Due + 15_000
	n := breaches(w.on(CheckLateness{}))
	w.lease()
	if n += breaches(w.on(RunLeased{Token: w.s.Token})); n != 1 || w.s.Skipped != 1 || w.s.LateMS != 15_000 {
		t.Errorf("counted %d times; %d left out, lag %d", n, w.s.Skipped, w.s.LateMS)
	}
	// Resumed with a catch-up, the policy has the last one run: the one that was counted is
	// among those left out.
	w = walk(t, punctual())
	w.now = w.s.Due + 1500
	n = breaches(w.on(CheckLateness{}))
	w.on(Pause{})
	w.after(5 * time.Minute)
	n += breaches(w.on(Resume{CatchUp: true}))
	if left := int64(w.s.Skipped); left == 0 || n != left {
		t.Errorf("counted %d times, %d left out", n, left)
	}
}

func TestDispatcherCountsALeasedRun(t *testing.T) {
	w := walk(t, punctual()).lease()
	due := w.s.Due
	w.after(10 * time.Second)
	if d := w.on(CheckLateness{}); d.Changed {
		t.Errorf("a look at what waits judges what is leased: %+v", d)
	}
	if d := w.on(CheckLateness{Token: w.s.Token + 1}); d.Answer != Stale {
		t.Errorf("another attempt's: %+v", d)
	}
	if d := w.on(CheckLateness{Token: w.s.Token, StartedMS: due + 1000}); d.Changed || breaches(d) != 0 {
		t.Errorf("it started in time: %+v", d)
	}
	d := w.on(CheckLateness{Token: w.s.Token})
	if n, told := breachOf(d); !told || n.AtMS != w.now || !w.s.Live() {
		t.Errorf("it has not started: %+v", d)
	}
	if d := w.on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeSucceeded, StartedMS: w.now + 500}); breaches(d) != 0 || w.s.LateMS != 10_500 {
		t.Errorf("it is counted again: lag %d, %+v", w.s.LateMS, d.Notices)
	}
}

func TestAPausedRunIsNotLate(t *testing.T) {
	w := walk(t, punctual())
	w.on(Pause{})
	w.now = w.s.Due + 60_000
	if d := w.on(CheckLateness{}); d.Changed || w.c.BreachAtMS(&w.s) != 0 {
		t.Errorf("%+v", d)
	}
	// But a manual run of a paused job is.
	w.on(RequestManualRun{RequestID: "r"})
	w.after(1001 * time.Millisecond)
	if d := w.on(CheckLateness{}); breaches(d) != 1 {
		t.Errorf("%+v", d.Notices)
	}
}

func TestARunBesideTheScheduleBreaksItsObjective(t *testing.T) {
	w := walk(t, punctual())
	d := w.on(RequestManualRun{RequestID: "r", Mode: ManualKeep})
	if d.Spawn == nil || d.Spawn.WatchMS != w.now+1001 {
		t.Fatalf("it is not watched: %+v", d.Spawn)
	}
	child := d.Spawn.State
	pair := DecideChild(w.c, w.s, child, CheckLateness{}, w.now+1001)
	n, told := breachOf(pair.Parent)
	if !told || n.RunID != "m-r" || breaches(pair.Parent) != 1 || breaches(pair.Child) != 0 {
		t.Errorf("%+v %+v", pair.Parent.Notices, pair.Child.Notices)
	}
	if pair.Parent.State.LateMS != 1001 || pair.Parent.State.LateNominal != 0 || pair.Child.State.LateNominal != child.Nominal {
		t.Errorf("parent %+v, child %+v", pair.Parent.State, pair.Child.State)
	}
	if again := DecideChild(w.c, pair.Parent.State, pair.Child.State, CheckLateness{}, w.now+5000); again.Child.Changed {
		t.Errorf("it is counted again: %+v", again.Parent.Notices)
	}
}

// watched is a record with its entry in the index of objectives: 0 is none.
type watched struct {
	*walker
	entry unixtime.Milli
	left  int64 // decisions that an older version makes
}

func (w *watched) step(ev Input) {
	mark, unknown := w.s.WatchedBy, w.s
	d := w.on(ev)
	if w.left > 0 { // it writes no entry, and leaves the mark as it was
		w.left--
		w.s.WatchedBy, w.s.LateNominal = mark, unknown.LateNominal
		return
	}
	switch {
	case d.WatchMS > 0:
		w.entry = d.WatchMS
	case d.WatchMS == WatchNever:
		w.entry = 0
	}
}

// look is what the holder does about an entry whose time has come.
func (w *watched) look() {
	if w.entry == 0 || w.entry > w.now {
		return
	}
	if at := w.c.BreachAtMS(&w.s); at != 0 && at <= w.now && !w.s.Live() {
		w.step(CheckLateness{})
	}
	switch at := w.c.BreachAtMS(&w.s); {
	case at == 0, at <= w.now && w.s.Live():
		w.entry = 0
	default:
		w.entry = at
	}
}

// TestIndexOfObjectivesIsComplete: whatever happens to a job, a run that waits has its
// entry, at the instant at which its objective is broken or earlier, unless the last decision
// was one of an older version.
func TestIndexOfObjectivesIsComplete(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := punctual()
		d.MaxLag = []time.Duration{time.Millisecond, time.Second, 5 * time.Second, time.Minute, 10 * time.Minute}[r.IntN(5)]
		d.Misfire = Misfire{Policy: []MisfirePolicy{MisfireRunOnce, MisfireSkip, MisfireRunAll}[r.IntN(3)], Window: 3 * time.Minute}
		d.Retry.MaxAttempts = 1 + r.IntN(2)
		w := &watched{walker: walk(t, d)}
		w.entry = w.last.WatchMS
		var old bool
		for range 120 {
			w.after(time.Duration(r.Int64N(int64([]time.Duration{time.Millisecond, time.Second, time.Minute, 5 * time.Minute}[r.IntN(4)])) + 1))
			if old = r.IntN(20) == 0; old {
				w.left = 1
			}
			w.random(r, d)
			old = old && w.left == 0
			if r.IntN(3) == 0 {
				w.look()
			}
			w.left = 0
			at := w.c.BreachAtMS(&w.s)
			if !old && w.s.WatchedBy == watchMark(w.s.Revision) && at != 0 && w.s.Region == RegionDue && (w.entry == 0 || w.entry > at) {
				t.Fatalf("seed %d: the run breaks its objective at %d, its entry is at %d: %+v", seed, at, w.entry, w.s)
			}
		}
	}
}

func (w *watched) random(r *rand.Rand, d Definition) {
	if w.s.Region == RegionDue && w.s.Due <= w.now && r.IntN(2) == 0 {
		w.lease()
		return
	}
	token := w.s.Token
	events := []Input{Pause{}, Resume{CatchUp: r.IntN(2) == 0}, RequestManualRun{RequestID: strconv.Itoa(int(w.now))}, SetHint{}, RunLeased{Token: token}}
	if w.s.Live() {
		events = []Input{
			FinishAttempt{Token: token, Outcome: OutcomeSucceeded, StartedMS: w.now}, FinishAttempt{Token: token, Outcome: OutcomeFailed, StartedMS: w.now},
			ReturnLease{Token: token}, LoseLease{Token: token}, HoldBack{Token: token, Reason: HeldLock, Key: "k", UntilMS: w.now + unixtime.Milli(r.Int64N(10_000))},
			CheckLateness{Token: token, StartedMS: w.now}, Pause{}, Resume{},
		}
	}
	if r.IntN(6) == 0 {
		edited := *w.c.Definition
		edited.MaxLag = []time.Duration{0, time.Second, d.MaxLag}[r.IntN(3)]
		if r.IntN(2) == 0 {
			edited.Schedule.Every = time.Duration(1+r.IntN(10)) * time.Minute
		}
		events = []Input{Update{New: compile(w.t, edited)}}
	}
	w.step(events[r.IntN(len(events))])
}
