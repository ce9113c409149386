package job

import "github.com/fermata-io/fermata/internal/core/unixtime"

// This file holds what lists of ended runs, over all jobs, ask the store for. Runs that ended without success are in
// an index for each shard and queue; events have those that succeeded.

// MaxIndexedError is how many bytes of the error of a run the index of unsuccessful runs keeps.
const MaxIndexedError = 128

// EndedRun is a run that ended, as an index or an event has it. Output, Worker and AttemptLog of the run
// are unset.
type EndedRun struct {
	Key   Key
	Queue string
	Run
	// LastAttempt is how the last attempt of a dead or quarantined run ended; OutcomeNone if unknown.
	LastAttempt Outcome
}

// IsUnsuccessful reports whether a run with this outcome is in the index of unsuccessful runs.
func (o Outcome) IsUnsuccessful() bool { return o != OutcomeNone && o != OutcomeSucceeded }

// UnsuccessfulRuns returns the entries that a decision adds to the index of unsuccessful runs, one or two: the run that
// ended, and a waiting manual run that was cancelled, which has no other record. queue is that of the runs.
func UnsuccessfulRuns(d *Decision, key Key, queue string) []EndedRun {
	var runs []EndedRun
	endedID := ""
	if d.Ended != nil {
		endedID = d.Ended.ID
		if d.Ended.Outcome.IsUnsuccessful() {
			runs = append(runs, newUnsuccessfulRun(d, key, queue))
		}
	}
	for i := range d.Notices {
		n := &d.Notices[i]
		if n.Kind == RunCancelled && n.RunID != endedID {
			runs = append(runs, EndedRun{Key: key, Queue: queue, Run: Run{
				ID: n.RunID, Trigger: n.Trigger, FinishedMS: n.AtMS, Outcome: OutcomeCancelled,
			}})
		}
	}
	return runs[:min(maxUnsuccessfulRuns, len(runs))]
}

// maxUnsuccessfulRuns is how many runs one decision ends at most: a job has one waiting manual run.
const maxUnsuccessfulRuns = 2

func newUnsuccessfulRun(d *Decision, key Key, queue string) EndedRun {
	e := EndedRun{Key: key, Queue: queue, Run: *d.Ended}
	e.Error = Clip(e.Error, MaxIndexedError)
	e.Output, e.Worker, e.Caller, e.AttemptLog = nil, "", nil, nil
	if e.Outcome == OutcomeDead || e.Outcome == OutcomeQuarantined {
		e.LastAttempt = lastAttemptOutcome(d.Notices)
	}
	return e
}

// lastAttemptOutcome finds how the attempt ended that a decision was about.
func lastAttemptOutcome(notices []Notice) Outcome {
	for i := range notices {
		switch notices[i].Kind {
		case AttemptFailed:
			return OutcomeFailed
		case AttemptTimedOut:
			return OutcomeTimedOut
		case AttemptLost:
			return OutcomeLost
		}
	}
	return OutcomeNone
}

// UnsuccessfulIndex is the part of the index of unsuccessful runs that has those of a queue in a shard.
type UnsuccessfulIndex struct {
	Shard int
	Queue QueueKey
}

// UnsuccessfulRange is a part of an index: ends from MinMS to MaxMS, the last one first, without the first Skip of
// them, at most Limit.
type UnsuccessfulRange struct {
	UnsuccessfulIndex
	MinMS, MaxMS unixtime.Milli
	Skip, Limit  int
}

// IndexedRun is an entry of the index. Run is nil if the entry cannot be read.
type IndexedRun struct {
	EndMS unixtime.Milli
	Run   *EndedRun
}

// SuccessRange is a part of the events of a shard: from an instant to before a place, the last one first.
type SuccessRange struct {
	Shard  int
	FromMS unixtime.Milli
	Before Place
	Limit  int
	// Namespace selects events of one namespace; "" selects all.
	Namespace string
}

// SuccessEvent is an event. Run is nil if it is not about a selected run that succeeded.
type SuccessEvent struct {
	Place Place
	Run   *EndedRun
}

// EndedRunsQuery asks for runs of all jobs that ended.
type EndedRunsQuery struct {
	// Filter selects the jobs. Its Queue is that of the run, and only Namespace, AllNamespaces, Condition and the
	// scopes have an effect otherwise.
	Filter Filter
	// The run ended at StartMS or later, and before EndMS; 0: no bound.
	StartMS, EndMS unixtime.Milli
	// Outcomes selects runs by their outcome or by that of their last attempt. None: all but OutcomeSucceeded.
	Outcomes []Outcome
	PageSize int // 0: 100
	Token    string
}

// EndedRunsPage is one page of a listing, the last end first. An empty Next marks the last page.
type EndedRunsPage struct {
	Runs       []EndedRun
	Next       string
	Incomplete bool
}
