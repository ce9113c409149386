package job

// How late a run is.
//
// A run is promised for an instant: when its schedule, its backoff or whoever asked
// for it wanted it to start. What a gate holds back stays promised for when it was due
// before, and what is caught up for its nominal time. [Definition.MaxLag] is by how much
// the start of a run may miss that instant. Retries are promised nothing, for their
// pauses are part of the run; neither are backfills and redriven runs, which are late
// on purpose.
//
// A breach is told once it is certain: by the node whose worker starts the run
// ([LagNotice]), or by the decision that leaves a nominal time out because nobody was
// there in time ([transition.skipped]). The state keeps the lag of the last run that
// broke its promise ([State.LateMS]) until one keeps it.

// Reasons of the notice LagBreached.
const (
	LagLate   = "late"   // the run started, too late
	LagMissed = "missed" // it never will
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

// LagNotice is what there is to tell of a run that starts at startMS: ok is false when
// it keeps its objective, or has none. A run that has to start again, since its worker
// was lost, is judged again.
func LagNotice(d *Definition, s *State, startMS int64) (n Notice, ok bool) {
	lag, _ := d.breaks(s, startMS)
	if lag == 0 {
		return Notice{}, false
	}
	return Notice{
		Kind: LagBreached, Key: d.Key, Queue: s.Lane.Queue, RunID: s.RunID(), Trigger: s.Trigger,
		DueMS: startMS - lag, AtMS: startMS, Failures: s.Failures, Count: 1, Reason: LagLate, Labels: d.Labels,
	}, true
}

// keepLag notes how the current run that started, or was held back, at an instant kept
// its promise.
func (t *transition) keepLag(atMS int64) {
	if late, ok := t.c.breaks(t.State, atMS); ok {
		t.LateMS = late
	}
}

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
