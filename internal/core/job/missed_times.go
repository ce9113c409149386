package job

import "github.com/fermata-io/fermata/internal/core/unixtime"

// Nominal times that passed without a run.
//
// When a run has ended, or the job is resumed, the time since the last judged nominal
// time falls into three spans:
//
//	judged        buffered           begun                now
//	  |---- kept ----|---- missed ----|---- overlapped ----|
//
// Kept times were promised a run by an earlier decision (State.BufferedUntil). Missed times
// passed while no run was live and no worker or node was available: the misfire policy decides.
// Overlapped times passed while the run that has just ended was live: the overlap policy
// decides. Runs that are promised and not started now are kept. So a backlog of any length is
// one instant in the state.

// missedSpan is a stretch of time (after lo, up to hi) with its verdict.
type missedSpan struct {
	lo, hi unixtime.Milli
	action missedAction
}

type missedAction uint8

const (
	skipMissed    missedAction = iota
	runLastMissed              // one run, with the latest nominal time of the span
	runEachMissed
)

// planMissed plans a run, due at once, for the first passed nominal time that the policies select; false if they
// select none.
func (c *Compiled) planMissed(s *State, from, now unixtime.Milli, p planInput) (plannedRun, bool) {
	if w := c.Misfire.effectiveWindow(); w > 0 {
		from = max(from, now.Add(-w)-1)
	}
	spans := c.splitMissed(s, from, now, p)
	due, ok := c.NextAllowed(now)
	if !ok {
		return plannedRun{}, false
	}
	var chosen, buffered unixtime.Milli
	for _, sp := range spans {
		switch sp.action {
		case runLastMissed:
			if n, ok := c.nominalUpTo(sp.hi); ok && n > sp.lo && chosen == 0 {
				return c.markCaughtUp(plannedRun{nominal: n, due: due}, n <= p.startedMS, p), true
			}
		case runEachMissed:
			if n, ok := c.nominalAfter(sp.lo); ok && n <= sp.hi {
				if chosen == 0 {
					chosen = n
				}
				buffered = sp.hi
			}
		}
	}
	if chosen == 0 {
		return plannedRun{}, false
	}
	chosen = max(chosen, c.nthLatestNominal(buffered, c.maxBacklog(), chosen))
	o := plannedRun{nominal: chosen, due: due, bufferedUntil: buffered}
	return c.markCaughtUp(o, p.startedMS == 0 || chosen <= p.startedMS, p), true
}

// splitMissed cuts up the time that has passed.
func (c *Compiled) splitMissed(s *State, from, now unixtime.Milli, p planInput) []missedSpan {
	begun := now
	if p.startedMS > 0 {
		begun = max(from, min(p.startedMS, now))
	}
	missed, overlapped := skipMissed, skipMissed
	switch {
	case c.Misfire.Policy != MisfireRunOnce:
		missed = runEachMissed
	case !p.missedCovered:
		missed = runLastMissed
	}
	switch c.Overlap {
	case OverlapBufferOne:
		overlapped = runLastMissed
	case OverlapSkip:
		if p.manual { // the schedule's run waits for it
			overlapped = runLastMissed
		}
	case OverlapBufferAll:
		overlapped = runEachMissed
	}
	if s.BufferedUntil == 0 || (c.Overlap != OverlapBufferAll && c.Misfire.Policy == MisfireRunOnce) {
		return []missedSpan{{from, begun, missed}, {begun, now, overlapped}}
	}
	if c.Overlap == OverlapBufferAll {
		missed = runEachMissed // it came while the backlog was being worked off
	}
	kept := max(from, min(s.BufferedUntil, now))
	begun = max(begun, kept)
	return []missedSpan{{from, kept, runEachMissed}, {kept, begun, missed}, {begun, now, overlapped}}
}

// maxBacklog bounds how many runs may be kept.
func (c *Compiled) maxBacklog() int64 {
	limit := int64(0)
	if c.Overlap == OverlapBufferAll {
		limit += int64(c.maxOverlap())
	}
	if c.Misfire.Policy != MisfireRunOnce {
		limit += c.Misfire.maxCatchUp()
	}
	return max(limit, 1)
}

func (c *Compiled) maxOverlap() int {
	if c.OverlapLimit == 0 {
		return DefaultOverlapLimit
	}
	return c.OverlapLimit
}

// markCaughtUp marks a run of the past.
func (c *Compiled) markCaughtUp(o plannedRun, missed bool, p planInput) plannedRun {
	o.found, o.source = true, DelayCatchUp
	o.recovery = p.catchUpRequested || missed && c.Misfire.Policy == MisfireRunAll
	return o
}
