package job

import "cmp"

// How late a run is.
//
// A run is promised for an instant: when its schedule, its backoff or whoever asked
// for it wanted it to start. What a gate holds back stays promised for when it was due
// before, and what is caught up for its nominal time. [Definition.MaxLag] is by how much
// the start of a run may miss that instant. Retries are promised nothing, for their
// pauses are part of the run; neither are backfills and redriven runs, which are late
// on purpose.
//
// The objective is broken at the moment its time has passed, whether the run ever starts or
// not, and each run is counted once ([State.LateNominal]). Whoever decides on a run whose
// time has passed counts it in the same decision: the node whose worker starts it, the gate
// that holds it back, or, while it waits, the holder of the shard, which asks ([FindLate])
// for the records that the index of objectives lists ([Decision.WatchMS]). Nominal times
// that are left out because nobody was there in time are counted as missed
// ([transition.leftOut]). The state keeps the lag of the last run that broke its objective
// ([State.LateMS]) until one keeps it.

// Reasons of the notice LagBreached.
const (
	LagLate   = "late"   // the run has not started in time
	LagMissed = "missed" // it has been left out
)

// promised is when the current run ought to have started; 0 is none.
func (s *State) promised() int64 {
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

// Lag is by how much the current run misses its promise if it starts at an instant;
// ok is false for a run without one.
func (s *State) Lag(atMS int64) (ms int64, ok bool) {
	due := s.promised()
	return atMS - due, due != 0 && atMS != 0
}

// breaks tells by how much a run that starts at an instant breaks the objective; 0: it
// keeps it, or there is none. ok is false where there is nothing to judge.
func (d *Definition) breaks(s *State, atMS int64) (ms int64, ok bool) {
	lag, ok := s.Lag(atMS)
	if d.MaxLag <= 0 || !ok {
		return 0, false
	}
	if lag <= d.MaxLag.Milliseconds() {
		return 0, true
	}
	return lag, true
}

// countedLate reports whether the current run was counted as late.
func (s *State) countedLate() bool { return s.LateNominal != 0 && s.LateNominal == s.Nominal }

// BreaksAt is the first instant at which the current run has broken the objective unless it
// has started. 0: it never will, or was counted, or there is nothing to judge, as while the
// job is paused.
func (d *Definition) BreaksAt(s *State) int64 {
	if d.MaxLag <= 0 || s.Region != RegionDue && s.Region != RegionLeased || s.countedLate() {
		return 0
	}
	due := s.promised()
	if due == 0 {
		return 0
	}
	return addMS(due, d.MaxLag) + 1
}

// lagBefore is what a decision has to know of the state that it is made on.
type lagBefore struct {
	breaksAt int64 // see BreaksAt
	watched  bool  // the index of objectives has the record, as far as the rule of watch goes
	live     bool
	nominal  int64   // of the run
	breach   *Notice // of a run that waits and has broken its objective; nil: it has not
}

// lookLate looks at the state that the decision is made on. A run that waits, and has
// waited for too long, is late whatever is decided.
func (t *transition) lookLate() {
	if t.c.MaxLag <= 0 {
		return
	}
	t.lag = lagBefore{breaksAt: t.c.BreaksAt(t.State), watched: t.Watched(), live: t.Live(), nominal: t.Nominal}
	if at := t.lag.breaksAt; at != 0 && at <= t.now && t.Region == RegionDue {
		n := t.breach(t.now)
		t.lag.breach = &n
	}
}

// breach is the notice of the current run, which has broken the objective at an instant.
func (t *transition) breach(atMS int64) Notice {
	return Notice{
		Kind: LagBreached, Key: t.c.Key, Queue: t.Lane.Queue, RunID: t.RunID(), Trigger: t.Trigger,
		DueMS: t.promised(), AtMS: atMS, Failures: t.Failures, Count: 1, Reason: LagLate,
	}
}

// tellLate counts what lookLate has found.
func (t *transition) tellLate() {
	n := t.lag.breach
	if n == nil {
		return
	}
	t.notices = append(t.notices, *n)
	t.LateNominal = t.lag.nominal
	if t.c.MaxLag > 0 {
		t.LateMS = n.AtMS - n.DueMS
	}
}

// judgeLag notes how the current run, which started or was held back at an instant, kept its
// objective, and counts it if it did not.
func (t *transition) judgeLag(atMS int64, worker string) {
	late, ok := t.c.breaks(t.State, atMS)
	if !ok {
		return
	}
	t.LateMS = late
	if late == 0 || t.countedLate() {
		return
	}
	n := t.breach(atMS)
	n.Worker = worker
	t.notices = append(t.notices, n)
	t.LateNominal = t.Nominal
}

// findLate counts the current run if it has broken its objective.
func (t *transition) findLate(ev FindLate) Answer {
	before := t.before()
	if ev.Token != 0 {
		if answer := t.fence(ev.Token); answer != Applied {
			return t.unchanged(answer, before)
		}
		t.judgeLag(cmp.Or(ev.StartedMS, t.now), "")
	}
	if t.lag.breach == nil && t.LateNominal == before.LateNominal {
		return t.unchanged(Applied, before)
	}
	return t.decision(Applied)
}

// countedLateIn is how many nominal times of a span (after lo, up to hi) were counted as late.
func (t *transition) countedLateIn(lo, hi int64) int64 {
	if t.LateNominal > lo && t.LateNominal <= hi {
		return 1
	}
	return 0
}

// WatchNever is the instant of no entry in the index of objectives.
const WatchNever = -1

// watchSlack is more than what two nodes may disagree about a shard's clock.
const watchSlack = 2000

// watch is Decision.WatchMS. A record's entry is at the instant at which its run breaks the
// objective, or earlier: whoever reads it then moves it on to the run that is current by
// that time. So the runs of a job that start and end in time write no entry. There is none
//   - of a run that there is nothing to judge of;
//   - of a leased run past that instant: it is its dispatcher's to judge;
//   - as long as decisions of a version without the index have not been followed by one of
//     this version ([State.WatchedBy]).
func (t *transition) watch() int64 {
	t.WatchedBy = 0
	if !t.countedLate() {
		t.LateNominal = 0 // it was that of an earlier run
	}
	if t.deleted {
		if t.lag.breaksAt > t.now {
			return WatchNever
		}
		return 0
	}
	if t.c.MaxLag <= 0 {
		return 0
	}
	t.WatchedBy = watchMark(t.Revision)
	at, was := t.c.BreaksAt(t.State), t.lag.breaksAt
	passed := t.lag.live && t.now+watchSlack >= was
	if at != 0 && (!t.lag.watched || was == 0 || at < was || passed) {
		return at
	}
	return 0
}

// watchChild has a run that becomes a record of its own watched if it waits.
func (t *transition) watchChild(run *Spawned) {
	s := &run.State
	s.WatchedBy = 0
	if s.Region != RegionDue {
		return
	}
	if run.WatchMS = t.c.BreaksAt(s); run.WatchMS != 0 {
		s.WatchedBy = watchMark(s.Revision)
	}
}

// Watched reports whether the last decision was made by a version that keeps the index of
// objectives.
func (s *State) Watched() bool { return s.WatchedBy == watchMark(s.Revision) }

// watchMark is State.WatchedBy of a decision that made this revision. A version that does
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

// RankOfFailures is the least rank of a job with so many failed runs in a row.
func RankOfFailures(failures int64) int64 { return failures * failedRun }

// Ranks are those of a parent's state. A job that has ended is in none.
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
