package storetest

import (
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Specimen fills a fresh keyspace with a record of every kind, in every region, with
// every field of states and definitions set somewhere: always the same, so that what
// is stored can be compared with what other versions store. It returns the ids of the
// jobs.
func Specimen(w *World) []string {
	s := &specimen{World: w}
	for _, step := range []func(){
		s.addDueJob, s.backingOff, s.addRetryingJob, s.addRunningJob, s.addPausedJob, s.addDeadJob, s.addDeadLetters,
		s.addDoneJob, s.addManualRuns, s.addHeldJob, s.addChildren, s.addBackfill, s.addHintedJob, s.addDeletingJob,
		s.addFullJob, s.addLimits, s.addPlainJob, s.addSealedJob, s.addTracedJob, s.addLateJob, s.addSourcedJob,
		s.addRevisedJob, s.addRunsWithPayloads, s.addRenames,
	} {
		step()
		w.Advance(time.Second)
	}
	return s.ids
}

type specimen struct {
	*World
	ids   []string
	batch int
}

func (s *specimen) addJob(d job.Definition) job.Definition {
	s.T.Helper()
	now := unixtime.Milli(s.Clock.Load())
	d.Queue, d.CreatedMS, d.UpdatedMS, d.AnchorMS = d.ID, now, now, now
	s.Add(d)
	s.ids = append(s.ids, d.ID)
	return d
}

// leaseJob leases the job's next run when it is due.
func (s *specimen) leaseJob(d job.Definition) job.Leased {
	s.T.Helper()
	r := s.Get(d.ID)
	if r.IndexMS > unixtime.Milli(s.Clock.Load()) {
		s.Clock.Store(int64(r.IndexMS))
	}
	s.batch++
	shard := s.Store.ShardOf(d.Key)
	request := LeaseRequest(shard, 1, fmt.Sprint("batch-", s.batch), r.State.Lane)
	reply := s.Store.Lease(s.T.Context(), []job.LeaseRequest{request})[0]
	if reply.Err != nil || len(reply.Leased) != 1 {
		s.T.Fatalf("lease of %s: %+v", d.ID, reply)
	}
	return reply.Leased[0]
}

func (s *specimen) applyEvent(d job.Definition, ev job.Input) job.State {
	s.T.Helper()
	r := s.Get(d.ID)
	write := s.Decide(d.Record(), r.Definition, r.State, ev)
	s.MustWrite(s.Store.ShardOf(d.Key), write)
	return write.Decision.State
}

// runJob lets the next run of the job end.
func (s *specimen) runJob(d job.Definition, outcomes ...job.Outcome) {
	s.T.Helper()
	for _, outcome := range outcomes {
		l := s.leaseJob(d)
		started := s.Clock.Load()
		s.Advance(1500 * time.Millisecond)
		ev := job.FinishAttempt{
			Token: l.Known.State.Token, Outcome: outcome, StartedMS: unixtime.Milli(started),
			Worker: "worker-1", Output: []byte("status \x00\xff"),
		}
		if outcome != job.OutcomeSucceeded {
			ev.Error = "no route to host"
		}
		s.applyEvent(d, ev)
	}
}

// reapRun ends the lease of the job's run as lost.
func (s *specimen) reapRun(d job.Definition, l job.Leased, acked bool) {
	s.T.Helper()
	s.renewLease(l, 1, acked)
	s.Advance(2 * lockTTL)
	s.applyEvent(d, job.LoseLease{Token: l.Known.State.Token})
}

func (s *specimen) renewLease(l job.Leased, epoch uint32, acked bool) {
	s.T.Helper()
	reply := s.Store.Renew(s.T.Context(), []job.RenewRequest{{Shard: l.Shard, TTL: lockTTL, Renewals: []job.Renewal{
		{Record: l.Record, Lane: l.Known.State.Lane, Token: l.Known.State.Token, Epoch: epoch, Acked: acked},
	}}})[0]
	if reply.Err != nil || reply.Results[0].Code != job.Renewed {
		s.T.Fatalf("renew %s: %+v", l.Record, reply)
	}
}

// addPlainJob is a job that names nothing but what it has to: most of it is left out.
func (s *specimen) addPlainJob() {
	now, down := s.Clock.Load(), backoff.Jitter{Kind: backoff.JitterDown, Fraction: 0.1}
	d := job.Definition{
		Key: job.Key{Namespace: "ns", ID: "usual"}, Queue: "default", Priority: 5, Handler: "send",
		Payload:  []byte("payload of usual"),
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
		Retry: backoff.Retry{Strategy: backoff.Exponential, Base: time.Second, Multiplier: 2, MaxDelay: 5 * time.Minute,
			MaxAttempts: 1, Jitter: down},
		Backoff: backoff.Recurring{Multiplier: 2, MaxExponent: 5, MaxDelay: time.Hour, Jitter: down},
		Timeout: 30 * time.Second, TimeoutGrace: 5 * time.Second, Retention: time.Hour, DeadLetterTTL: 7 * 24 * time.Hour,
		Generation: 1, Revision: 1, AnchorMS: unixtime.Milli(now),
		CreatedMS: unixtime.Milli(now), UpdatedMS: unixtime.Milli(now),
		CreateRequestID: "0d5b8c3e-1f2a-4b6c-8d7e-9fa0b1c2d3e4",
	}
	s.Add(d)
	s.ids = append(s.ids, d.ID)
	s.runJob(d, job.OutcomeSucceeded)
}

// addSealedJob is a job whose payload is stored under a key.
func (s *specimen) addSealedJob() {
	d := Definition("sealed")
	d.Payload, d.PayloadKey = []byte("\x01 not to be read \xff"), "key-1"
	s.addJob(d)
}

// addTracedJob is a job that was registered, and is run by hand, in a trace.
func (s *specimen) addTracedJob() {
	trace := &job.Trace{
		TraceID: job.TraceID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255},
		SpanID:  job.SpanID{8, 7, 6, 5, 4, 3, 2, 1}, State: "vendor=x, other=y",
	}
	d := Definition("traced")
	d.Trace = trace
	d = s.addJob(d)
	s.applyEvent(d, job.RequestManualRun{RequestID: "done-by-hand", Trace: trace})
	s.runJob(d, job.OutcomeSucceeded)
	s.applyEvent(d, job.RequestManualRun{RequestID: "by-hand", Trace: trace})
}

// addLateJob is a job that broke its lateness objective, and is held back by a gate.
func (s *specimen) addLateJob() {
	d := Definition("late")
	d.MaxLag = time.Second
	d = s.addJob(d)
	s.Clock.Store(int64(s.Get(d.ID).IndexMS + 5000))
	s.runJob(d, job.OutcomeSucceeded)
	l := s.leaseJob(d)
	s.Advance(2 * time.Second)
	s.applyEvent(d, job.HoldBack{
		Token: l.Known.State.Token, Reason: job.HeldLock, Key: "lock", By: "ns/other",
		UntilMS: unixtime.Milli(s.Clock.Load() + 5000),
	})
}

// addSourcedJob has policies with values from defaults of the operator.
func (s *specimen) addSourcedJob() {
	d := Definition("sourced")
	from := d.PolicySources()
	from[backoff.RetryBase] = backoff.Source{Kind: backoff.FromQueue, Name: "mail"}
	from[backoff.RetryMaxAttempts] = backoff.Source{Kind: backoff.FromPreset, Name: "partner-api"}
	d.SetSources(from)
	s.addJob(d)
}

// addRevisedJob was edited, and has the definition that it had before.
func (s *specimen) addRevisedJob() {
	d := s.addJob(Definition("revised"))
	edited := d
	edited.Priority = 1
	by := job.Edit{Identity: "ann@example.com", Method: "UpdateJob"}
	s.applyEvent(d, job.Update{New: s.compileDefinition(&edited), By: by})
}

// addRenames leaves a rename that has reserved a name, and one that has taken its job.
func (s *specimen) addRenames() {
	for i, id := range []string{"reserves-a-name", "was-taken"} {
		d := s.addJob(Definition(id))
		kept := job.KeptJob{
			Rename: job.Rename{ID: fmt.Sprint("RENAME", i), From: d.Key, To: job.Key{Namespace: d.Namespace, ID: id + "-new"}},
			AtMS:   s.now(), RequestID: "request", By: job.Edit{Identity: "ann@example.com", Method: "RenameJob"},
		}
		_, code, err := s.Store.ReserveName(s.T.Context(), kept.Rename, s.Get(id), s.now())
		if err != nil || code != job.Created {
			s.T.Fatalf("reserve: %v, %v", code, err)
		}
		s.ids = append(s.ids, kept.To.ID)
		if i == 0 {
			continue
		}
		stored, err := s.Store.ReadStoredJob(s.T.Context(), d.Key)
		if err != nil {
			s.T.Fatal(err)
		}
		kept.Job = *stored
		if taken, err := s.Store.TakeJob(s.T.Context(), &kept, s.now()); err != nil || !taken {
			s.T.Fatalf("take: %v, %v", taken, err)
		}
	}
}

// addRunsWithPayloads has runs with payloads of their own: one that waits, and a dead letter.
func (s *specimen) addRunsWithPayloads() {
	d := Definition("own-payloads")
	d.Retry.MaxAttempts = 1
	d = s.addJob(d)
	payloads := []*job.RunPayload{
		{Payload: []byte("dead \xff")}, {Payload: []byte("\x02 sealed: longer than what sealing adds"), Key: "key-1"},
	}
	for _, own := range payloads {
		s.applyEvent(d, job.RequestManualRun{RequestID: "of-" + own.Key + "-payload", Payload: own})
		if own.Key == "" {
			s.failChild(d, 0)
		}
	}
}

// failChild leases the run in a slot of the job, whose attempt fails.
func (s *specimen) failChild(d job.Definition, slot int) {
	s.T.Helper()
	s.batch++
	shard := s.Store.ShardOf(d.Key)
	parent := s.Get(d.ID)
	request := LeaseRequest(shard, 1, fmt.Sprint("batch-", s.batch), parent.State.Lane)
	reply := s.Store.Lease(s.T.Context(), []job.LeaseRequest{request})[0]
	if reply.Err != nil || len(reply.Leased) != 1 || reply.Leased[0].Record != d.Record().Run(slot) {
		s.T.Fatalf("lease of %s: %+v", d.ID, reply)
	}
	run := reply.Leased[0]
	failed := s.finish(run, job.OutcomeFailed)
	failed.Error = "no route to host"
	s.MustWrite(shard, s.DecideChild(run.Record, parent.Definition, parent.State, run.Known.State, failed)...)
}

func (s *specimen) addDueJob() { s.addJob(Definition("due")) }

func (s *specimen) backingOff() {
	d := s.addJob(Definition("backing-off"))
	for range 3 {
		s.runJob(d, job.OutcomeFailed, job.OutcomeFailed)
	}
}

func (s *specimen) addRetryingJob() {
	d := Once("retrying", time.Duration(s.Clock.Load()-Start+5000)*time.Millisecond)
	d.Retry.MaxAttempts = 5
	d = s.addJob(d)
	s.runJob(d, job.OutcomeFailed, job.OutcomeTimedOut)
	s.reapRun(d, s.leaseJob(d), true)
	s.reapRun(d, s.leaseJob(d), false)
	s.reapRun(d, s.leaseJob(d), false)
}

func (s *specimen) addRunningJob() {
	s.renewLease(s.leaseJob(s.addJob(Definition("live"))), 7, true)
	s.leaseJob(s.addJob(Definition("live-and-not-acknowledged")))
	d := s.addJob(Definition("live-with-all-that-may-come"))
	l := s.leaseJob(d)
	s.applyEvent(d, job.RequestManualRun{RequestID: "waits", Mode: job.ManualResetOnSuccess})
	s.applyEvent(d, job.Pause{Note: "after this run"})
	s.applyEvent(d, job.CancelRun{RunID: l.Known.State.RunID()})
}

func (s *specimen) addPausedJob() {
	d := s.addJob(Definition("paused"))
	s.runJob(d, job.OutcomeSucceeded)
	s.applyEvent(d, job.Pause{Note: "until the audit is over", ID: "audit-7"})
	itself := Definition("paused-itself")
	itself.PauseAfter = 1
	s.runJob(s.addJob(itself), job.OutcomeFailed, job.OutcomeFailed)
}

func (s *specimen) addDeadJob() {
	d := Once("dead", 0)
	d.Retry.MaxAttempts = 1
	s.runJob(s.addJob(d), job.OutcomeFailed)
	d.ID = "quarantined"
	d = s.addJob(d)
	for range 3 {
		s.reapRun(d, s.leaseJob(d), true)
	}
}

// addDeadLetters have every slot used, one of them twice.
func (s *specimen) addDeadLetters() {
	d := Definition("letters")
	d.Retry.MaxAttempts = 1
	d = s.addJob(d)
	for range job.DeadLettersPerJob + 1 {
		s.runJob(d, job.OutcomeFailed)
	}
}

func (s *specimen) addDoneJob() {
	s.runJob(s.addJob(Once("done", 0)), job.OutcomeSucceeded)
	d := Definition("schedule-has-ended")
	d.Schedule.MaxRuns = 1
	s.runJob(s.addJob(d), job.OutcomeSucceeded)
	d = Definition("button")
	d.Schedule = schedule.Spec{}
	d = s.addJob(d)
	s.applyEvent(d, job.RequestManualRun{RequestID: "pushed"})
	s.runJob(d, job.OutcomeSucceeded)
}

func (s *specimen) addManualRuns() {
	s.applyEvent(s.addJob(Definition("manual")), job.RequestManualRun{RequestID: "now"})
	s.applyEvent(s.addJob(Definition("manual-beside")), job.RequestManualRun{RequestID: "beside", Mode: job.ManualKeep})
	s.applyEvent(s.addJob(Definition("manual-at-any-time")),
		job.RequestManualRun{RequestID: "any-time", IgnoreExclusions: true})
}

func (s *specimen) addHeldJob() {
	for _, h := range []struct {
		reason job.HoldReason
		name   string
	}{{job.HeldLock, "lock"}, {job.HeldTarget, "target"}, {job.HeldPace, "pace"}, {job.HeldQueue, "queue"}} {
		d := s.addJob(Definition("held-by-" + h.name))
		l := s.leaseJob(d)
		s.applyEvent(d, job.HoldBack{
			Token: l.Known.State.Token, Reason: h.reason, Key: h.name, By: "ns/other",
			UntilMS: unixtime.Milli(s.Clock.Load() + 5000), Paced: h.reason == job.HeldPace,
		})
	}
	d := Definition("catching-up")
	d.Misfire = job.Misfire{Policy: job.MisfireRunAll, Window: time.Hour, MaxCatchUp: 7}
	d = s.addJob(d)
	s.applyEvent(d, job.Pause{})
	s.Advance(5 * time.Minute)
	s.applyEvent(d, job.Resume{CatchUp: true})
}

// arriveHeld moves a leased run into a record of its own.
func (s *specimen) arriveHeld(d job.Definition, l job.Leased) {
	s.T.Helper()
	if s.applyEvent(d, job.RunLeased{Token: l.Known.State.Token}).Children == 0 {
		s.T.Fatalf("%s has no run of its own", d.ID)
	}
}

func (s *specimen) addChildren() {
	d := Overlapping("children")
	d.OverlapLimit = 3
	d = s.addJob(d)
	for range 2 {
		s.arriveHeld(d, s.leaseJob(d))
	}
	d = Overlapping("held-by-a-run")
	d.Overlap = job.OverlapCancelOther
	d = s.addJob(d)
	s.arriveHeld(d, s.leaseJob(d))
	s.applyEvent(d, job.RunLeased{Token: s.leaseJob(d).Known.State.Token})
}

func (s *specimen) addBackfill() {
	d := s.addJob(Definition("backfill"))
	s.applyEvent(d, job.StartBackfill{Backfill: job.Backfill{
		ID: "march", NextMS: unixtime.Milli(s.Clock.Load() - 600_000),
		ToMS: unixtime.Milli(s.Clock.Load() - 60_000), Concurrency: 2,
	}})
	l := s.leaseJob(d)
	s.applyEvent(d, job.ReturnLease{Token: l.Known.State.Token})
	d = Definition("buffered")
	d.Overlap, d.OverlapLimit = job.OverlapBufferAll, 5
	d = s.addJob(d)
	l = s.leaseJob(d)
	s.renewLease(l, 1, true)
	started := s.Clock.Load()
	s.Advance(4 * time.Minute)
	s.applyEvent(d, job.FinishAttempt{
		Token: l.Known.State.Token, Outcome: job.OutcomeSucceeded, StartedMS: unixtime.Milli(started),
	})
}

func (s *specimen) addHintedJob() {
	now := s.Clock.Load()
	s.applyEvent(s.addJob(Definition("hinted")), job.SetHint{Hint: job.Hint{
		Source: job.HintOperator, AtMS: unixtime.Milli(now + 30_000), IntervalMS: 90_000,
		UntilMS: unixtime.Milli(now + 3_600_000), Reason: "the database\nis being moved",
	}})
	d := s.addJob(Definition("hinted-by-its-worker"))
	l := s.leaseJob(d)
	failed := s.finish(l, job.OutcomeFailed)
	failed.Error, failed.RetryAfter = "slow down", 10*time.Second
	s.applyEvent(d, failed)
}

func (s *specimen) addDeletingJob() {
	d := s.addJob(Definition("deleted-and-live"))
	s.leaseJob(d)
	s.applyEvent(d, job.Delete{})
}

// addFullJob has every field of a definition set.
func (s *specimen) addFullJob() {
	cron := schedule.Spec{
		Kind: schedule.KindCron, Cron: []string{"H 2 * * *", "30 4 * * MON"}, TimeZone: "Europe/Berlin",
		Gap: schedule.GapSkip, Repeat: schedule.RepeatBoth, StartAt: time.UnixMilli(Start).UTC(),
		EndAt: time.UnixMilli(Start).Add(1000 * time.Hour).UTC(),
		Exclude: schedule.Exclusions{
			Cron: []string{"0 0 1 1 *"}, Dates: []string{"12-25"}, Windows: []string{"Sat,Sun"},
			Periods: []schedule.Period{{From: time.UnixMilli(Start).UTC(), To: time.UnixMilli(Start).Add(time.Hour).UTC()}},
		},
		Jitter: time.Minute, MaxRuns: 9,
	}
	d := Definition("everything")
	d.Priority, d.Labels, d.Schedule, d.Target = 9, map[string]string{"team": "ops", "é": "\n"}, cron, "api.example.com"
	d.Retry = backoff.Retry{
		Strategy: backoff.Exponential, Base: time.Second, Multiplier: 3, Offset: 1, MaxDoublings: 4, MaxDelay: time.Minute,
		MaxAttempts: 6, MaxElapsed: time.Hour, Jitter: backoff.Jitter{Kind: backoff.JitterProportional, Fraction: 0.2},
	}
	d.Backoff = backoff.Recurring{
		Multiplier: 2.5, MaxExponent: 6, MaxDelay: 2 * time.Hour, MaxRatio: 12,
		Jitter:     backoff.Jitter{Kind: backoff.JitterEqual},
		StaleAfter: time.Hour, StaleHalve: true, WithinSlot: true,
	}
	d.MinInterval, d.MaxInterval = 10*time.Second, 3*time.Hour
	d.Overlap, d.OverlapLimit = job.OverlapBufferOne, 4
	d.Misfire = job.Misfire{Policy: job.MisfireSkip, Window: 90 * time.Second, MaxCatchUp: 11}
	d.Locks, d.PauseAfter = []job.Lock{{Key: "db", Limit: 2}, {Key: "disk", Limit: 1}}, 3
	d = s.addJob(d)
	fixed := Definition("fixed-delay")
	fixed.Schedule.FixedDelay, fixed.Backoff.Disabled = true, true
	s.runJob(s.addJob(fixed), job.OutcomeSucceeded)
	seconds := Definition("seconds")
	seconds.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"*/10 * * * * *"}, Seconds: true}
	s.addJob(seconds)
	calendar := Definition("calendar")
	calendar.Schedule = schedule.Spec{
		Kind: schedule.KindCalendar, TimeZone: "Europe/Berlin", Calendar: schedule.Calendar{
			Every: 2, Unit: schedule.CalendarMonth, Times: []string{"09:00", "17:30:15"}, MonthDays: []int{31, -2},
			ShortMonth: schedule.ShortMonthSkip, From: "2026-01-31",
		},
	}
	s.addJob(calendar)
	weekly := Definition("weekly")
	weekly.Schedule = schedule.Spec{
		Kind: schedule.KindCalendar,
		Calendar: schedule.Calendar{
			Unit: schedule.CalendarWeek, Times: []string{"09:00"}, Weekdays: []time.Weekday{time.Sunday, time.Friday},
		},
	}
	s.addJob(weekly)
	edited := *s.Get(d.ID).Definition
	edited.Handler = "edited"
	s.applyEvent(d, job.Update{New: s.compileDefinition(&edited), RequestID: "edit-1"})
}

func (s *specimen) addLimits() {
	ctx := s.T.Context()
	name := job.LockName("ns", "db")
	for i, holder := range []job.RecordID{"ns/a:1", "ns/b:2", "ns/c:3"} {
		g := s.Store.Limits().AcquireUnits(ctx, []job.UnitRequest{{
			Name: name, Limit: 2, Holder: string(holder), Waiter: holder, Rank: int64(i), TTL: time.Minute,
		}})[0]
		if g.Err != nil || g.Granted != (i < 2) {
			s.T.Fatalf("unit of %s: %+v", holder, g)
		}
	}
	q := job.QueueKey{Namespace: "ns", Queue: "mail"}
	g := s.Store.Limits().TakeRate(ctx, []job.RateRequest{{
		Name: job.QueueRateName(q), N: 3, Interval: time.Second, Burst: 2, Reserve: true,
	}})[0]
	if g.Err != nil || g.N != 3 {
		s.T.Fatalf("rate: %+v", g)
	}
	circuit := backoff.Circuit{}.Failed(unixtime.Milli(s.Clock.Load()), "ns/a:1", "ns/a", "status 503", time.Minute,
		backoff.DefaultCircuit(), 1)
	swap := job.CellSwap{Name: job.TargetName("ns", "api.example.com"), New: circuit.Encode()}
	if r := s.Store.Limits().SwapCells(ctx, []job.CellSwap{swap})[0]; r.Err != nil || !r.Swapped {
		s.T.Fatalf("cell: %+v", r)
	}
	settings := job.QueueSettings{MaxConcurrency: 7, Rate: 2.5, Burst: 3, RecoveryRate: 9}
	if err := s.Store.Limits().PutQueueSettings(ctx, q, settings, ""); err != nil {
		s.T.Fatal(err)
	}
	paused := job.QueueKey{Namespace: "ns", Queue: "paused"}
	if err := s.Store.Limits().PutQueueSettings(ctx, paused, job.QueueSettings{Paused: true}, ""); err != nil {
		s.T.Fatal(err)
	}
}
