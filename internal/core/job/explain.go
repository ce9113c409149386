package job

import (
	"fmt"
	"strings"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// ReasonKind is one way in which a job can be kept from running now.
type ReasonKind uint8

// Reason kinds.
const (
	ReasonNotDue  ReasonKind = iota + 1 // the planned time has not come
	ReasonRetry                         // the wait before the next attempt of a run
	ReasonBackoff                       // failed runs made the interval longer
	ReasonHint
	ReasonPaused
	ReasonRunning
	ReasonOverlap // an earlier run of the job has not ended
	ReasonLock
	ReasonTarget
	ReasonPace
	ReasonQueueConcurrency
	ReasonQueueRate
	ReasonNoWorker // no connected worker serves the queue
	ReasonNoSlot   // workers serve it, but all their slots are taken
	ReasonNoHolder // no node holds the job's shard
	ReasonDead
	ReasonDone     // there is nothing more to run
	ReasonSchedule // the schedule has ended
	ReasonPayload  // its payload cannot be opened
	ReasonQueuePaused
	ReasonExclusion      // its schedule excludes the time at which it would start
	ReasonOversizedShard // its shard has more lanes than a node reads at once
)

func (k ReasonKind) String() string {
	return enumName(k, "unknown", "not_due", "retry", "backoff", "hint", "paused", "running", "overlap", "lock",
		"target", "pace",
		"queue_concurrency", "queue_rate", "no_worker", "no_slot", "no_holder", "dead", "done", "schedule", "payload",
		"queue_paused", "exclusion", "oversized_shard")
}

// Reason is one thing that keeps a job from running now. Instants are Unix
// milliseconds, 0 where they are not known.
type Reason struct {
	Kind             ReasonKind
	Message          string
	SinceMS, UntilMS unixtime.Milli
	Key              string // what it is about: a lock's key, a target, a queue
	By               string // the blocking job or node
}

// Explanation is why a job does not run right now. Reasons come the most important
// first; the Summary is one sentence.
type Explanation struct {
	Summary string
	Reasons []Reason
}

// ExplainedJob is an explanation with its job.
type ExplainedJob struct {
	Explanation Explanation
	Record      Record
	// Runs are those that are planned, waiting or live.
	Runs []RunView
}

// Child is the run of a job in one of its slots.
type Child struct {
	Slot  int
	State State
	// Own is the run's own payload, if State describes one. It is set in backups only.
	Own *RunPayload
}

// Facts are the inputs of an explanation beside the job's own state.
type Facts struct {
	// ClusterKnown: holder, workers and slots are known; otherwise nothing follows from
	// them.
	ClusterKnown       bool
	Shard              int
	Holder             string
	Held               bool
	Workers, FreeSlots int
	Oversized          bool // the shard has more lanes than one read lists
	Queue              QueueSettings
	QueueLive          int // runs that hold a unit of the queue's concurrency
	Target             backoff.Circuit
	// HolderHidden: the caller may not see the job that has what the run waits for, and the state does not name it.
	HolderHidden bool
}

// Explain returns the reasons why a job does not run at now. It evaluates the policies and calls nothing; facts
// that are missing are left out.
func Explain(c *Compiled, s State, children []Child, f Facts, now unixtime.Milli) Explanation {
	e := explainer{c: c, s: s, now: now, facts: f}
	switch s.Region {
	case RegionLeased:
		e.explainRunning(s)
		if s.Paused {
			e.explainPaused("")
		}
	case RegionPaused:
		e.explainPaused("")
		e.explainPlan()
	case RegionDead:
		e.explainDead()
	case RegionDone:
		e.explainDone()
	default:
		e.explainWaiting()
	}
	for _, child := range children {
		if child.State.Live() {
			e.explainRunning(child.State)
		} else {
			e.explainUnopened(child.State)
		}
	}
	e.writeSummary()
	return Explanation{Summary: e.summary, Reasons: e.reasons}
}

type explainer struct {
	c       *Compiled
	s       State
	now     unixtime.Milli
	facts   Facts
	reasons []Reason
	summary string
}

// addReason adds a reason. An end that has passed is dropped, because it is no longer known when the reason
// ends.
func (e *explainer) addReason(r Reason) {
	if r.UntilMS <= e.now {
		r.UntilMS = 0
	}
	e.reasons = append(e.reasons, r)
}

// writeSummary makes the sentence of the first reason; there is one.
func (e *explainer) writeSummary() {
	first := e.reasons[0]
	if !e.s.HasRun() || e.s.Live() {
		e.summary = "job " + string(e.c.Record()) + ": " + first.Message
		return
	}
	verb := "waits"
	if first.Kind != ReasonNotDue {
		verb = "is held"
	}
	e.summary = fmt.Sprintf("run %s of %s %s: %s", e.s.RunID(), e.formatInstant(e.s.Nominal), verb, first.Message)
}

// formatInstant shows an instant: the time of day while it is near, the date too otherwise.
func (e *explainer) formatInstant(ms unixtime.Milli) string {
	t, now := ms.Time().UTC(), e.now.Time().UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format("2006-01-02 15:04:05 UTC")
}

// quoteFailure quotes the last failure.
func (e *explainer) quoteFailure() string {
	if e.s.LastError == "" {
		return ""
	}
	return " after `" + Clip(e.s.LastError, 120) + "`"
}

// describeJitter shows by how much jitter changed a delay. It shows nothing for a wait of another origin.
func describeJitter(waitMS int64, got, plain time.Duration) string {
	if plain <= 0 || got == plain || waitMS != RoundUpMS(got) {
		return ""
	}
	return fmt.Sprintf(" (jitter %+.1f %%)", 100*(float64(got)/float64(plain)-1))
}

func formatCount(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}

func quoteNote(note string) string {
	if note == "" {
		return ""
	}
	return ": " + strings.TrimSpace(note)
}
