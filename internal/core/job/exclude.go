package job

import (
	"slices"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// No run of a job starts at an instant that its schedule excludes.
//
// A due time within an exclusion moves to the exclusion's end. That holds for the due times of
// a backoff, a hint, a retry, a backfill, a run that is caught up with or redriven, a run that a
// gate held back, and a waiting manual run ([Compiled.NextAllowed], [Compiled.excludesRun]). A run that
// is due before an exclusion and leased within it is postponed ([transition.postponeRun]). Its
// scheduled time stays, so that misfire policies and lateness count the wait. Only a new due time
// sets a new scheduled time.
//
// A request for a run within an exclusion is refused, unless it ignores exclusions. Then no
// exclusion holds back that run ([State.Exempt]) or its retries.
//
// An edit of the exclusions does not move a run that already waits for the end of one: it waits
// until that end, and is then checked against the exclusions in force. A scheduled run is
// replaced by one of the new schedule, as at any edit of the schedule.

// NextAllowed returns the first instant from ms on that the schedule does not exclude. It is false if
// there is none that a job can wait for.
func (c *Compiled) NextAllowed(ms unixtime.Milli) (unixtime.Milli, bool) {
	at, ok := c.schedule.NextAllowed(ms.Time())
	clear := unixtime.MilliOf(at)
	return clear, ok && clear < NeverMS
}

// excludesRun reports whether the schedule keeps the state's run from starting at an instant, and
// until when; NeverMS is for ever.
func (c *Compiled) excludesRun(s *State, ms unixtime.Milli) (until unixtime.Milli, excluded bool) {
	if s.IgnoresExclusions() {
		return 0, false
	}
	until, ok := c.NextAllowed(ms)
	if !ok {
		until = NeverMS
	}
	return until, until > ms
}

// avoidExclusion moves the due time of the current run, if it would start in an exclusion, to the
// exclusion's end.
func (t *transition) avoidExclusion() {
	until, excluded := t.c.excludesRun(t.State, max(t.Due, t.now))
	if !excluded {
		return
	}
	if t.Held.DueMS == 0 {
		t.Held.DueMS = t.expectedStartMS()
	}
	t.Due = until
}

// postponeRun puts a leased run back until the end of the exclusion that it would start in.
func (t *transition) postponeRun(token uint64) Answer {
	if t.endOvertakenRun(token) {
		t.arrival = ArrivalSkipped
		return t.finishDecision(Applied)
	}
	t.arrival = ArrivalExcluded
	t.recordLag(t.now, "")
	t.repeatAttempt()
	t.addNotice(Notice{Kind: RunHeld, Attempt: t.Attempt + 1, Reason: HeldExclusion, DueMS: t.Due})
	return t.finishDecision(Applied)
}

// HeldExclusion is the reason of the notice RunHeld about a run that an exclusion holds back.
const HeldExclusion = "exclusion"

// refusesManual reports whether a manual run is refused now, because the schedule excludes this instant. A
// waiting run in a child record cannot be exempted.
func (t *transition) refusesManual(ev RequestManualRun) bool {
	if !t.c.schedule.Excludes(t.now.Time()) {
		return false
	}
	return !ev.IgnoreExclusions || t.Waiting != 0 && !t.isExempt(ManualRunID(t.Pending))
}

// exemptManual marks the requested run as exempt from exclusions, if the request says so.
func (t *transition) exemptManual(ev RequestManualRun) {
	if ev.IgnoreExclusions {
		t.Exempt = append(t.Exempt[:len(t.Exempt):len(t.Exempt)], ManualRunID(ev.RequestID))
	}
}

// exemptJoinedRun exempts the run that a request has joined, unless it is a child record. It reports whether the
// run has become exempt.
func (t *transition) exemptJoinedRun(ev RequestManualRun, run string) bool {
	if !ev.IgnoreExclusions || t.Waiting != 0 || t.isExempt(run) {
		return false
	}
	t.Exempt = append(t.Exempt[:len(t.Exempt):len(t.Exempt)], run)
	return true
}

// IgnoresExclusions reports whether the current run may start at excluded times.
func (s *State) IgnoresExclusions() bool { return len(s.Exempt) > 0 && s.isExempt(s.RunID()) }

func (s *State) isExempt(run string) bool { return slices.Contains(s.Exempt, run) }

// forgetOtherExempt forgets all exempt runs but the one that waits.
func (t *transition) forgetOtherExempt() {
	if len(t.Exempt) > 0 {
		t.Exempt = selectExempt(t.Exempt, ManualRunID(t.Pending))
	}
}

// selectExempt returns the part of a list that is about one run.
func selectExempt(list []string, run string) (kept []string) {
	if slices.Contains(list, run) {
		kept = []string{run}
	}
	return kept
}

// removeExempt returns the rest of it.
func removeExempt(list []string, run string) (kept []string) {
	for _, id := range list {
		if id != run {
			kept = append(kept, id)
		}
	}
	return kept
}
