package job

import (
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// served are facts in which nothing of the cluster stands in the way.
var served = Facts{ClusterKnown: true, Shard: 7, Held: true, Holder: "node1", Workers: 2, FreeSlots: 3}

func TestExplainNamesEachReason(t *testing.T) {
	const minute = int64(60_000)
	nominal := t0 + unixtime.Milli(minute)
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
			summary: "run 1-1800000060000 of 08:01:00 waits: nothing holds it back; it is about to start"},
		{name: "jitter", state: func(s *State) { s.Source, s.Due = DelayJitter, nominal+4000 }, kind: ReasonNotDue, until: minute + 4000,
			summary: "run 1-1800000060000 of 08:01:00 waits: due 08:01:04: nominal 08:01:00 plus the schedule's jitter"},
		{name: "retry", at: minute + 1000, edit: func(d *Definition) { d.Retry.MaxAttempts = 3 },
			state: func(s *State) {
				s.Source, s.Attempt, s.LastFinished, s.Due, s.LastError = DelayRetry, 1, nominal+500, nominal+1400, "HTTP 502"
			},
			kind: ReasonRetry, since: minute + 500, until: minute + 1400,
			summary: "run 1-1800000060000 of 08:01:00 is held: waiting for attempt 2 of 3 after `HTTP 502`, until 08:01:01"},
		{name: "backoff", state: func(s *State) {
			s.Source, s.Failures, s.LastFinished, s.LastError = DelayBackoff, 3, t0, "HTTP 503"
			s.Due = t0 + unixtime.Milli(8*minute)
		}, kind: ReasonBackoff, since: 0, until: 8 * minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: backoff 3 of 5 after `HTTP 503`, until 08:08:00"},
		{name: "flat backoff", edit: func(d *Definition) { d.Backoff.MaxExponent = 0 }, at: 1000,
			state: func(s *State) { s.Source, s.Failures, s.LastFinished, s.LastError = DelayBackoff, 3, t0+500, "" },
			kind:  ReasonBackoff, since: 500, until: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: backoff, until 08:01:00"},
		{name: "hint", state: func(s *State) {
			s.Source, s.Due = DelayHint, t0+unixtime.Milli(5*minute)
			s.Hint = Hint{Source: HintOperator, AtMS: t0 + unixtime.Milli(5*minute), UntilMS: t0 + unixtime.Milli(60*minute), Reason: "maintenance"}
		}, kind: ReasonHint, until: 5 * minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: hint of the operator (maintenance): due 08:05:00, in force until 09:00:00"},
		{name: "hint for tomorrow", state: func(s *State) {
			s.Source, s.Due = DelayHint, t0+unixtime.Milli(1440*minute)
			s.Hint = Hint{Source: HintWorker, AtMS: t0 + unixtime.Milli(1440*minute), UntilMS: t0 + unixtime.Milli(1440*minute)}
		}, kind: ReasonHint, until: 1440 * minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: hint of the worker: due 2027-01-16 08:00:00 UTC"},
		{name: "hint of which only the time is known", state: func(s *State) { s.Source = DelayHint }, kind: ReasonHint, until: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: a hint holds it back until 08:01:00"},
		{name: "paused, and the pause has no end", at: 0, state: func(s *State) {
			s.Region, s.Due, s.Nominal, s.Paused, s.PausedMS = RegionPaused, 0, 0, true, t0
		}, kind: ReasonPaused, summary: "job ns/a: paused since 08:00:00"},
		{name: "manual run of a paused job", at: minute, state: func(s *State) {
			s.Trigger, s.ManualID, s.Source = TriggerManual, "x", DelayManual
			s.Paused, s.PausedMS = true, t0
		}, facts: func(f *Facts) { f.Workers, f.FreeSlots = 0, 0 }, kind: ReasonNoWorker, since: minute,
			summary: "run m-x of 08:01:00 is held: no worker of namespace ns serves queue q"},
		{name: "paused", at: minute, state: func(s *State) {
			s.Region, s.Paused, s.PausedMS, s.PauseNote = RegionPaused, true, t0+1000, "deploy of billing"
		}, kind: ReasonPaused, since: 1000, summary: "run 1-1800000060000 of 08:01:00 is held: paused since 08:00:01: deploy of billing"},
		{name: "dead", edit: func(d *Definition) { d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: nominal.Time()} },
			state: func(s *State) { s.Region, s.LastFinished, s.LastError = RegionDead, nominal, "boom" },
			at:    2 * minute, kind: ReasonDead, since: minute,
			summary: "job ns/a: its run died at 08:01:00 after `boom`; it is kept as a dead letter, and can be redriven or run again"},
		{name: "had its one run", edit: func(d *Definition) { d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: nominal.Time()} },
			state: func(s *State) { s.Region, s.LastOutcome, s.LastFinished = RegionDone, OutcomeSucceeded, nominal+500 },
			at:    2 * minute, kind: ReasonDone, since: minute + 500, summary: "job ns/a: its one run has ended: succeeded"},
		{name: "missed its one run", edit: func(d *Definition) {
			d.Schedule = schedule.Spec{Kind: schedule.KindOnce, At: nominal.Time()}
			d.Misfire.Policy = MisfireSkip
		}, state: func(s *State) { s.Region = RegionDone }, at: 9 * minute, kind: ReasonDone,
			summary: "job ns/a: its one run was left out: it could not start within the 1m0s of its misfire policy"},
		{name: "deleted", state: func(s *State) { s.Region, s.Deleting, s.Children = RegionDone, true, 1 }, kind: ReasonDone,
			summary: "job ns/a: it is deleted, and goes when its last run has ended"},
		{name: "no time left", state: func(s *State) { s.Region = RegionDone }, kind: ReasonSchedule,
			summary: "job ns/a: its schedule has no further time"},
		{name: "on request", edit: func(d *Definition) { d.Schedule = schedule.Spec{} }, kind: ReasonDone,
			summary: "job ns/a: it has no schedule and runs on request only"},
		{name: "all runs had", edit: func(d *Definition) { d.Schedule.MaxRuns = 2 },
			state: func(s *State) { *s = State{Region: RegionDone, Fired: 2, Lane: s.Lane, Generation: 1} }, kind: ReasonSchedule,
			summary: "job ns/a: its schedule has had all of its 2 runs (max_runs)"},
		{name: "ended", edit: func(d *Definition) { d.Schedule.EndAt = (t0 + 30_000).Time() }, kind: ReasonSchedule,
			summary: "job ns/a: its schedule has no time left before its end at 08:00:30"},
		{name: "ended before", at: minute, edit: func(d *Definition) { d.Schedule.EndAt = (t0 + 30_000).Time() }, kind: ReasonSchedule, since: 30_000,
			summary: "job ns/a: its schedule has no time left before its end at 08:00:30"},
		{name: "running", at: minute + 5000, state: func(s *State) { *s = s.Leased(9); s.FirstMS = nominal }, kind: ReasonRunning, since: minute,
			summary: "job ns/a: run 1-1800000060000 is live on attempt 1 of 1"},
		{name: "running on", at: minute + 5000, edit: func(d *Definition) { d.Retry.MaxAttempts = 3 }, state: func(s *State) {
			*s = s.Leased(9)
			s.Attempt, s.FirstMS, s.Cancel, s.Pending = 1, nominal, true, "y"
		}, kind: ReasonRunning, since: minute,
			summary: "job ns/a: run 1-1800000060000 is live on attempt 2 of 3, being cancelled; the manual run m-y waits for its end"},
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
			summary: "run 1-1800000060000 of 08:01:00 is held: lock ledger is held by job ns/close; waiting since 08:01:00"},
		{name: "semaphore", at: minute, edit: func(d *Definition) { d.Locks = []Lock{{Key: "api", Limit: 5}} },
			state: func(s *State) {
				s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldLock, Key: "api", By: "ns/close", SinceMS: nominal}
			},
			kind: ReasonLock, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: all 5 units of lock api are held, one by job ns/close; waiting since 08:01:00"},
		{name: "target", at: minute, edit: func(d *Definition) { d.Target = "api.example.com" },
			state: func(s *State) {
				s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldTarget, Key: "api.example.com", SinceMS: nominal}
			},
			facts: func(f *Facts) {
				f.Target = backoff.Circuit{Failures: 2, SinceMS: t0, OpenUntilMS: nominal + 9000, FailedJob: "ns/other", Error: "HTTP 503"}
			},
			kind: ReasonTarget, since: minute, until: minute + 9000,
			summary: "run 1-1800000060000 of 08:01:00 is held: target api.example.com backs off after 2 failures, the last one of job ns/other: `HTTP 503`, until 08:01:09"},
		{name: "target, one failure", at: minute, edit: func(d *Definition) { d.Target = "x" },
			state: func(s *State) {
				s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldTarget, Key: "x", SinceMS: nominal}
			},
			facts: func(f *Facts) { f.Target = backoff.Circuit{Failures: 1, OpenUntilMS: nominal, FailedJob: "ns/other"} },
			kind:  ReasonTarget, since: minute, until: minute + 5000,
			summary: "run 1-1800000060000 of 08:01:00 is held: target x backs off after a failure of job ns/other, until 08:01:05"},
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
			summary: "run 1-1800000060000 of 08:01:00 is held: recovery of queue q is paced (recovery_rate): the turn of this run is at 08:01:05"},
		{name: "queue concurrency, held", at: minute, state: func(s *State) {
			s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldQueue, SinceMS: nominal}
		}, facts: func(f *Facts) { f.Queue.MaxConcurrency, f.QueueLive = 20, 20 }, kind: ReasonQueueConcurrency, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: queue q has 20 of 20 runs live"},
		{name: "queue concurrency, limit lifted", at: minute, state: func(s *State) {
			s.Source, s.Due, s.Held = DelayHeld, nominal+5000, Hold{Reason: HeldQueue, SinceMS: nominal}
		}, kind: ReasonQueueConcurrency, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: queue q is at its concurrency limit"},
		{name: "queue paused", at: minute, facts: func(f *Facts) { f.Queue.Paused, f.Queue.Rate, f.FreeSlots = true, 1, 0 }, kind: ReasonQueuePaused, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: queue q is paused: nothing of it starts until it is resumed"},
		{name: "queue concurrency", at: minute, facts: func(f *Facts) { f.Queue.MaxConcurrency, f.QueueLive = 20, 21 },
			kind: ReasonQueueConcurrency, since: minute, summary: "run 1-1800000060000 of 08:01:00 is held: queue q has 20 of 20 runs live"},
		{name: "queue rate", at: minute, facts: func(f *Facts) { f.Queue.Rate = 2.5 }, kind: ReasonQueueRate, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: due since 08:01:00; queue q starts at most 2.5 runs a second"},
		{name: "backoff into an exclusion", edit: func(d *Definition) {
			d.Schedule.Exclude.Periods = []schedule.Period{{From: (t0 + unixtime.Milli(4*minute)).Time(), To: (t0 + unixtime.Milli(9*minute)).Time()}}
		}, state: func(s *State) {
			s.Source, s.Failures, s.LastFinished, s.LastError = DelayBackoff, 3, t0, "HTTP 503"
			s.Due = t0 + unixtime.Milli(9*minute)
		}, kind: ReasonExclusion, until: 9 * minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: the schedule excludes the time before 08:09:00"},
		{name: "put off", at: 5 * minute, edit: func(d *Definition) {
			d.Schedule.Exclude.Periods = []schedule.Period{{From: (t0 + unixtime.Milli(4*minute)).Time(), To: (t0 + unixtime.Milli(9*minute)).Time()}}
		}, state: func(s *State) { s.Due, s.Held.DueMS = t0+unixtime.Milli(9*minute), nominal }, kind: ReasonExclusion, until: 9 * minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: the schedule excludes the time before 08:09:00"},
		{name: "due, and an exclusion has begun", at: 5 * minute, edit: func(d *Definition) {
			d.Schedule.Exclude.Periods = []schedule.Period{{From: (t0 + unixtime.Milli(4*minute)).Time(), To: (t0 + unixtime.Milli(9*minute)).Time()}}
		}, facts: func(f *Facts) { f.Workers = 0 }, kind: ReasonExclusion, until: 9 * minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: the schedule excludes this time, until 08:09:00; it was due 08:01:00"},
		{name: "on time after an exclusion", at: minute / 2, edit: func(d *Definition) {
			d.Schedule.Exclude.Periods = []schedule.Period{{From: t0.Time(), To: nominal.Time()}}
		}, kind: ReasonNotDue, until: minute, summary: "run 1-1800000060000 of 08:01:00 waits: due 08:01:00"},
		{name: "no worker", at: minute, facts: func(f *Facts) { f.Workers = 0 }, kind: ReasonNoWorker, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: no worker of namespace ns serves queue q"},
		{name: "no slot", at: minute, facts: func(f *Facts) { f.FreeSlots = 0 }, kind: ReasonNoSlot, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: all slots of the 2 workers of queue q are taken"},
		{name: "no slot of one worker", at: minute, facts: func(f *Facts) { f.Workers, f.FreeSlots = 1, 0 }, kind: ReasonNoSlot, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: all slots of the worker of queue q are taken"},
		{name: "no holder", at: minute, facts: func(f *Facts) { f.Held = false }, kind: ReasonNoHolder, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: shard 7 has no holder"},
		{name: "oversized shard", at: minute, facts: func(f *Facts) { f.Oversized = true }, kind: ReasonOversizedShard, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: nothing of its own holds it back, but shard 7 has more than " +
				"10000 lanes: its node may find the run some seconds late"},
		{name: "oversized shard without a worker", at: minute, facts: func(f *Facts) { f.Oversized, f.Workers = true, 0 },
			kind: ReasonNoWorker, since: minute,
			summary: "run 1-1800000060000 of 08:01:00 is held: no worker of namespace ns serves queue q"},
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
			got := Explain(c, s, nil, facts, t0+unixtime.Milli(tt.at))
			if got.Summary != tt.summary {
				t.Errorf("got  %s\nwant %s", got.Summary, tt.summary)
			}
			after := func(ms unixtime.Milli) int64 {
				if ms == 0 {
					return 0
				}
				return int64(ms - t0)
			}
			if r := got.Reasons[0]; r.Kind != tt.kind || after(r.SinceMS) != tt.since || after(r.UntilMS) != tt.until {
				t.Errorf("%+v: kind %v, since %d, until %d; want %v, %d, %d", r, r.Kind, after(r.SinceMS), after(r.UntilMS), tt.kind, tt.since, tt.until)
			}
		})
	}
}

// A due run has been held by a gate before: the reason must hold now, and matters less than that no node leases
// the run.
func TestExplainOfAGateThatHeldTheRunBefore(t *testing.T) {
	const second = int64(1000)
	hold := func(reason HoldReason, key string) func(*State) {
		return func(s *State) {
			s.Held = Hold{Reason: reason, Key: key, By: "ns/b", SinceMS: t0 + unixtime.Milli(60*second)}
		}
	}
	unserved := func(f *Facts) { f.Workers, f.FreeSlots = 0, 0 }
	for _, tt := range []struct {
		name  string
		state func(*State)
		facts func(*Facts)
		want  string // kinds and keys
	}{
		{"lock", hold(HeldLock, "k"), nil, "lock k"},
		{"lock, no worker", hold(HeldLock, "k"), unserved, "no_worker q, lock k"},
		{"lock, rate", hold(HeldLock, "k"), func(f *Facts) { f.Queue.Rate = 1 }, "lock k, queue_rate q"},
		{"lock, no facts", hold(HeldLock, "k"), func(f *Facts) { *f = Facts{} }, "lock k, not_due "},
		{"its turn has come", hold(HeldPace, ""), nil, "not_due "},
		{"its turn has come, no worker", hold(HeldPace, ""), unserved, "no_worker q"},
		{"no holder", hold(HeldPace, ""), func(f *Facts) { f.Held = false }, "no_holder 7"},
		{"room in the queue", hold(HeldQueue, ""), func(f *Facts) { f.Queue.MaxConcurrency, f.QueueLive = 2, 1 }, "not_due "},
		{"no room in the queue", hold(HeldQueue, ""), func(f *Facts) { f.Queue.MaxConcurrency, f.QueueLive = 2, 2 }, "queue_concurrency q"},
		{"target closed", hold(HeldTarget, "x"), nil, "not_due "},
		{"target open", hold(HeldTarget, "x"), func(f *Facts) { f.Target = backoff.Circuit{Failures: 1, OpenUntilMS: t0 + unixtime.Milli(99*second)} }, "target x"},
		{"target half open", hold(HeldTarget, "x"), func(f *Facts) { f.Target = backoff.Circuit{Failures: 1, OpenUntilMS: t0} }, "target x"},
		{"queue paused", hold(HeldLock, "k"), func(f *Facts) { f.Queue.Paused, f.Queue.Rate = true, 1 }, "queue_paused q, lock k"},
		{"queue paused, no worker", hold(HeldPace, ""), func(f *Facts) { unserved(f); f.Queue.Paused = true }, "queue_paused q, no_worker q"},
		{"queue paused, not due", func(s *State) { s.Source, s.Due = DelayHint, t0+unixtime.Milli(99*second) }, func(f *Facts) { f.Queue.Paused = true }, "hint , queue_paused q"},
		{"others have ended", hold(HeldOverlap, ""), nil, "not_due "},
		{"others go on", func(s *State) { hold(HeldOverlap, "")(s); s.Children, s.Started = 1, 1 }, nil, "overlap "},
		{"a hint since then", func(s *State) { hold(HeldLock, "k")(s); s.Source = DelayHint }, nil, "not_due "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := compile(t, def())
			s, facts := New(c, t0).State, served
			s.Source, s.Due = DelayHeld, t0+unixtime.Milli(65*second)
			tt.state(&s)
			if tt.facts != nil {
				tt.facts(&facts)
			}
			now := t0 + unixtime.Milli(70*second)
			var got []string
			for _, r := range Explain(c, s, nil, facts, now).Reasons {
				got = append(got, r.Kind.String()+" "+r.Key)
				if r.UntilMS != 0 && r.UntilMS <= now {
					t.Errorf("%s until %d, which has passed", r.Message, int64(r.UntilMS-t0))
				}
			}
			if got := strings.Join(got, ", "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// The jitter that is shown is what was drawn, whatever the curve that it was drawn
// on, and nothing where something else moved the run.
func TestExplainShowsTheJitterThatWasDrawn(t *testing.T) {
	down := backoff.DefaultJitter()
	cron := schedule.Spec{Kind: schedule.KindCron, Cron: []string{"0 * * * *"}}
	for _, tt := range []struct {
		name     string
		edit     func(*Definition)
		failures uint32 // before the run that fails
		want     string
	}{
		{"backoff", func(d *Definition) { d.Backoff.Jitter = down }, 2, "backoff 3 of 5 after `boom`, until 08:08:59 (jitter -0.1 %)"},
		{"backoff without jitter", func(*Definition) {}, 2, "backoff 3 of 5 after `boom`, until 08:09:00"},
		{"bounded backoff", func(d *Definition) { d.Backoff.Jitter, d.MaxInterval = down, 2*time.Minute }, 2,
			"backoff 3 of 5 after `boom`, until 08:02:59 (jitter -0.1 %)"},
		{"retry", func(d *Definition) { d.Retry.MaxAttempts, d.Retry.Jitter, d.Retry.Base = 3, down, 10*time.Second }, 0,
			"waiting for attempt 2 of 3 after `boom`, until 08:01:09 (jitter -4.5 %)"},
		{"retry that starts up the curve", func(d *Definition) {
			d.Schedule, d.Backoff.WithinSlot = cron, true
			d.Retry.MaxAttempts, d.Retry.Jitter, d.Retry.Base = 3, down, 10*time.Second
		}, 2, "waiting for attempt 2 of 3 after `boom`, until 09:00:38 (jitter -4.5 %)"},
		{"decorrelated retry", func(d *Definition) {
			d.Retry.MaxAttempts, d.Retry.Strategy, d.Retry.Base = 3, backoff.Decorrelated, 10*time.Second
		}, 0, "waiting for attempt 2 of 3 after `boom`, until 08:01:16"},
		{"moved by an exclusion", func(d *Definition) {
			d.Schedule.FixedDelay, d.Backoff.Jitter = true, down
			d.Schedule.Exclude = schedule.Exclusions{Windows: []string{"08:05-09:00"}}
		}, 2, "backoff 3 of 5 after `boom`, until 09:00:00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := def()
			tt.edit(&d)
			c := compile(t, d)
			s := New(c, t0).State
			s.Failures = tt.failures
			now := s.Due
			s = Decide(c, s.Leased(1), FinishAttempt{Token: 1, Outcome: OutcomeFailed, StartedMS: now, Error: "boom"}, now).State
			before := c.Retry
			e := Explain(c, s, nil, served, now)
			if got := e.Reasons[len(e.Reasons)-1].Message; got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if c.Retry != before {
				t.Errorf("the definition has another retry policy now: %+v", c.Retry)
			}
		})
	}
}

// A run that may start beside another one is not held by it.
func TestExplainIgnoresAParallelRun(t *testing.T) {
	d := def()
	d.Overlap = OverlapAllowAll
	c := compile(t, d)
	s := New(c, t0).State
	s.Children, s.Started = 1, 1
	child := Child{Slot: 0, State: State{Region: RegionLeased, Nominal: t0, Generation: 1}}
	e := Explain(c, s, []Child{child}, served, s.Due)
	if want := "run 1-1800000060000 of 08:01:00 waits: nothing holds it back; it is about to start"; e.Summary != want {
		t.Errorf("got %s", e.Summary)
	}
	if r := e.Reasons[1]; r.Kind != ReasonRunning || r.Message != "run 1-1800000000000 is live on attempt 1 of 1" {
		t.Errorf("got %+v", r)
	}
}

// A pause is shown for a live run too: it is why no run follows. A manual run is not held back.
func TestExplainShowsAPauseOfALiveRun(t *testing.T) {
	c := compile(t, def())
	s := New(c, t0).State.Leased(1)
	s.Paused, s.PausedMS, s.PauseNote = true, t0, "audit"
	for _, tt := range []struct {
		state State
		want  string
	}{
		{s, "paused since 08:00:00: audit"},
		{func() State {
			s := s
			s.Region, s.Trigger, s.ManualID, s.Source = RegionDue, TriggerManual, "x", DelayManual
			return s
		}(), "paused since 08:00:00, which holds back no manual run: audit"},
	} {
		e := Explain(c, tt.state, nil, served, t0+60_000)
		if len(e.Reasons) != 2 || e.Reasons[1].Kind != ReasonPaused || e.Reasons[1].Message != tt.want {
			t.Errorf("got %+v, want %s as the second", e.Reasons, tt.want)
		}
	}
}

// A paused job that fails has both reasons, the pause first.
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

// TestExplainNamesARunWhosePayloadCannotBeOpened, also one that waits beside the schedule.
func TestExplainNamesARunWhosePayloadCannotBeOpened(t *testing.T) {
	d := def()
	d.Schedule = schedule.Spec{Kind: schedule.KindNone}
	c := compile(t, d)
	run := State{Region: RegionDue, Trigger: TriggerManual, ManualID: "a", Source: DelayHeld, Due: t0 + 1000,
		OwnPayload: new(PayloadInfo), Held: Hold{Reason: HeldPayload, Key: "k1", SinceMS: t0}}
	e := Explain(c, State{Region: RegionDone, Children: 1}, []Child{{State: run}}, Facts{}, t0)
	if n := len(e.Reasons); n != 2 || e.Reasons[1].Kind != ReasonPayload || e.Reasons[1].Key != "k1" ||
		!strings.Contains(e.Reasons[1].Message, "run m-a") {
		t.Errorf("%+v", e)
	}
}
