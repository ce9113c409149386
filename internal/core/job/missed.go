package job

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// What becomes of nominal times that passed without a run.
//
// When a run has ended, or the job comes back to life, the time since the last
// judged nominal time falls into three spans:
//
//	judged        buffered           begun                now
//	  |---- kept ----|---- missed ----|---- overlapped ----|
//
// Kept are those that an earlier verdict has promised a run (State.BufferedUntil).
// Missed are those that nobody came for, though nothing was live: the misfire
// policy has its say. Overlapped came while the run that has just ended was live:
// the overlap policy's part. What is promised and not run now is kept; so a
// backlog of any length is one instant in the state, whatever its length.

// span is a stretch of time (after lo, up to hi) with its verdict.
type span struct {
	lo, hi  int64
	verdict verdict
}

type verdict uint8

const (
	leaveOut verdict = iota
	runLast          // one run, with the latest nominal time of the span
	runEach
)

// backlog plans a run for the first nominal time that the policies want of those
// that have passed, due at once; false if they want none.
func (c *Compiled) backlog(s *State, from, now int64, p passed) (occurrence, bool) {
	if w := c.Misfire.window(); w > 0 {
		from = max(from, now-w.Milliseconds()-1)
	}
	spans := c.spans(s, from, now, p)
	due, ok := c.Clear(now)
	if !ok {
		return occurrence{}, false
	}
	var chosen, buffered int64
	for _, sp := range spans {
		switch sp.verdict {
		case runLast:
			if n, ok := c.nominalUpTo(sp.hi); ok && n > sp.lo && chosen == 0 {
				return c.caughtUp(occurrence{nominal: n, due: due}, n <= p.begun, p), true
			}
		case runEach:
			if n, ok := c.nominalAfter(sp.lo); ok && n <= sp.hi {
				if chosen == 0 {
					chosen = n
				}
				buffered = sp.hi
			}
		}
	}
	if chosen == 0 {
		return occurrence{}, false
	}
	chosen = max(chosen, c.oldestOf(buffered, c.backlogLimit(), chosen))
	o := occurrence{nominal: chosen, due: due, buffered: buffered}
	return c.caughtUp(o, p.begun == 0 || chosen <= p.begun, p), true
}

// spans cuts up the time that has passed.
func (c *Compiled) spans(s *State, from, now int64, p passed) []span {
	begun := now
	if p.begun > 0 {
		begun = max(from, min(p.begun, now))
	}
	missed, overlapped := leaveOut, leaveOut
	switch {
	case c.Misfire.Policy != MisfireRunOnce:
		missed = runEach
	case !p.covered:
		missed = runLast
	}
	switch c.Overlap {
	case OverlapBufferOne:
		overlapped = runLast
	case OverlapSkip:
		if p.asked { // the schedule's run waits for it
			overlapped = runLast
		}
	case OverlapBufferAll:
		overlapped = runEach
	}
	if s.BufferedUntil == 0 || (c.Overlap != OverlapBufferAll && c.Misfire.Policy == MisfireRunOnce) {
		return []span{{from, begun, missed}, {begun, now, overlapped}}
	}
	if c.Overlap == OverlapBufferAll {
		missed = runEach // it came while the backlog was being worked off
	}
	kept := max(from, min(s.BufferedUntil, now))
	begun = max(begun, kept)
	return []span{{from, kept, runEach}, {kept, begun, missed}, {begun, now, overlapped}}
}

// backlogLimit bounds how many runs may be kept.
func (c *Compiled) backlogLimit() int64 {
	limit := int64(0)
	if c.Overlap == OverlapBufferAll {
		limit += int64(c.overlapLimit())
	}
	if c.Misfire.Policy != MisfireRunOnce {
		limit += c.Misfire.maxCatchUp()
	}
	return max(limit, 1)
}

func (c *Compiled) overlapLimit() int {
	if c.OverlapLimit == 0 {
		return DefaultOverlapLimit
	}
	return c.OverlapLimit
}

// oldestOf is the n-th nominal time counted backwards from an instant, but not
// before floor. Each run of a backlog asks again: one that is within its limit, as it is
// from the second run on, is not counted time by time.
func (c *Compiled) oldestOf(upTo, n, floor int64) int64 {
	if (upTo-floor)/c.leastGap()+1 < n {
		return floor
	}
	at := upTo
	for range n {
		prev, ok := c.nominalUpTo(at)
		if !ok || prev <= floor {
			return floor
		}
		at = prev - 1
	}
	return at + 1
}

// leastGap is what lies between two nominal times at least, in milliseconds.
func (c *Compiled) leastGap() int64 {
	switch {
	case c.schedule.Kind() == schedule.KindInterval:
		return max(1, c.schedule.Period(time.Time{}).Milliseconds())
	case c.Schedule.Seconds:
		return time.Second.Milliseconds()
	}
	return time.Minute.Milliseconds()
}

// caughtUp marks a run of the past.
func (c *Compiled) caughtUp(o occurrence, missed bool, p passed) occurrence {
	o.ok, o.source = true, DelayCatchUp
	o.recovery = p.resumed || missed && c.Misfire.Policy == MisfireRunAll
	return o
}
