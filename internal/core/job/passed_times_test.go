package job

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Each nominal time has its run or is counted as skipped, once, whatever comes between.
func TestEachNominalTimeHasItsVerdict(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := def()
		d.Overlap = Overlap(rapid.IntRange(0, int(OverlapTerminateOther)).Draw(r, "overlap"))
		d.OverlapLimit = 3
		d.Misfire.Policy = MisfirePolicy(rapid.IntRange(0, int(MisfireRunAll)).Draw(r, "misfire"))
		d.Misfire.MaxCatchUp = 4
		d.Backoff.Disabled = rapid.Bool().Draw(r, "no backoff")
		d.Retry.MaxAttempts = rapid.IntRange(1, 2).Draw(r, "attempts")
		if rapid.Bool().Draw(r, "cron") {
			d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"* * * * *"}}
		}
		f := newFamily(t, d)
		for range rapid.IntRange(1, 16).Draw(r, "steps") {
			f.stir(r)
			p := f.parent
			passed := f.c.countNominal(t0, p.LastNominal)
			if got := int64(p.Fired) + int64(p.Skipped); got != passed || f.check() != nil {
				r.Fatalf("%d times have passed, %d ran and %d were skipped (%v): %+v\n%v", passed, p.Fired, p.Skipped, f.check(), p, f.story)
			}
		}
	})
}

// stir lets something happen that depends on no clock and edits nothing.
func (f *family) stir(r *rapid.T) {
	told := func(s string) { f.story = append(f.story, s) }
	pause := func() { f.now += unixtime.Milli(int64(rapid.IntRange(0, 400).Draw(r, "seconds")) * 1000) }
	result := func() FinishAttempt {
		s := FinishAttempt{StartedMS: f.now, Outcome: OutcomeSucceeded}
		if rapid.Bool().Draw(r, "fails") {
			s.Outcome, s.RetryAfter = OutcomeFailed, time.Duration(rapid.IntRange(0, 300).Draw(r, "retry after"))*time.Second
		}
		return s
	}
	live, waiting := f.first(leased), f.first(due)
	switch k := rapid.IntRange(0, 9).Draw(r, "step"); {
	case k < 3 && f.parent.Region == RegionDue:
		told("lease")
		pause()
		f.lease()
	case k < 5 && f.parent.Live():
		told("settle")
		s := result()
		s.Token = f.parent.Token
		pause()
		f.on(s)
	case k < 6 && live >= 0:
		told("settle a child")
		s := result()
		s.Token = f.children[live].Token
		pause()
		f.onChild(live, s)
	case k < 6 && waiting >= 0:
		told("lease a child")
		f.leaseChild(waiting)
	case k == 5 && f.parent.Live():
		told("lose")
		f.parent.Acked = true
		f.on(LoseLease{Token: f.parent.Token})
	case k == 6 && f.parent.Paused:
		told("resume")
		f.on(Resume{CatchUp: rapid.Bool().Draw(r, "catch up")})
	case k == 6:
		told("pause")
		f.on(Pause{})
	case k == 7:
		told("run now")
		f.on(RequestManualRun{RequestID: string(rune('a' + len(f.story))), Mode: ManualMode(rapid.IntRange(0, 2).Draw(r, "mode"))})
	case k == 8 && f.parent.HasRun():
		told("cancel")
		f.on(CancelRun{RunID: f.parent.RunID()})
	default:
		told("wait")
		pause()
	}
}

// An interval hint counts from the start of a run that time goes on beside.
func TestAnIntervalHintCountsFromTheStartOfRunsOfTheirOwn(t *testing.T) {
	for _, o := range []Overlap{OverlapAllowAll, OverlapCancelOther, OverlapTerminateOther} {
		d := def()
		d.Overlap, d.OverlapLimit = o, 3
		f := newFamily(t, d)
		f.lease()
		f.now += 1000
		f.onChild(0, FinishAttempt{Token: f.children[0].Token, Outcome: OutcomeSucceeded, StartedMS: f.now - 1000})
		hint := SetHint{Hint{Source: HintPlanner, IntervalMS: 10_000, UntilMS: f.now + 3600_000}}
		f.on(hint)
		f.lease()
		if wait := int64(f.parent.Due - f.now); wait != 10_000 || f.parent.Skipped != 0 {
			t.Errorf("%v: after one that began the next is due in %d ms, %d left out", o, wait, f.parent.Skipped)
		}
		f.now += 4000
		hint.Hint.UntilMS++
		if f.on(hint); int64(f.parent.Due-f.now) != 6000 {
			t.Errorf("%v: given again, the next is due in %d ms", o, int64(f.parent.Due-f.now))
		}
	}
	d := def()
	d.Overlap, d.OverlapLimit = OverlapAllowAll, 1
	f := newFamily(t, d)
	f.lease()
	f.on(SetHint{Hint{Source: HintOperator, IntervalMS: 10_000, UntilMS: f.now + 3600_000}})
	if f.lease(); f.parent.Skipped != 1 || int64(f.parent.Due-f.now) != 10_000 {
		t.Errorf("after one that was left out the next is due in %d ms", int64(f.parent.Due-f.now))
	}
}

// An edit of a schedule reports all times that it leaves without a run.
func TestEditReportsSkippedTimes(t *testing.T) {
	d := def()
	d.Schedule.Every, d.Retry.MaxAttempts = time.Hour, 3
	edited := d
	edited.Schedule.Every = 2 * time.Hour
	edit := Update{New: compile(t, edited)}
	skipped := func(w *walker, reason string) (n int64) {
		for _, x := range w.last.Notices {
			if x.Kind == NominalSkipped && x.Reason == reason {
				n += x.Count
			}
		}
		return n
	}

	w := walk(t, d)
	w.lease().fail()
	if got := w.on(edit).Ended; got == nil || got.Outcome != OutcomeCancelled || got.Attempts != 1 || w.s.Runs != 1 {
		t.Errorf("a run that waited for a retry ended as %+v, %d runs", got, w.s.Runs)
	}
	if w.s.Due != w.now+2*3600_000 || w.s.Generation != 2 {
		t.Errorf("afterwards: %+v", w.s)
	}
	w = walk(t, d)
	if w.after(3*time.Hour + time.Minute).on(edit); skipped(w, "superseded") != 3 || w.s.Skipped != 3 {
		t.Errorf("three times that nobody came for: %+v", w.last.Notices)
	}
	d.Retry.MaxAttempts, d.Backoff.MaxDelay = 1, 4*time.Hour
	w = walk(t, d)
	w.lease().fail()
	w.after(90 * time.Minute).on(edit)
	if skipped(w, "backoff") != 1 || w.s.Skipped != 1 {
		t.Errorf("one time of a backoff: %+v", w.last.Notices)
	}
	w = walk(t, d)
	w.lease().after(90 * time.Minute).on(edit)
	if skipped(w, "superseded") != 1 || w.s.Skipped != 1 {
		t.Errorf("one beside a live run: %+v", w.last.Notices)
	}
	once := def()
	once.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1000).Time()}
	w = walk(t, once)
	if w.after(time.Minute).on(edit); skipped(w, "superseded") != 1 {
		t.Errorf("a one-time job that nobody came for: %+v", w.last.Notices)
	}
	d.Schedule.MaxRuns = 1
	w = walk(t, d)
	if w.after(3*time.Hour + time.Minute).on(edit); w.s.Skipped != 1 {
		t.Errorf("of a schedule with one run left: %+v", w.last.Notices)
	}
}

// What a backoff, a hint or a pause passes over is no misfire, also where a manual run or
// another hint takes the place of the plan.
func TestPassedOverTimesAreNotMisfires(t *testing.T) {
	for _, policy := range []MisfirePolicy{MisfireRunOnce, MisfireRunAll} {
		d := def()
		d.Misfire.Policy, d.MaxLag = policy, time.Minute
		for name, do := range map[string]func(w *walker){
			"a manual run in a backoff": func(w *walker) { w.on(RequestManualRun{RequestID: "m"}); w.lease().succeed() },
			"a manual run in a pause": func(w *walker) {
				w.on(Pause{})
				w.after(20 * time.Minute).on(RequestManualRun{RequestID: "m"})
				w.lease().succeed()
				w.on(Resume{})
			},
			"a manual run that outlasts the pause": func(w *walker) {
				w.on(Pause{})
				w.after(20 * time.Minute).on(RequestManualRun{RequestID: "m"})
				w.lease().on(Resume{})
				w.succeed()
			},
			"a hint": func(w *walker) {
				w.on(SetHint{Hint{Source: HintOperator, AtMS: w.now + 300_000, UntilMS: w.now + 3600_000}})
			},
			"a hint that is taken back": func(w *walker) {
				w.on(SetHint{Hint{Source: HintOperator, AtMS: w.now + 3000_000, UntilMS: w.now + 3600_000}})
				w.after(40 * time.Minute).on(SetHint{})
			},
		} {
			w := walk(t, d)
			for range 5 {
				w.lease().fail()
			}
			w.after(20 * time.Minute)
			tally := misfires(t, func() Decision { do(w); return w.last })
			if w.s.Source == DelayCatchUp || tally > 0 {
				t.Errorf("%v, %s: %d misfires, the next run is one of %v", policy, name, tally, w.s.Source)
			}
		}
	}
}

// succeedAfter has the live run take some time.
func (w *walker) succeedAfter(d time.Duration) *walker {
	w.t.Helper()
	begun := w.now
	w.after(d).on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeSucceeded, StartedMS: begun})
	return w
}

// misfires counts the misfires and breaches that the last decision reports.
func misfires(t *testing.T, do func() Decision) (n int64) {
	t.Helper()
	for _, x := range do().Notices {
		if x.Kind == LagBreached || x.Kind == NominalSkipped && x.Reason == "misfire" {
			n += x.Count
		}
	}
	return n
}

// A manual run that is made in a pause leaves it to the end of the pause what becomes of
// the times that it passes over.
func TestAManualRunInAPauseLeavesTheCatchUp(t *testing.T) {
	d := def()
	d.Misfire.Policy = MisfireRunAll
	w := walk(t, d)
	w.lease().succeed()
	w.on(Pause{})
	w.after(5*time.Minute + time.Second).on(RequestManualRun{RequestID: "m"})
	w.lease().succeed()
	if w.s.Skipped != 0 || w.s.Region != RegionPaused {
		t.Fatalf("after the manual run: %+v", w.s)
	}
	w.on(Resume{CatchUp: true})
	n := 0
	for ; w.s.Source == DelayCatchUp; n++ {
		w.lease().succeed()
	}
	if n != 5 || w.s.Skipped != 0 {
		t.Errorf("%d runs catch up and %d are skipped, want 5 and none", n, w.s.Skipped)
	}
}

// What comes of a schedule while a manual run of its job is live waits for the end, where
// runs that overlap are skipped; and what overlapped before is no misfire.
func TestAManualRunDoesNotCostTheScheduleItsRun(t *testing.T) {
	w := walk(t, def())
	w.after(30 * time.Second).on(RequestManualRun{RequestID: "m"})
	w.lease().succeedAfter(40 * time.Second)
	if w.s.Skipped != 0 || w.s.Due != w.now || w.s.Nominal != t0+60_000 {
		t.Errorf("after the manual run: %+v", w.s)
	}
	d := def()
	d.Misfire.Policy = MisfireRunAll
	w = walk(t, d)
	w.lease().on(RequestManualRun{RequestID: "m"})
	w.succeedAfter(5 * time.Minute)
	w.lease().succeed()
	if w.s.Source == DelayCatchUp || w.s.Skipped != 5 {
		t.Errorf("five times overlapped with the run before: %+v", w.s)
	}
}

// A manual run is not held to the limit of runs beside each other.
func TestManualRunIgnoresTheOverlapLimit(t *testing.T) {
	d := def()
	d.Overlap, d.OverlapLimit = OverlapAllowAll, 1
	f := newFamily(t, d)
	f.lease()
	f.now += 5000
	f.on(RequestManualRun{RequestID: "m"})
	f.lease()
	if len(f.children) != 2 || f.parent.Held.Reason != HeldNone {
		t.Errorf("%d runs are live, %+v", len(f.children), f.parent)
	}
}

// Retry-After counts for the schedule too where the run was a record of its own.
func TestRetryAfterOfARunOfItsOwn(t *testing.T) {
	for _, spec := range []schedule.Spec{def().Schedule, {Kind: schedule.KindCron, Cron: []string{"* * * * *"}}} {
		d := def()
		d.Overlap, d.Schedule = OverlapAllowAll, spec
		f := newFamily(t, d)
		f.lease()
		f.lease()
		f.now += 1000
		delay := 10 * time.Minute
		asked := f.now.Add(delay)
		for slot, after := range []time.Duration{delay, 0} {
			f.onChild(slot, FinishAttempt{Token: f.children[slot].Token, Outcome: OutcomeFailed, Error: "503", StartedMS: f.now, RetryAfter: after})
			if f.parent.Due < asked || f.parent.Due > asked+60_000 || f.parent.Source != DelayHint {
				t.Errorf("%v, run %d: due in %d ms by %v", spec.Kind, slot, int64(f.parent.Due-f.now), f.parent.Source)
			}
			if f.parent.Hint.Source != HintWorker || f.parent.Hint.AtMS != f.parent.Due || f.parent.Hint.Reason != "503" {
				t.Errorf("%v: the hint is %+v", spec.Kind, f.parent.Hint)
			}
		}
	}
	// The attempts of such a run are its own affair.
	d := def()
	d.Overlap, d.Retry.MaxAttempts = OverlapAllowAll, 2
	f := newFamily(t, d)
	f.lease()
	f.onChild(0, FinishAttempt{Token: f.children[0].Token, Outcome: OutcomeFailed, StartedMS: f.now, RetryAfter: time.Minute})
	if f.parent.Hint.Source != HintNone || f.children[0].Due != f.now+60_000 {
		t.Errorf("a retry in a minute: %+v, the job's hint %+v", f.children[0], f.parent.Hint)
	}
}

// A pause holds a backoff back no longer than itself.
func TestResumeKeepsTheBackoff(t *testing.T) {
	d := def()
	d.PauseAfter = 5
	for _, catch := range []bool{false, true} {
		w := walk(t, d)
		for range 5 {
			w.lease().fail()
		}
		w.after(24 * time.Hour).on(Resume{CatchUp: catch})
		if w.wait() > time.Minute {
			t.Errorf("catch-up %v: due in %v by %v", catch, w.wait(), w.s.Source)
		}
		w = walk(t, d)
		for range 5 {
			w.lease().fail()
		}
		due := w.s.Due
		if w.after(10 * time.Minute).on(Resume{CatchUp: catch}); w.s.Due != due {
			t.Errorf("catch-up %v: resumed before its time it is due %d ms later", catch, int64(w.s.Due-due))
		}
	}
}

// A run of a fixed delay that came due in a pause is left out, unless it is to be caught
// up with; and a hint that is taken back leaves its due time as it was.
func TestAFixedDelayCountsFromTheLastRun(t *testing.T) {
	d := def()
	d.Schedule.Every, d.Schedule.FixedDelay = time.Hour, true
	w := walk(t, d)
	w.lease().succeed()
	end := w.now
	w.after(50 * time.Minute)
	w.on(SetHint{Hint{Source: HintOperator, AtMS: w.now + 60_000, UntilMS: w.now + 3600_000}})
	w.on(SetHint{})
	if w.s.Due != end+3600_000 {
		t.Errorf("a hint that was taken back: due %d ms after the end of the last run", int64(w.s.Due-end))
	}
	for _, catch := range []bool{false, true} {
		w = walk(t, d)
		w.lease().succeed()
		w.on(Pause{})
		w.after(90 * time.Minute).on(Resume{CatchUp: catch})
		if catch && (w.wait() > 0 || w.s.Skipped != 0) || !catch && (w.wait() != time.Hour || w.s.Skipped != 1) {
			t.Errorf("catch-up %v: due in %v, %d skipped", catch, w.wait(), w.s.Skipped)
		}
	}
}

// A run that was live when its job was paused runs on when its worker is lost.
func TestRunLostDuringAPauseIsKept(t *testing.T) {
	w := walk(t, def())
	w.lease().ack().on(Pause{})
	run := w.s.RunID()
	w.on(LoseLease{Token: w.s.Token})
	w.after(time.Minute).on(Resume{})
	if w.s.RunID() != run || w.s.Due > w.now || w.s.Skipped != 0 {
		t.Errorf("after the pause: %+v", w.s)
	}
}

// How long a run takes does not make its job's backoff stale.
func TestLongRunIsNotStale(t *testing.T) {
	d := def()
	d.Schedule.Every, d.Timeout, d.Backoff.StaleAfter = time.Hour, 2*time.Hour, 10*time.Minute
	w := walk(t, d)
	for range 4 {
		w.lease()
		begun := w.now
		w.after(11 * time.Minute).on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed, StartedMS: begun})
	}
	if w.s.Failures != 4 {
		t.Errorf("runs that began in time: %d failures of 4", w.s.Failures)
	}
	c := compile(t, d)
	begins := w.s.Due
	live := w.s.Leased(lease.Mint(0, 0, begins))
	if c.Probing(live, begins.Add(time.Hour)) {
		t.Error("a run that began in time and goes on is called a probe")
	}
	late := begins.Add(time.Hour)
	if live = w.s.Leased(lease.Mint(0, 0, late)); !c.Probing(w.s, late) || !c.Probing(live, late) {
		t.Error("a run that begins late is called no probe")
	}
	w.after(11*time.Minute + w.s.Due.Sub(w.now)).lease().fail()
	if w.s.Failures != 1 {
		t.Errorf("one that began late: %d failures", w.s.Failures)
	}
}

// A schedule that has had all its runs has no more times to miss.
func TestEndedScheduleMissesNothing(t *testing.T) {
	d := def()
	d.Schedule.MaxRuns, d.MaxLag = 1, time.Minute
	w := walk(t, d)
	w.lease().succeedAfter(10 * time.Minute)
	if n := misfires(t, func() Decision { return w.last }); w.s.Region != RegionDone || n != 0 || w.s.Skipped != 0 {
		t.Errorf("%d misfires: %+v", n, w.s)
	}
}
