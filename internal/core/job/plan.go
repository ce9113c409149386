package job

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// maxCountedTimes bounds how many passed cron times are counted one by one. Interval
// schedules are counted by division.
const maxCountedTimes = 1000

// planInput describes what happened since the last nominal time that was judged.
type planInput struct {
	hint time.Duration // the next delay that a worker asks for
	// startedMS is when the run that ended began; 0: no run delayed the times that passed.
	startedMS unixtime.Milli
	// missedCovered: one run covers the times that were missed before it began.
	missedCovered bool
	// manual: the run that ended was requested by a user.
	manual bool
	// sinceMS is the instant that a delay, or the interval of a hint, counts from; 0 is the latest possible now.
	// clockLagMS is how far the clock may run ahead of passing time.
	sinceMS    unixtime.Milli
	clockLagMS int64
	// dropMissed leaves out everything that passed.
	dropMissed bool
	// catchUpRequested: what was missed is caught up with on request.
	catchUpRequested bool
}

// plannedRun is a planned run of the schedule.
type plannedRun struct {
	nominal, due  unixtime.Milli
	source        DelaySource
	bufferedUntil unixtime.Milli // see State.BufferedUntil
	recovery      bool
	nothingMissed bool // no nominal time has passed unjudged
	found         bool
}

// planNext plans the scheduled run that follows s at now.
//
// For a paused job, now is the start of the pause. The due time is, in this order:
//
//  1. that of a hint in force;
//  2. after f failed runs of an interval job, now + base * multiplier^min(f, max_exponent), capped and jittered. The
//     run takes the last nominal time up to then, so that Nominal <= Due holds;
//  3. the first nominal time after both now and the last one that ran, unless overlap and misfire policy want one that
//     has passed (see planMissed).
//
// Cron jobs are exempt from (2): they keep their nominal times. A hint of a worker only skips those that come too
// early.
func (c *Compiled) planNext(s *State, now unixtime.Milli, p planInput) plannedRun {
	if c.Schedule.Kind == schedule.KindOnce {
		if s.LastNominal != 0 {
			return plannedRun{}
		}
		at := unixtime.MilliOf(schedule.RoundUp(c.Schedule.At))
		if due, ok := c.dueByHint(s, now, p); ok {
			return plannedRun{nominal: min(at, due), due: due, source: DelayHint, nothingMissed: true, found: true}
		}
		return c.planJittered(at, true)
	}
	if limit := c.Schedule.MaxRuns; limit > 0 && s.Fired >= uint32(limit) {
		return plannedRun{nothingMissed: true}
	}
	if due, ok := c.dueByHint(s, now, p); ok {
		return c.planDueAt(s, due)
	}
	delay, source := c.nextDelay(s, p.hint)
	switch {
	case c.hasFixedDelay() && s.LastNominal != 0:
		return c.planAfterDelay(now, p, delay, source)
	case source == DelaySchedule || p.waitEnd(delay) <= now: // the backoff is over
		return c.planOnTime(s, now, p)
	}
	return c.planBackedOff(s, now, p, delay, source)
}

// hasFixedDelay reports whether intervals count from the end of a run.
func (c *Compiled) hasFixedDelay() bool {
	return c.Schedule.Kind == schedule.KindInterval && c.Schedule.FixedDelay
}

// planOnTime plans without backoff.
func (c *Compiled) planOnTime(s *State, now unixtime.Milli, p planInput) plannedRun {
	from := c.judgedUpTo(s)
	first, ok := c.nominalAfter(from)
	if !ok {
		return plannedRun{nothingMissed: true}
	}
	if first > now {
		return c.planJittered(first, true)
	}
	if !p.dropMissed {
		if o, some := c.planMissed(s, from, now, p); some {
			return o
		}
	}
	nominal, ok := c.nominalAfter(now)
	if !ok {
		return plannedRun{}
	}
	return c.planJittered(nominal, false)
}

// judgedUpTo returns the instant up to which nominal times have had their run or their
// verdict.
func (c *Compiled) judgedUpTo(s *State) unixtime.Milli { return max(s.LastNominal, c.AnchorMS) }

// planJittered plans a run on time.
func (c *Compiled) planJittered(nominal unixtime.Milli, clean bool) plannedRun {
	o := plannedRun{nominal: nominal, due: nominal, nothingMissed: clean, found: true}
	if c.Schedule.Jitter > 0 {
		if due := unixtime.MilliOf(c.schedule.Jittered(nominal.Time())); due != nominal {
			o.due, o.source = due, DelayJitter
		}
	}
	return o
}

// planBackedOff plans a run that backoff, or a worker's hint, delays.
func (c *Compiled) planBackedOff(s *State, now unixtime.Milli, p planInput,
	delay time.Duration, source DelaySource) plannedRun {
	nominal, ok := c.nominalAfter(max(p.sinceMS, s.LastNominal))
	if !ok {
		return plannedRun{}
	}
	o := plannedRun{nominal: nominal, due: nominal, found: true}
	until := max(now, p.waitEnd(delay))
	if c.Schedule.Kind.Local() {
		if until > nominal {
			o.nominal, o.found = c.nominalAfter(until - 1)
			if !o.found {
				return plannedRun{}
			}
			o.due, o.source = o.nominal, source
		}
		return o
	}
	o.due, o.found = c.NextAllowed(max(until, nominal))
	if !o.found {
		return plannedRun{}
	}
	o.source = source
	if last, ok := c.nominalUpTo(o.due); ok {
		o.nominal = max(nominal, last)
	}
	return o
}

// planAfterDelay plans the next run of a fixed-delay schedule.
func (c *Compiled) planAfterDelay(now unixtime.Milli, p planInput, delay time.Duration, source DelaySource) plannedRun {
	if source == DelaySchedule {
		delay = c.Schedule.Every
	}
	due, ok := c.NextAllowed(max(now, p.waitEnd(delay)))
	if end := c.Schedule.EndAt; !ok || !end.IsZero() && due >= unixtime.MilliOf(end) {
		return plannedRun{nothingMissed: true}
	}
	return plannedRun{nominal: due, due: due, source: source, nothingMissed: true, found: true}
}

// planDueAt plans a run for an instant, independent of the schedule. It takes the last nominal time up to then
// or, if none is left, the instant itself.
func (c *Compiled) planDueAt(s *State, due unixtime.Milli) plannedRun {
	due, ok := c.NextAllowed(due)
	if !ok {
		return plannedRun{}
	}
	o := plannedRun{nominal: due, due: due, source: DelayHint, found: true}
	if last, ok := c.nominalUpTo(due); ok && last > c.judgedUpTo(s) && !c.hasFixedDelay() {
		o.nominal = last
	}
	o.nominal = max(o.nominal, s.LastNominal+1)
	o.due = max(o.due, o.nominal)
	if end := c.Schedule.EndAt; !end.IsZero() && o.nominal >= unixtime.MilliOf(end) {
		return plannedRun{}
	}
	return o
}

// nextDelay returns how long the next run is held back, and by which rule.
func (c *Compiled) nextDelay(s *State, hint time.Duration) (time.Duration, DelaySource) {
	switch {
	case s.Failures == 0:
		return 0, DelaySchedule
	case hint > 0:
		return c.clampWorkerHint(hint, c.Backoff.MaxDelay), DelayHint
	case c.Schedule.Kind == schedule.KindInterval && !c.Backoff.Disabled:
		seed := c.jitterSeed(int64(s.Runs), 0)
		return c.Backoff.Delay(c.Schedule.Every, int64(s.Failures), c.MinInterval, c.MaxInterval, seed), DelayBackoff
	}
	return 0, DelaySchedule
}

// planRetry plans the next attempt of the run after its k-th attempt has failed. A retry of a recurring job
// never reaches the next nominal time, unless the run is parallel to the next ones.
func (c *Compiled) planRetry(s *State, k uint32, clock Reading, ev FinishAttempt, beside bool) (due unixtime.Milli,
	source DelaySource, ok bool) {
	now, first := clock.NowMS, s.FirstMS
	if first == 0 {
		first = ev.StartedMS
	}
	elapsed := max(0, now.Sub(first))
	delay, ok := c.computeRetryDelay(s, int(k), elapsed)
	if !ok || ev.Permanent {
		return 0, 0, false
	}
	source = DelayRetry
	if ev.RetryAfter > 0 {
		delay, source = c.clampWorkerHint(ev.RetryAfter, c.Retry.MaxDelay), DelayHint
		if limit := c.Retry.MaxElapsed; limit > 0 && elapsed+delay > limit {
			return 0, 0, false
		}
	}
	due = addWait(clock.Latest, delay)
	if until, excluded := c.excludesRun(s, due); excluded {
		due = until
		if limit := c.Retry.MaxElapsed; until == NeverMS || limit > 0 && int64(due-first) > limit.Milliseconds() {
			return 0, 0, false
		}
	}
	if c.Recurring() && !beside {
		if following, ok := c.nominalAfter(max(now, s.Nominal)); ok && due >= following {
			return 0, 0, false
		}
	}
	return due, source, true
}

// computeRetryDelay returns the wait after the k-th attempt of the current run, so long after
// the first began; false when that was the last.
func (c *Compiled) computeRetryDelay(s *State, k int, elapsed time.Duration) (time.Duration, bool) {
	seed := c.jitterSeed(int64(s.Runs), int64(k))
	if c.Retry.Strategy == backoff.Decorrelated {
		seed = c.jitterSeed(int64(s.Runs), 0) // one walk a run
	}
	before := int64(0)
	if c.Backoff.WithinSlot && c.Schedule.Kind.Local() {
		before = int64(s.Failures)
	}
	return c.Retry.NextAfterFailedRuns(k, before, elapsed, seed)
}

func (c *Compiled) nominalAfter(ms unixtime.Milli) (unixtime.Milli, bool) {
	t, ok := c.schedule.Next(ms.Time())
	if !ok {
		return 0, false
	}
	return unixtime.MilliOf(t), true
}

func (c *Compiled) nominalUpTo(ms unixtime.Milli) (unixtime.Milli, bool) {
	t, ok := c.schedule.Prev(ms.Time())
	if !ok {
		return 0, false
	}
	return unixtime.MilliOf(t), true
}

// countNominal counts the nominal times after from, up to and including to.
func (c *Compiled) countNominal(from, to unixtime.Milli) int64 {
	if to <= from || !c.Recurring() || c.hasFixedDelay() {
		return 0
	}
	limit := int(^uint(0) >> 1)
	if c.Schedule.Kind.Local() || !c.Schedule.Exclude.Empty() {
		limit = maxCountedTimes
	}
	return int64(c.schedule.Count(from.Time(), to.Time(), limit))
}

// EffectiveInterval returns the interval that the backoff policy gives after the
// given number of failed runs, before jitter; 0 for schedules without one.
func (c *Compiled) EffectiveInterval(failures int64) time.Duration {
	if c.Schedule.Kind != schedule.KindInterval {
		return 0
	}
	if c.Backoff.Disabled {
		return c.Schedule.Every
	}
	interval := c.Backoff.Interval(c.Schedule.Every, failures)
	if c.MaxInterval > 0 && failures > 0 {
		interval = max(c.Schedule.Every, min(interval, c.MaxInterval))
	}
	return max(interval, c.MinInterval)
}

// backfillTimes finds nominal times for a backfill. The grid of an interval that is anchored to its creation
// extends into the past. Compiling costs far more than a search, so a series of searches keeps the compiled
// schedule.
type backfillTimes struct {
	c    *Compiled
	grid *schedule.Schedule // before the anchor; nil: not compiled yet
}

// nextAfter returns the first nominal time after an instant.
func (p *backfillTimes) nextAfter(ms unixtime.Milli, b *schedule.Budget) (unixtime.Milli, bool) {
	spec, s := p.c.Schedule, p.c.schedule
	if spec.Kind == schedule.KindInterval && spec.StartAt.IsZero() && ms < p.c.AnchorMS {
		if p.grid == nil {
			anchor := time.UnixMilli(int64(p.c.AnchorMS) % spec.Every.Milliseconds())
			var err error
			p.grid, err = schedule.CompileWithin(spec, anchor, p.c.jitterSeed(0, 0), b)
			if err != nil {
				return 0, false // it compiled with a later anchor: it has ended before
			}
		}
		s = p.grid
	}
	t, ok := s.NextWithin(ms.Time(), b)
	return unixtime.MilliOf(t), ok
}

// PastTimes counts the nominal times that a backfill of a range would run, from fromMS (inclusive) to toMS
// (exclusive), but at most limit + 1. It returns false if exclusions leave so few of so many that counting takes
// too long.
func (c *Compiled) PastTimes(fromMS, toMS unixtime.Milli, limit int) (n int, ok bool) {
	b, past := schedule.NewBudget(50), backfillTimes{c: c}
	for at := fromMS - 1; n <= limit; n++ {
		next, found := past.nextAfter(at, b)
		if !found || next >= toMS {
			return n, found || !b.Exhausted()
		}
		at = next
	}
	return n, true
}

// Upcoming returns the next n nominal times after an instant.
func (c *Compiled) Upcoming(after time.Time, n int) []time.Time {
	return schedule.Upcoming(c.schedule, after, n, schedule.NewBudget(5))
}

// RunsLeft returns what Spec.MaxRuns leaves; ok is false where there is no bound.
func (c *Compiled) RunsLeft(s State) (left int64, ok bool) {
	if c.Schedule.MaxRuns <= 0 {
		return 0, false
	}
	return max(0, int64(c.Schedule.MaxRuns)-int64(s.Fired)), true
}

// Probing reports whether the stored backoff of a planned or live run is stale, or was when it was leased: the
// run tests whether the failure is over.
func (c *Compiled) Probing(s State, now unixtime.Milli) bool {
	if !s.HasRun() || s.Failures == 0 {
		return false
	}
	if s.Live() {
		now = min(now, lease.MintedMS(s.Token))
	}
	_, probe := c.Backoff.Trusted(int64(s.Failures), max(0, now.Sub(s.Due)))
	return probe
}

// waitEnd returns when a wait that begins now is over.
func (p planInput) waitEnd(d time.Duration) unixtime.Milli {
	return addWait(lease.ClockBound{MS: p.sinceMS, LagMS: p.clockLagMS}, d)
}

// addWait returns when a wait is over, saturating at the last instant of a region.
func addWait(now lease.ClockBound, d time.Duration) unixtime.Milli {
	return min(now.After(max(0, RoundUpMS(d))), NeverMS)
}

// addMS adds a delay, saturating at the last instant of a region.
func addMS(ms unixtime.Milli, d time.Duration) unixtime.Milli {
	return min(ms+unixtime.Milli(max(0, RoundUpMS(d))), NeverMS)
}

// RoundUpMS returns a duration in milliseconds, rounded up: who waits so long waits no shorter.
func RoundUpMS(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}
