package job

import (
	"fmt"
	"strconv"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

func (e *explainer) running(s State) {
	text := fmt.Sprintf("run %s is live on attempt %d of %d", s.RunID(), s.Attempt+1, e.c.Retry.MaxAttempts)
	if s.Cancel {
		text += ", being cancelled"
	}
	if e.s.Live() && e.s.Pending != "" && e.s.Waiting == 0 && s.RunID() == e.s.RunID() {
		text += fmt.Sprintf("; the manual run %s waits for its end", ManualRunID(e.s.Pending))
	}
	e.add(Reason{Kind: ReasonRunning, Message: text, SinceMS: s.FirstMS, Key: s.RunID()})
}

// waiting tells of a planned run. A pause comes last: a run that is planned all the
// same is a manual one, which it does not hold back.
func (e *explainer) waiting() {
	if e.s.Due > e.now {
		e.held()
		e.plan()
		e.queuePaused(0)
	} else {
		e.overdue()
	}
	if len(e.reasons) == 0 {
		e.add(Reason{Kind: ReasonNotDue, Message: "nothing holds it back; it is about to start", SinceMS: e.s.Due})
	}
	if e.s.Paused {
		e.paused(", which holds back no manual run")
	}
}

func (e *explainer) paused(remark string) {
	e.add(Reason{
		Kind: ReasonPaused, Message: "paused since " + e.at(e.s.PausedMS) + remark + quoted(e.s.PauseNote), SinceMS: e.s.PausedMS,
	})
}

// queuePaused tells that the run would not start if nothing else held it back.
func (e *explainer) queuePaused(sinceMS int64) {
	if e.facts.Queue.Paused {
		queue := e.s.Lane.Queue
		e.add(Reason{
			Kind: ReasonQueuePaused, Message: fmt.Sprintf("queue %s is paused: nothing of it starts until it is resumed", queue),
			SinceMS: sinceMS, Key: queue,
		})
	}
}

func (e *explainer) dead() {
	e.add(Reason{
		Kind: ReasonDead, SinceMS: e.s.LastFinished,
		Message: fmt.Sprintf("its run died at %s%s; it is kept as a dead letter, and can be redriven or run again", e.at(e.s.LastFinished), e.after()),
	})
}

func (e *explainer) done() {
	if e.s.Paused {
		e.paused("")
	}
	spec := e.c.Schedule
	left, bounded := e.c.RunsLeft(e.s)
	switch {
	case e.s.Deleting:
		e.add(Reason{Kind: ReasonDone, Message: "it is deleted, and goes when its last run has ended"})
	case spec.Kind == schedule.KindNone:
		e.add(Reason{Kind: ReasonDone, Message: "it has no schedule and runs on request only"})
	case spec.Kind == schedule.KindOnce && e.s.LastOutcome == OutcomeNone:
		text := "its one run was left out"
		if window := e.c.Misfire.window(); window > 0 {
			text += fmt.Sprintf(": it could not start within the %v of its misfire policy", window)
		}
		e.add(Reason{Kind: ReasonDone, Message: text})
	case spec.Kind == schedule.KindOnce:
		e.add(Reason{Kind: ReasonDone, Message: "its one run has ended: " + e.s.LastOutcome.String(), SinceMS: e.s.LastFinished})
	case bounded && left == 0:
		e.add(Reason{Kind: ReasonSchedule, Message: fmt.Sprintf("its schedule has had all of its %d runs (max_runs)", spec.MaxRuns)})
	case !spec.EndAt.IsZero():
		r := Reason{Kind: ReasonSchedule, Message: "its schedule has no time left before its end at " + e.at(spec.EndAt.UnixMilli())}
		if end := spec.EndAt.UnixMilli(); end <= e.now {
			r.SinceMS = end
		}
		e.add(r)
	default:
		e.add(Reason{Kind: ReasonSchedule, Message: "its schedule has no further time"})
	}
}

// held tells which gate has put the planned run back, unless it is known that the
// gate would let it pass by now.
func (e *explainer) held() {
	h, due := e.s.Held, e.s.Due <= e.now
	if e.s.Source != DelayHeld {
		return
	}
	r := Reason{SinceMS: h.SinceMS, Key: h.Key, By: h.By}
	switch {
	case h.Reason == HeldOverlap && !(due && e.s.Started == 0):
		r.Kind = ReasonOverlap
		r.Message = fmt.Sprintf("an earlier run of the job has not ended (overlap policy %s)", e.c.Overlap)
	case h.Reason == HeldLock:
		r.Kind, r.Message = ReasonLock, e.lock(h)
	case h.Reason == HeldTarget && !(due && !e.facts.Target.Open()):
		r.Kind = ReasonTarget
		r.Message, r.UntilMS = e.target(h)
	case h.Reason == HeldPace && !due && h.Key == "" && e.s.Losses > 0:
		r.Kind, r.UntilMS = ReasonPace, e.s.Due
		r.Message = fmt.Sprintf("%d workers in a row were lost with it: it starts apart from what ran beside it, at %s", e.s.Losses, e.at(e.s.Due))
	case h.Reason == HeldPace && !due:
		r.Kind, r.UntilMS, r.Key = ReasonPace, e.s.Due, e.s.Lane.Queue
		r.Message = fmt.Sprintf("recovery of queue %s is paced (recovery_rate): the turn of this run is at %s", r.Key, e.at(e.s.Due))
	case h.Reason == HeldPayload:
		r.Kind, r.Message = ReasonPayload, unopened(h.Key)
	case h.Reason == HeldQueue && !due:
		r.Kind, r.Message, r.Key = ReasonQueueConcurrency, e.concurrency(), e.s.Lane.Queue
	default:
		return
	}
	e.add(r)
}

// unopened says why a payload is held back that is stored under this key.
func unopened(key string) string {
	if key == "" {
		return "its payload is not sealed, and nodes hand out none that is not (--payload-require-sealed): it is from before, or somebody " +
			"has written to Redis; give the job its payload anew; no attempt is used up"
	}
	return fmt.Sprintf("its payload is sealed with key %s, and cannot be opened: a node lacks the key; or the payload was changed, or the queue, "+
		"handler, timeout, labels or attempts of the job that it is bound to; or it is sealed by version 1, and nodes have --payload-require-sealed; "+
		"no attempt is used up", key)
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
	return name + "; waiting since " + e.at(h.SinceMS)
}

func (e *explainer) target(h Hold) (text string, until int64) {
	circuit := e.facts.Target
	text = fmt.Sprintf("target %s backs off", h.Key)
	if circuit.Failures > 0 {
		text += plural(int(circuit.Failures), " after a failure", " after %d failures")
		if circuit.By != "" && circuit.Failures > 1 {
			text += ", the last one"
		}
		if circuit.By != "" {
			text += " of job " + circuit.By
		}
		if circuit.Error != "" {
			text += ": `" + Clip(circuit.Error, 120) + "`"
		}
	}
	if circuit.Probe != "" && circuit.ProbeUntilMS > e.now {
		return text + "; a probe is under way", e.s.Due
	}
	if until = max(circuit.OpenUntilMS, e.s.Due); until > e.now {
		text += ", until " + e.at(until)
	}
	return text, until
}

func (e *explainer) concurrency() string {
	limit := e.facts.Queue.MaxConcurrency
	if limit == 0 {
		return fmt.Sprintf("queue %s is at its concurrency limit", e.s.Lane.Queue)
	}
	return fmt.Sprintf("queue %s has %d of %d runs live", e.s.Lane.Queue, min(e.facts.QueueLive, limit), limit)
}

// overdue looks for what keeps a run that is due from starting: first what keeps it
// from being tried at all, then the gate that it failed at when it was tried last.
func (e *explainer) overdue() {
	queue, since := e.s.Lane.Queue, e.s.Due
	if until, excluded := e.c.excluded(&e.s, e.now); excluded {
		e.add(Reason{
			Kind: ReasonExclusion, UntilMS: until,
			Message: fmt.Sprintf("the schedule excludes this time, until %s; it was due %s", e.at(until), e.at(since)),
		})
	}
	e.queuePaused(since)
	if limit := e.facts.Queue.MaxConcurrency; limit > 0 && e.facts.QueueLive >= limit {
		r := Reason{Kind: ReasonQueueConcurrency, Message: e.concurrency(), SinceMS: since, Key: queue}
		if e.s.Held.Reason == HeldQueue {
			r.SinceMS, r.By = e.s.Held.SinceMS, e.s.Held.By
		}
		e.add(r)
	}
	if !e.facts.Asked {
		e.held()
		e.add(Reason{
			Kind: ReasonNotDue, Message: "due since " + e.at(since) + "; who holds its shard and serves its queue could not be asked", SinceMS: since,
		})
		return
	}
	unserved := e.unserved()
	e.held()
	if rate := e.facts.Queue.Rate; rate > 0 && !unserved && !e.facts.Queue.Paused {
		e.add(Reason{
			Kind: ReasonQueueRate, SinceMS: since, Key: queue,
			Message: fmt.Sprintf("due since %s; queue %s starts at most %g runs a second", e.at(since), queue, rate),
		})
	}
}

// unserved tells whether there is nobody who would take the run now.
func (e *explainer) unserved() bool {
	queue := e.s.Lane.Queue
	r := Reason{SinceMS: e.s.Due, Key: queue}
	switch {
	case !e.facts.Held:
		r.Kind, r.Key = ReasonNoHolder, strconv.Itoa(e.facts.Shard)
		r.Message = "shard " + r.Key + " has no holder"
	case e.facts.Workers == 0:
		r.Kind, r.Message = ReasonNoWorker, "no worker of namespace "+e.s.Lane.Namespace+" serves queue "+queue
	case e.facts.FreeSlots == 0:
		r.Kind = ReasonNoSlot
		r.Message = fmt.Sprintf("all slots of %s of queue %s are taken", plural(e.facts.Workers, "the worker", "the %d workers"), queue)
	default:
		return false
	}
	e.add(r)
	return true
}
