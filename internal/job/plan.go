package job

import (
	"math"
	"time"

	"github.com/fermata-io/fermata/internal/backoff"
	"github.com/fermata-io/fermata/internal/schedule"
)

// countLimit bounds how many passed cron times are counted one by one. Interval
// schedules are counted by division.
const countLimit = 1000

// occurrence is a planned run of the schedule.
type occurrence struct {
	nominal, due int64
	source       DelaySource
	skipped      int64 // nominal times passed over since the last one
	ok           bool
}

// next plans the scheduled run that follows s at now. hint, when set, takes the
// place of the computed delay.
//
// Without failures it is the first nominal time after both now and the last one
// that ran. After f failed runs of an interval job it is due at now plus
// base * multiplier^min(f, max_exponent), capped and jittered, and takes the
// last nominal time up to then; so Nominal <= Due holds. Cron jobs are exempt:
// they keep their slots, and a hint only skips those that come too early.
func (c *Compiled) next(s State, now int64, hint time.Duration) occurrence {
	if c.Schedule.Kind == schedule.KindOnce && s.LastNominal == 0 {
		at := c.Schedule.At.UnixMilli()
		return occurrence{nominal: at, due: at, ok: true}
	}
	nominal, ok := c.nominalAfter(max(now, s.LastNominal))
	if !ok {
		return occurrence{}
	}
	o := occurrence{nominal: nominal, due: nominal, ok: true}
	delay, source := c.delay(s, hint)
	switch {
	case c.Schedule.Kind == schedule.KindInterval && c.Schedule.FixedDelay && s.LastNominal != 0:
		if source == DelaySchedule {
			delay = c.Schedule.Every
		}
		o.due, o.source = addMS(now, delay), source
		o.nominal = o.due
		if end := c.Schedule.EndAt; !end.IsZero() && o.due >= end.UnixMilli() {
			return occurrence{}
		}
		return o
	case source == DelaySchedule:
	case c.Schedule.Kind == schedule.KindCron:
		if early := addMS(now, delay); early > nominal {
			if o.nominal, o.ok = c.nominalAfter(early - 1); !o.ok {
				return occurrence{}
			}
			o.due, o.source = o.nominal, source
		}
	default:
		o.due, o.source = max(addMS(now, delay), nominal), source
		if last, ok := c.schedule.Prev(time.UnixMilli(o.due)); ok {
			o.nominal = max(nominal, last.UnixMilli())
		}
	}
	if s.LastNominal != 0 {
		limit := math.MaxInt
		if c.Schedule.Kind == schedule.KindCron {
			limit = countLimit
		}
		o.skipped = int64(c.schedule.Count(time.UnixMilli(s.LastNominal), time.UnixMilli(o.nominal-1), limit))
	}
	return o
}

// delay is how long the next run is held back, and by which rule.
func (c *Compiled) delay(s State, hint time.Duration) (time.Duration, DelaySource) {
	switch {
	case s.Failures == 0:
		return 0, DelaySchedule
	case hint > 0:
		return c.clampHint(hint), DelayHint
	case c.Schedule.Kind == schedule.KindInterval && !c.Backoff.Disabled:
		seed := backoff.Seed(c.Record(), int64(s.Runs), 0)
		return c.Backoff.Delay(c.Schedule.Every, int64(s.Failures), c.MinInterval, c.MaxInterval, seed), DelayBackoff
	}
	return 0, DelaySchedule
}

// maxHint bounds what a worker may ask for where the job sets no bound.
const maxHint = 24 * time.Hour

func (c *Compiled) clampHint(hint time.Duration) time.Duration {
	longest := maxHint
	if c.MaxInterval > 0 {
		longest = c.MaxInterval
	}
	return max(c.MinInterval, min(hint, longest))
}

// retry plans the next attempt of the run after its k-th attempt has failed.
// A retry of a recurring job never reaches the next nominal time.
func (c *Compiled) retry(s State, k uint32, now int64, ev Settle) (due int64, source DelaySource, ok bool) {
	first := s.FirstMS
	if first == 0 {
		first = ev.StartedMS
	}
	elapsed := time.Duration(max(0, now-first)) * time.Millisecond
	seed := backoff.Seed(c.Record(), int64(s.Runs), int64(k))
	if c.Retry.Strategy == backoff.Decorrelated {
		seed = backoff.Seed(c.Record(), int64(s.Runs), 0) // one walk a run
	}
	delay, ok := c.Retry.Next(int(k), elapsed, seed)
	if !ok || ev.Permanent {
		return 0, 0, false
	}
	source = DelayRetry
	if ev.RetryAfter > 0 {
		delay, source = c.clampHint(ev.RetryAfter), DelayHint
		if limit := c.Retry.MaxElapsed; limit > 0 && elapsed+delay > limit {
			return 0, 0, false
		}
	}
	due = addMS(now, delay)
	if c.Recurring() {
		if following, ok := c.nominalAfter(max(now, s.Nominal)); ok && due >= following {
			return 0, 0, false
		}
	}
	return due, source, true
}

func (c *Compiled) nominalAfter(ms int64) (int64, bool) {
	t, ok := c.schedule.Next(time.UnixMilli(ms))
	if !ok {
		return 0, false
	}
	return t.UnixMilli(), true
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

// Upcoming returns the next n nominal times after an instant.
func (c *Compiled) Upcoming(after time.Time, n int) []time.Time {
	return schedule.Upcoming(c.schedule, after, n)
}

// addMS adds a delay, saturating at the last instant of a region.
func addMS(ms int64, d time.Duration) int64 {
	return min(ms+max(0, d.Milliseconds()), NeverMS)
}
