package playground

import (
	"path"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"

	"github.com/fermata-io/fermata/internal/cli/tui"
)

// jobPhase is what a job does, in one word for the view.
type jobPhase string

const (
	waiting   jobPhase = "waiting"
	running   jobPhase = "running"
	backoff   jobPhase = "backoff"  // waits longer than its interval, for it fails
	retrying  jobPhase = "retrying" // waits for the next attempt of the same run
	hinted    jobPhase = "hinted"   // waits as long as the other side asked for
	held      jobPhase = "held"     // waits for a lock, a target or a place in its queue
	paused    jobPhase = "paused"
	dead      jobPhase = "dead"
	done      jobPhase = "done"
	onDemand  jobPhase = "manual"
	uncertain jobPhase = "?"
)

// runResult is how an attempt or a run ended.
type runResult int

const (
	noResult runResult = iota
	succeeded
	failed
	timedOut
	lost
	died
	cancelled
)

// jobRow is a job as the view shows it.
type jobRow struct {
	name      string
	phase     jobPhase
	rule      string        // for schedules without an interval: cron, once, manual
	every     time.Duration // interval by the schedule, 0 for other rules
	effective time.Duration // interval after backoff
	gate      string        // what a held job waits for
	failures  int64
	attempt   int32
	attempts  int32 // the most there are
	since     time.Time
	due       time.Time // zero: nothing is planned
	started   time.Time // about when the live run started: when it was due
	finished  time.Time
	last      runResult
	lastError string
	runs      int64
	lost      int64
	marks     []runMark // results that were seen, oldest first
}

// runMark is one result on the timeline.
type runMark struct {
	at   time.Time
	last runResult
}

// rowOf returns the row of a job.
func rowOf(j *fermatav1.Job) jobRow {
	s := j.GetStatus()
	r := jobRow{
		name:      tui.StripControls(path.Base(j.GetName())),
		failures:  s.GetConsecutiveFailures(),
		effective: s.GetEffectiveInterval().AsDuration(),
		attempt:   s.GetCurrentAttempt(),
		attempts:  j.GetRetryPolicy().GetMaxAttempts(),
		finished:  timeOf(s.GetLastFinishTime()),
		last:      resultOf(s.GetLastOutcome()),
		lastError: tui.StripControls(s.GetLastError()),
		runs:      s.GetRunsTotal(),
		lost:      s.GetLostTotal(),
	}
	r.phase = phaseOf(s, j.GetSchedule() == nil)
	switch r.phase {
	case waiting, backoff, retrying, hinted, held:
		r.due = timeOf(s.GetNextDueTime())
	case running:
		r.started = timeOf(s.GetNextDueTime())
	}
	if r.phase == held {
		r.gate = gateOf(s.GetHold())
	}
	r.since = timeOf(j.GetCreateTime())
	if r.finished.After(r.since) {
		r.since = r.finished
	}
	switch rule := j.GetSchedule().GetRule().(type) {
	case *fermatav1.Schedule_Interval:
		r.every = rule.Interval.GetEvery().AsDuration()
	case *fermatav1.Schedule_Cron:
		r.rule = "cron"
	case *fermatav1.Schedule_Calendar:
		r.rule = "calendar"
	case *fermatav1.Schedule_Once:
		r.rule = "once"
	default:
		r.rule = "manual"
	}
	return r
}

func phaseOf(s *fermatav1.JobStatus, manual bool) jobPhase {
	switch s.GetState() {
	case fermatav1.JobStatus_STATE_RUNNING:
		return running
	case fermatav1.JobStatus_STATE_PAUSED:
		return paused
	case fermatav1.JobStatus_STATE_DEAD:
		return dead
	case fermatav1.JobStatus_STATE_DONE:
		if manual {
			return onDemand
		}
		return done
	case fermatav1.JobStatus_STATE_SCHEDULED:
		if s.GetHold() != nil {
			return held
		}
		switch s.GetDelaySource() {
		case fermatav1.DelaySource_DELAY_SOURCE_BACKOFF:
			return backoff
		case fermatav1.DelaySource_DELAY_SOURCE_RETRY:
			return retrying
		case fermatav1.DelaySource_DELAY_SOURCE_HINT:
			return hinted
		}
		return waiting
	}
	return uncertain
}

// gateOf names a gate as "lock ledger".
func gateOf(h *fermatav1.Hold) string {
	reason := strings.ToLower(strings.TrimPrefix(h.GetReason().String(), "REASON_"))
	return strings.TrimSpace(reason + " " + tui.StripControls(h.GetKey()))
}

func resultOf(o fermatav1.Outcome) runResult {
	switch o {
	case fermatav1.Outcome_OUTCOME_SUCCEEDED:
		return succeeded
	case fermatav1.Outcome_OUTCOME_FAILED:
		return failed
	case fermatav1.Outcome_OUTCOME_TIMED_OUT:
		return timedOut
	case fermatav1.Outcome_OUTCOME_LOST:
		return lost
	case fermatav1.Outcome_OUTCOME_DEAD, fermatav1.Outcome_OUTCOME_QUARANTINED:
		return died
	case fermatav1.Outcome_OUTCOME_CANCELLED:
		return cancelled
	}
	return noResult
}

func (r runResult) String() string {
	return [...]string{"", "ok", "failed", "timed out", "lost", "dead", "cancelled"}[r]
}

// isFailure reports whether the result is a failure.
func (r runResult) isFailure() bool { return r == failed || r == timedOut || r == lost || r == died }

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
