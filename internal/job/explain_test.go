package job

import (
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/schedule"
)

// served are facts in which nothing of the cluster stands in the way.
var served = Facts{Asked: true, Shard: 7, Held: true, Holder: "node1", Workers: 2, FreeSlots: 3}

func TestExplainNamesEachReason(t *testing.T) {
	const minute = int64(60_000)
	nominal := t0 + minute
	for _, tt := range []struct {
		name    string
		edit    func(*Definition)
		state   func(*State)
		facts   func(*Facts)
		at      int64 // after t0
		kind    ReasonKind
		summary string
		since   int64 // after t0; 0 is none
		until   int64
	}{
		{name: "planned", kind: ReasonNotDue, summary: "run 1-1800000060000 of 08:01:00 waits: due 08:01:00", until: minute},
		{name: "about to start", at: minute, kind: ReasonNotDue, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 waits: nothing holds it back: it is about to start"},
		{name: "jitter", state: func(s *State) { s.Source, s.Due = DelayJitter, nominal+4000 }, kind: ReasonNotDue, until: minute + 4000,
			summary: "run 1-1800000060000 of 08:01:00 waits: due 08:01:04: nominal 08:01:00 and the schedule's jitter"},
		{name: "retry", at: minute + 1000, edit: func(d *Definition) { d.Retry.MaxAttempts = 3 },
			state: func(s *State) {
				s.Source, s.Attempt, s.LastFinished, s.Due, s.LastError = DelayRetry, 1, nominal+500, nominal+1400, "HTTP 502"
			},
			kind: ReasonRetry, since: minute + 500, until: minute + 1400,
			summary: "run 1-1800000060000 of 08:01:00 is held: attempt 2 of 3 after `HTTP 502`, until 08:01:01 (jitter -10.0 %)"},
		{name: "backoff", state: func(s *State) {
			s.Source, s.Failures, s.LastFinished, s.LastError = DelayBackoff, 3, t0, "HTTP 503"
			s.Due = t0 + 8*minute - 10_080
		}, kind: ReasonBackoff, since: 0, until: 8*minute - 10_080,
			summary: "run 1-1800000060000 of 08:01:00 is held: backoff 3 of 5 after `HTTP 503`, until 08:07:49 (jitter -2.1 %)"},
		{name: "hint", state: func(s *State) {
			s.Source, s.Due = DelayHint, t0+5*minute
			s.Hint = Hint{Source: HintOperator, AtMS: t0 + 5*minute, UntilMS: t0 + 60*minute, Reason: "maintenance"}
		}, kind: ReasonHint, until: 5 * minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: hint of the operator (maintenance): due 08:05:00, in force until 09:00:00"},
		{name: "hint for tomorrow", state: func(s *State) {
			s.Source, s.Due = DelayHint, t0+1440*minute
			s.Hint = Hint{Source: HintWorker, AtMS: t0 + 1440*minute, UntilMS: t0 + 1440*minute}
		}, kind: ReasonHint, until: 1440 * minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: hint of the worker: due 2027-01-16 08:00:00 UTC"},
		{name: "paused", at: minute, state: func(s *State) {
			s.Region, s.Paused, s.PausedMS, s.PauseNote = RegionPaused, true, t0+1000, "deploy of billing"
		}, kind: ReasonPaused, since: 1000, summary: "run 1-1800000060000 of 08:01:00 is held: paused since 08:00:01: deploy of billing"},
		{name: "dead", edit: func(d *Definition) { d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: time.UnixMilli(nominal)} },
			state: func(s *State) { s.Region, s.LastFinished, s.LastError = RegionDead, nominal, "boom" },
			at:    2 * minute, kind: ReasonDead, since: minute,
			summary: "job ns/a: its run died at 08:01:00 after `boom`; it is kept as a dead letter, and can be redriven or run again"},
		{name: "on request", edit: func(d *Definition) { d.Schedule = schedule.Spec{} }, kind: ReasonDone,
			summary: "job ns/a: it has no schedule and runs on request only"},
		{name: "all runs had", edit: func(d *Definition) { d.Schedule.MaxRuns = 2 },
			state: func(s *State) { *s = State{Region: RegionDone, Fired: 2, Lane: s.Lane, Generation: 1} }, kind: ReasonSchedule,
			summary: "job ns/a: its schedule has had all of its 2 runs (max_runs)"},
		{name: "ended", edit: func(d *Definition) { d.Schedule.EndAt = time.UnixMilli(t0 + 30_000) }, kind: ReasonSchedule, since: 30_000,
			summary: "job ns/a: its schedule has no time left before its end at 08:00:30"},
		{name: "running", at: minute + 5000, state: func(s *State) { *s = s.Leased(9); s.FirstMS = nominal }, kind: ReasonRunning, since: minute,
			summary: "job ns/a: run 1-1800000060000 is live on attempt 1 of 1"},
		{name: "overlap", at: minute, edit: func(d *Definition) { d.Overlap = OverlapCancelOther },
			state: func(s *State) {
				s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldOverlap, SinceMS: nominal}
			},
			kind: ReasonOverlap, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: an earlier run of the job has not ended (overlap policy cancel_other)"},
		{name: "mutex", at: minute, edit: func(d *Definition) { d.Locks = []Lock{{Key: "ledger", Limit: 1}} },
			state: func(s *State) {
				s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldLock, Key: "ledger", By: "ns/close", SinceMS: nominal}
			},
			kind: ReasonLock, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: mutex ledger is held by job ns/close; it waits since 08:01:00"},
		{name: "semaphore", at: minute, edit: func(d *Definition) { d.Locks = []Lock{{Key: "api", Limit: 5}} },
			state: func(s *State) {
				s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldLock, Key: "api", By: "ns/close", SinceMS: nominal}
			},
			kind: ReasonLock, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: all 5 units of lock api are held, one by job ns/close; it waits since 08:01:00"},
		{name: "target", at: minute, edit: func(d *Definition) { d.Target = "api.example.com" },
			state: func(s *State) {
				s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldTarget, Key: "api.example.com", SinceMS: nominal}
			},
			facts: func(f *Facts) {
				f.Target = backoff.Circuit{Failures: 2, SinceMS: t0, OpenUntilMS: nominal + 9000, By: "ns/other", Error: "HTTP 503"}
			},
			kind: ReasonTarget, since: minute, until: minute + 5000,
			summary: "run 1-1800000060000 of 08:01:00 is held: target api.example.com backs off after 2 failures, the last one of job ns/other: `HTTP 503`, until 08:01:09"},
		{name: "target probed", at: minute, edit: func(d *Definition) { d.Target = "x" },
			state: func(s *State) {
				s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldTarget, Key: "x", SinceMS: nominal}
			},
			facts: func(f *Facts) {
				f.Target = backoff.Circuit{Failures: 1, OpenUntilMS: nominal, Probe: "h", ProbeUntilMS: nominal + 9000}
			},
			kind: ReasonTarget, since: minute, until: minute + 5000,
			summary: "run 1-1800000060000 of 08:01:00 is held: target x backs off after a failure; a probe is under way"},
		{name: "pace", at: minute, state: func(s *State) {
			s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldPace, SinceMS: nominal}
		}, kind: ReasonPace, since: minute, until: minute + 5000,
			summary: "run 1-1800000060000 of 08:01:00 is held: recovery of queue q is paced: its turn is at 08:01:05"},
		{name: "queue concurrency, held", at: minute, state: func(s *State) {
			s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldQueue, SinceMS: nominal}
		}, facts: func(f *Facts) { f.Queue.MaxConcurrency, f.QueueLive = 20, 20 }, kind: ReasonQueueConcurrency, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: queue q has 20 of 20 runs live"},
		{name: "queue concurrency", at: minute, facts: func(f *Facts) { f.Queue.MaxConcurrency, f.QueueLive = 20, 21 },
			kind: ReasonQueueConcurrency, since: minute, summary: "run 1-1800000060000 of 08:01:00 is held: queue q has 20 of 20 runs live"},
		{name: "queue rate", at: minute, facts: func(f *Facts) { f.Queue.Rate = 2.5 }, kind: ReasonQueueRate, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: due since 08:01:00; queue q starts at most 2.5 runs a second"},
		{name: "no worker", at: minute, facts: func(f *Facts) { f.Workers = 0 }, kind: ReasonNoWorker, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: no worker serves queue q"},
		{name: "no slot", at: minute, facts: func(f *Facts) { f.FreeSlots = 0 }, kind: ReasonNoSlot, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: all slots of the 2 workers of queue q are taken"},
		{name: "no holder", at: minute, facts: func(f *Facts) { f.Held = false }, kind: ReasonNoHolder, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: shard 7 has no holder"},
		{name: "nobody asked", at: minute, facts: func(f *Facts) { *f = Facts{} }, kind: ReasonNotDue, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 waits: due since 08:01:00; who holds its shard and serves its queue could not be asked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := def()
			if tt.edit != nil {
				tt.edit(&d)
			}
			c := compile(t, d)
			s, facts := New(c, t0).State, served
			if tt.state != nil {
				tt.state(&s)
			}
			if tt.facts != nil {
				tt.facts(&facts)
			}
			got := Explain(c, s, nil, facts, t0+tt.at)
			if got.Summary != tt.summary {
				t.Errorf("got  %s\nwant %s", got.Summary, tt.summary)
			}
			after := func(ms int64) int64 {
				if ms == 0 {
					return 0
				}
				return ms - t0
			}
			if r := got.Reasons[0]; r.Kind != tt.kind || after(r.SinceMS) != tt.since || after(r.UntilMS) != tt.until {
				t.Errorf("%+v: kind %v, since %d, until %d; want %v, %d, %d", r, r.Kind, after(r.SinceMS), after(r.UntilMS), tt.kind, tt.since, tt.until)
			}
		})
	}
}

// Whoever pauses a failing job finds both reasons, the pause first.
func TestExplainNamesAllReasons(t *testing.T) {
	c := compile(t, def())
	s := New(c, t0).State
	s.Region, s.Paused, s.PausedMS = RegionPaused, true, t0
	s.Source, s.Failures, s.LastFinished, s.Due = DelayBackoff, 1, t0, t0+120_000
	child := Child{Slot: 2, State: State{Region: RegionLeased, Trigger: TriggerManual, ManualID: "x", Token: 5, Nominal: t0}}
	var kinds []string
	for _, r := range Explain(c, s, []Child{child}, served, t0).Reasons {
		kinds = append(kinds, r.Kind.String())
	}
	if got := strings.Join(kinds, " "); got != "paused backoff running" {
		t.Errorf("got %s", got)
	}
}
