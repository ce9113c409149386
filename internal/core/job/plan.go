package job

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// countLimit bounds how many passed cron times are counted one by one. Interval
// schedules are counted by division.
const countLimit = 1000

// passed is what happened since the last nominal time that was judged.
type passed struct {
	hint time.Duration // a worker's wish for the next delay
	// begun is when the run that ended began; 0: what passed was not held up by a
	// run.
	begun int64
	// covered: a run stands for what was missed before it began.
	covered bool
	// asked: the run that ended was asked for by somebody.
	asked bool
	// since is what a delay, or the interval of a hint, counts from; 0 is now, as late as
	// that may be. lag is how far the clock may run ahead of passing time.
	since, lag int64
	// drop leaves out everything that passed.
	drop bool
	// resumed: what was missed is caught up with on request.
	resumed bool
}

// occurrence is a planned run of the schedule.
type occurrence struct {
	nominal, due int64
	source       DelaySource
	buffered     int64 // see State.BufferedUntil
	recovery     bool
	clean        bool // no nominal time has passed unjudged
	ok           bool
}

// next plans the scheduled run that follows s at now.
//
// While the job is paused, now is when that began. A hint in force sets the due
// time. Otherwise, after f failed runs of an
// interval job, it is now plus base * multiplier^min(f, max_exponent), capped and
// jittered, and the run takes the last nominal time up to then, so that
// Nominal <= Due holds. Cron jobs are exempt: they keep their slots, and a
// worker's hint only skips those that come too early. Otherwise it is the first
// nominal time after both now and the last one that ran, unless overlap and
// misfire policy want one that has passed (see backlog).
func (c *Compiled) next(s *State, now int64, p passed) occurrence {
	if c.Schedule.Kind == schedule.KindOnce {
		if s.LastNominal != 0 {
			return occurrence{}
		}
		at := schedule.RoundUp(c.Schedule.At).UnixMilli()
		if due, ok := c.hinted(s, now, p); ok {
			return occurrence{nominal: min(at, due), due: due, source: DelayHint, clean: true, ok: true}
		}
		return c.jittered(at, true)
	}
	if limit := c.Schedule.MaxRuns; limit > 0 && s.Fired >= uint32(limit) {
		return occurrence{clean: true}
	}
	if due, ok := c.hinted(s, now, p); ok {
		return c.dueAt(s, due)
	}
	delay, source := c.delay(s, p.hint)
	switch {
	case c.fixedDelay() && s.LastNominal != 0:
		return c.afterDelay(now, p, delay, source)
	case source == DelaySchedule || p.after(delay) <= now: // the backoff is over
		return c.onTime(s, now, p)
	}
	return c.heldBack(s, now, p, delay, source)
}

// fixedDelay tells whether intervals count from the end of a run.
func (c *Compiled) fixedDelay() bool {
	return c.Schedule.Kind == schedule.KindInterval && c.Schedule.FixedDelay
}

// onTime plans without backoff.
func (c *Compiled) onTime(s *State, now int64, p passed) occurrence {
	from := c.judged(s)
	first, ok := c.nominalAfter(from)
	if !ok {
		return occurrence{clean: true}
	}
	if first > now {
		return c.jittered(first, true)
	}
	if !p.drop {
		if o, some := c.backlog(s, from, now, p); some {
			return o
		}
	}
	nominal, ok := c.nominalAfter(now)
	if !ok {
		return occurrence{}
	}
	return c.jittered(nominal, false)
}

// judged is the instant up to which nominal times have had their run or their
// verdict.
func (c *Compiled) judged(s *State) int64 { return max(s.LastNominal, c.AnchorMS) }

// jittered plans a run on time.
func (c *Compiled) jittered(nominal int64, clean bool) occurrence {
	o := occurrence{nominal: nominal, due: nominal, clean: clean, ok: true}
	if c.Schedule.Jitter > 0 {
		if due := c.schedule.Jittered(time.UnixMilli(nominal)).UnixMilli(); due != nominal {
			o.due, o.source = due, DelayJitter
		}
	}
	return o
}

// heldBack plans a run that backoff, or a worker's hint, holds back.
func (c *Compiled) heldBack(s *State, now int64, p passed, delay time.Duration, source DelaySource) occurrence {
	nominal, ok := c.nominalAfter(max(p.since, s.LastNominal))
	if !ok {
		return occurrence{}
	}
	o := occurrence{nominal: nominal, due: nominal, ok: true}
	until := max(now, p.after(delay))
	if c.Schedule.Kind.Local() {
		if until > nominal {
			if o.nominal, o.ok = c.nominalAfter(until - 1); !o.ok {
				return occurrence{}
			}
			o.due, o.source = o.nominal, source
		}
		return o
	}
	if o.due, o.ok = c.Clear(max(until, nominal)); !o.ok {
		return occurrence{}
	}
	o.source = source
	if last, ok := c.nominalUpTo(o.due); ok {
		o.nominal = max(nominal, last)
	}
	return o
}

// afterDelay plans the next run of a fixed-delay schedule.
func (c *Compiled) afterDelay(now int64, p passed, delay time.Duration, source DelaySource) occurrence {
	if source == DelaySchedule {
		delay = c.Schedule.Every
	}
	due, ok := c.Clear(max(now, p.after(delay)))
	if end := c.Schedule.EndAt; !ok || !end.IsZero() && due >= end.UnixMilli() {
		return occurrence{clean: true}
	}
	return occurrence{nominal: due, due: due, source: source, clean: true, ok: true}
}

// dueAt plans a run for an instant, whatever the schedule says: it takes the last
// nominal time up to then or, where none is left, the instant itself.
func (c *Compiled) dueAt(s *State, due int64) occurrence {
	due, ok := c.Clear(due)
	if !ok {
		return occurrence{}
	}
	o := occurrence{nominal: due, due: due, source: DelayHint, ok: true}
	if last, ok := c.nominalUpTo(due); ok && last > c.judged(s) && !c.fixedDelay() {
		o.nominal = last
	}
	o.nominal = max(o.nominal, s.LastNominal+1)
	o.due = max(o.due, o.nominal)
	if end := c.Schedule.EndAt; !end.IsZero() && o.nominal >= end.UnixMilli() {
		return occurrence{}
	}
	return o
}

// delay is how long the next run is held back, and by which rule.
func (c *Compiled) delay(s *State, hint time.Duration) (time.Duration, DelaySource) {
	switch {
	case s.Failures == 0:
		return 0, DelaySchedule
	case hint > 0:
		return c.clampWish(hint, c.Backoff.MaxDelay), DelayHint
	case c.Schedule.Kind == schedule.KindInterval && !c.Backoff.Disabled:
		seed := c.seed(int64(s.Runs), 0)
		return c.Backoff.Delay(c.Schedule.Every, int64(s.Failures), c.MinInterval, c.MaxInterval, seed), DelayBackoff
	}
	return 0, DelaySchedule
}

// retry plans the next attempt of the run after its k-th attempt has failed.
// A retry of a recurring job never reaches the next nominal time, unless the run
// goes on beside those that follow.
func (c *Compiled) retry(s *State, k uint32, clock Reading, ev Settle, beside bool) (due int64, source DelaySource, ok bool) {
	now, first := clock.NowMS, s.FirstMS
	if first == 0 {
		first = ev.StartedMS
	}
	elapsed := time.Duration(max(0, now-first)) * time.Millisecond
	delay, ok := c.retryDelay(s, int(k), elapsed)
	if !ok || ev.Permanent {
		return 0, 0, false
	}
	source = DelayRetry
	if ev.RetryAfter > 0 {
		delay, source = c.clampWish(ev.RetryAfter, c.Retry.MaxDelay), DelayHint
		if limit := c.Retry.MaxElapsed; limit > 0 && elapsed+delay > limit {
			return 0, 0, false
		}
	}
	due = after(clock.Latest, delay)
	if until, excluded := c.excluded(s, due); excluded {
		due = until
		if limit := c.Retry.MaxElapsed; until == NeverMS || limit > 0 && due-first > limit.Milliseconds() {
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

// retryDelay is the wait after the k-th attempt of the current run, so long after
// the first began; false when that was the last.
func (c *Compiled) retryDelay(s *State, k int, elapsed time.Duration) (time.Duration, bool) {
	seed := c.seed(int64(s.Runs), int64(k))
	if c.Retry.Strategy == backoff.Decorrelated {
		seed = c.seed(int64(s.Runs), 0) // one walk a run
	}
	before := int64(0)
	if c.Backoff.WithinSlot && c.Schedule.Kind.Local() {
		before = int64(s.Failures)
	}
	return c.Retry.NextWithin(k, before, elapsed, seed)
}

func (c *Compiled) nominalAfter(ms int64) (int64, bool) {
	t, ok := c.schedule.Next(time.UnixMilli(ms))
	if !ok {
		return 0, false
	}
	return t.UnixMilli(), true
}

func (c *Compiled) nominalUpTo(ms int64) (int64, bool) {
	t, ok := c.schedule.Prev(time.UnixMilli(ms))
	if !ok {
		return 0, false
	}
	return t.UnixMilli(), true
}

// countBetween counts the nominal times after from, up to and including to.
func (c *Compiled) countBetween(from, to int64) int64 {
	if to <= from || !c.Recurring() || c.fixedDelay() {
		return 0
	}
	limit := int(^uint(0) >> 1)
	if c.Schedule.Kind.Local() || !c.Schedule.Exclude.Empty() {
		limit = countLimit
	}
	return int64(c.schedule.Count(time.UnixMilli(from), time.UnixMilli(to), limit))
}

// EffectiveInterval is the interval that the backoff policy gives after the
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

// pastTimes finds nominal times for a backfill. The grid of an interval that is anchored to its
// creation goes on into the past. To compile costs far more than to ask, so a search for many
// times keeps it.
type pastTimes struct {
	c    *Compiled
	grid *schedule.Schedule // before the anchor; nil: not compiled yet
}

// after is the first nominal time after an instant.
func (p *pastTimes) after(ms int64, b *schedule.Budget) (int64, bool) {
	spec, s := p.c.Schedule, p.c.schedule
	if spec.Kind == schedule.KindInterval && spec.StartAt.IsZero() && ms < p.c.AnchorMS {
		if p.grid == nil {
			anchor := time.UnixMilli(p.c.AnchorMS % spec.Every.Milliseconds())
			var err error
			if p.grid, err = schedule.CompileWithin(spec, anchor, p.c.seed(0, 0), b); err != nil {
				return 0, false // it compiled with a later anchor: it has ended before
			}
		}
		s = p.grid
	}
	t, ok := s.NextWithin(time.UnixMilli(ms), b)
	return t.UnixMilli(), ok
}

// PastTimes counts the nominal times that a backfill of a range would run, from
// fromMS (inclusive) to toMS (exclusive), but at most limit + 1. It is false when
// exclusions leave so few of so many that counting takes too long.
func (c *Compiled) PastTimes(fromMS, toMS int64, limit int) (n int, ok bool) {
	b, past := schedule.NewBudget(5), pastTimes{c: c}
	for at := fromMS - 1; n <= limit; n++ {
		next, found := past.after(at, b)
		if !found || next >= toMS {
			return n, found || !b.Spent()
		}
		at = next
	}
	return n, true
}

// Upcoming returns the next n nominal times after an instant.
func (c *Compiled) Upcoming(after time.Time, n int) []time.Time {
	return schedule.Upcoming(c.schedule, after, n, schedule.NewBudget(5))
}

// RunsLeft is what Spec.MaxRuns leaves; ok is false where there is no bound.
func (c *Compiled) RunsLeft(s State) (left int64, ok bool) {
	if c.Schedule.MaxRuns <= 0 {
		return 0, false
	}
	return max(0, int64(c.Schedule.MaxRuns)-int64(s.Fired)), true
}

// Probing tells whether the stored backoff of a planned or live run is too old to
// be trusted, or was when it was leased: the run finds out whether things work again.
func (c *Compiled) Probing(s State, now int64) bool {
	if !s.HasRun() || s.Failures == 0 {
		return false
	}
	if s.Live() {
		now = min(now, lease.MintedMS(s.Token))
	}
	_, probe := c.Backoff.Trusted(int64(s.Failures), time.Duration(max(0, now-s.Due))*time.Millisecond)
	return probe
}

// after is when a wait that begins now is over.
func (p passed) after(d time.Duration) int64 {
	return after(lease.Latest{MS: p.since, LagMS: p.lag}, d)
}

// after is when a wait is over, saturating at the last instant of a region.
func after(now lease.Latest, d time.Duration) int64 {
	return min(now.After(max(0, RoundUpMS(d))), NeverMS)
}

// addMS adds a delay, saturating at the last instant of a region.
func addMS(ms int64, d time.Duration) int64 {
	return min(ms+max(0, RoundUpMS(d)), NeverMS)
}

// RoundUpMS is a duration in milliseconds, rounded up: who waits so long waits no shorter.
func RoundUpMS(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}
