package job

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Overlap is the policy for a nominal time that comes while an earlier run of the job is live. It is evaluated
// at that time, so that an edit affects waiting runs.
type Overlap uint8

// Overlap policies.
const (
	// OverlapSkip skips the nominal time.
	OverlapSkip Overlap = iota
	// OverlapBufferOne keeps the last one that was missed for when the run has
	// ended.
	OverlapBufferOne
	// OverlapBufferAll keeps up to OverlapLimit, oldest first; when there are
	// more, the oldest are left out.
	OverlapBufferAll
	// OverlapAllowAll runs up to OverlapLimit at once; further nominal times are skipped.
	OverlapAllowAll
	// OverlapCancelOther cancels the earlier runs and waits for their end.
	OverlapCancelOther
	// OverlapTerminateOther takes the leases of the earlier runs away and starts at once. Their handlers are
	// cancelled, but may still run for a while.
	OverlapTerminateOther
)

func (o Overlap) String() string {
	return enumName(o, "skip", "buffer_one", "buffer_all", "allow_all", "cancel_other", "terminate_other")
}

// spawnsChildren reports whether time goes on for the schedule while a run is live: such runs are child records.
func (o Overlap) spawnsChildren() bool { return o >= OverlapAllowAll }

// Bounds of Definition.OverlapLimit.
const (
	// DefaultOverlapLimit is the limit of a job that sets none.
	DefaultOverlapLimit = 10
	// MaxConcurrentRuns bounds the limit of OverlapAllowAll: a run's slot is a bit
	// of State.Children.
	MaxConcurrentRuns = 64
	// MaxBufferedRuns bounds the limit of OverlapBufferAll.
	MaxBufferedRuns = 1000
)

// MisfirePolicy decides on nominal times that passed without a run though no earlier run was live: no node held
// the shard, no worker had a slot, or the job was held back.
type MisfirePolicy uint8

// Misfire policies.
const (
	// MisfireRunOnce runs once, late, for all missed times.
	MisfireRunOnce MisfirePolicy = iota
	// MisfireSkip skips times that are late by more than the window.
	MisfireSkip
	// MisfireRunAll runs each that was missed, up to MaxCatchUp, oldest first;
	// when there are more, the oldest are left out.
	MisfireRunAll
)

func (p MisfirePolicy) String() string { return enumName(p, "run_once", "skip", "run_all") }

// Misfire is the policy for missed nominal times.
type Misfire struct {
	Policy MisfirePolicy
	// Window: a nominal time that is later than this is skipped under any policy. 0 is no bound, except for
	// MisfireSkip: DefaultMisfireWindow.
	Window time.Duration
	// MaxCatchUp bounds MisfireRunAll, 1 to MaxCatchUpRuns; 0 is DefaultCatchUp.
	MaxCatchUp int
}

// Bounds of Misfire.
const (
	DefaultMisfireWindow = time.Minute
	DefaultCatchUp       = 100
	MaxCatchUpRuns       = 10_000
)

// effectiveWindow returns the one in force; 0 is no bound.
func (m Misfire) effectiveWindow() time.Duration {
	if m.Policy == MisfireSkip && m.Window == 0 {
		return DefaultMisfireWindow
	}
	return m.Window
}

func (m Misfire) maxCatchUp() int64 {
	if m.MaxCatchUp == 0 {
		return DefaultCatchUp
	}
	return int64(m.MaxCatchUp)
}

// Lock names something that at most Limit runs of the namespace may hold at
// once: a mutex when Limit is 1.
type Lock struct {
	Key   string
	Limit int // 1 to MaxLockLimit
}

// Bounds of locks.
const (
	MaxLocks     = 4
	MaxLockLimit = 1000
)

// ManualMode is the effect of a manual run on the backoff of its job.
type ManualMode uint8

// Manual modes.
const (
	// ManualReset clears the failures when the run is requested.
	ManualReset ManualMode = iota
	// ManualKeep leaves failures and the planned run alone, however it ends.
	ManualKeep
	// ManualResetOnSuccess forgets the failures when the manual run succeeds;
	// its failure counts as none.
	ManualResetOnSuccess
)

func (m ManualMode) String() string { return enumName(m, "reset", "keep", "reset_on_success") }

// HoldReason is the gate that holds a run back. Being held is not a failure.
type HoldReason uint8

// Hold reasons.
const (
	HeldNone    HoldReason = iota
	HeldOverlap            // an earlier run of the job has not ended
	HeldLock               // Key: the lock; By: a job that holds it
	HeldTarget             // Key: the target, which is backing off or being probed
	HeldPace               // paced by the recovery budget of the queue Key; without Key: spread by lease.RestartSpread
	HeldQueue              // the queue is at its concurrency limit
	HeldPayload            // Key: the key of the payload, which cannot be opened
)

func (r HoldReason) String() string {
	return enumName(r, "none", "overlap", "lock", "target", "pace", "queue", "payload")
}

// Hold is what holds the current run back until its due time.
type Hold struct {
	Reason  HoldReason
	Key     string
	By      string
	SinceMS unixtime.Milli // when this gate first held the run
	// DueMS is the expected start of the run where that differs from its due time: its due time before the first
	// gate held it, or the end of a pause; 0 is none.
	DueMS unixtime.Milli
}

// HintSource is the origin of a hint.
type HintSource uint8

// Hint sources.
const (
	HintNone HintSource = iota
	HintWorker
	HintOperator
	HintPlanner
)

func (s HintSource) String() string { return enumName(s, "none", "worker", "operator", "planner") }

// Hint overrides the next due time, within the job's clamps, and expires.
type Hint struct {
	Source HintSource // HintNone: there is no hint
	// AtMS is when the next run is due; it is used once. 0 is none.
	AtMS unixtime.Milli
	// IntervalMS takes the place of the interval, backed off or not; 0 is none.
	IntervalMS int64
	// UntilMS is when the hint expires.
	UntilMS unixtime.Milli
	Reason  string
}

// Backfill is a range of past nominal times that are being run.
type Backfill struct {
	ID     string         // request id
	NextMS unixtime.Milli // the nominal times after this instant are still to be run
	ToMS   unixtime.Milli // up to and including this one
	// Concurrency is how many run at once.
	Concurrency uint8
	// Slots are those of its child records, by bit.
	Slots uint64
}

// MaxBackfills bounds the backfills of a job that are not done.
const MaxBackfills = 4

func enumName[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return "unknown"
}
