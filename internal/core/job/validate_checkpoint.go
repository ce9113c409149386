package job

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// validate lists what is wrong with a checkpoint. Paths are those of JobBackup:
// "checkpoint.run.due_time".
func (cp *Checkpoint) validate(d *Definition) []Violation {
	v := violations{prefix: "checkpoint."}
	s := &cp.State
	v.millis("anchor_time", cp.AnchorMS)
	v.millis("create_time", cp.CreatedMS)
	v.millis("update_time", cp.UpdatedMS)
	v.add("create_request_id", ValidateRequestID(cp.CreateRequestID))
	v.check(len(cp.UpdateRequestIDs) <= MaxRecent, "earlier_update_request_ids", "has too many entries, at most %d are allowed", MaxRecent-1)
	for i, id := range cp.UpdateRequestIDs {
		field := "update_request_id"
		if i < len(cp.UpdateRequestIDs)-1 {
			field = fmt.Sprintf("earlier_update_request_ids[%d]", i)
		}
		v.add(field, ValidateRequestID(id))
	}
	v.check(s.Region <= RegionDone && s.Region != RegionLeased, "state", "is unknown, or that of a live run")
	v.check(cp.ExpireMS >= 0 && cp.ExpireMS <= NeverMS, "expire_time", "is out of range")
	v.millis("pause_time", s.PausedMS)
	v.check(s.Paused == (s.PausedMS != 0), "pause_time", "is set while a job is paused, and only then")
	v.stored("pause_note", s.PauseNote, MaxNote)
	v.hint(s.Hint)
	v.millis("last_nominal_time", s.LastNominal)
	v.millis("buffered_until_time", s.BufferedUntil)
	v.check(s.LastOutcome <= OutcomeCancelled, "last_outcome", "is unknown")
	v.stored("last_error", s.LastError, MaxError)
	v.millis("last_start_time", s.LastStarted)
	v.millis("last_finish_time", s.LastFinished)
	v.check(len(s.Recent) <= MaxRecent, "recent_request_ids", "has %d entries, at most %d are allowed", len(s.Recent), MaxRecent)
	for i, r := range s.Recent {
		id, other, joined := strings.Cut(r, joins)
		v.add(fmt.Sprintf("recent_request_ids[%d]", i), ValidateManualID(id))
		if joined {
			v.add(fmt.Sprintf("recent_request_ids[%d]", i), ValidateManualID(other))
		}
	}
	if s.HasRun() {
		v.run("run", s)
	}
	v.children(cp)
	v.backfills(cp)
	v.letters(cp, d)
	return v.list
}

func (v *violations) millis(field string, ms int64) {
	v.check(ms >= 0 && ms < NeverMS, field, "is out of range")
}

// stored checks a text that is stored as it came, control characters and all.
func (v *violations) stored(field, text string, most int) {
	v.check(len(text) <= most, field, "has %d bytes, at most %d are allowed", len(text), most)
	v.check(utf8.ValidString(text), field, "is not valid UTF-8")
}

func (v *violations) hint(h Hint) {
	v.check(h.Source <= HintPlanner, "hint.source", "is unknown")
	v.millis("hint.next_run_time", h.AtMS)
	v.millis("hint.expire_time", h.UntilMS)
	v.check(h.IntervalMS >= 0 && h.IntervalMS <= MaxHint.Milliseconds(), "hint.interval", "is out of range")
	v.stored("hint.reason", h.Reason, MaxNote)
}

// run checks the part of a state that belongs to its run.
func (v *violations) run(field string, s *State) {
	v.check(s.Trigger <= TriggerBackfill, field+".trigger", "is unknown")
	v.check(s.Mode <= ManualResetOnSuccess, field+".backoff", "is unknown")
	v.check(s.Source <= DelayJitter, field+".delay_source", "is unknown")
	if s.Trigger == TriggerSchedule {
		v.check(s.ManualID == "", field+".request_id", "belongs to manual runs and backfills")
	} else {
		v.add(field+".request_id", ValidateManualID(s.ManualID))
	}
	v.check(s.Nominal > 0 && s.Nominal < NeverMS, field+".nominal_time", "is not set, or out of range")
	v.check(s.Due >= s.Nominal && s.Due < NeverMS, field+".due_time", "is before nominal_time, or out of range")
	v.millis(field+".first_start_time", s.FirstMS)
	v.check(s.Held.Reason <= HeldPayload, field+".hold.reason", "is unknown")
	v.stored(field+".hold.key", s.Held.Key, MaxNote)
	v.stored(field+".hold.by", s.Held.By, MaxNote)
	v.millis(field+".hold.since_time", s.Held.SinceMS)
	v.millis(field+".hold.due_time", s.Held.DueMS)
}

func (v *violations) children(cp *Checkpoint) {
	var taken uint64
	waits := cp.State.Pending == ""
	for i := range cp.Children {
		child := &cp.Children[i]
		field := fmt.Sprintf("concurrent_runs[%d]", i)
		if child.Slot < 0 || child.Slot >= MaxConcurrentRuns || taken&(1<<child.Slot) != 0 {
			v.add(field+".slot", fmt.Sprintf("is %d, want one from 0 to %d that no other run has", child.Slot, MaxConcurrentRuns-1))
			continue
		}
		taken |= 1 << child.Slot
		v.run(field, &child.State)
		waits = waits || cp.State.Waiting == uint8(child.Slot)+1
	}
	v.check(waits, "waiting_request_id", "is not that of one of concurrent_runs")
}

func (v *violations) backfills(cp *Checkpoint) {
	list := cp.State.Backfills
	v.check(len(list) <= MaxBackfills, "backfills", "has %d entries, at most %d are allowed", len(list), MaxBackfills)
	var taken uint64
	for _, child := range cp.Children {
		taken |= 1 << (uint(child.Slot) % MaxConcurrentRuns)
	}
	for i, b := range list {
		field := fmt.Sprintf("backfills[%d]", i)
		v.add(field+".id", ValidateManualID(b.ID))
		v.millis(field+".next_time", b.NextMS)
		v.millis(field+".end_time", b.ToMS)
		v.check(b.Concurrency >= 1 && b.Concurrency <= MaxConcurrentRuns, field+".concurrency", "is %d, want 1 to %d", b.Concurrency, MaxConcurrentRuns)
		v.check(b.Slots&^taken == 0, field+".slots", "names slots that concurrent_runs does not have")
	}
}

func (v *violations) letters(cp *Checkpoint, d *Definition) {
	seen := map[int]bool{}
	for i := range cp.Letters {
		l := &cp.Letters[i]
		field := fmt.Sprintf("dead_letters[%d]", i)
		ofJob := l.Slot == LetterOfJob && cp.State.Region == RegionDead && d.Schedule.Kind == schedule.KindOnce
		inSlot := l.Slot >= 0 && l.Slot < DeadLettersPerJob && uint64(l.Slot) < cp.State.Dead
		v.check((ofJob || inSlot) && !seen[l.Slot], field+".name", "does not fit a job with %d dead runs, or is there twice", cp.State.Dead)
		seen[l.Slot] = true
		r := &l.Run
		v.check(r.Trigger <= TriggerBackfill, field+".run.trigger", "is unknown")
		v.check(r.Outcome == OutcomeDead || r.Outcome == OutcomeQuarantined, field+".run.outcome", "is not that of a dead run")
		v.check(r.NominalMS > 0 && r.NominalMS < NeverMS, field+".run.nominal_time", "is not set, or out of range")
		v.check(r.DueMS >= r.NominalMS && r.DueMS < NeverMS, field+".run.due_time", "is before nominal_time, or out of range")
		v.millis(field+".run.start_time", r.StartedMS)
		v.millis(field+".run.finish_time", r.FinishedMS)
		_, manualID, ok := parseRunID(*r)
		v.check(ok && (r.Trigger == TriggerSchedule || ValidateManualID(manualID) == ""), field+".run.name", "does not fit its trigger and nominal time")
		v.stored(field+".run.error", r.Error, MaxError)
		v.check(len(r.Output) <= MaxOutput, field+".run.output", "has %d bytes, at most %d are allowed", len(r.Output), MaxOutput)
		v.stored(field+".run.worker", r.Worker, MaxError)
		v.check(l.ExpireMS >= 0 && l.ExpireMS <= NeverMS, field+".expire_time", "is out of range")
	}
}
