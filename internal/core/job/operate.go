package job

import (
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// pauseJob pauses the job. A live run continues; its successors wait.
func (t *transition) pauseJob(ev Pause) Answer {
	before := t.stateBefore()
	note := Clip(ev.Note, MaxNote)
	switch {
	case ev.ID != "" && t.BulkPause.ID == ev.ID:
		return t.answerUnchanged(Duplicate, before)
	case ev.ID != "" && t.Paused:
		return t.answerUnchanged(Stale, before)
	case t.Paused && t.PauseNote == note:
		return t.answerUnchanged(Applied, before)
	}
	if !t.Paused {
		t.PausedMS = t.now
	}
	t.Paused, t.PauseNote, t.BulkPause = true, note, BulkPause{}
	if ev.ID != "" {
		t.BulkPause = BulkPause{ID: ev.ID, AtMS: t.PausedMS}
	}
	if t.Region == RegionDue {
		t.placeRun()
		t.spawnWaitingManual()
	}
	t.addNotice(Notice{Kind: JobPaused, DueMS: t.Due, Reason: note})
	return t.finishDecision(Applied)
}

// resumeJob ends a pause. Nominal times that passed meanwhile are skipped, or passed to the misfire policy; that
// of a one-time job, and a run that waits for a retry, are due. Overdue runs are paced by the queue's recovery
// budget.
func (t *transition) resumeJob(ev Resume) Answer {
	before := t.stateBefore()
	if ev.PausedMS != 0 && t.PausedMS != ev.PausedMS {
		return t.answerUnchanged(Stale, before)
	}
	if !t.Paused {
		return t.answerUnchanged(Applied, before)
	}
	since := t.scheduleClock()
	t.Paused, t.PausedMS, t.PauseNote = false, 0, ""
	switch {
	case t.Region == RegionPaused && t.Due < t.now:
		t.resumeOverdueRun(ev)
	case t.Region == RegionPaused:
		t.placeRun()
	case t.HasRun() && t.Trigger == TriggerManual && t.Nominal >= since && !ev.CatchUp:
		// It began during the pause, so the times that the pause passed over do not count for it.
		if n := t.c.countNominal(t.c.judgedUpTo(t.State), t.now); n > 0 {
			t.countSkipped(n, "paused")
			t.LastNominal = t.now
		}
	}
	t.addNotice(Notice{Kind: JobResumed, DueMS: t.Due, HeldMS: int64(t.now - since)})
	return t.finishDecision(Applied)
}

// resumeOverdueRun takes up a run that has come due during a pause.
func (t *transition) resumeOverdueRun(ev Resume) {
	catchUp := planInput{catchUpRequested: true, sinceMS: t.lastRunMS()}
	switch fixed := t.c.hasFixedDelay() && t.LastNominal != 0; {
	case !t.isPlanned() || !t.c.Recurring(), fixed && ev.CatchUp:
		t.Recovery = true
		t.Held.DueMS = t.now // the pause was intentional
		t.placeRun()
	case fixed:
		t.countSkipped(1, "paused")
		t.planNextRun(planInput{}, "")
	case ev.CatchUp:
		t.countPassedOver(t.now)
		t.planNextRun(catchUp, "misfire")
	default:
		t.countPassedOver(t.now)
		catchUp.dropMissed = true
		t.planNextRun(catchUp, "paused")
	}
}

// requestManualRun plans a manual run: now if the job is idle, otherwise after the live run. A manual run that
// leaves the plan unchanged is a child record.
func (t *transition) requestManualRun(ev RequestManualRun) Answer {
	before := t.stateBefore()
	_, _, known := t.RequestedRun(ev.RequestID)
	waits := !t.Live() && t.Region == RegionDue && t.Trigger == TriggerManual && t.Attempt == 0
	switch {
	case t.Deleting:
		return t.answerUnchanged(NoSuchRun, before)
	case known:
		return t.answerUnchanged(Duplicate, before)
	case ev.Payload != nil:
		return t.requestRunWithPayload(ev, before)
	case t.refusesManual(ev):
		return t.answerUnchanged(Excluded, before)
	case t.Pending != "":
		t.rememberRequest(ev.RequestID + joinSeparator + t.Pending)
		t.exemptJoinedRun(ev, ManualRunID(t.Pending))
		return t.finishDecision(Joined)
	case waits:
		t.rememberRequest(ev.RequestID + joinSeparator + t.ManualID)
		if t.exemptJoinedRun(ev, t.RunID()) {
			t.Due = t.now
			t.placeRun()
		}
		return t.finishDecision(Joined)
	}
	t.rememberRequest(ev.RequestID)
	beside := ev.Mode != ManualReset && t.c.Schedule.Kind != schedule.KindOnce || t.Region == RegionPaused &&
		t.isInterrupted()
	switch {
	case t.Live(), t.isInterrupted() && !beside:
		t.Pending, t.PendingMode = ev.RequestID, ev.Mode
		t.recordCaller(ev.RequestID, ev.Trace)
		t.exemptManual(ev)
	case beside:
		if t.findFreeSlot() < 0 {
			return t.answerUnchanged(TooMany, before)
		}
		t.recordCaller(ev.RequestID, ev.Trace)
		t.exemptManual(ev)
		t.spawnManual(ev.RequestID, ev.Mode)
	case t.HasRun() && (t.Trigger == TriggerManual || t.hasBegun()):
		// It waits for a retry. Callers that wait for it must be notified of its end.
		if ev.Mode == ManualReset {
			t.Failures = 0
		}
		t.Pending, t.PendingMode = ev.RequestID, ManualReset
		t.recordCaller(ev.RequestID, ev.Trace)
		t.exemptManual(ev)
		t.LastOutcome, t.LastFinished = OutcomeCancelled, t.now
		t.supersedeRun(t.buildRun(FinishAttempt{}, t.Attempt))
	default:
		t.replaceByManual()
		t.clearRun()
		if ev.Mode == ManualReset {
			t.Failures = 0
		}
		t.recordCaller(ev.RequestID, ev.Trace)
		t.exemptManual(ev)
		t.planManualRun(ev.RequestID)
	}
	return t.finishDecision(Applied)
}

// joinSeparator separates, in State.Recent, the id of a request from that of the manual run that it joined. No
// id has a space.
const joinSeparator = " "

// RequestedRun returns the id of the manual run that an earlier request led to, and whether that
// request joined it, as far as the request is still known.
func (s State) RequestedRun(requestID string) (runID string, joined, known bool) {
	for _, r := range s.Recent {
		if id, other, also := strings.Cut(r, joinSeparator); id == requestID {
			if also {
				id = other
			}
			return ManualRunID(id), also, true
		}
	}
	return "", false, false
}

// rememberRequest stores a request id, so that its repetition is detected. If the list is full, an id that only
// joined another run is evicted first: a repetition of one that made a run would make another run with the same
// id. The newest is always stored: it is the likeliest to be repeated.
func (t *transition) rememberRequest(id string) {
	if len(t.Recent) >= MaxRecent {
		if joined := slices.IndexFunc(t.Recent, isJoin); joined >= 0 {
			t.Recent = slices.Delete(slices.Clone(t.Recent), joined, joined+1)
		}
	}
	t.Recent = t.Recent.With(id)
}

func isJoin(id string) bool { return strings.Contains(id, joinSeparator) }

// cancelRun ends the current run, or asks the live one to end.
func (t *transition) cancelRun(ev CancelRun) Answer {
	before := t.stateBefore()
	if t.hasWaitingManual() && ManualRunID(t.Pending) == ev.RunID {
		t.Pending, t.PendingMode = "", ManualReset
		t.addNotice(Notice{Kind: RunCancelled, RunID: ev.RunID, Trigger: TriggerManual, Reason: "requested"})
		return t.finishDecision(Applied)
	}
	if !t.HasRun() || t.RunID() != ev.RunID {
		return t.answerUnchanged(NoSuchRun, before)
	}
	if t.Live() {
		if t.Cancel {
			return t.answerUnchanged(Applied, before)
		}
		t.Cancel = true
		return t.finishDecision(Applied)
	}
	t.LastOutcome, t.LastFinished = OutcomeCancelled, t.now
	run := t.buildRun(FinishAttempt{}, t.Attempt)
	t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "requested"}, 0)
	return t.finishDecision(Applied)
}

// updateDefinition replaces the definition. A changed schedule starts a new generation, which supersedes a
// waiting run; a live run is unchanged. A run whose nominal time has come and that waits for its due time
// continues if the new schedule has that nominal time too. A change of jitter alone changes no nominal time, and
// starts no generation.
func (t *transition) updateDefinition(ev Update) Answer {
	if t.editedSince(ev.Base) {
		return t.answerUnchanged(Stale, t.stateBefore())
	}
	d, older, waits := *ev.New.Definition, t.isScheduleReplaced(), t.isPlanned()
	rescheduled := !d.Schedule.EqualButJitter(t.c.Schedule)
	respread := !rescheduled && waits && d.Schedule.Jitter != t.c.Schedule.Jitter
	d.Revision, d.UpdatedMS, d.LastEdit = t.c.Revision+1, t.now, ev.By
	d.UpdateRequestIDs = t.c.UpdateRequestIDs
	if ev.RequestID != "" {
		d.UpdateRequestIDs = d.UpdateRequestIDs.With(ev.RequestID)
	}
	d.Generation, d.AnchorMS = t.c.Generation, t.c.AnchorMS
	var compiled *Compiled
	var err error
	kept := false
	if rescheduled {
		d.Generation++
		compiled, kept, err = t.compileEdit(&d)
	} else {
		compiled, err = Compile(&d)
	}
	if err != nil {
		// ev.New compiled, and the anchor cannot make a schedule impossible.
		return t.answerUnchanged(Stale, t.stateBefore())
	}
	if rescheduled && !kept {
		t.closeGeneration()
	}
	t.forgets = ev.Reseal || d.ReplacesSeal(t.c.Definition)
	t.c, t.def = compiled, &d
	t.addNotice(Notice{Kind: JobUpdated})
	if d.MaxLag == 0 {
		t.LateMS = 0
	}
	if rescheduled {
		t.resetSchedule()
	}
	switch {
	case t.Live():
	case kept:
		t.Generation = d.Generation
		t.redrawJitter()
		t.addNotice(Notice{Kind: ScheduleUpdated, DueMS: t.Due})
	case respread:
		t.redrawJitter()
	case rescheduled && t.Trigger == TriggerSchedule && (t.hasBegun() || older):
		t.LastOutcome, t.LastFinished = OutcomeCancelled, t.now
		t.supersedeRun(t.buildRun(FinishAttempt{}, t.Attempt))
		t.addNotice(Notice{Kind: ScheduleUpdated, DueMS: t.Due})
	case rescheduled && t.Trigger == TriggerSchedule:
		t.planNextRun(planInput{dropMissed: true}, "superseded")
		t.addNotice(Notice{Kind: ScheduleUpdated, DueMS: t.Due})
	case t.Region == RegionDue || t.Region == RegionPaused:
		t.placeRun()
	default:
		t.Lane = compiled.Lane()
	}
	return t.finishDecision(Applied)
}

// compileEdit compiles a definition with another schedule. kept reports whether the new schedule has the nominal
// time of the current run, which has come. Only then an interval keeps its anchor; otherwise its phase begins at
// the edit.
func (t *transition) compileEdit(d *Definition) (compiled *Compiled, kept bool, err error) {
	before := d.AnchorMS
	if t.isPlanned() && t.Nominal <= t.now {
		if !d.Schedule.SamePhase(t.c.Schedule) {
			d.AnchorMS = t.now
		}
		compiled, err = Compile(d)
		if err == nil {
			at, ok := compiled.nominalAfter(t.Nominal - 1)
			kept = ok && at == t.Nominal
		}
	}
	if !kept && (compiled == nil || d.AnchorMS == before) {
		d.AnchorMS = t.now
		compiled, err = Compile(d)
	}
	return compiled, kept, err
}

// redrawJitter sets the due time of a waiting run by the schedule's jitter, unless something else has moved it.
func (t *transition) redrawJitter() {
	if t.Source == DelaySchedule || t.Source == DelayJitter {
		o := t.c.planJittered(t.Nominal, true)
		t.Due, t.Source = o.due, o.source
	}
	t.placeRun()
}

func (t *transition) editedSince(base string) bool {
	return base != "" && base != t.c.Etag()
}

// resetSchedule drops the state of the generation before, but never lets an edited schedule run again for an
// instant that has run.
func (t *transition) resetSchedule() {
	if t.c.Schedule.Kind == schedule.KindOnce {
		t.LastNominal = 0
	}
	t.Fired, t.BufferedUntil = 0, 0
	if t.Region == RegionDead {
		t.Failures = 0
	}
}

// deleteJob removes the record; a live one when its run has ended.
func (t *transition) deleteJob(ev Delete) Answer {
	before := t.stateBefore()
	if t.editedSince(ev.Base) {
		return t.answerUnchanged(Stale, before)
	}
	switch {
	case t.Deleting:
		return t.answerUnchanged(Applied, before)
	case t.Live():
		t.Deleting = true
	default:
		t.removeDeletedJob()
	}
	return t.finishDecision(Applied)
}

// IndexMS returns the instant that the record's score carries. A leased record's
// score is kept by the scripts.
func (c *Compiled) IndexMS(s *State, now unixtime.Milli) unixtime.Milli {
	if s.Children != 0 && s.Region >= RegionDead {
		return NeverMS // it stays while runs of it are live
	}
	switch s.Region {
	case RegionDue:
		if s.Source == DelayHeld && s.Due <= now && s.Held.DueMS > 0 {
			// The gate is open: the run keeps its earlier place in the queue, before all runs that came due
			// meanwhile.
			return min(s.Due, s.Held.DueMS)
		}
		return s.Due
	case RegionPaused:
		return s.PausedMS
	case RegionDead:
		return addMS(now, c.DeadLetterTTL)
	case RegionDone:
		if c.Schedule.Kind == schedule.KindNone {
			return NeverMS
		}
		return addMS(now, c.Retention)
	}
	return 0
}
