package job

import (
	"slices"
	"strings"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// pause holds the job. A live run goes on; what it leads to waits.
func (t *transition) pause(ev Pause) Answer {
	before := t.before()
	note := Clip(ev.Note, MaxNote)
	if t.Paused && t.PauseNote == note {
		return t.unchanged(Applied, before)
	}
	if !t.Paused {
		t.PausedMS = t.now
	}
	t.Paused, t.PauseNote = true, note
	if t.Region == RegionDue {
		t.place()
		t.releaseManual()
	}
	t.notice(Notice{Kind: JobPaused, DueMS: t.Due, Reason: note})
	return t.decision(Applied)
}

// resume ends a pause. Nominal times that passed meanwhile are skipped, or handed
// to the misfire policy; a one-time job's, and a run that waits for a retry, are
// due. What is overdue is paced by the queue's recovery budget.
func (t *transition) resume(ev Resume) Answer {
	before := t.before()
	if !t.Paused {
		return t.unchanged(Applied, before)
	}
	since := t.clock()
	t.Paused, t.PausedMS, t.PauseNote = false, 0, ""
	switch {
	case t.Region == RegionPaused && t.Due < t.now:
		t.comeBack(ev)
	case t.Region == RegionPaused:
		t.place()
	case t.HasRun() && t.Trigger == TriggerManual && t.Nominal >= since && !ev.CatchUp:
		// It began in the pause, and its end must not have to answer for what the pause passed over.
		if n := t.c.countBetween(t.c.judged(t.State), t.now); n > 0 {
			t.skipped(n, "paused")
			t.LastNominal = t.now
		}
	}
	t.notice(Notice{Kind: JobResumed, DueMS: t.Due, HeldMS: t.now - since})
	return t.decision(Applied)
}

// comeBack takes up a run that has come due during a pause.
func (t *transition) comeBack(ev Resume) {
	catchUp := passed{resumed: true, since: t.lastRun()}
	switch fixed := t.c.fixedDelay() && t.LastNominal != 0; {
	case !t.planned() || !t.c.Recurring(), fixed && ev.CatchUp:
		t.Recovery = true
		t.Held.DueMS = t.now // the pause was somebody's will
		t.place()
	case fixed:
		t.skipped(1, "paused")
		t.planNext(passed{}, "")
	case ev.CatchUp:
		t.passOver(t.now)
		t.planNext(catchUp, "misfire")
	default:
		t.passOver(t.now)
		catchUp.drop = true
		t.planNext(catchUp, "paused")
	}
}

// runNow makes a manual run: now when idle, right after the live one otherwise.
// One that leaves the plan alone is a record of its own.
func (t *transition) runNow(ev RunNow) Answer {
	before := t.before()
	_, _, known := t.AskedRun(ev.RequestID)
	waits := !t.Live() && t.Region == RegionDue && t.Trigger == TriggerManual && t.Attempt == 0
	switch {
	case t.Deleting:
		return t.unchanged(NoSuchRun, before)
	case known:
		return t.unchanged(Duplicate, before)
	case t.refuses(ev):
		return t.unchanged(Excluded, before)
	case t.Pending != "":
		t.remember(ev.RequestID + joins + t.Pending)
		t.exemptJoined(ev, ManualRunID(t.Pending))
		return t.decision(Joined)
	case waits:
		t.remember(ev.RequestID + joins + t.ManualID)
		if t.exemptJoined(ev, t.RunID()) {
			t.Due = t.now
			t.place()
		}
		return t.decision(Joined)
	}
	t.remember(ev.RequestID)
	beside := ev.Mode != ManualReset && t.c.Schedule.Kind != schedule.KindOnce || t.Region == RegionPaused && t.interrupted()
	switch {
	case t.Live(), t.interrupted() && !beside:
		t.Pending, t.PendingMode = ev.RequestID, ev.Mode
		t.called(ev.RequestID, ev.Trace)
		t.exempt(ev)
	case beside:
		if t.freeSlot() < 0 {
			return t.unchanged(TooMany, before)
		}
		t.called(ev.RequestID, ev.Trace)
		t.exempt(ev)
		t.spawnManual(ev.RequestID, ev.Mode)
	case t.HasRun() && (t.Trigger == TriggerManual || t.begun()):
		// It waits to be tried again. Who waits for it must hear of its end.
		if ev.Mode == ManualReset {
			t.Failures = 0
		}
		t.Pending, t.PendingMode = ev.RequestID, ManualReset
		t.called(ev.RequestID, ev.Trace)
		t.exempt(ev)
		t.LastOutcome, t.LastFinished = OutcomeCancelled, t.now
		t.supersede(t.run(Settle{}, t.Attempt))
	default:
		t.stepIn()
		t.clearRun()
		if ev.Mode == ManualReset {
			t.Failures = 0
		}
		t.called(ev.RequestID, ev.Trace)
		t.exempt(ev)
		t.planManual(ev.RequestID)
	}
	return t.decision(Applied)
}

// joins stands in State.Recent between the id of a request and that of the manual run
// that it joined. No id has a space.
const joins = " "

// AskedRun is the id of the manual run that an earlier request led to, and whether that
// request joined it, as far as the request is still known.
func (s State) AskedRun(requestID string) (runID string, joined, known bool) {
	for _, r := range s.Recent {
		if id, other, also := strings.Cut(r, joins); id == requestID {
			if also {
				id = other
			}
			return ManualRunID(id), also, true
		}
	}
	return "", false, false
}

// remember keeps a request id, so that its repetition is known. Where there is no place left
// one that has only joined another run gives way first: the repetition of one that made a
// run would make another of the same id. The newest has its place in any case: it is the
// likeliest to be repeated.
func (t *transition) remember(id string) {
	if len(t.Recent) >= MaxRecent {
		if joined := slices.IndexFunc(t.Recent, isJoin); joined >= 0 {
			t.Recent = slices.Delete(slices.Clone(t.Recent), joined, joined+1)
		}
	}
	t.Recent = t.Recent.With(id)
}

func isJoin(id string) bool { return strings.Contains(id, joins) }

// cancelRun ends the current run, or asks the live one to end.
func (t *transition) cancelRun(ev CancelRun) Answer {
	before := t.before()
	if t.manualWaits() && ManualRunID(t.Pending) == ev.RunID {
		t.Pending, t.PendingMode = "", ManualReset
		t.notice(Notice{Kind: RunCancelled, RunID: ev.RunID, Trigger: TriggerManual, Reason: "requested"})
		return t.decision(Applied)
	}
	if !t.HasRun() || t.RunID() != ev.RunID {
		return t.unchanged(NoSuchRun, before)
	}
	if t.Live() {
		if t.Cancel {
			return t.unchanged(Applied, before)
		}
		t.Cancel = true
		return t.decision(Applied)
	}
	t.LastOutcome, t.LastFinished = OutcomeCancelled, t.now
	run := t.run(Settle{}, t.Attempt)
	t.endRun(run, OutcomeCancelled, Notice{Kind: RunCancelled, Reason: "requested"}, 0)
	return t.decision(Applied)
}

// update puts another definition in place. A changed schedule starts a new
// generation, which supersedes a waiting run; a live run keeps what it has. A run whose nominal time has come
// and that waits for its due time goes on if the new schedule has that nominal time too. Jitter
// alone changes no nominal time, and starts no generation.
func (t *transition) update(ev Update) Answer {
	if t.editedSince(ev.Base) {
		return t.unchanged(Stale, t.before())
	}
	d, older, waits := *ev.New.Definition, t.edited(), t.planned()
	rescheduled := !d.Schedule.EqualButJitter(t.c.Schedule)
	respread := !rescheduled && waits && d.Schedule.Jitter != t.c.Schedule.Jitter
	d.Revision, d.UpdatedMS = t.c.Revision+1, t.now
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
		return t.unchanged(Stale, t.before())
	}
	if rescheduled && !kept {
		t.closeGeneration()
	}
	t.c, t.def = compiled, &d
	t.notice(Notice{Kind: JobUpdated})
	if d.MaxLag == 0 {
		t.LateMS = 0
	}
	if rescheduled {
		t.forgetSchedule()
	}
	switch {
	case t.Live():
	case kept:
		t.Generation = d.Generation
		t.respread()
		t.notice(Notice{Kind: ScheduleUpdated, DueMS: t.Due})
	case respread:
		t.respread()
	case rescheduled && t.Trigger == TriggerSchedule && (t.begun() || older):
		t.LastOutcome, t.LastFinished = OutcomeCancelled, t.now
		t.supersede(t.run(Settle{}, t.Attempt))
		t.notice(Notice{Kind: ScheduleUpdated, DueMS: t.Due})
	case rescheduled && t.Trigger == TriggerSchedule:
		t.planNext(passed{drop: true}, "superseded")
		t.notice(Notice{Kind: ScheduleUpdated, DueMS: t.Due})
	case t.Region == RegionDue || t.Region == RegionPaused:
		t.place()
	default:
		t.Lane = compiled.Lane()
	}
	return t.decision(Applied)
}

// compileEdit compiles a definition with another schedule. kept reports whether that has the nominal time
// of the current run, which has come. Only then an interval keeps its anchor: another
// edit is the begin of its phase.
func (t *transition) compileEdit(d *Definition) (compiled *Compiled, kept bool, err error) {
	before := d.AnchorMS
	if t.planned() && t.Nominal <= t.now {
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

// respread gives a waiting run the due time that the schedule's jitter has for it, unless something else
// has moved it.
func (t *transition) respread() {
	if t.Source == DelaySchedule || t.Source == DelayJitter {
		o := t.c.jittered(t.Nominal, true)
		t.Due, t.Source = o.due, o.source
	}
	t.place()
}

func (t *transition) editedSince(base string) bool {
	return base != "" && base != t.c.Etag()
}

// forgetSchedule drops what belongs to the generation before, but never lets an
// edited schedule fire again for an instant that has run.
func (t *transition) forgetSchedule() {
	if t.c.Schedule.Kind == schedule.KindOnce {
		t.LastNominal = 0
	}
	t.Fired, t.BufferedUntil = 0, 0
	if t.Region == RegionDead {
		t.Failures = 0
	}
}

// delete removes the record; a live one when its run has ended.
func (t *transition) delete(ev Delete) Answer {
	before := t.before()
	if t.editedSince(ev.Base) {
		return t.unchanged(Stale, before)
	}
	switch {
	case t.Deleting:
		return t.unchanged(Applied, before)
	case t.Live():
		t.Deleting = true
	default:
		t.vanish()
	}
	return t.decision(Applied)
}

// IndexMS is the instant that the record's score carries. A leased record's
// score is kept by the scripts.
func (c *Compiled) IndexMS(s *State, now int64) int64 {
	if s.Children != 0 && s.Region >= RegionDead {
		return NeverMS // it stays while runs of it are live
	}
	switch s.Region {
	case RegionDue:
		if s.Source == DelayHeld && s.Due <= now && s.Held.DueMS > 0 {
			// What it waited for is there: it takes the place in line that it had, not one
			// behind all that came due meanwhile.
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
