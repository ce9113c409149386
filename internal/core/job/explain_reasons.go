package job

import (
	"fmt"
	"strconv"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

func (e *explainer) explainRunning(s State) {
	text := fmt.Sprintf("run %s is live on attempt %d of %d", s.RunID(), s.Attempt+1, e.c.Retry.MaxAttempts)
	if s.Cancel {
		text += ", being cancelled"
	}
	if e.s.Live() && e.s.Pending != "" && e.s.Waiting == 0 && s.RunID() == e.s.RunID() {
		text += fmt.Sprintf("; the manual run %s waits for its end", ManualRunID(e.s.Pending))
	}
	e.addReason(Reason{Kind: ReasonRunning, Message: text, SinceMS: s.FirstMS, Key: s.RunID()})
}

// explainWaiting explains a planned run. A pause comes last: a run that is planned during a pause is a manual
// one, which the pause does not hold back.
func (e *explainer) explainWaiting() {
	if e.s.Due > e.now {
		e.explainHeld()
		e.explainPlan()
		e.explainQueuePaused(0)
	} else {
		e.explainOverdue()
	}
	switch {
	case len(e.reasons) > 0:
	case e.facts.ClusterKnown && e.facts.Oversized:
		e.explainOversizedShard()
	default:
		e.addReason(Reason{Kind: ReasonNotDue, Message: "nothing holds it back; it is about to start",
			SinceMS: e.s.Due})
	}
	if e.s.Paused {
		e.explainPaused(", which holds back no manual run")
	}
}

// explainOversizedShard adds why a due run that nothing holds back may start late.
func (e *explainer) explainOversizedShard() {
	shard := strconv.Itoa(e.facts.Shard)
	e.addReason(Reason{
		Kind: ReasonOversizedShard, SinceMS: e.s.Due, Key: shard,
		Message: fmt.Sprintf("nothing of its own holds it back, but shard %s has more than %d lanes: its node may find "+
			"the run some seconds late", shard, LanesPerRead),
	})
}

func (e *explainer) explainPaused(remark string) {
	e.addReason(Reason{
		Kind: ReasonPaused, SinceMS: e.s.PausedMS,
		Message: "paused since " + e.formatInstant(e.s.PausedMS) + remark + quoteNote(e.s.PauseNote),
	})
}

// explainQueuePaused adds that a paused queue would hold the run back if nothing else did.
func (e *explainer) explainQueuePaused(sinceMS unixtime.Milli) {
	if e.facts.Queue.Paused {
		queue, until := e.s.Lane.Queue, e.facts.Queue.PauseUntilMS
		end := "until it is resumed"
		if until > 0 {
			end = "until " + e.formatInstant(until)
		}
		e.addReason(Reason{
			Kind: ReasonQueuePaused, SinceMS: sinceMS, UntilMS: until, Key: queue,
			Message: fmt.Sprintf("queue %s is paused: nothing of it starts %s", queue, end),
		})
	}
}

func (e *explainer) explainDead() {
	e.addReason(Reason{
		Kind: ReasonDead, SinceMS: e.s.LastFinished,
		Message: fmt.Sprintf("its run died at %s%s; it is kept as a dead letter, and can be redriven or run "+
			"again", e.formatInstant(e.s.LastFinished), e.quoteFailure()),
	})
}

func (e *explainer) explainDone() {
	if e.s.Paused {
		e.explainPaused("")
	}
	spec := e.c.Schedule
	left, bounded := e.c.RunsLeft(e.s)
	switch {
	case e.s.Deleting:
		e.addReason(Reason{Kind: ReasonDone, Message: "it is deleted, and goes when its last run has ended"})
	case spec.Kind == schedule.KindNone:
		e.addReason(Reason{Kind: ReasonDone, Message: "it has no schedule and runs on request only"})
	case spec.Kind == schedule.KindOnce && e.s.LastOutcome == OutcomeNone:
		text := "its one run was left out"
		if window := e.c.Misfire.effectiveWindow(); window > 0 {
			text += fmt.Sprintf(": it could not start within the %v of its misfire policy", window)
		}
		e.addReason(Reason{Kind: ReasonDone, Message: text})
	case spec.Kind == schedule.KindOnce:
		e.addReason(Reason{Kind: ReasonDone, Message: "its one run has ended: " + e.s.LastOutcome.String(),
			SinceMS: e.s.LastFinished})
	case bounded && left == 0:
		e.addReason(Reason{Kind: ReasonSchedule, Message: fmt.Sprintf("its schedule has had all of its %d runs "+
			"(max_runs)", spec.MaxRuns)})
	case !spec.EndAt.IsZero():
		end := e.formatInstant(unixtime.MilliOf(spec.EndAt))
		r := Reason{Kind: ReasonSchedule, Message: "its schedule has no time left before its end at " + end}
		if end := unixtime.MilliOf(spec.EndAt); end <= e.now {
			r.SinceMS = end
		}
		e.addReason(r)
	default:
		e.addReason(Reason{Kind: ReasonSchedule, Message: "its schedule has no further time"})
	}
}

// explainHeld adds the gate that put the planned run back, unless that gate is known to be open by now.
func (e *explainer) explainHeld() {
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
		r.Kind, r.Message = ReasonLock, e.describeLock(h)
	case h.Reason == HeldTarget && !(due && !e.facts.Target.Open()):
		r.Kind = ReasonTarget
		r.Message, r.UntilMS = e.describeTarget(h)
	case h.Reason == HeldPace && !due && h.Key == "" && e.s.Losses > 0:
		r.Kind, r.UntilMS = ReasonPace, e.s.Due
		r.Message = fmt.Sprintf("%d workers in a row were lost with it: it starts apart from what ran beside it, "+
			"at %s", e.s.Losses, e.formatInstant(e.s.Due))
	case h.Reason == HeldPace && !due:
		r.Kind, r.UntilMS, r.Key = ReasonPace, e.s.Due, e.s.Lane.Queue
		r.Message = fmt.Sprintf("recovery of queue %s is paced (recovery_rate): the turn of this run is at %s", r.Key,
			e.formatInstant(e.s.Due))
	case h.Reason == HeldPayload:
		r.Kind, r.Message = ReasonPayload, describeUnopened(h.Key)
	case h.Reason == HeldQueue && !due:
		r.Kind, r.Message, r.Key = ReasonQueueConcurrency, e.describeConcurrency(), e.s.Lane.Queue
	default:
		return
	}
	e.addReason(r)
}

// explainUnopened adds that a run beside the schedule is held back because its payload cannot be opened.
func (e *explainer) explainUnopened(s State) {
	if s.Source != DelayHeld || s.Held.Reason != HeldPayload {
		return
	}
	text := "run " + s.RunID() + " waits: " + describeUnopened(s.Held.Key)
	if s.OwnPayload != nil {
		text += "; the payload is the run's own: cancel the run and request it again, if the key does not come back"
	}
	e.addReason(Reason{Kind: ReasonPayload, Message: text, SinceMS: s.Held.SinceMS, Key: s.Held.Key})
}

// describeUnopened describes why a payload that was encrypted with this key holds the run back.
func describeUnopened(key string) string {
	if key == "" {
		return "its payload is not sealed, and nodes hand out none that is not (--payload-require-sealed): it is " +
			"from before, or somebody " +
			"has written to Redis; give the job its payload anew; no attempt is used up"
	}
	return fmt.Sprintf("its payload is sealed with key %s, and cannot be opened: a node lacks the key; or the "+
		"payload was changed, or the queue, "+
		"handler, timeout, labels or attempts of the job that it is bound to; or it is sealed by version 1, and "+
		"nodes have --payload-require-sealed; "+
		"no attempt is used up", key)
}

func (e *explainer) describeLock(h Hold) string {
	name := fmt.Sprintf("lock %s is held", h.Key)
	for _, l := range e.c.Locks {
		if l.Key == h.Key && l.Limit > 1 {
			name = fmt.Sprintf("all %d units of lock %s are held, one", l.Limit, h.Key)
		}
	}
	switch {
	case h.By != "":
		name += " by job " + h.By
	case e.facts.HolderHidden:
		name += " by a job that you may not see"
	}
	return name + "; waiting since " + e.formatInstant(h.SinceMS)
}

func (e *explainer) describeTarget(h Hold) (text string, until unixtime.Milli) {
	circuit := e.facts.Target
	text = fmt.Sprintf("target %s backs off", h.Key)
	if circuit.Failures > 0 {
		text += formatCount(int(circuit.Failures), " after a failure", " after %d failures")
		if circuit.FailedJob != "" && circuit.Failures > 1 {
			text += ", the last one"
		}
		if circuit.FailedJob != "" {
			text += " of job " + circuit.FailedJob
		}
		if circuit.Error != "" {
			text += ": `" + Clip(circuit.Error, 120) + "`"
		}
	}
	if circuit.Probe != "" && circuit.ProbeUntilMS > e.now {
		return text + "; a probe is under way", e.s.Due
	}
	until = max(circuit.OpenUntilMS, e.s.Due)
	if until > e.now {
		text += ", until " + e.formatInstant(until)
	}
	return text, until
}

func (e *explainer) describeConcurrency() string {
	limit := e.facts.Queue.MaxConcurrency
	if limit == 0 {
		return fmt.Sprintf("queue %s is at its concurrency limit", e.s.Lane.Queue)
	}
	return fmt.Sprintf("queue %s has %d of %d runs live", e.s.Lane.Queue, min(e.facts.QueueLive, limit), limit)
}

// explainOverdue finds the reason why a due run does not start: first what keeps it from being leased, then the
// gate that held it at the last attempt.
func (e *explainer) explainOverdue() {
	queue, since := e.s.Lane.Queue, e.s.Due
	if until, excluded := e.c.excludesRun(&e.s, e.now); excluded {
		e.addReason(Reason{
			Kind: ReasonExclusion, UntilMS: until,
			Message: fmt.Sprintf("the schedule excludes this time, until %s; it was due %s", e.formatInstant(until),
				e.formatInstant(since)),
		})
	}
	e.explainQueuePaused(since)
	if limit := e.facts.Queue.MaxConcurrency; limit > 0 && e.facts.QueueLive >= limit {
		r := Reason{Kind: ReasonQueueConcurrency, Message: e.describeConcurrency(), SinceMS: since, Key: queue}
		if e.s.Held.Reason == HeldQueue {
			r.SinceMS, r.By = e.s.Held.SinceMS, e.s.Held.By
		}
		e.addReason(r)
	}
	if !e.facts.ClusterKnown {
		e.explainHeld()
		e.addReason(Reason{
			Kind: ReasonNotDue, Message: "due since " + e.formatInstant(since) + "; who holds its shard and serves " +
				"its queue could not be asked", SinceMS: since,
		})
		return
	}
	unserved := e.isUnserved()
	e.explainHeld()
	if rate := e.facts.Queue.Rate; rate > 0 && !unserved && !e.facts.Queue.Paused {
		e.addReason(Reason{
			Kind: ReasonQueueRate, SinceMS: since, Key: queue,
			Message: fmt.Sprintf("due since %s; queue %s starts at most %g runs a second", e.formatInstant(since),
				queue, rate),
		})
	}
}

// isUnserved reports whether no worker would take the run now.
func (e *explainer) isUnserved() bool {
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
		r.Message = fmt.Sprintf("all slots of %s of queue %s are taken",
			formatCount(e.facts.Workers, "the worker", "the %d workers"), queue)
	default:
		return false
	}
	e.addReason(r)
	return true
}
