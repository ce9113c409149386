package job

import (
	"cmp"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Lateness of runs.
//
// The expected start of a run is the instant that its schedule, its backoff or its request
// set. A run that a gate holds back keeps its earlier expected start; a run that is caught up
// with has its nominal time. [Definition.MaxLag] is the objective: by how much the start of a run
// may miss that instant. Retries have no expected start, because their pauses are part of the run.
// Neither have backfills and redriven runs, which are late on purpose.
//
// The objective is broken when its time has passed, whether the run starts later or never. Each
// run is counted once ([State.LateNominal]), in the first decision on the run after that time:
// by the node whose worker starts it, by the gate that holds it back, or, while it waits, by the
// holder of the shard. The holder sends [CheckLateness] for the records that the index of objectives
// lists ([Decision.WatchMS]). Nominal times that are skipped because no node or worker was
// available are counted as missed ([transition.countLeftOut]). The state keeps the lag of the last
// run that broke its objective ([State.LateMS]) until a run meets it.

// Reasons of the notice LagBreached.
const (
	LagLate   = "late"   // the run has not started in time
	LagMissed = "missed" // it has been left out
)

// expectedStartMS returns when the current run ought to have started; 0 is none.
func (s *State) expectedStartMS() unixtime.Milli {
	switch {
	case s.Trigger == TriggerBackfill || s.Source == DelayRedrive || s.Attempt > 0:
		return 0
	case s.Held.DueMS != 0 && s.Held.DueMS >= s.Nominal:
		return s.Held.DueMS
	case s.Source == DelayHeld: // by a version that kept no record of it
		return 0
	case s.Source == DelayCatchUp:
		return s.Nominal
	}
	return s.Due
}

// Lag returns by how much the current run misses its promise if it starts at an instant;
// ok is false for a run without one.
func (s *State) Lag(atMS unixtime.Milli) (ms int64, ok bool) {
	due := s.expectedStartMS()
	return int64(atMS - due), due != 0 && atMS != 0
}

// objectiveExcess returns by how much a run that starts at an instant breaks the objective; 0: it meets it, or
// there is none. ok is false if the objective does not apply.
func (d *Definition) objectiveExcess(s *State, atMS unixtime.Milli) (ms int64, ok bool) {
	lag, ok := s.Lag(atMS)
	if d.MaxLag <= 0 || !ok {
		return 0, false
	}
	if lag <= d.MaxLag.Milliseconds() {
		return 0, true
	}
	return lag, true
}

// isCountedLate reports whether the current run was counted as late.
func (s *State) isCountedLate() bool { return s.LateNominal != 0 && s.LateNominal == s.Nominal }

// BreachAtMS returns the first instant at which the current run has broken the objective unless it
// has started. 0: it never will, or was counted, or there is nothing to judge, as while the
// job is paused.
func (d *Definition) BreachAtMS(s *State) unixtime.Milli {
	if d.MaxLag <= 0 || s.Region != RegionDue && s.Region != RegionLeased || s.isCountedLate() {
		return 0
	}
	due := s.expectedStartMS()
	if due == 0 {
		return 0
	}
	return addMS(due, d.MaxLag) + 1
}

// lagSnapshot is the lateness of the state before a decision.
type lagSnapshot struct {
	breachAtMS unixtime.Milli // see BreachAtMS
	watched    bool           // the index of objectives has the record, as far as the rule of watch goes
	live       bool
	nominal    unixtime.Milli // of the run
	breach     *Notice        // of a run that waits and has broken its objective; nil: it has not
}

// detectBreach checks the state before the decision. A run that has waited for too long is late, whatever the
// decision is.
func (t *transition) detectBreach() {
	if t.c.MaxLag <= 0 {
		return
	}
	t.lagBefore = lagSnapshot{breachAtMS: t.c.BreachAtMS(t.State), watched: t.Watched(), live: t.Live(),
		nominal: t.Nominal}
	if at := t.lagBefore.breachAtMS; at != 0 && at <= t.now && t.Region == RegionDue {
		n := t.newBreachNotice(t.now)
		t.lagBefore.breach = &n
	}
}

// newBreachNotice returns the notice of the current run, which has broken the objective at an instant.
func (t *transition) newBreachNotice(atMS unixtime.Milli) Notice {
	return Notice{
		Kind: LagBreached, Key: t.c.Key, Queue: t.Lane.Queue, RunID: t.RunID(), Trigger: t.Trigger,
		DueMS: t.expectedStartMS(), AtMS: atMS, Failures: t.Failures, Count: 1, Reason: LagLate,
	}
}

// countBreach counts the breach that detectBreach found.
func (t *transition) countBreach() {
	n := t.lagBefore.breach
	if n == nil {
		return
	}
	t.notices = append(t.notices, *n)
	t.LateNominal = t.lagBefore.nominal
	if t.c.MaxLag > 0 {
		t.LateMS = int64(n.AtMS - n.DueMS)
	}
}

// recordLag notes how the current run, which started or was held back at an instant, kept its
// objective, and counts it if it did not.
func (t *transition) recordLag(atMS unixtime.Milli, worker string) {
	late, ok := t.c.objectiveExcess(t.State, atMS)
	if !ok {
		return
	}
	t.LateMS = late
	if late == 0 || t.isCountedLate() {
		return
	}
	n := t.newBreachNotice(atMS)
	n.Worker = worker
	t.notices = append(t.notices, n)
	t.LateNominal = t.Nominal
}

// countLateRun counts the current run if it has broken its objective.
func (t *transition) countLateRun(ev CheckLateness) Answer {
	before := t.stateBefore()
	if ev.Token != 0 {
		if answer := t.checkFence(ev.Token); answer != Applied {
			return t.answerUnchanged(answer, before)
		}
		t.recordLag(cmp.Or(ev.StartedMS, t.now), "")
	}
	if t.lagBefore.breach == nil && t.LateNominal == before.LateNominal {
		return t.answerUnchanged(Applied, before)
	}
	return t.finishDecision(Applied)
}

// countLateBetween returns how many nominal times of a span (after lo, up to hi) were counted as late.
func (t *transition) countLateBetween(lo, hi unixtime.Milli) int64 {
	if t.LateNominal > lo && t.LateNominal <= hi {
		return 1
	}
	return 0
}

// WatchNever is the instant of no entry in the index of objectives.
const WatchNever = -1

// watchSlackMS exceeds the difference between two nodes' readings of a shard's clock.
const watchSlackMS = 2000

// nextWatchMS computes Decision.WatchMS. A record's entry is at the instant at which its
// run breaks the objective, or earlier: a reader of an early entry moves it to the current run's
// instant. So the runs of a job that start and end in time write no entry. There is no entry
//   - for a run without an applicable objective;
//   - for a leased run past that instant: its dispatcher counts it;
//   - after decisions of a version without the index, until this version decides
//     on the record ([State.WatchedBy]).
func (t *transition) nextWatchMS() unixtime.Milli {
	t.WatchedBy = 0
	if !t.isCountedLate() {
		t.LateNominal = 0 // it was that of an earlier run
	}
	if t.deleted {
		if t.lagBefore.breachAtMS > t.now {
			return WatchNever
		}
		return 0
	}
	if t.c.MaxLag <= 0 {
		return 0
	}
	t.WatchedBy = watchMark(t.Revision)
	at, was := t.c.BreachAtMS(t.State), t.lagBefore.breachAtMS
	passed := t.lagBefore.live && t.now+watchSlackMS >= was
	if at != 0 && (!t.lagBefore.watched || was == 0 || at < was || passed) {
		return at
	}
	return 0
}

// watchChild adds a watch entry to a run that moves into a child record, if it waits.
func (t *transition) watchChild(run *Spawned) {
	s := &run.State
	s.WatchedBy = 0
	if s.Region != RegionDue {
		return
	}
	run.WatchMS = t.c.BreachAtMS(s)
	if run.WatchMS != 0 {
		s.WatchedBy = watchMark(s.Revision)
	}
}

// Watched reports whether the last decision was made by a version that keeps the index of
// objectives.
func (s *State) Watched() bool { return s.WatchedBy == watchMark(s.Revision) }

// watchMark returns State.WatchedBy of a decision that made this revision. A version that does
// not know the mark leaves that of an earlier revision.
func watchMark(revision uint32) uint8 { return uint8(1 + revision%99) }

// Ranks place a job among those that fail and those that are late, the worst first. 0:
// it is not among them.
type Ranks struct {
	// Failing is a thousand for each failed run in a row; below that, the failed
	// attempts of a run that keeps failing: from retriesRank on.
	Failing int64
	// Late is the lag of the last run that broke the job's objective, in milliseconds.
	Late int64
}

const (
	failedRun   = 1000
	retriesRank = 3
)

// RankOfFailures returns the least rank of a job with so many failed runs in a row.
func RankOfFailures(failures int64) int64 { return failures * failedRun }

// Ranks returns those of a parent's state. A job that has ended is in none.
func (s *State) Ranks() (r Ranks) {
	if s.Region >= RegionDead || s.Deleting {
		return r
	}
	r.Late = s.LateMS
	switch {
	case s.Failures > 0:
		r.Failing = RankOfFailures(int64(s.Failures))
	case s.Attempt >= retriesRank:
		r.Failing = int64(min(s.Attempt, failedRun-1))
	}
	return r
}
