package job

import (
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/schedule"
)

func (e *explainer) running(where string, s State) {
	since := s.FirstMS
	text := fmt.Sprintf("%srun %s is live on attempt %d of %d", where, s.RunID(), s.Attempt+1, e.c.Retry.MaxAttempts)
	if s.Cancel {
		text += ", being cancelled"
	}
	if e.s.Pending != "" && e.s.Waiting == 0 && where == "" {
		text += fmt.Sprintf("; the manual run %s waits for its end", ManualRunID(e.s.Pending))
	}
	e.add(Reason{Kind: ReasonRunning, Message: text, SinceMS: since, Key: s.RunID()})
}

func (e *explainer) paused() {
	e.add(Reason{
		Kind: ReasonPaused, Message: "paused since " + e.at(e.s.PausedMS) + quoted(e.s.PauseNote), SinceMS: e.s.PausedMS,
	})
}

func (e *explainer) dead() {
	e.add(Reason{
		Kind: ReasonDead, SinceMS: e.s.LastFinished,
		Message: fmt.Sprintf("its run died at %s%s; it is kept as a dead letter, and can be redriven or run again", e.at(e.s.LastFinished), e.after()),
	})
}

func (e *explainer) done() {
	if e.s.Paused {
		e.paused()
	}
	spec := e.c.Schedule
	left, bounded := e.c.RunsLeft(e.s)
	switch {
	case e.s.Deleting:
		e.add(Reason{Kind: ReasonDone, Message: "it is deleted, and goes when its last run has ended"})
	case spec.Kind == schedule.KindNone:
		e.add(Reason{Kind: ReasonDone, Message: "it has no schedule and runs on request only"})
	case spec.Kind == schedule.KindOnce:
		e.add(Reason{Kind: ReasonDone, Message: "its one run has ended: " + e.s.LastOutcome.String(), SinceMS: e.s.LastFinished})
	case bounded && left == 0:
		e.add(Reason{Kind: ReasonSchedule, Message: fmt.Sprintf("its schedule has had all of its %d runs (max_runs)", spec.MaxRuns)})
	case !spec.EndAt.IsZero():
		e.add(Reason{
			Kind: ReasonSchedule, Message: "its schedule has no time left before its end at " + e.at(spec.EndAt.UnixMilli()), SinceMS: spec.EndAt.UnixMilli(),
		})
	default:
		e.add(Reason{Kind: ReasonSchedule, Message: "its schedule has no further time"})
	}
}

// held tells which gate has put the planned run back.
func (e *explainer) held() {
	h := e.s.Held
	if h.Reason == HeldNone {
		return
	}
	r := Reason{SinceMS: h.SinceMS, UntilMS: e.s.Due, Key: h.Key, By: h.By}
	switch h.Reason {
	case HeldOverlap:
		r.Kind, r.UntilMS = ReasonOverlap, 0
		r.Message = fmt.Sprintf("an earlier run of the job has not ended (overlap policy %s)", e.c.Overlap)
	case HeldLock:
		r.Kind, r.UntilMS = ReasonLock, 0
		r.Message = e.lock(h)
	case HeldTarget:
		r.Kind = ReasonTarget
		r.Message = e.target(h)
	case HeldPace:
		r.Kind = ReasonPace
		r.Message = fmt.Sprintf("recovery of queue %s is paced: its turn is at %s", e.s.Lane.Queue, e.at(e.s.Due))
	case HeldQueue:
		r.Kind, r.UntilMS, r.Key = ReasonQueueConcurrency, 0, e.s.Lane.Queue
		r.Message = e.concurrency()
	}
	e.add(r)
}

func (e *explainer) lock(h Hold) string {
	name := fmt.Sprintf("mutex %s is held", h.Key)
	for _, l := range e.c.Locks {
		if l.Key == h.Key && l.Limit > 1 {
			name = fmt.Sprintf("all %d units of lock %s are held, one", l.Limit, h.Key)
		}
	}
	if h.By != "" {
		name += " by job " + h.By
	}
	return name + "; it waits since " + e.at(h.SinceMS)
}

func (e *explainer) target(h Hold) string {
	circuit := e.facts.Target
	text := fmt.Sprintf("target %s backs off", h.Key)
	if circuit.Failures > 0 {
		text += plural(int(circuit.Failures), " after a failure", " after %d failures")
		if circuit.By != "" {
			text += ", the last one of job " + circuit.By
		}
		if circuit.Error != "" {
			text += ": `" + Clip(circuit.Error, 120) + "`"
		}
	}
	if circuit.Probe != "" && circuit.ProbeUntilMS > e.now {
		return text + "; a probe is under way"
	}
	return text + ", until " + e.at(max(circuit.OpenUntilMS, e.s.Due))
}

func (e *explainer) concurrency() string {
	limit := e.facts.Queue.MaxConcurrency
	if limit == 0 {
		return fmt.Sprintf("queue %s is at its concurrency limit", e.s.Lane.Queue)
	}
	return fmt.Sprintf("queue %s has %d of %d runs live", e.s.Lane.Queue, min(e.facts.QueueLive, limit), limit)
}

// plan tells by which rule the planned run is due when it is.
func (e *explainer) plan() {
	s := e.s
	if s.Due <= e.now {
		return
	}
	wait := time.Duration(s.Due-s.LastFinished) * time.Millisecond
	r := Reason{Kind: ReasonNotDue, UntilMS: s.Due}
	switch {
	case s.Source == DelayHeld:
		return
	case s.Source == DelayRetry || s.Attempt > 0 && s.Source != DelayHint:
		ladder := e.c.Retry.Ladder(int(s.Attempt))
		plain := time.Duration(0)
		if n := int(s.Attempt); n > 0 && n <= len(ladder) {
			plain = ladder[n-1]
		}
		r.Kind, r.SinceMS = ReasonRetry, s.LastFinished
		r.Message = fmt.Sprintf("attempt %d of %d%s, until %s%s", s.Attempt+1, e.c.Retry.MaxAttempts, e.after(), e.at(s.Due), jitterOf(wait, plain))
	case s.Source == DelayBackoff:
		r.Kind, r.SinceMS = ReasonBackoff, s.LastFinished
		steps := len(e.c.Backoff.Ladder(e.c.Schedule.Every)) - 1
		r.Message = fmt.Sprintf("backoff %d of %d%s, until %s%s", min(int(s.Failures), steps), steps, e.after(), e.at(s.Due),
			jitterOf(wait, e.c.EffectiveInterval(int64(s.Failures))))
		if e.c.Probing(s, e.now) {
			r.Message += "; the backoff is stale, and this run is a probe"
		}
	case s.Source == DelayHint:
		r.Kind = ReasonHint
		r.Message = e.hint()
	case s.Source == DelayJitter:
		r.Message = fmt.Sprintf("due %s: nominal %s and the schedule's jitter", e.at(s.Due), e.at(s.Nominal))
	default:
		r.Message = "due " + e.at(s.Due)
	}
	e.add(r)
}

func (e *explainer) hint() string {
	h := e.s.Hint
	if h.Source == HintNone {
		return "a hint holds it back until " + e.at(e.s.Due)
	}
	text := fmt.Sprintf("hint of the %s", h.Source)
	if h.Reason != "" {
		text += " (" + h.Reason + ")"
	}
	text += ": due " + e.at(e.s.Due)
	if h.Source != HintWorker {
		text += ", in force until " + e.at(h.UntilMS)
	}
	return text
}

// overdue looks for what keeps a run that is due from starting.
func (e *explainer) overdue() {
	queue, since := e.s.Lane.Queue, e.s.Due
	e.held()
	if !e.facts.Asked {
		e.add(Reason{
			Kind: ReasonNotDue, Message: "due since " + e.at(since) + "; who holds its shard and serves its queue could not be asked", SinceMS: since,
		})
		return
	}
	if limit := e.facts.Queue.MaxConcurrency; limit > 0 && e.facts.QueueLive >= limit && e.s.Held.Reason != HeldQueue {
		e.add(Reason{Kind: ReasonQueueConcurrency, Message: e.concurrency(), SinceMS: since, Key: queue})
	}
	switch {
	case !e.facts.Held:
		e.add(Reason{Kind: ReasonNoHolder, Message: fmt.Sprintf("shard %d has no holder", e.facts.Shard), SinceMS: since})
	case e.facts.Workers == 0:
		e.add(Reason{Kind: ReasonNoWorker, Message: "no worker serves queue " + queue, SinceMS: since, Key: queue})
	case e.facts.FreeSlots == 0:
		e.add(Reason{
			Kind: ReasonNoSlot, SinceMS: since, Key: queue,
			Message: fmt.Sprintf("all slots of %s of queue %s are taken", plural(e.facts.Workers, "the worker", "the %d workers"), queue),
		})
	case e.facts.Queue.Rate > 0:
		e.add(Reason{
			Kind: ReasonQueueRate, SinceMS: since, Key: queue,
			Message: fmt.Sprintf("due since %s; queue %s starts at most %g runs a second", e.at(since), queue, e.facts.Queue.Rate),
		})
	}
}
