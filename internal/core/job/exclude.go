package job

import (
	"slices"
	"time"
)

// Nothing of a job starts at an instant that its schedule excludes.
//
// A due time that would lie in an exclusion is the exclusion's end instead: of a backoff, a
// hint, a retry, a backfill, what is caught up with or redriven, what a gate lets try again,
// and of a manual run whose turn comes ([Compiled.Clear], [Compiled.excluded]). A run that is
// due before and comes to be started in one is put off when it arrives
// ([transition.putOff]). What the run is promised for stays, so that misfire policies and
// lateness count the wait; only where the due time is set anew is there a new promise.
//
// Whoever asks for a run in an exclusion is refused, unless the request ignores exclusions:
// then no exclusion holds back that run ([State.Exempt]), its retries included.
//
// An edit of the exclusions does not bring forward what already waits for the end of one:
// that waits until the end that it was given, and arrives under the exclusions then in force.
// A scheduled run gives way to the new schedule, as at any edit of it.

// Clear is the first instant from ms on that the schedule does not exclude. It is false if
// there is none that a job can wait for.
func (c *Compiled) Clear(ms int64) (int64, bool) {
	at, ok := c.schedule.Clear(time.UnixMilli(ms))
	clear := at.UnixMilli()
	return clear, ok && clear < NeverMS
}

// excluded reports whether the schedule keeps the state's run from starting at an instant, and
// until when; NeverMS is for ever.
func (c *Compiled) excluded(s *State, ms int64) (until int64, excluded bool) {
	if s.IgnoresExclusions() {
		return 0, false
	}
	until, ok := c.Clear(ms)
	if !ok {
		until = NeverMS
	}
	return until, until > ms
}

// stayClear moves the due time of the current run, if it would start in an exclusion, to the
// exclusion's end.
func (t *transition) stayClear() {
	until, excluded := t.c.excluded(t.State, max(t.Due, t.now))
	if !excluded {
		return
	}
	if t.Held.DueMS == 0 {
		t.Held.DueMS = t.promised()
	}
	t.Due = until
}

// putOff puts a leased run back until the end of the exclusion that it would start in.
func (t *transition) putOff(token uint64) Answer {
	if t.overtaken(token) {
		t.arrival = ArrivalSkipped
		return t.decision(Applied)
	}
	t.arrival = ArrivalExcluded
	t.judgeLag(t.now, "")
	t.again()
	t.notice(Notice{Kind: RunHeld, Attempt: t.Attempt + 1, Reason: HeldExclusion, DueMS: t.Due})
	return t.decision(Applied)
}

// HeldExclusion is the reason of the notice RunHeld about a run that an exclusion holds back.
const HeldExclusion = "exclusion"

// refuses reports whether a manual run cannot be asked for now, because the schedule excludes
// this instant. A waiting run that is a record of its own cannot be made to ignore that.
func (t *transition) refuses(ev RunNow) bool {
	if clear, ok := t.c.Clear(t.now); ok && clear == t.now {
		return false
	}
	return !ev.IgnoreExclusions || t.Waiting != 0 && !t.isExempt(ManualRunID(t.Pending))
}

// exempt notes that no exclusion holds back the run that is asked for, if that is wished.
func (t *transition) exempt(ev RunNow) {
	if ev.IgnoreExclusions {
		t.Exempt = append(t.Exempt[:len(t.Exempt):len(t.Exempt)], ManualRunID(ev.RequestID))
	}
}

// exemptJoined does so with the run that a request has joined, unless it is a record of its
// own. It reports whether the run has become exempt.
func (t *transition) exemptJoined(ev RunNow, run string) bool {
	if !ev.IgnoreExclusions || t.Waiting != 0 || t.isExempt(run) {
		return false
	}
	t.Exempt = append(t.Exempt[:len(t.Exempt):len(t.Exempt)], run)
	return true
}

// IgnoresExclusions reports whether the current run may start at excluded times.
func (s *State) IgnoresExclusions() bool { return len(s.Exempt) > 0 && s.isExempt(s.RunID()) }

func (s *State) isExempt(run string) bool { return slices.Contains(s.Exempt, run) }

// keepExempt forgets all exempt runs but the one that waits.
func (t *transition) keepExempt() {
	if len(t.Exempt) > 0 {
		t.Exempt = exemptOf(t.Exempt, ManualRunID(t.Pending))
	}
}

// exemptOf is the part of a list that is about one run.
func exemptOf(list []string, run string) (kept []string) {
	if slices.Contains(list, run) {
		kept = []string{run}
	}
	return kept
}

// exemptBut is the rest of it.
func exemptBut(list []string, run string) (kept []string) {
	for _, id := range list {
		if id != run {
			kept = append(kept, id)
		}
	}
	return kept
}
