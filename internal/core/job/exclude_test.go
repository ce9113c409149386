package job

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const minuteMS = int64(60_000)

// closed is a job of every minute that excludes minutes of its life, from the first of each
// pair up to the second.
func closed(pairs ...int64) Definition {
	d := def()
	for i := 0; i < len(pairs); i += 2 {
		d.Schedule.Exclude.Periods = append(d.Schedule.Exclude.Periods,
			schedule.Period{From: (t0 + unixtime.Milli(pairs[i]*minuteMS)).Time(), To: (t0 + unixtime.Milli(pairs[i+1]*minuteMS)).Time()})
	}
	return d
}

// until expects the current run to be due so many minutes after the creation.
func (w *walker) until(what string, minutes int64) {
	w.t.Helper()
	if w.s.Region != RegionDue || w.s.Due != t0+unixtime.Milli(minutes*minuteMS) || w.s.Nominal > w.s.Due {
		w.t.Errorf("%s: %s, nominal %+d ms, due %+d ms; want due after %d minutes", what, w.s.Region, int64(w.s.Nominal-t0), int64(w.s.Due-t0), minutes)
	}
}

func (w *walker) arrive() Arrival { return w.lease().on(RunLeased{Token: w.s.Token}).Arrival }

// A due time that would lie in an exclusion is its end, whatever sets it.
func TestDueTimesMoveToTheEndOfExclusions(t *testing.T) {
	w := walk(t, closed(2, 30))
	w.lease().fail()
	w.until("backoff", 30)
	if w.s.Source != DelayBackoff || w.s.Nominal != w.s.Due {
		t.Errorf("%+v", w.s)
	}
	w.lease().fail()
	w.until("a further one", 34)

	// One after the other.
	w = walk(t, closed(2, 30, 30, 41, 41, 41+1))
	w.lease().fail()
	w.until("backoff", 42)

	retried := closed(2, 30)
	retried.Schedule.Every, retried.Retry.MaxAttempts, retried.Retry.Base = time.Hour, 5, 90*time.Second
	retried.Schedule.StartAt = (t0 + unixtime.Milli(minuteMS)).Time()
	w = walk(t, retried)
	w.lease().fail()
	w.until("retry", 30)
	if w.s.Source != DelayRetry || w.s.Attempt != 1 || w.s.expectedStartMS() != 0 {
		t.Errorf("%+v", w.s)
	}
	w = walk(t, retried)
	w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed, StartedMS: w.now, RetryAfter: 10 * time.Minute})
	w.until("retry_after within the run", 30)
	w = walk(t, closed(2, 30))
	w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed, StartedMS: w.now, RetryAfter: 10 * time.Minute})
	w.until("retry_after", 30)

	for name, h := range map[string]Hint{
		"at":    {Source: HintOperator, AtMS: t0 + unixtime.Milli(5*minuteMS), UntilMS: t0 + unixtime.Milli(60*minuteMS)},
		"every": {Source: HintPlanner, IntervalMS: 5 * minuteMS, UntilMS: t0 + unixtime.Milli(6*minuteMS)},
	} {
		w = walk(t, closed(2, 30))
		w.lease().succeed()
		w.on(SetHint{h})
		w.until("hint "+name, 30)
	}
	w = walk(t, retried)
	w.lease().fail()
	w.on(SetHint{Hint{Source: HintOperator, AtMS: t0 + unixtime.Milli(5*minuteMS), UntilMS: t0 + unixtime.Milli(60*minuteMS)}})
	w.until("hint for a retry", 30)

	delay := closed(2, 30)
	delay.Schedule.FixedDelay = true
	w = walk(t, delay)
	w.lease().after(30 * time.Second).succeed()
	w.until("fixed delay", 30)

	w = walk(t, closed(2, 30))
	w.lease().on(HoldBack{Token: w.s.Token, Reason: HeldLock, Key: "k", UntilMS: w.now + unixtime.Milli(5*minuteMS)})
	w.until("a gate", 30)
	if w.s.expectedStartMS() != t0+unixtime.Milli(minuteMS) || w.s.Source != DelayHeld {
		t.Errorf("what a gate holds back stays promised: %+v", w.s)
	}
	if got := w.after(5 * time.Minute).on(Wake{Reason: HeldLock, Key: "k"}); got.Answer != Stale {
		t.Errorf("a wake in an exclusion answers %v: whoever can start is to be woken", got.Answer)
	}
	w.until("a wake", 30)

	w = walk(t, closed(2, 30))
	w.lease().after(90 * time.Second).ack().on(LoseLease{Token: w.s.Token})
	w.until("lost", 30)
	w = walk(t, closed(2, 30))
	w.lease().after(90 * time.Second).on(ReturnLease{Token: w.s.Token})
	w.until("given back", 30)

	w = walk(t, closed(2, 30))
	w.on(Pause{})
	w.after(10 * time.Minute).on(Resume{CatchUp: true})
	w.until("resumed", 30)
	if w.s.Source != DelayCatchUp || !w.s.Recovery {
		t.Errorf("%+v", w.s)
	}
	for _, m := range []MisfirePolicy{MisfireRunOnce, MisfireRunAll} {
		missed := closed(3, 30)
		missed.Misfire.Policy = m
		w = walk(t, missed)
		w.lease().after(3 * time.Minute).succeed() // into the exclusion
		if w.s.Due <= w.now || w.s.Due < t0+unixtime.Milli(30*minuteMS) {
			t.Errorf("after a long run, misfire %s: due %d", m, int64(w.s.Due-t0))
		}
	}
}

// Exclusions are checked when a run has been leased: it was due before, and no worker took it.
func TestLateRunIsPostponedByAnExclusion(t *testing.T) {
	w := walk(t, closed(2, 30))
	w.lease().after(5 * time.Minute)
	if GatesOf(w.c.Definition, &w.s, "", w.c.QueueKey(), w.now)&GateArrival == 0 {
		t.Fatal("no gate asks for the exclusion")
	}
	got := w.on(RunLeased{Token: w.s.Token})
	if got.Arrival != ArrivalExcluded {
		t.Fatalf("it answers %v", got.Arrival)
	}
	w.until("late", 30)
	if w.s.expectedStartMS() != t0+unixtime.Milli(minuteMS) || w.s.Attempt != 0 || w.s.Unacked != 0 {
		t.Errorf("it stays promised, at no cost: %+v", w.s)
	}
	told := slices.ContainsFunc(got.Notices, func(n Notice) bool {
		return n.Kind == RunHeld && n.Reason == HeldExclusion && n.DueMS == w.s.Due
	})
	if !told {
		t.Errorf("notices %+v", got.Notices)
	}
	if got := w.arrive(); got != ArrivalStart {
		t.Errorf("after the exclusion it answers %v", got)
	}

	// The misfire policy counts the wait, as that at any gate.
	d := closed(2, 30)
	d.Misfire.Policy = MisfireSkip
	w = walk(t, d)
	w.lease().after(time.Minute)
	w.on(RunLeased{Token: w.s.Token})
	if got := w.arrive(); got != ArrivalSkipped || w.s.Skipped == 0 {
		t.Errorf("past its window it answers %v", got)
	}

	// What is leased in advance of the end of an exclusion is due at that.
	w = walk(t, closed(2, 30))
	w.lease().fail()
	w.token++
	w.s = w.s.Leased(w.token)
	w.now = w.s.Due - 5
	if got := w.on(RunLeased{Token: w.token}); got.Arrival != ArrivalStart {
		t.Errorf("in advance it answers %v", got.Arrival)
	}

	// Cancelled meanwhile.
	w = walk(t, closed(2, 30))
	w.lease().after(5 * time.Minute).on(CancelRun{RunID: w.s.RunID()})
	if got := w.on(RunLeased{Token: w.s.Token}); got.Arrival != ArrivalSkipped || got.Ended == nil {
		t.Errorf("cancelled, it answers %v", got.Arrival)
	}
}

// Bounds: retries end where the run's time or the next nominal time does, and nothing waits
// for an exclusion that has no end.
func TestExclusionsBoundRetries(t *testing.T) {
	d := closed(2, 30)
	d.Retry.MaxAttempts, d.Retry.Base = 5, 90*time.Second
	w := walk(t, d)
	w.lease().fail()
	if w.last.Ended == nil || w.s.Attempt != 0 {
		t.Errorf("the next nominal time is that at the end: %+v", w.s)
	}
	d.Schedule.Every, d.Schedule.StartAt = time.Hour, (t0 + unixtime.Milli(minuteMS)).Time()
	d.Retry.MaxElapsed = 10 * time.Minute
	w = walk(t, d)
	w.lease().fail()
	if w.last.Ended == nil || w.last.Ended.Outcome != OutcomeDead {
		t.Errorf("past max_elapsed: %+v", w.s)
	}
	d.Retry.MaxElapsed = 0
	d.Schedule.Exclude.Periods[0].To = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
	w = walk(t, d)
	w.lease().fail()
	if w.last.Ended == nil || w.s.Region != RegionDone {
		t.Errorf("without an end: %+v", w.s)
	}
	// The schedule's end bounds nominal times only.
	d = closed(2, 30)
	d.Schedule.EndAt = (t0 + unixtime.Milli(4*minuteMS)).Time()
	d.Retry.MaxAttempts, d.Retry.Base = 5, 90*time.Second
	w = walk(t, d)
	w.lease().fail()
	w.until("past the end of the schedule", 30)
	w.lease().fail()
	w.lease().succeed()
	if w.s.Region != RegionDone || w.s.Succeeded != 1 {
		t.Errorf("%+v", w.s)
	}
}

// A manual run in an exclusion has to be asked for as such.
func TestManualRunsAreRefusedInExclusions(t *testing.T) {
	at := func(d Definition) *walker { return walk(t, d).after(5 * time.Minute) }
	modes := []ManualMode{ManualReset, ManualKeep, ManualResetOnSuccess}
	for _, mode := range modes {
		w := at(closed(2, 30))
		before := w.s
		if got := w.on(RequestManualRun{RequestID: "m", Mode: mode}); got.Answer != Excluded || got.Changed || w.s.Revision != before.Revision {
			t.Errorf("%s: it answers %v", mode, got.Answer)
		}
		got := w.on(RequestManualRun{RequestID: "m", Mode: mode, IgnoreExclusions: true})
		if got.Answer != Applied {
			t.Fatalf("%s, ignoring: it answers %v", mode, got.Answer)
		}
		if again := w.on(RequestManualRun{RequestID: "m", Mode: mode}); again.Answer != Duplicate {
			t.Errorf("%s: the request repeated answers %v", mode, again.Answer)
		}
		if mode != ManualReset {
			run := got.Spawn.State
			if run.Due != w.now || !run.IgnoresExclusions() {
				t.Errorf("%s, ignoring: %+v", mode, run)
			}
			if pair := DecideChild(w.c, w.s, run.Leased(5), RunLeased{Token: 5}, w.now); pair.Child.Arrival != ArrivalStart {
				t.Errorf("%s, ignoring: it answers %v", mode, pair.Child.Arrival)
			}
			continue
		}
		if w.s.Due != w.now || w.arrive() != ArrivalStart {
			t.Errorf("ignoring: %+v", w.s)
		}
		w.after(time.Minute).succeed()
		w.until("the run that follows", 30)
		if len(w.s.Exempt) != 0 {
			t.Errorf("exempt after its end: %q", w.s.Exempt)
		}
	}
}

// The retries of a run that ignores exclusions do so too.
func TestRetriesOfAnExemptRun(t *testing.T) {
	d := closed(2, 30)
	d.Schedule.Every, d.Retry.MaxAttempts, d.Retry.Base = time.Hour, 3, 90*time.Second
	w := walk(t, d).after(5 * time.Minute)
	w.on(RequestManualRun{RequestID: "m", IgnoreExclusions: true})
	w.lease().fail()
	if w.wait() != 90*time.Second {
		t.Fatalf("its retry waits %v", w.wait())
	}
	if got := w.arrive(); got != ArrivalStart {
		t.Errorf("its retry answers %v", got)
	}
	w.ack().on(LoseLease{Token: w.s.Token})
	if w.s.Due > w.now {
		t.Errorf("lost, it is due %v later", w.wait())
	}
}

// A manual run that was asked for before an exclusion, and whose turn comes in it, waits for
// its end; a request that joins it may change that.
func TestWaitingManualRunMeetsAnExclusion(t *testing.T) {
	for _, mode := range []ManualMode{ManualReset, ManualKeep} {
		asked := func() *walker {
			w := walk(t, closed(2, 30))
			w.lease().on(RequestManualRun{RequestID: "m", Mode: mode})
			w.after(5 * time.Minute)
			return w
		}
		turn := func(w *walker) *State {
			if mode == ManualReset {
				return &w.s
			}
			return &w.last.Spawn.State
		}
		w := asked()
		w.succeed()
		if run := turn(w); run.ManualID != "m" || run.Due != t0+unixtime.Milli(30*minuteMS) || run.expectedStartMS() != run.Due {
			t.Errorf("%s: %+v", mode, run)
		}

		w = asked()
		if got := w.on(RequestManualRun{RequestID: "n", IgnoreExclusions: true}); got.Answer != Joined {
			t.Fatalf("%s: to join it answers %v", mode, got.Answer)
		}
		w.succeed()
		if run := turn(w); run.ManualID != "m" || run.Due != w.now || !run.IgnoresExclusions() {
			t.Errorf("%s, joined by one that ignores exclusions: %+v", mode, run)
		}

		w = asked()
		w.succeed()
		got := w.on(RequestManualRun{RequestID: "n", IgnoreExclusions: true})
		switch mode {
		case ManualReset:
			if got.Answer != Joined || w.s.Due != w.now || w.arrive() != ArrivalStart {
				t.Errorf("joined while it waits for the end: %v, %+v", got.Answer, w.s)
			}
		default: // a record of its own
			if got.Answer != Excluded {
				t.Errorf("%s: it answers %v", mode, got.Answer)
			}
		}
	}
}

// An edit does not bring forward what waits for the end of an exclusion, and what it
// excludes anew waits.
func TestEditOfExclusions(t *testing.T) {
	edit := func(w *walker, d Definition) { w.on(Update{New: compile(w.t, d)}) }
	open := def()
	retried := closed(2, 30)
	retried.Retry.MaxAttempts, retried.Retry.Base = 5, 90*time.Second
	retried.Schedule.Every, retried.Schedule.StartAt = time.Hour, (t0 + unixtime.Milli(minuteMS)).Time()

	// The run of a schedule gives way to the new one, as ever.
	w := walk(t, retried)
	w.lease().fail()
	w.after(5 * time.Minute)
	edit(w, open)
	if w.last.Ended == nil || w.last.Ended.Outcome != OutcomeCancelled || w.wait() != time.Minute {
		t.Errorf("a retry: ended %+v, next in %v", w.last.Ended, w.wait())
	}
	w = walk(t, closed(2, 30))
	w.lease().fail()
	edit(w, open)
	if w.wait() > 2*time.Minute {
		t.Errorf("a backed-off run: in %v", w.wait())
	}

	// A manual one does not. Nor is it brought forward: it may be cancelled and asked for anew.
	manual := func() *walker {
		w := walk(t, closed(2, 30))
		w.lease().on(RequestManualRun{RequestID: "m"})
		w.after(5 * time.Minute).succeed()
		return w
	}
	w = manual()
	edit(w, open)
	w.until("a manual run, the exclusion dropped", 30)
	w = manual()
	edit(w, closed(2, 40))
	w.until("a manual run, the exclusion prolonged", 40)
	w = manual()
	edit(w, closed(2, 10, 30, 50))
	w.until("a manual run, another exclusion", 50)

	// Records of their own are asked when they arrive.
	f := newFamily(t, closed(2, 30))
	f.on(StartBackfill{Backfill{ID: "b", NextMS: t0 - unixtime.Milli(minuteMS) - 1, ToMS: t0, Concurrency: 1}})
	f.now = t0 + unixtime.Milli(5*minuteMS)
	f.leaseChild(0)
	if s := f.children[0]; s.Region != RegionDue || s.Due != t0+unixtime.Milli(30*minuteMS) {
		t.Fatalf("a backfill: %+v", s)
	}
	f.on(Update{New: compile(t, closed(20, 40))})
	f.leaseChild(0)
	if s := f.children[0]; s.Region != RegionDue || s.Due != t0+unixtime.Milli(40*minuteMS) || f.fault != nil {
		t.Errorf("a backfill, another exclusion: %+v, %v", s, f.fault)
	}
	if f.leaseChild(0); f.children[0].Region != RegionLeased {
		t.Errorf("after it: %+v", f.children[0])
	}
}

// Backfilled and redriven runs wait, a redriven one unless it is to ignore exclusions.
func TestBackfilledAndRedrivenRunsWaitForTheEndOfAnExclusion(t *testing.T) {
	f := newFamily(t, closed(2, 30))
	f.now = t0 + unixtime.Milli(5*minuteMS)
	f.on(StartBackfill{Backfill{ID: "b", NextMS: t0 - unixtime.Milli(minuteMS) - 1, ToMS: t0, Concurrency: 1}})
	if s := f.children[0]; s.Due != t0+unixtime.Milli(30*minuteMS) {
		t.Errorf("a backfill begun in it: %+v", s)
	}
	for _, ignore := range []bool{false, true} {
		f := newFamily(t, closed(2, 30))
		f.lease()
		f.on(FinishAttempt{Token: f.parent.Token, Outcome: OutcomeFailed, StartedMS: f.now})
		f.now = t0 + unixtime.Milli(5*minuteMS)
		p := DecideChild(f.c, f.parent, f.letters[0], Redrive{IgnoreExclusions: ignore}, f.now)
		f.store(p.Parent, 0)
		want := t0 + unixtime.Milli(30*minuteMS)
		if ignore {
			want = f.now
		}
		if s := f.children[0]; s.Due != want {
			t.Errorf("redriven, ignoring %v: due %d", ignore, int64(s.Due-t0))
		}
		if f.leaseChild(0); f.children[0].Region != RegionLeased || f.now != want {
			t.Errorf("redriven, ignoring %v: %+v", ignore, f.children[0])
		}
	}
	// A retry of a run beside the schedule.
	d := closed(2, 30)
	d.Overlap, d.Retry.MaxAttempts, d.Retry.Base = OverlapAllowAll, 3, 90*time.Second
	f = newFamily(t, d)
	f.lease()
	f.onChild(0, FinishAttempt{Token: f.children[0].Token, Outcome: OutcomeFailed, StartedMS: f.now})
	if s := f.children[0]; s.Due != t0+unixtime.Milli(30*minuteMS) {
		t.Errorf("a retry: due %d", int64(s.Due-t0))
	}
	// And one that was lost, or comes late.
	d.Retry.MaxAttempts = 1
	f = newFamily(t, d)
	f.lease()
	f.now += unixtime.Milli(2 * minuteMS)
	f.onChild(0, ReturnLease{Token: f.children[0].Token})
	if s := f.children[0]; s.Due != t0+unixtime.Milli(30*minuteMS) {
		t.Errorf("given back: due %d", int64(s.Due-t0))
	}
}

// Whatever happens to a job, nothing of it begins at an excluded time.
func TestNoRunStartsAtAnExcludedTime(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		d := excludingDef(r)
		d.Schedule.EndAt = time.Time{}
		edited := d
		edited.Schedule.Exclude.Windows = []string{"04:00-05:30", "13:00-21:00"}
		edited.Schedule.Exclude.Periods = nil
		edited.Schedule.TimeZone = "Europe/Berlin"
		other, err := Compile(&edited)
		if err != nil {
			r.Skip("the edit leaves nothing")
		}
		acts := familyActs(other)
		acts = slices.DeleteFunc(acts, func(a act) bool { return a.name == "backfill" })
		acts = append(acts,
			act{"backfill", func(*family) bool { return true }, func(f *family) {
				f.on(StartBackfill{Backfill{ID: f.parent.RunID() + "b", NextMS: f.now - unixtime.Milli(3*minuteMS), ToMS: f.now, Concurrency: uint8(1 + f.parent.Revision%2)}})
			}},
			act{"wait long", func(*family) bool { return true }, func(f *family) { f.now += 5_400_000 }},
			act{"run, ignoring", func(*family) bool { return true }, func(f *family) {
				f.ask(RequestManualRun{RequestID: f.parent.RunID() + "i", IgnoreExclusions: true})
			}},
			act{"lease late", func(f *family) bool { return due(f.parent) }, func(f *family) {
				f.now = max(f.now, f.parent.Due) + 1_800_000
				f.lease()
			}},
		)
		f := familyOf(r, d)
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			able := slices.DeleteFunc(slices.Clone(acts), func(a act) bool { return !a.enabled(f) })
			f.step(r, able[rapid.IntRange(0, len(able)-1).Draw(r, "step")])
			if f.gone {
				return
			}
			if s := &f.parent; due(*s) && !s.IgnoresExclusions() {
				if until, ok := f.c.NextAllowed(s.Due); s.Due > f.now && (!ok || until != s.Due) {
					r.Fatalf("due at %d, which is excluded until %d, after %v: %+v", s.Due, until, f.story, s)
				}
			}
		}
	})
}
