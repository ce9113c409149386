package job

import (
	"cmp"
	"time"
)

// Bounds of hints where the job sets none.
const (
	// maxWorkerHint bounds what a worker may ask for where the policy has no max_delay.
	maxWorkerHint = 24 * time.Hour
	// MaxHint bounds the interval and the life of an operator's or planner's hint.
	MaxHint = 30 * 24 * time.Hour
	// DefaultHintLife is how long a hint lives that does not say.
	DefaultHintLife = time.Hour
)

// clampHint keeps a wish within the job's bounds.
func (c *Compiled) clampHint(wish, longest time.Duration) time.Duration {
	if c.MaxInterval > 0 {
		longest = c.MaxInterval
	}
	return max(c.MinInterval, min(wish, longest))
}

// clampWish keeps what a worker asks for within the job's bounds and, where the job sets no
// max_interval, within the max_delay of a policy: one answer of a target must not hold a
// job back for longer than its own failures would, unless the job allows it.
func (c *Compiled) clampWish(wish, maxDelay time.Duration) time.Duration {
	longest := maxWorkerHint
	if maxDelay > 0 {
		longest = max(min(maxDelay, longest), c.Schedule.Every)
	}
	return c.clampHint(wish, longest)
}

// LongestWish is the longest wait that a worker may ask for, for a run of the job or for
// its target.
func (d *Definition) LongestWish() time.Duration {
	if d.MaxInterval > 0 {
		return d.MaxInterval
	}
	if d.Retry.MaxDelay <= 0 || d.Backoff.MaxDelay <= 0 {
		return maxWorkerHint
	}
	return max(min(max(d.Retry.MaxDelay, d.Backoff.MaxDelay), maxWorkerHint), d.Schedule.Every)
}

// hinted is the due time that an operator's or planner's hint in force asks for,
// counted from passed.since and within the job's bounds. A run that a hint holds
// back is due when the hint expires at the latest.
func (c *Compiled) hinted(s *State, now int64, p passed) (due int64, ok bool) {
	h := s.Hint
	if h.Source <= HintWorker || now >= h.UntilMS {
		return 0, false
	}
	wish := time.Duration(h.IntervalMS) * time.Millisecond
	if h.AtMS != 0 {
		p.since, p.lag = min(p.since, h.AtMS), 0 // an instant of the clock is no wait
		wish = time.Duration(h.AtMS-p.since) * time.Millisecond
	}
	return max(now, min(p.after(c.clampHint(wish, MaxHint)), h.UntilMS)), true
}

// setHint takes a hint of an operator or planner, or clears the one there is.
func (t *transition) setHint(ev SetHint) Answer {
	before := t.before()
	h := ev.Hint
	h.Reason = Clip(h.Reason, MaxNote)
	if h == t.Hint {
		return t.unchanged(Applied, before)
	}
	t.Hint = h
	t.notice(Notice{Kind: HintSet, Reason: h.Reason})
	if !t.Live() && h.AtMS > t.now && t.Attempt > 0 {
		t.Due, t.Source, t.Held = h.AtMS, DelayHint, Hold{} // a retry that waits
		t.place()
		return t.decision(Applied)
	}
	if t.Due > t.now && t.Held.Reason == HeldNone || h.AtMS > t.now { // a run that is late stays as it is
		t.replan(0)
	}
	return t.decision(Applied)
}

// noteHint makes a worker's wish visible while the run of its parent that it delays waits.
func (t *transition) noteHint(reason string) {
	if !t.child && t.Source == DelayHint && t.Hint.Source <= HintWorker && t.Due > t.now {
		t.Hint = Hint{Source: HintWorker, AtMS: t.Due, UntilMS: t.Due, Reason: Clip(reason, MaxNote)}
	}
}

// spendHint forgets what of a hint the run has used up that leaves the plan, or what has
// expired. An instant is used up by the run that was due then or later, whatever became of
// it and held it back: the source of its due time may have changed since, and a hint that
// came while it was live is for the one that follows. Where the job's bounds have its run
// come earlier, planSchedule has the hint say so.
func (t *transition) spendHint() {
	if t.Hint.AtMS != 0 && cmp.Or(t.Held.DueMS, t.Due) >= t.Hint.AtMS {
		t.Hint.AtMS = 0
	}
	if t.now >= t.Hint.UntilMS || (t.Hint.AtMS == 0 && t.Hint.IntervalMS == 0) {
		t.Hint = Hint{}
	}
}

// replan computes anew when a scheduled run is due that has not begun. A backoff, and
// the hint that a worker may have given, count from the last run, as they did.
func (t *transition) replan(hint time.Duration) {
	if !t.planned() || t.Recovery {
		return
	}
	due := t.Due
	t.passOver(t.now)
	t.planSchedule(passed{covered: true, since: t.lastRun(), hint: hint}, "")
	if t.Due != due {
		t.notice(Notice{Kind: ScheduleUpdated, DueMS: t.Due})
	}
}
