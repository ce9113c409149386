package job

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const t0 = unixtime.Milli(1_800_000_000_000)

// def is a job every minute whose backoff has no jitter.
func def() Definition {
	d := Definition{
		Key: Key{"ns", "a"}, Queue: "q", Priority: 5, Handler: "h",
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
		Retry:    backoff.DefaultRetry(), Backoff: backoff.DefaultRecurring(),
		Timeout: 30 * time.Second, TimeoutGrace: 5 * time.Second, HistoryLimit: 10,
		Retention: time.Hour, DeadLetterTTL: 24 * time.Hour,
		Generation: 1, Revision: 1, AnchorMS: t0, CreatedMS: t0, UpdatedMS: t0,
	}
	d.Retry.MaxAttempts = 1
	d.Retry.Jitter = backoff.Jitter{Kind: backoff.JitterNone}
	d.Backoff.Jitter = backoff.Jitter{Kind: backoff.JitterNone}
	return d
}

func compile(t testing.TB, d Definition) *Compiled {
	t.Helper()
	c, err := Compile(&d)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// walker drives one record through events, checking the invariants that hold for
// every step.
type walker struct {
	t     testing.TB
	c     *Compiled
	s     State
	now   unixtime.Milli
	token uint64
	last  Decision
}

func walk(t testing.TB, d Definition) *walker {
	t.Helper()
	w := &walker{t: t, c: compile(t, d), now: t0}
	w.last = New(w.c, w.now)
	w.s = w.last.State
	w.check(State{})
	return w
}

func (w *walker) check(before State) {
	w.t.Helper()
	if err := w.s.Check(); err != nil {
		w.t.Fatalf("%v\nbefore %+v\nafter  %+v", err, before, w.s)
	}
	if w.s.Token < before.Token {
		w.t.Fatalf("token fell from %d to %d", before.Token, w.s.Token)
	}
}

func (w *walker) lease() *walker {
	w.t.Helper()
	if w.s.Region != RegionDue {
		w.t.Fatalf("cannot lease in region %s", w.s.Region)
	}
	w.now = max(w.now, w.s.Due)
	w.token++
	w.s = w.s.Leased(w.token)
	return w
}

func (w *walker) ack() *walker { w.s.Acked = true; return w }

func (w *walker) after(d time.Duration) *walker { w.now = w.now.Add(d); return w }

func (w *walker) on(ev Input) Decision {
	w.t.Helper()
	before := w.s
	d := Decide(w.c, w.s, ev, w.now)
	again := Decide(w.c, before, ev, w.now)
	if d.State.Due != again.State.Due || d.Answer != again.Answer {
		w.t.Fatalf("the same event decided differently: %+v and %+v", d, again)
	}
	if d.Changed && d.State.Revision != before.Revision+1 {
		w.t.Fatalf("revision went from %d to %d", before.Revision, d.State.Revision)
	}
	if d.Changed && !d.Delete && d.Ranked != (d.State.Ranks() != before.Ranks()) {
		w.t.Fatalf("ranked is %v, but the ranks went from %+v to %+v", d.Ranked, before.Ranks(), d.State.Ranks())
	}
	if d.Ended != nil && !before.HasRun() {
		w.t.Fatalf("run %q ended, but there was none: %+v", d.Ended.ID, before)
	}
	if d.Definition != nil {
		w.c = compile(w.t, *d.Definition)
	}
	w.last = d
	if !d.Delete {
		w.s = d.State
		w.check(before)
	}
	return d
}

func (w *walker) succeed() Decision {
	return w.on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeSucceeded, StartedMS: w.now})
}

func (w *walker) fail() Decision {
	return w.on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed, Error: "boom", StartedMS: w.now})
}

func (w *walker) wait() time.Duration { return w.s.Due.Sub(w.now) }

// Seed 000: 60 s base gives 60, 120, 240, 480, 960, 1920, 1920 ... seconds.
func TestFailingIntervalBacksOffAsSeed000(t *testing.T) {
	w := walk(t, def())
	if got := w.wait(); got != time.Minute {
		t.Fatalf("first run after %v, want 1m", got)
	}
	for f, want := range []time.Duration{120, 240, 480, 960, 1920, 1920, 1920} {
		w.lease().fail()
		if got := w.wait(); got != want*time.Second {
			t.Errorf("after %d failures the next run waits %v, want %v", f+1, got, want*time.Second)
		}
		if w.s.Failures != uint32(f+1) || w.s.Source != DelayBackoff {
			t.Errorf("failures %d source %d", w.s.Failures, w.s.Source)
		}
	}
	w.lease().succeed()
	if w.s.Failures != 0 || w.wait() > time.Minute || w.wait() <= 0 {
		t.Errorf("after success: failures %d, wait %v; want 0 and at most 1m", w.s.Failures, w.wait())
	}
	if (int64(w.s.Due-t0))%60_000 != 0 {
		t.Errorf("the phase was lost: due %d ms after the anchor", int64(w.s.Due-t0))
	}
}

func TestRetriesOfOneRun(t *testing.T) {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1000).Time()}
	d.Retry = backoff.Retry{Strategy: backoff.Exponential, Base: time.Second, Multiplier: 2, MaxDelay: time.Minute,
		MaxAttempts: 4, Jitter: backoff.Jitter{Kind: backoff.JitterNone}}
	w := walk(t, d)
	id := w.s.RunID()
	for k, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		w.lease().fail()
		if w.wait() != want || w.s.RunID() != id || w.s.Attempt != uint32(k+1) {
			t.Fatalf("after attempt %d: wait %v run %s attempts %d", k+1, w.wait(), w.s.RunID(), w.s.Attempt)
		}
	}
	last := w.lease().fail()
	if w.s.Region != RegionDead || last.Ended == nil || last.Ended.Outcome != OutcomeDead || last.Ended.Attempts != 4 {
		t.Fatalf("out of attempts: region %s, ended %+v", w.s.Region, last.Ended)
	}
	if last.DeadLetter {
		t.Error("a one-time job is its own dead letter")
	}
	if last.IndexMS != w.now.Add(d.DeadLetterTTL) {
		t.Errorf("kept until %d", last.IndexMS)
	}
	if w.on(RequestManualRun{RequestID: "again"}); w.s.Region != RegionDue || w.s.RunID() != "m-again" {
		t.Errorf("a manual run revives a dead job: %+v", w.s)
	}
}

func TestPermanentFailureStopsAtOnce(t *testing.T) {
	d := def()
	d.Retry.MaxAttempts = 5
	w := walk(t, d)
	w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed, Permanent: true, Error: "no such account"})
	if !w.last.DeadLetter || w.last.Ended.Attempts != 1 || w.s.Failures != 1 {
		t.Errorf("decision %+v", w.last)
	}
}

func TestRetryNeverReachesTheNextNominal(t *testing.T) {
	d := def()
	d.Retry = backoff.Retry{Strategy: backoff.Fixed, Base: 40 * time.Second, MaxAttempts: 10, Jitter: backoff.Jitter{Kind: backoff.JitterNone}}
	w := walk(t, d)
	w.lease().fail()
	if w.s.Attempt != 1 || w.wait() != 40*time.Second {
		t.Fatalf("first retry inside the slot: attempt %d wait %v", w.s.Attempt, w.wait())
	}
	w.lease().fail()
	if w.s.Attempt != 0 || w.s.Failures != 1 || w.last.Ended == nil {
		t.Errorf("a retry at 80 s would pass the nominal time at 60 s: %+v", w.s)
	}
}

func TestRetryAfterOverridesTheDelay(t *testing.T) {
	d := def()
	d.MaxInterval = 10 * time.Minute
	w := walk(t, d)
	settle := func(after time.Duration) {
		w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed, Error: "429", RetryAfter: after})
	}
	settle(7 * time.Minute)
	if w.wait() != 7*time.Minute || w.s.Source != DelayHint {
		t.Errorf("wait %v source %d, want 7m by hint", w.wait(), w.s.Source)
	}
	settle(time.Hour)
	if w.wait() != 10*time.Minute {
		t.Errorf("wait %v, want the job's max interval", w.wait())
	}
}

func TestLossesUseUpNoAttemptAndTheThirdQuarantines(t *testing.T) {
	d := def()
	d.Retry.MaxAttempts = 3
	w := walk(t, d)
	due := w.s.Due
	for i := range 2 {
		w.lease().ack().after(30 * time.Second).on(LoseLease{Token: w.s.Token})
		if w.s.Region != RegionDue || w.s.Attempt != 0 || w.s.Failures != 0 || w.s.Losses != uint32(i+1) || w.s.expectedStartMS() != due {
			t.Fatalf("loss %d: %+v", i+1, w.s)
		}
	}
	w.lease().ack().on(ReturnLease{Token: w.s.Token}) // no attempt that began comes back for nothing
	if w.last.Ended == nil || w.last.Ended.Outcome != OutcomeQuarantined || !w.last.DeadLetter || w.s.Failures != 1 {
		t.Errorf("third loss: %+v", w.last)
	}
	if w.s.Lost != 3 {
		t.Errorf("lost %d", w.s.Lost)
	}
}

func TestUndeliveredLeasesDoNotQuarantine(t *testing.T) {
	w := walk(t, def())
	for range 5 {
		w.lease().on(LoseLease{Token: w.s.Token})
		if w.s.Losses != 0 || w.s.Region != RegionDue {
			t.Fatalf("%+v", w.s)
		}
	}
	w.lease().on(LoseLease{Token: w.s.Token})
	if w.last.Ended == nil || w.last.Ended.Outcome != OutcomeQuarantined {
		t.Errorf("the sixth time is the bound: %+v", w.last)
	}
}

// A payload that is acknowledged now and then before it kills its worker kills six at most.
func TestSixLossesQuarantineWhicheverWereAcknowledged(t *testing.T) {
	for acked := range 64 {
		w := walk(t, def())
		losses, begun := 0, 0
		for w.s.Region == RegionDue && losses < 10 {
			w.lease()
			if acked>>losses&1 == 1 {
				w.ack()
				begun++
			}
			w.on(LoseLease{Token: w.s.Token})
			losses++
			if w.last.Ended != nil {
				break
			}
		}
		if e := w.last.Ended; e == nil || e.Outcome != OutcomeQuarantined || losses != 6 && begun != 3 {
			t.Errorf("%06b: after %d losses, %d of them acknowledged: %+v", acked, losses, begun, e)
		}
	}
}

func TestStaleTokensAreRefused(t *testing.T) {
	w := walk(t, def())
	w.lease()
	old := w.s.Token
	w.ack().on(LoseLease{Token: old})
	w.lease()
	for _, ev := range []Input{FinishAttempt{Token: old, Outcome: OutcomeSucceeded}, LoseLease{Token: old}, ReturnLease{Token: old}} {
		if d := w.on(ev); d.Answer != Stale || d.Changed {
			t.Errorf("%T under an old token: %+v", ev, d)
		}
	}
	token := w.s.Token
	w.succeed()
	if d := w.on(FinishAttempt{Token: token, Outcome: OutcomeSucceeded}); d.Answer != Duplicate || d.Changed {
		t.Errorf("repeated result: %+v", d)
	}
	w.lease()
	if d := w.on(FinishAttempt{Token: token, Outcome: OutcomeFailed}); d.Answer != Duplicate || d.Changed {
		t.Errorf("repeated result after the next lease: %+v", d)
	}
}

func TestManualRuns(t *testing.T) {
	w := walk(t, def())
	w.lease().fail()
	w.after(time.Second).on(RequestManualRun{RequestID: "m1"})
	if w.s.Due != w.now || w.s.Failures != 0 || w.s.RunID() != "m-m1" {
		t.Fatalf("idle: runs now, backoff reset: %+v", w.s)
	}
	if d := w.on(RequestManualRun{RequestID: "m2"}); d.Answer != Joined {
		t.Errorf("a second request joins the waiting run: %+v", d)
	}
	w.lease()
	if d := w.on(RequestManualRun{RequestID: "m2"}); d.Answer != Duplicate || w.s.Pending != "" {
		t.Errorf("a repetition has the run that it joined, and no other: %+v", d)
	}
	if run, joined, known := w.s.RequestedRun("m2"); run != "m-m1" || !joined || !known {
		t.Errorf("m2 joined %s (%v, %v)", run, joined, known)
	}
	w.on(RequestManualRun{RequestID: "m3"})
	if d := w.on(RequestManualRun{RequestID: "m4"}); d.Answer != Joined || w.s.Pending != "m3" {
		t.Errorf("exactly one waits: %+v", d)
	}
	if run, joined, _ := w.s.RequestedRun("m4"); run != "m-m3" || !joined {
		t.Errorf("m4 joined %s (%v)", run, joined)
	}
	w.succeed()
	if w.s.RunID() != "m-m3" || w.s.Due != w.now {
		t.Fatalf("the waiting one runs next: %+v", w.s)
	}
	w.lease().succeed()
	if w.s.Trigger != TriggerSchedule || w.s.Due <= w.now || (int64(w.s.Due-t0))%60_000 != 0 {
		t.Errorf("then the schedule goes on: %+v", w.s)
	}
	if d := w.on(RequestManualRun{RequestID: "m3"}); d.Answer != Duplicate {
		t.Errorf("a known request id never runs twice: %+v", d)
	}
}

// TestACancelledRunThatNeverBegan is given back, and has no start.
func TestACancelledRunThatNeverBegan(t *testing.T) {
	w := walk(t, def())
	w.on(RequestManualRun{RequestID: "m"})
	w.lease()
	w.on(CancelRun{RunID: "m-m"})
	d := w.on(ReturnLease{Token: w.s.Token})
	if d.Ended == nil || d.Ended.Outcome != OutcomeCancelled || d.Ended.StartedMS != 0 || d.Ended.Attempts != 0 || w.s.LastStarted != 0 {
		t.Errorf("ended as %+v, %+v", d.Ended, w.s)
	}
	if w.s.Trigger != TriggerSchedule || w.s.Region != RegionDue {
		t.Errorf("then the schedule goes on: %+v", w.s)
	}
}

// TestRetryingManualRunIsSuperseded: its end has a notice, because a caller may wait for it.
func TestRetryingManualRunIsSuperseded(t *testing.T) {
	for name, kind := range map[string]schedule.Kind{"manual only": schedule.KindNone, "recurring": schedule.KindInterval} {
		d := def()
		d.Retry.MaxAttempts = 3
		if kind == schedule.KindNone {
			d.Schedule = schedule.Spec{}
		}
		w := walk(t, d)
		w.on(RequestManualRun{RequestID: "a"})
		w.lease().fail()
		if w.s.RunID() != "m-a" || w.s.Attempt != 1 {
			t.Fatalf("%s: waits for a retry: %+v", name, w.s)
		}
		runs := w.s.Runs
		d2 := w.on(RequestManualRun{RequestID: "b"})
		if d2.Ended == nil || d2.Ended.ID != "m-a" || d2.Ended.Outcome != OutcomeCancelled || d2.Ended.Attempts != 1 || w.s.Runs != runs+1 {
			t.Errorf("%s: the first ended as %+v", name, d2.Ended)
		}
		if w.s.RunID() != "m-b" || w.s.Due != w.now || w.s.Failures != 0 || w.s.Attempt != 0 {
			t.Errorf("%s: the second runs now: %+v", name, w.s)
		}
		if d := w.on(RequestManualRun{RequestID: "a"}); d.Answer != Duplicate {
			t.Errorf("%s: the first again: %+v", name, d)
		}
		w.lease().succeed()
		if recurs := w.s.Region == RegionDue && w.s.Trigger == TriggerSchedule; recurs != (kind != schedule.KindNone) {
			t.Errorf("%s: afterwards %+v", name, w.s)
		}
	}
}

func TestManualRunReplacesADueRun(t *testing.T) {
	once := def()
	once.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1000).Time()}
	once.Retry.MaxAttempts = 3
	w := walk(t, once)
	w.lease().fail()
	if w.s.Region != RegionDue || w.s.Attempt != 1 {
		t.Fatalf("waits for a retry: %+v", w.s)
	}
	if d := w.on(RequestManualRun{RequestID: "m"}); d.Ended == nil || d.Ended.Outcome != OutcomeCancelled || d.Ended.Attempts != 1 {
		t.Errorf("the run that had begun ended as %+v", d.Ended)
	}
	w.lease().succeed()
	if w.s.Region != RegionDone || w.s.Skipped != 0 || w.s.Succeeded != 1 {
		t.Errorf("what was run by hand is not run again: %+v", w.s)
	}

	w = walk(t, once)
	w.on(RequestManualRun{RequestID: "m"})
	w.lease().succeed()
	if w.s.Region != RegionDue || w.s.Trigger != TriggerSchedule || w.s.Skipped != 0 {
		t.Errorf("a run still to come stays: %+v", w.s)
	}

	w = walk(t, def())
	w.now = w.s.Due + 1 // the first nominal time, which nothing has run before
	w.on(RequestManualRun{RequestID: "m"})
	w.lease().succeed()
	if w.s.Skipped != 1 || w.s.LastNominal == 0 {
		t.Errorf("a nominal time ended without a word: %+v", w.s)
	}
}

func TestPauseAndResume(t *testing.T) {
	w := walk(t, def())
	w.on(Pause{Note: "deploy"})
	if w.s.Region != RegionPaused || w.last.IndexMS != w.now {
		t.Fatalf("%+v", w.last)
	}
	w.after(10 * time.Minute).on(Resume{})
	if w.s.Region != RegionDue || w.s.Due <= w.now || w.wait() > time.Minute || w.s.Skipped == 0 {
		t.Errorf("nominal times that passed are skipped: %+v", w.s)
	}
	w.lease()
	w.on(Pause{})
	if w.s.Region != RegionLeased {
		t.Fatal("a live run goes on")
	}
	w.succeed()
	if w.s.Region != RegionPaused {
		t.Errorf("and what follows waits: %+v", w.s)
	}
	w.on(RequestManualRun{RequestID: "m"})
	if w.s.Region != RegionDue {
		t.Fatal("a manual run of a paused job runs")
	}
	w.lease().succeed()
	if w.s.Region != RegionPaused {
		t.Errorf("and the pause stays: %+v", w.s)
	}
}

func TestPausedOneTimeJobRunsOnResume(t *testing.T) {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1000).Time()}
	w := walk(t, d)
	w.on(Pause{})
	w.after(time.Hour).on(Resume{})
	if w.s.Region != RegionDue || w.s.Due > w.now {
		t.Errorf("%+v", w.s)
	}
	w.lease().succeed()
	if w.s.Region != RegionDone || w.last.IndexMS != w.now.Add(d.Retention) {
		t.Errorf("done and kept for its retention: %+v", w.last)
	}
}

func TestCancel(t *testing.T) {
	w := walk(t, def())
	if d := w.on(CancelRun{RunID: "1-5"}); d.Answer != NoSuchRun {
		t.Errorf("%+v", d)
	}
	first := w.s.RunID()
	w.on(CancelRun{RunID: first})
	if w.s.RunID() == first || w.last.Ended.Outcome != OutcomeCancelled || w.wait() != 2*time.Minute {
		t.Errorf("a waiting run ends and the next is planned: %+v", w.s)
	}
	w.lease()
	w.on(CancelRun{RunID: w.s.RunID()})
	if !w.s.Cancel || w.s.Region != RegionLeased {
		t.Fatalf("a live run is asked: %+v", w.s)
	}
	w.fail()
	if w.last.Ended.Outcome != OutcomeCancelled || w.s.Failures != 0 {
		t.Errorf("its failure is no failure: %+v", w.last)
	}
}

func TestDelete(t *testing.T) {
	w := walk(t, def())
	if d := w.on(Delete{}); !d.Delete {
		t.Errorf("idle: %+v", d)
	}
	w.lease()
	if d := w.on(Delete{}); d.Delete || !w.s.Deleting {
		t.Errorf("live: %+v", d)
	}
	if d := w.succeed(); !d.Delete || d.Ended.Outcome != OutcomeSucceeded {
		t.Errorf("when the run has ended: %+v", d)
	}
}

func TestUpdate(t *testing.T) {
	d := def()
	w := walk(t, d)
	d.Queue = "other"
	w.on(Update{New: compile(t, d), RequestID: "r"})
	if w.s.Lane.Queue != "other" || w.c.Revision != 2 || w.c.Generation != 1 || w.s.Due != t0+60_000 {
		t.Errorf("queue only: %+v", w.s)
	}
	d.Schedule.Every = 10 * time.Second
	w.after(5 * time.Second).on(Update{New: compile(t, d)})
	if w.c.Generation != 2 || w.s.Generation != 2 || w.wait() != 10*time.Second {
		t.Errorf("new schedule: %+v", w.s)
	}
	w.lease()
	d.Queue, d.Schedule.Every = "third", time.Hour
	w.on(Update{New: compile(t, d)})
	if w.s.Lane.Queue != "other" || w.s.Region != RegionLeased {
		t.Errorf("a live run keeps its lane: %+v", w.s)
	}
	w.fail()
	if w.s.Lane.Queue != "third" || w.s.Generation != 3 || w.s.Due <= w.now {
		t.Errorf("then the new schedule takes over: %+v", w.s)
	}
}

func TestCronIsExemptFromBackoff(t *testing.T) {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"*/5 * * * *"}}
	w := walk(t, d)
	for range 6 {
		w.lease().fail()
		if w.wait() != 5*time.Minute {
			t.Fatalf("wait %v after %d failures, want the next slot", w.wait(), w.s.Failures)
		}
	}
	w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed, RetryAfter: 7 * time.Minute})
	if w.wait() != 10*time.Minute {
		t.Errorf("a hint skips slots that come too early: wait %v", w.wait())
	}
}

func TestLongDowntimeIsDecidedInOneStep(t *testing.T) {
	d := def()
	d.Schedule.Every = time.Second
	w := walk(t, d)
	w.now = w.now.Add((365 * 24 * time.Hour))
	w.lease()
	w.succeed()
	if w.wait() != time.Second {
		t.Errorf("wait %v", w.wait())
	}
	if want := uint64(365*24*3600 - 1); w.s.Skipped != want {
		t.Errorf("skipped %d, want %d", w.s.Skipped, want)
	}
}

func TestEndOfSchedule(t *testing.T) {
	d := def()
	d.Schedule.EndAt = (t0 + 100_000).Time()
	w := walk(t, d)
	w.lease().succeed()
	if w.s.Region != RegionDone || w.s.HasRun() {
		t.Errorf("%+v", w.s)
	}
}

func TestFixedDelayCountsFromTheEnd(t *testing.T) {
	d := def()
	d.Schedule.FixedDelay = true
	w := walk(t, d)
	w.lease().after(17 * time.Second).succeed()
	if w.wait() != time.Minute {
		t.Errorf("wait %v", w.wait())
	}
	w.lease().fail()
	if w.wait() != 2*time.Minute {
		t.Errorf("backs off too: wait %v", w.wait())
	}
}

func TestNoticesNameTheirRun(t *testing.T) {
	w := walk(t, def())
	if n := w.last.Notices[len(w.last.Notices)-1]; n.Kind != JobCreated || n.RunID != w.s.RunID() || n.DueMS != w.s.Due {
		t.Errorf("created: %+v, the run is %s", n, w.s.RunID())
	}
	run := w.lease().s.RunID()
	w.after(5 * time.Minute).succeed()
	for _, n := range w.last.Notices {
		switch n.Kind {
		case RunSucceeded:
			if n.RunID != run || n.Correlation() != Correlation(w.c.Key, run) {
				t.Errorf("succeeded: %+v, the run was %s", n, run)
			}
		case NominalSkipped:
			if n.RunID != "" || n.Count != 5 {
				t.Errorf("skipped: %+v, want five and no run", n)
			}
		}
	}
}

func TestFixedDelayEndsBeforeTheEndOfItsSchedule(t *testing.T) {
	for offset, region := range map[int64]Region{0: RegionDone, 1: RegionDue} {
		d := def()
		d.Schedule.FixedDelay = true
		d.Schedule.EndAt = (t0 + 120_000 + unixtime.Milli(offset)).Time()
		w := walk(t, d)
		w.lease().succeed()
		if w.s.Region != region {
			t.Errorf("due %d ms before the end: %s, want %s", offset, w.s.Region, region)
		}
	}
}

// A job that was deleted and created again differs for readers of the first: neither token and revision nor an
// etag match.
func TestRecreatedJobHasOtherRevisionsAndEtags(t *testing.T) {
	first := def()
	first.CreateRequestID = "a"
	second := first
	second.CreateRequestID, second.CreatedMS = "b", t0+1
	c, old := compile(t, second), compile(t, first)
	s := New(c, t0+1).State
	if before := New(old, t0).State; before.Token == s.Token && before.Revision == s.Revision {
		t.Errorf("token %d and revision %d are those of the job before", s.Token, s.Revision)
	}
	for _, ev := range []Input{Update{New: old, Base: first.Etag()}, Delete{Base: first.Etag()}} {
		if d := Decide(c, s, ev, t0+2); d.Answer != Stale || d.Changed {
			t.Errorf("%T: %+v", ev, d)
		}
	}
}

// TestRetryAfterIsBoundedByThePolicy: one answer does not hold a job back for longer than
// its policy does, unless the job asks for more.
func TestRetryAfterIsBoundedByThePolicy(t *testing.T) {
	const asked = 9_000_000_000 * time.Second
	ask := func(d Definition) time.Duration {
		w := walk(t, d)
		w.lease().on(FinishAttempt{Token: w.s.Token, Outcome: OutcomeFailed, Error: "429", StartedMS: w.now, RetryAfter: asked})
		return w.wait()
	}
	recurring := func(change func(*Definition)) Definition {
		d := def()
		d.Schedule.Every, d.Backoff, d.Retry = 5*time.Second, backoff.DefaultRecurring(), backoff.DefaultRetry()
		d.Retry.MaxAttempts = 1
		change(&d)
		return d
	}
	once := func(change func(*Definition)) Definition {
		d := def()
		d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: (t0 + 1_000).Time()}
		d.Backoff, d.Retry = backoff.DefaultRecurring(), backoff.DefaultRetry()
		change(&d)
		return d
	}
	for name, c := range map[string]struct {
		d    Definition
		want time.Duration
	}{
		"a monitor":            {recurring(func(*Definition) {}), time.Hour},
		"disabled":             {recurring(func(d *Definition) { d.Backoff.Disabled = true }), time.Hour},
		"a cap of its own":     {recurring(func(d *Definition) { d.Backoff.MaxDelay = 10 * time.Minute }), 10 * time.Minute},
		"a long interval":      {recurring(func(d *Definition) { d.Schedule.Every = 3 * time.Hour }), 3 * time.Hour},
		"asked for":            {recurring(func(d *Definition) { d.MaxInterval = 48 * time.Hour }), 48 * time.Hour},
		"asked for less":       {recurring(func(d *Definition) { d.MaxInterval = time.Minute }), time.Minute},
		"without a cap":        {recurring(func(d *Definition) { d.Backoff.MaxDelay = 0 }), 24 * time.Hour},
		"a retry":              {once(func(*Definition) {}), 5 * time.Minute},
		"a retry, asked for":   {once(func(d *Definition) { d.MaxInterval = 2 * time.Hour }), 2 * time.Hour},
		"a retry with a cap":   {once(func(d *Definition) { d.Retry.MaxDelay = 30 * time.Second }), 30 * time.Second},
		"a retry without caps": {once(func(d *Definition) { d.Retry.MaxDelay = 0 }), 24 * time.Hour},
	} {
		if got := ask(c.d); got < c.want || got > c.want+5*time.Second {
			t.Errorf("%s: rests for %v, want %v", name, got, c.want)
		}
	}
}
