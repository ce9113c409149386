package job

import (
	"cmp"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Bounds of hints where the job sets none.
const (
	// maxWorkerHint bounds a worker's hint where the policy has no max_delay.
	maxWorkerHint = 24 * time.Hour
	// MaxHint bounds the interval and the life of an operator's or planner's hint.
	MaxHint = 30 * 24 * time.Hour
	// DefaultHintLife is how long a hint lives that sets no end.
	DefaultHintLife = time.Hour
)

// clampHint keeps the delay that a hint asks for within the job's bounds.
func (c *Compiled) clampHint(delay, longest time.Duration) time.Duration {
	if c.MaxInterval > 0 {
		longest = c.MaxInterval
	}
	return max(c.MinInterval, min(delay, longest))
}

// clampWorkerHint limits a worker's hint to the job's bounds and, if the job sets no max_interval, to the
// max_delay of a policy: one response of a target must not delay a job for longer than its own failures would,
// unless the job allows it.
func (c *Compiled) clampWorkerHint(delay, maxDelay time.Duration) time.Duration {
	longest := maxWorkerHint
	if maxDelay > 0 {
		longest = max(min(maxDelay, longest), c.Schedule.Every)
	}
	return c.clampHint(delay, longest)
}

// MaxRequestedDelay returns the longest wait that a worker may ask for, for a run of the job or for
// its target.
func (d *Definition) MaxRequestedDelay() time.Duration {
	if d.MaxInterval > 0 {
		return d.MaxInterval
	}
	if d.Retry.MaxDelay <= 0 || d.Backoff.MaxDelay <= 0 {
		return maxWorkerHint
	}
	return max(min(max(d.Retry.MaxDelay, d.Backoff.MaxDelay), maxWorkerHint), d.Schedule.Every)
}

// dueByHint returns the due time that an operator's or planner's hint in force asks for,
// counted from planInput.sinceMS and within the job's bounds. A run that a hint holds
// back is due when the hint expires at the latest.
func (c *Compiled) dueByHint(s *State, now unixtime.Milli, p planInput) (due unixtime.Milli, ok bool) {
	h := s.Hint
	if h.Source <= HintWorker || now >= h.UntilMS {
		return 0, false
	}
	delay := time.Duration(h.IntervalMS) * time.Millisecond
	if h.AtMS != 0 {
		p.sinceMS, p.clockLagMS = min(p.sinceMS, h.AtMS), 0 // an instant of the clock is no wait
		delay = h.AtMS.Sub(p.sinceMS)
	}
	return max(now, min(p.waitEnd(c.clampHint(delay, MaxHint)), h.UntilMS)), true
}

// setHint takes a hint of an operator or planner, or clears the one there is.
func (t *transition) setHint(ev SetHint) Answer {
	before := t.stateBefore()
	h := ev.Hint
	h.Reason = Clip(h.Reason, MaxNote)
	if h == t.Hint {
		return t.answerUnchanged(Applied, before)
	}
	t.Hint = h
	t.addNotice(Notice{Kind: HintSet, Reason: h.Reason})
	if !t.Live() && h.AtMS > t.now && t.Attempt > 0 {
		t.Due, t.Source, t.Held = h.AtMS, DelayHint, Hold{} // a retry that waits
		t.placeRun()
		return t.finishDecision(Applied)
	}
	if t.Due > t.now && t.Held.Reason == HeldNone || h.AtMS > t.now { // a run that is late stays as it is
		t.replanRun(0)
	}
	return t.finishDecision(Applied)
}

// noteWorkerHint makes a worker's hint visible while the run of its parent that it delays waits.
func (t *transition) noteWorkerHint(reason string) {
	if !t.child && t.Source == DelayHint && t.Hint.Source <= HintWorker && t.Due > t.now {
		t.Hint = Hint{Source: HintWorker, AtMS: t.Due, UntilMS: t.Due, Reason: Clip(reason, MaxNote)}
	}
}

// consumeHint drops the part of a hint that the ending run has used up, and a hint that has expired. A run that
// was due at the hint's instant or later uses it up, whatever its outcome and whatever held it back: the source
// of its due time may have changed since. A hint that arrived while the run was live is for the next run. If the
// job's bounds move that run earlier, planScheduledRun moves the hint as well.
func (t *transition) consumeHint() {
	if t.Hint.AtMS != 0 && cmp.Or(t.Held.DueMS, t.Due) >= t.Hint.AtMS {
		t.Hint.AtMS = 0
	}
	if t.now >= t.Hint.UntilMS || (t.Hint.AtMS == 0 && t.Hint.IntervalMS == 0) {
		t.Hint = Hint{}
	}
}

// replanRun recomputes the due time of a scheduled run that has not begun. A backoff, and a hint of a worker,
// still count from the last run.
func (t *transition) replanRun(hint time.Duration) {
	if !t.isPlanned() || t.Recovery {
		return
	}
	due := t.Due
	t.countPassedOver(t.now)
	t.planScheduledRun(planInput{missedCovered: true, sinceMS: t.lastRunMS(), hint: hint}, "")
	if t.Due != due {
		t.addNotice(Notice{Kind: ScheduleUpdated, DueMS: t.Due})
	}
}
