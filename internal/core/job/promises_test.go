package job

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// What policy itself has put later is not late when it comes: under a misfire policy with
// a window it runs.
func TestPostponedRunsAreNotMisfires(t *testing.T) {
	start := func(w *walker) {
		t.Helper()
		if got := w.lease().on(RunLeased{Token: w.s.Token}); got.Arrival != ArrivalStart {
			t.Errorf("%s of %d at %d answers %v, want a start", w.s.Source, w.s.Nominal, w.now, got.Arrival)
		}
	}
	d := def()
	d.Schedule.Every, d.Misfire.Policy = 10*time.Minute, MisfireSkip
	w := walk(t, d)
	w.lease().after(2 * time.Minute).fail()
	if w.s.Source != DelayBackoff || int64(w.s.Due-w.s.Nominal) <= d.Misfire.effectiveWindow().Milliseconds() {
		t.Fatalf("a backoff past the window: %+v", w.s)
	}
	start(w)

	w = walk(t, d)
	w.on(SetHint{Hint{Source: HintOperator, AtMS: w.s.Due + 5*60_000, UntilMS: w.now + 3600_000}})
	start(w)

	d.Schedule.Jitter = 9 * time.Minute
	for seed := range 20 {
		d.ID = string(rune('a' + seed))
		start(walk(t, d))
	}

	once := def()
	once.Schedule, once.Misfire.Policy = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1000).Time()}, MisfireSkip
	w = walk(t, once)
	w.lease().fail()
	w.after(time.Hour).on(Redrive{})
	start(w)

	// No worker took it: the window is for that case.
	d.Schedule.Jitter = 0
	w = walk(t, d)
	w.lease().after(2 * time.Minute)
	if got := w.on(RunLeased{Token: w.s.Token}); got.Arrival != ArrivalSkipped {
		t.Errorf("two minutes late it answers %v", got.Arrival)
	}
}

// A hint for an instant is for one run, also where that is held back at first, or fails
// and is retried.
func TestAHintForAnInstantIsForOneRun(t *testing.T) {
	d := def()
	d.Schedule.Every, d.Retry.MaxAttempts, d.Backoff.Disabled = time.Hour, 2, true
	hinted := func() *walker {
		w := walk(t, d)
		w.lease().succeed()
		w.on(SetHint{Hint{Source: HintOperator, AtMS: w.now + 60_000, UntilMS: w.now + 24*3600_000}})
		w.lease()
		return w
	}
	once := func(name string, w *walker) {
		if d := w.wait(); d < 30*time.Minute {
			t.Errorf("%s: the next run is due in %v; want that of the schedule", name, d)
		}
	}
	w := hinted()
	w.succeed()
	once("at once", w)

	w = hinted()
	w.on(HoldBack{Token: w.s.Token, Reason: HeldLock, Key: "k", UntilMS: w.now + 5000})
	w.lease().succeed()
	once("held", w)

	w = hinted()
	w.fail()
	w.lease().succeed()
	once("retried", w)

	w = hinted()
	w.fail()
	w.on(SetHint{Hint{Source: HintOperator, AtMS: w.now + 60_000, UntilMS: w.now + 24*3600_000}})
	w.lease()
	w.on(HoldBack{Token: w.s.Token, Reason: HeldLock, Key: "k", UntilMS: w.now + 5000})
	w.lease().succeed()
	once("a retry that was hinted and held", w)

	held := HoldBack{Reason: HeldLock, Key: "k"}
	hold := func(w *walker) *walker {
		held.Token, held.UntilMS = w.s.Token, w.now+5000
		w.on(held)
		return w
	}
	w = hold(hinted())
	w.on(CancelRun{RunID: w.s.RunID()})
	once("held and cancelled", w)

	w = hold(hinted())
	for range 3 {
		w.lease().ack().on(LoseLease{Token: w.s.Token})
	}
	if once("held and quarantined", w); w.s.Dead != 1 {
		t.Errorf("%d dead runs", w.s.Dead)
	}

	d.Misfire.Policy = MisfireSkip
	w = hold(hinted())
	if w.lease().after(20*time.Minute).on(RunLeased{Token: w.s.Token}).Arrival != ArrivalSkipped {
		t.Error("it came in time")
	}
	once("held and left out", w)

	d.MaxInterval = 2 * time.Hour
	w = walk(t, d)
	w.lease().succeed()
	w.on(SetHint{Hint{Source: HintOperator, AtMS: w.now + 10*3600_000, UntilMS: w.now + 24*3600_000}})
	if d := w.wait(); d != 2*time.Hour {
		t.Errorf("a hint beyond the job's bounds: the run is due in %v", d)
	}
	w.lease().succeed()
	if d := w.wait(); d > time.Hour {
		t.Errorf("a hint beyond the job's bounds: the run that follows is due in %v; want that of the schedule", d)
	}

	d.Retry.MaxAttempts = 5
	w = walk(t, d)
	w.lease().fail()
	w.on(Pause{})
	w.after(10 * time.Minute).on(Resume{})
	w.on(SetHint{Hint{Source: HintOperator, AtMS: w.now + 60_000, UntilMS: w.now + 24*3600_000}})
	w.lease().succeed()
	once("a retry that was paused, then hinted", w)
	d.Misfire.Policy = MisfireRunOnce

	// Hints that come while a run is live are for the one that follows, even if the live
	// one was hinted itself, or is a retry that its worker asked for.
	w = hinted()
	begun := w.now
	w.on(SetHint{Hint{Source: HintOperator, AtMS: w.now + 600_000, UntilMS: w.now + 24*3600_000}})
	w.after(time.Second).on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeSucceeded, StartedMS: begun})
	if w.wait() > 10*time.Minute {
		t.Errorf("a second hint during the first one's run: due in %v", w.wait())
	}
	w = walk(t, d)
	w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed, StartedMS: w.now, RetryAfter: time.Minute})
	w.lease().on(SetHint{Hint{Source: HintOperator, AtMS: w.now + 600_000, UntilMS: w.now + 24*3600_000}})
	w.after(time.Second).succeed()
	if w.wait() > 10*time.Minute {
		t.Errorf("a hint during a retry that was asked for: due in %v", w.wait())
	}
	d.Overlap = OverlapAllowAll
	w = hinted()
	child := w.on(RunLeased{Token: w.s.Token}).Spawn.State
	w.on(SetHint{Hint{Source: HintOperator, AtMS: w.now + 600_000, UntilMS: w.now + 24*3600_000}})
	after := DecideChild(w.c, w.s, child, FinishAttempt{Token: child.Token, Outcome: OutcomeSucceeded, StartedMS: w.now}, w.now+1000)
	if p := after.Parent.State; p.Hint.AtMS != w.s.Hint.AtMS || p.Due != w.s.Hint.AtMS {
		t.Errorf("a hint beside the first one's run: %+v, due %d", p.Hint, p.Due)
	}
	d.Overlap = OverlapSkip

	// What began before the instant leaves it alone.
	w = walk(t, d)
	w.lease()
	w.on(SetHint{Hint{Source: HintOperator, AtMS: w.now + 60_000, UntilMS: w.now + 24*3600_000}})
	begun = w.now
	w.after(time.Second).on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeSucceeded, StartedMS: begun})
	if w.s.Hint.AtMS == 0 || w.wait() > time.Minute {
		t.Errorf("the hint was set while a run was live: due in %v, %+v", w.wait(), w.s.Hint)
	}
}

// The notice of a pause has the time of the next run.
func TestPauseNoticeHasTheNextDueTime(t *testing.T) {
	d := def()
	d.PauseAfter = 1
	told := func(w *walker) (due unixtime.Milli) {
		for _, n := range w.last.Notices {
			if n.Kind == JobPaused {
				due = n.DueMS
			}
		}
		return due
	}
	w := walk(t, d)
	w.on(Pause{})
	if told(w) == 0 || told(w) != w.s.Due {
		t.Errorf("paused by a client: told %d, due %d", told(w), w.s.Due)
	}
	w = walk(t, d)
	w.lease().fail()
	if !w.s.Paused || told(w) != w.s.Due || w.s.Due <= w.now {
		t.Errorf("paused by a failure: told %d, due %d", told(w), w.s.Due)
	}
	w = walk(t, d)
	w.lease().on(Delete{})
	if w.fail(); told(w) != 0 {
		t.Error("a job that is deleted is paused after that")
	}
	d.Overlap = OverlapAllowAll
	w = walk(t, d)
	child := w.lease().on(RunLeased{Token: w.s.Token}).Spawn.State
	after := DecideChild(w.c, w.s, child, FinishAttempt{Token: child.Token, Outcome: OutcomeFailed, StartedMS: w.now}, w.now+5000).Parent
	if w.last = after; told(w) != after.State.Due || after.State.Due <= w.now {
		t.Errorf("paused by a run beside others: told %d, due %d", told(w), after.State.Due)
	}
}

// Requests that have only joined a run push out none that made one: its repetition would
// make another of the same id.
func TestJoinedRequestsAreForgottenFirst(t *testing.T) {
	w := walk(t, def())
	w.lease().on(RequestManualRun{RequestID: "a"})
	for i := range MaxRecent + 1 {
		w.on(RequestManualRun{RequestID: string(rune('j' + i))})
	}
	if d := w.on(RequestManualRun{RequestID: "r"}); d.Answer != Duplicate {
		t.Errorf("the last that joined, repeated: %v", d.Answer)
	}
	w.succeed()
	w.lease()
	if d := w.on(RequestManualRun{RequestID: "a"}); d.Answer != Duplicate || w.s.Pending != "" {
		t.Errorf("the one that they joined, repeated: %v, pending %q", d.Answer, w.s.Pending)
	}
	for i := range MaxRecent {
		w.succeed()
		w.on(RequestManualRun{RequestID: string(rune('A' + i))})
		w.lease()
	}
	w.on(RequestManualRun{RequestID: "next"})
	for _, id := range []string{"joins", "joins-too"} {
		w.on(RequestManualRun{RequestID: id})
		if d := w.on(RequestManualRun{RequestID: id}); d.Answer != Duplicate {
			t.Errorf("the newest has joined, repeated: %v of %q", d.Answer, w.s.Recent)
		}
	}
	if d := w.on(RequestManualRun{RequestID: "C"}); d.Answer != Duplicate {
		t.Errorf("after two that joined: %v of %q", d.Answer, w.s.Recent)
	}
	w.succeed()
	w.lease().succeed()
	if d := w.on(RequestManualRun{RequestID: "joins-too"}); d.Answer != Duplicate || w.s.Due <= w.now {
		t.Errorf("the newest has joined a run that is over, repeated: %v", d.Answer)
	}
}

// An edit of the schedule counts from then on, also where a run is live meanwhile, or a
// manual one waits.
func TestEditDuringARunCountsFromTheEdit(t *testing.T) {
	at := func(w *walker) Update {
		e := def()
		e.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (w.now + 3600_000).Time()}
		return Update{New: compile(t, e)}
	}
	w := walk(t, def())
	w.lease().succeed()
	w.lease()
	edit := at(w)
	w.on(edit)
	w.succeed()
	if w.s.Region != RegionDue || w.s.Due != unixtime.MilliOf(edit.New.Schedule.At) {
		t.Errorf("edited to one time while live: %+v", w.s)
	}

	once := def()
	once.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1000).Time()}
	w = walk(t, once)
	w.lease().succeed()
	w.on(RequestManualRun{RequestID: "m"})
	edit = at(w)
	w.on(edit)
	w.lease().succeed()
	if w.s.Region != RegionDue || w.s.Due != unixtime.MilliOf(edit.New.Schedule.At) {
		t.Errorf("edited while a manual run waited: %+v", w.s)
	}

	d := def()
	d.Schedule.MaxRuns = 2
	w = walk(t, d)
	w.lease().succeed()
	w.lease()
	d.Schedule.Every = 2 * time.Minute
	w.on(Update{New: compile(t, d)})
	w.succeed()
	for range 2 {
		w.lease().succeed()
	}
	if w.s.Region != RegionDone || w.s.Succeeded != 4 {
		t.Errorf("max_runs of the new schedule: %d runs, %+v", w.s.Succeeded, w.s)
	}
}

// A trial that fails leaves a one-time job's own time alone.
func TestFailedManualRunKeepsTheScheduledTime(t *testing.T) {
	once := def()
	once.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 3600_000).Time()}
	w := walk(t, once)
	w.on(RequestManualRun{RequestID: "m"})
	w.lease().fail()
	if w.s.Region != RegionDue || w.s.Trigger != TriggerSchedule || w.s.Due != t0+3600_000 {
		t.Fatalf("after the trial: %+v", w.s)
	}
	w.lease().fail()
	if w.s.Region != RegionDead {
		t.Errorf("after its own run: %+v", w.s)
	}
}

// A child's end plans anew what is to come, not the run that waits.
func TestAChildsSuccessLeavesTheWaitingRun(t *testing.T) {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"0 * * * *"}}
	f := newFamily(t, d)
	f.lease()
	f.on(FinishAttempt{Token: f.parent.Token, Outcome: OutcomeFailed, Error: "boom", StartedMS: f.now})
	f.on(RequestManualRun{RequestID: "m", Mode: ManualResetOnSuccess})
	f.leaseChild(0)
	f.lease()
	nominal, skipped := f.parent.Nominal, f.parent.Skipped
	if f.parent.Held.Reason != HeldOverlap {
		t.Fatalf("the scheduled run: %+v", f.parent)
	}
	f.now += 180_000
	f.onChild(0, FinishAttempt{Token: f.children[0].Token, Outcome: OutcomeSucceeded, StartedMS: f.now})
	if f.parent.Nominal != nominal || f.parent.Skipped != skipped || f.parent.Failures != 0 || f.parent.Due > f.now {
		t.Errorf("nominal %d, want %d; %d skipped, want %d; %+v", f.parent.Nominal, nominal, f.parent.Skipped, skipped, f.parent)
	}
}

// Nor does a hint that is taken back, or has expired.
func TestAHintLeavesTheRunThatIsHeld(t *testing.T) {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"0 * * * *"}}
	w := walk(t, d)
	w.lease().on(HoldBack{Token: w.s.Token, Reason: HeldLock, Key: "k", UntilMS: w.now + 3000})
	nominal := w.s.Nominal
	w.on(SetHint{Hint{Source: HintOperator, IntervalMS: 60_000, UntilMS: w.now}})
	if w.s.Nominal != nominal || w.s.Skipped != 0 || w.s.Held.Reason != HeldLock {
		t.Errorf("nominal %d, want %d; %+v", w.s.Nominal, nominal, w.s)
	}
}

// A dead letter of a backfill that is over runs when it is redriven.
func TestADeadLetterOfAFinishedBackfillIsRun(t *testing.T) {
	f := newFamily(t, def())
	f.on(StartBackfill{Backfill{ID: "b1", NextMS: t0 - 60_001, ToMS: t0 - 1, Concurrency: 1}})
	for len(f.letters) == 0 {
		if len(f.children) != 1 {
			t.Fatalf("%d runs: %v", len(f.children), f.story)
		}
		f.leaseChild(0)
		f.onChild(0, FinishAttempt{Token: f.children[0].Token, Outcome: OutcomeFailed, Error: "boom", StartedMS: f.now})
	}
	if len(f.parent.Backfills) != 0 {
		t.Fatalf("the backfill goes on: %+v", f.parent.Backfills)
	}
	p := DecideChild(f.c, f.parent, f.letters[0], Redrive{}, f.now)
	f.store(p.Parent, 0)
	child := f.children[0]
	f.now = max(f.now, child.Due)
	child = child.Leased(99)
	if got := DecideChild(f.c, f.parent, child, RunLeased{Token: 99}, f.now).Child.Arrival; got != ArrivalStart {
		t.Errorf("it answers %v, want a start", got)
	}
}

// A run that moves into a child record while a manual one waits, or for which no record is free, does not remove
// another run.
func TestAManualRunThatFindsNoRecordTakesTheNextPlace(t *testing.T) {
	for _, o := range []Overlap{OverlapCancelOther, OverlapAllowAll, OverlapTerminateOther} {
		d := def()
		d.Overlap = o
		f := newFamily(t, d)
		f.now = f.parent.Due
		f.parent = f.parent.Leased(1)
		f.on(RequestManualRun{RequestID: "k", Mode: ManualKeep})
		f.on(RunLeased{Token: 1})
		if err := f.check(); err != nil {
			t.Errorf("%v: %v", o, err)
		}
		if f.parent.Trigger != TriggerManual || f.parent.Mode != ManualKeep || f.parent.Region != RegionDue || len(f.children) != 1 {
			t.Errorf("%v: %+v, children %v", o, f.parent, f.children)
		}
	}
	w := walk(t, def())
	w.lease()
	w.s.Children = ^uint64(0)
	w.on(RequestManualRun{RequestID: "k", Mode: ManualKeep})
	w.succeed()
	if w.s.Trigger != TriggerManual || w.s.Mode != ManualKeep {
		t.Errorf("with all records taken: %+v", w.s)
	}
}

// A run that was to wait for others, or at a gate, ends if it was cancelled meanwhile. A
// manual run that was asked for meanwhile goes on waiting for it.
func TestARunThatIsHeldBackAndCancelledEnds(t *testing.T) {
	waiting := func() *family {
		d := def()
		d.Overlap = OverlapCancelOther
		f := newFamily(t, d)
		f.lease() // a record of its own
		f.now = f.parent.Due
		f.parent = f.parent.Leased(77)
		return f
	}
	f := waiting()
	f.on(CancelRun{RunID: f.parent.RunID()})
	if got := f.on(RunLeased{Token: 77}); got.Arrival != ArrivalSkipped || len(got.CancelChildren) > 0 {
		t.Errorf("cancelled: it answers %v", got.Arrival)
	}
	if err := f.parent.Check(); err != nil || f.parent.Cancel {
		t.Errorf("cancelled: %v, %+v", err, f.parent)
	}

	for name, ev := range map[string]Input{"others": RunLeased{Token: 77}, "a gate": HoldBack{Token: 77, Reason: HeldLock, Key: "k", UntilMS: t0 + 3600_000}} {
		f := waiting()
		nominal := f.parent.Nominal
		f.on(RequestManualRun{RequestID: "k"})
		got := f.on(ev)
		if err := f.check(); err != nil || got.Ended != nil || f.parent.Pending != "k" || f.parent.Nominal != nominal || f.parent.Region != RegionDue {
			t.Errorf("held by %s: %v, ended %+v, %+v", name, err, got.Ended, f.parent)
		}
	}
}

// A run that is woken has the place in line that it had when it was held back: what it
// waits for is kept for it for a moment only.
func TestAWokenRunKeepsItsPlace(t *testing.T) {
	w := walk(t, def())
	due := w.s.Due
	w.lease().after(10 * time.Minute).on(HoldBack{Token: w.s.Token, Reason: HeldLock, Key: "k", UntilMS: w.now + 3000})
	if w.last.IndexMS != w.now+3000 {
		t.Errorf("while it is held it is due at %d, want %d", w.last.IndexMS, w.now+3000)
	}
	w.after(time.Second).on(Wake{Reason: HeldLock, Key: "k"})
	if w.last.IndexMS != due || w.s.Due != w.now {
		t.Errorf("woken it has the place of %d and is due at %d, want %d and %d", w.last.IndexMS, w.s.Due, due, w.now)
	}
	w.lease().on(HoldBack{Token: w.s.Token, Reason: HeldLock, Key: "k", UntilMS: w.now + 3000})
	w.after(time.Second).on(Wake{Reason: HeldLock, Key: "k"})
	if w.last.IndexMS != due {
		t.Errorf("woken again it has the place of %d, want %d", w.last.IndexMS, due)
	}
}

// The starts of runs that one more lost worker would quarantine are spread, each from the
// first instant on at which it could be leased; they keep the promise of their due time.
func TestThirdStartIsSpread(t *testing.T) {
	const jobs = 200
	var waits []int64
	for i := range jobs {
		d := def()
		d.ID = strconv.Itoa(i)
		w := walk(t, d)
		due := w.s.Due
		w.lease().ack().on(LoseLease{Token: w.s.Token})
		if w.s.Due != due || w.s.Held.Reason != HeldNone {
			t.Fatalf("after one loss: %+v", w.s)
		}
		w.lease().ack().on(LoseLease{Token: w.s.Token})
		if w.s.Held.Reason != HeldPace || w.s.Due < w.now || w.s.expectedStartMS() != due {
			t.Fatalf("after two losses: %+v", w.s)
		}
		waits = append(waits, int64(w.s.Due-w.now))
		w.lease().succeed()
		if w.s.Held.Reason != HeldNone || w.s.Losses != 0 {
			t.Fatalf("after an end: %+v", w.s)
		}
	}
	slices.Sort(waits)
	apart := lease.RestartSpread.Milliseconds()
	if waits[jobs-1] >= apart || waits[0] > apart/20 || waits[jobs/2] < apart/3 || waits[jobs/2] > 2*apart/3 {
		t.Errorf("they wait for %d to %d ms, half of them less than %d", waits[0], waits[jobs-1], waits[jobs/2])
	}
	w := walk(t, def())
	for range 2 {
		w.lease().ack().on(LoseLease{Token: w.s.Token})
	}
	r := Explain(w.c, w.s, nil, Facts{}, w.now).Reasons[0]
	if r.Kind != ReasonPace || r.UntilMS != w.s.Due || !strings.Contains(r.Message, "2 workers in a row were lost with it") {
		t.Errorf("explained as %+v", r)
	}
}

// A wait that is no whole number of milliseconds is not cut short.
func TestDelaysAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, -time.Second: -1000, 1<<63 - 1: 9223372036855} {
		if got := RoundUpMS(d); got != want {
			t.Errorf("%v is %d ms, want %d", d, got, want)
		}
	}
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.UnixMilli(5000).Add(1)}
	if s := New(compile(t, d), 1000).State; s.Due != 5001 || s.Nominal != 5001 {
		t.Errorf("once at %v: nominal %d, due %d", d.Schedule.At, s.Nominal, s.Due)
	}
}

// Waits count from the latest that the clock can show, and are no shorter if it then catches up.
// What is due already is judged by the earliest.
func TestWaitsCountFromTheLatestThatTheClockCanShow(t *testing.T) {
	const now, late, lag = 1_000_000, 40, 3000
	clock := Reading{NowMS: now, Latest: lease.ClockBound{MS: now + late, LagMS: lag}}
	settle := FinishAttempt{Token: 9, Outcome: OutcomeFailed, Error: "e", StartedMS: now - 100}
	decide := func(d Definition, ev Input, edit func(*State)) Decision {
		c := compile(t, d)
		s := New(c, 0).State
		s.Due, s.Nominal = now-500, now-500
		s = s.Leased(9)
		s.Acked = true
		if edit != nil {
			edit(&s)
		}
		var out Decision
		DecideBy(&out, c, &s, ev, clock)
		return out
	}
	retried := def()
	retried.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.UnixMilli(now - 500)}
	retried.Retry = backoff.Retry{Strategy: backoff.Fixed, Base: 700 * time.Millisecond, Multiplier: 1, MaxAttempts: 5}
	backedOff := def()
	backedOff.Schedule = schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute, StartAt: time.UnixMilli(now - 500)}
	backedOff.Backoff = backoff.Recurring{Multiplier: 2, MaxExponent: 5, MaxDelay: time.Hour}
	delayed := def()
	delayed.Schedule = schedule.Spec{Kind: schedule.KindInterval, Every: 10 * time.Second, FixedDelay: true}
	asked := settle
	asked.RetryAfter = 10*time.Second + 1
	succeeded := settle
	succeeded.Outcome = OutcomeSucceeded
	for name, c := range map[string]struct {
		got  Decision
		wait int64
	}{
		"retry":       {decide(retried, settle, nil), 700},
		"retry after": {decide(retried, asked, nil), 10_001},
		"backoff":     {decide(backedOff, settle, nil), 120_000},
		"fixed delay": {decide(delayed, succeeded, nil), 10_000},
	} {
		if want := clock.Latest.After(c.wait); c.got.State.Due != want || c.got.IndexMS != want {
			t.Errorf("%s: due %d, in the index %d, want %d", name, c.got.State.Due, c.got.IndexMS, want)
		}
		if c.got.State.LastFinished != now+late {
			t.Errorf("%s: finished at %d, want %d", name, c.got.State.LastFinished, now+late)
		}
	}
	apart := func(s *State) { s.Losses = lease.PoisonLosses - 2 }
	one, other := clock, At(now)
	clock = other
	held := int64(decide(retried, LoseLease{Token: 9}, apart).State.Due - now)
	clock = one
	if got, want := decide(retried, LoseLease{Token: 9}, apart).State.Due, clock.Latest.After(held); got != want {
		t.Errorf("lost twice: due %d, want %d", got, want)
	}
	// A nominal time between the two has not passed yet.
	soon := def()
	soon.Schedule = schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute, StartAt: time.UnixMilli(now + late/2 - 60_000)}
	soon.AnchorMS = 1000
	if got := decide(soon, succeeded, nil).State; got.Due != now+late/2 {
		t.Errorf("next due at %d, want %d", got.Due, now+late/2)
	}
}
