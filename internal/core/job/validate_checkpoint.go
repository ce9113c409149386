package job

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// validateFor lists invalid fields of a checkpoint. Paths are those of JobBackup: "checkpoint.run.due_time".
func (cp *Checkpoint) validateFor(d *Definition) []Violation {
	v := violations{prefix: "checkpoint."}
	s := &cp.State
	v.checkMillis("anchor_time", cp.AnchorMS)
	v.checkMillis("create_time", cp.CreatedMS)
	v.checkMillis("update_time", cp.UpdatedMS)
	v.add("create_request_id", ValidateRequestID(cp.CreateRequestID))
	v.addUnless(len(cp.UpdateRequestIDs) <= MaxRecent, "earlier_update_request_ids",
		"has too many entries, at most %d are allowed", MaxRecent-1)
	for i, id := range cp.UpdateRequestIDs {
		field := "update_request_id"
		if i < len(cp.UpdateRequestIDs)-1 {
			field = fmt.Sprintf("earlier_update_request_ids[%d]", i)
		}
		v.add(field, ValidateRequestID(id))
	}
	v.addUnless(s.Region <= RegionDone && s.Region != RegionLeased, "state", "is unknown, or that of a live run")
	v.addUnless(cp.ExpireMS >= 0 && cp.ExpireMS <= NeverMS, "expire_time", "is out of range")
	v.checkMillis("pause_time", s.PausedMS)
	v.addUnless(s.Paused == (s.PausedMS != 0), "pause_time", "is set while a job is paused, and only then")
	v.checkStoredText("pause_note", s.PauseNote, MaxNote)
	v.checkHint(s.Hint)
	v.checkMillis("last_nominal_time", s.LastNominal)
	v.checkMillis("buffered_until_time", s.BufferedUntil)
	v.addUnless(s.LastOutcome <= OutcomeCancelled, "last_outcome", "is unknown")
	v.checkStoredText("last_error", s.LastError, MaxError)
	v.checkMillis("last_start_time", s.LastStarted)
	v.checkMillis("last_finish_time", s.LastFinished)
	v.addUnless(len(s.Recent) <= MaxRecent, "recent_request_ids", "has %d entries, at most %d are allowed",
		len(s.Recent), MaxRecent)
	for i, r := range s.Recent {
		id, other, joined := strings.Cut(r, joinSeparator)
		v.add(fmt.Sprintf("recent_request_ids[%d]", i), ValidateManualID(id))
		if joined {
			v.add(fmt.Sprintf("recent_request_ids[%d]", i), ValidateManualID(other))
		}
	}
	if s.HasRun() {
		v.checkRun("run", s)
	}
	v.checkChildren(cp)
	v.checkBackfills(cp)
	v.checkLetters(cp, d)
	return v.list
}

func (v *violations) checkMillis(field string, ms unixtime.Milli) {
	v.addUnless(ms >= 0 && ms < NeverMS, field, "is out of range")
}

// checkStoredText checks a text that is stored as it came, control characters and all.
func (v *violations) checkStoredText(field, text string, most int) {
	v.addUnless(len(text) <= most, field, "has %d bytes, at most %d are allowed", len(text), most)
	v.addUnless(utf8.ValidString(text), field, "is not valid UTF-8")
}

func (v *violations) checkHint(h Hint) {
	v.addUnless(h.Source <= HintPlanner, "hint.source", "is unknown")
	v.checkMillis("hint.next_run_time", h.AtMS)
	v.checkMillis("hint.expire_time", h.UntilMS)
	v.addUnless(h.IntervalMS >= 0 && h.IntervalMS <= MaxHint.Milliseconds(), "hint.interval", "is out of range")
	v.checkStoredText("hint.reason", h.Reason, MaxNote)
}

// checkRun checks the part of a state that belongs to its run.
func (v *violations) checkRun(field string, s *State) {
	v.addUnless(s.Trigger <= TriggerBackfill, field+".trigger", "is unknown")
	v.addUnless(s.Mode <= ManualResetOnSuccess, field+".backoff", "is unknown")
	v.addUnless(s.Source <= DelayJitter, field+".delay_source", "is unknown")
	if s.Trigger == TriggerSchedule {
		v.addUnless(s.ManualID == "", field+".request_id", "belongs to manual runs and backfills")
	} else {
		v.add(field+".request_id", ValidateManualID(s.ManualID))
	}
	v.addUnless(s.Nominal > 0 && s.Nominal < NeverMS, field+".nominal_time", "is not set, or out of range")
	v.addUnless(s.Due >= s.Nominal && s.Due < NeverMS, field+".due_time", "is before nominal_time, or out of range")
	v.checkMillis(field+".first_start_time", s.FirstMS)
	v.addUnless(s.Held.Reason <= HeldPayload, field+".hold.reason", "is unknown")
	v.checkStoredText(field+".hold.key", s.Held.Key, MaxNote)
	v.checkStoredText(field+".hold.by", s.Held.By, MaxNote)
	v.checkMillis(field+".hold.since_time", s.Held.SinceMS)
	v.checkMillis(field+".hold.due_time", s.Held.DueMS)
}

func (v *violations) checkChildren(cp *Checkpoint) {
	var taken uint64
	waits := cp.State.Pending == ""
	for i := range cp.Children {
		child := &cp.Children[i]
		field := fmt.Sprintf("concurrent_runs[%d]", i)
		if child.Slot < 0 || child.Slot >= MaxConcurrentRuns || taken&(1<<child.Slot) != 0 {
			v.add(field+".slot", fmt.Sprintf("is %d, want one from 0 to %d that no other run has", child.Slot,
				MaxConcurrentRuns-1))
			continue
		}
		taken |= 1 << child.Slot
		v.checkRun(field, &child.State)
		waits = waits || cp.State.Waiting == uint8(child.Slot)+1
	}
	v.addUnless(waits, "waiting_request_id", "is not that of one of concurrent_runs")
}

func (v *violations) checkBackfills(cp *Checkpoint) {
	list := cp.State.Backfills
	v.addUnless(len(list) <= MaxBackfills, "backfills", "has %d entries, at most %d are allowed", len(list),
		MaxBackfills)
	var taken uint64
	for _, child := range cp.Children {
		taken |= 1 << (uint(child.Slot) % MaxConcurrentRuns)
	}
	for i, b := range list {
		field := fmt.Sprintf("backfills[%d]", i)
		v.add(field+".id", ValidateManualID(b.ID))
		v.checkMillis(field+".next_time", b.NextMS)
		v.checkMillis(field+".end_time", b.ToMS)
		v.addUnless(b.Concurrency >= 1 && b.Concurrency <= MaxConcurrentRuns, field+".concurrency",
			"is %d, want 1 to %d", b.Concurrency, MaxConcurrentRuns)
		v.addUnless(b.Slots&^taken == 0, field+".slots", "names slots that concurrent_runs does not have")
	}
}

func (v *violations) checkLetters(cp *Checkpoint, d *Definition) {
	seen := map[int]bool{}
	for i := range cp.DeadLetters {
		l := &cp.DeadLetters[i]
		field := fmt.Sprintf("dead_letters[%d]", i)
		ofJob := l.Slot == LetterOfJob && cp.State.Region == RegionDead && d.Schedule.Kind == schedule.KindOnce
		inSlot := l.Slot >= 0 && l.Slot < DeadLettersPerJob && uint64(l.Slot) < cp.State.Dead
		v.addUnless((ofJob || inSlot) && !seen[l.Slot], field+".name", "does not fit a job with %d dead runs, or "+
			"is there twice", cp.State.Dead)
		seen[l.Slot] = true
		r := &l.Run
		v.addUnless(r.Trigger <= TriggerBackfill, field+".run.trigger", "is unknown")
		v.addUnless(r.Outcome == OutcomeDead || r.Outcome == OutcomeQuarantined, field+".run.outcome",
			"is not that of a dead run")
		v.addUnless(r.NominalMS > 0 && r.NominalMS < NeverMS, field+".run.nominal_time", "is not set, or out of range")
		v.addUnless(r.DueMS >= r.NominalMS && r.DueMS < NeverMS, field+".run.due_time",
			"is before nominal_time, or out of range")
		v.checkMillis(field+".run.start_time", r.StartedMS)
		v.checkMillis(field+".run.finish_time", r.FinishedMS)
		_, manualID, ok := parseRunID(*r)
		v.addUnless(ok && (r.Trigger == TriggerSchedule || ValidateManualID(manualID) == ""), field+".run.name",
			"does not fit its trigger and nominal time")
		v.checkStoredText(field+".run.error", r.Error, MaxError)
		v.addUnless(len(r.Output) <= MaxOutput, field+".run.output", "has %d bytes, at most %d are allowed",
			len(r.Output), MaxOutput)
		v.checkStoredText(field+".run.worker", r.Worker, MaxError)
		v.addUnless(l.ExpireMS >= 0 && l.ExpireMS <= NeverMS, field+".expire_time", "is out of range")
		if l.Queue != "" {
			v.add(field+".queue", validateName(l.Queue))
		}
	}
}
