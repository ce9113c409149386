package job

import (
	"strconv"
	"strings"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Region is the part of a lane's index that a record sits in.
type Region uint8

// Regions in the order of their scores: region r holds scores from r * 2^42.
const (
	RegionDue    Region = iota // score: due time
	RegionLeased               // score: end of the lease
	RegionPaused               // score: when it was paused
	RegionDead                 // score: when the dead letter expires
	RegionDone                 // score: when the record is deleted; NeverMS keeps it
)

func (r Region) String() string {
	return [...]string{"due", "leased", "paused", "dead", "done"}[min(r, RegionDone)]
}

// RegionWidth separates the regions' scores. 2^42 ms after 1970 is in the year
// 2109; five regions stay far below 2^53, so every score is exact in a double.
const RegionWidth = int64(1) << 42

// NeverMS is the last instant of a region, used for "no due time" and "never
// deleted".
const NeverMS = unixtime.Milli(RegionWidth - 1)

// Score returns the sorted-set score of an instant in a region.
func Score(r Region, ms unixtime.Milli) int64 {
	return int64(unixtime.Milli(int64(r)*RegionWidth) + max(0, min(ms, NeverMS)))
}

// SplitScore undoes Score.
func SplitScore(score int64) (Region, unixtime.Milli) {
	return Region(score / RegionWidth), unixtime.Milli(score % RegionWidth)
}

// Trigger is the origin of a run.
type Trigger uint8

// Triggers.
const (
	TriggerSchedule Trigger = iota
	TriggerManual
	TriggerBackfill
)

func (t Trigger) String() string { return enumName(t, "schedule", "manual", "backfill") }

// DelaySource is the rule that set a due time.
type DelaySource uint8

// Delay sources.
const (
	DelaySchedule DelaySource = iota
	DelayRetry
	DelayBackoff
	DelayHint
	DelayManual
	DelayCatchUp  // missed, and run now
	DelayBackfill // asked for by BackfillJob
	DelayRedrive  // a dead run, tried again
	DelayHeld     // a gate: see State.Held
	DelayJitter   // the schedule's own spread
)

func (s DelaySource) String() string {
	return enumName(s, "schedule", "retry", "backoff", "hint", "manual", "catch_up", "backfill", "redrive", "held",
		"jitter")
}

// Outcome is how an attempt or run ended.
type Outcome uint8

// Outcomes. Failed, TimedOut and Lost end attempts; the others end runs as well.
const (
	OutcomeNone Outcome = iota
	OutcomeSucceeded
	OutcomeFailed
	OutcomeTimedOut
	OutcomeLost
	OutcomeDead
	OutcomeQuarantined
	OutcomeCancelled
)

func (o Outcome) String() string {
	names := [...]string{"none", "succeeded", "failed", "timed_out", "lost", "dead", "quarantined", "cancelled"}
	if int(o) < len(names) {
		return names[o]
	}
	return "unknown"
}

// State is the state of a record. Times are Unix milliseconds of the shard's clock, zero means unset.
type State struct {
	// Header: the part that scripts read and write in place.
	Token    uint64 // of the last lease; 0 before the first
	Region   Region
	Acked    bool // the worker acknowledged the live attempt
	Revision uint32
	Epoch    uint32 // of the session that renews the live lease

	Lane       Lane
	Generation uint32 // of the schedule that the current run belongs to

	// The current run: planned, waiting for a retry, or live. Absent when the
	// record is done.
	Trigger  Trigger
	Mode     ManualMode
	ManualID string // request id of a manual run or of a backfill
	Nominal  unixtime.Milli
	Due      unixtime.Milli
	Source   DelaySource
	Attempt  uint32         // attempts of the run that ended, used up
	FirstMS  unixtime.Milli // when its first attempt ended up failing began; for MaxElapsed
	Held     Hold
	// Recovery: the run is paced by its queue's recovery budget. Paced: it has
	// had its turn.
	Recovery bool
	Paced    bool
	Losses   uint32 // since an attempt last ended otherwise, of those a worker had acknowledged
	Unacked  uint32 // the same, of attempts no worker acknowledged
	LastLoss Loss   // the last of these, whether or not it counts
	// AttemptLog, if not nil, has the attempts of the run that have ended.
	AttemptLog *AttemptLog
	Cancel     bool   // CancelRun was asked while live
	Pending    string // request id of the manual run that waits for the live one
	// PendingMode is the waiting manual run's.
	PendingMode ManualMode
	// Waiting is the slot of the child record that the waiting manual run is,
	// plus one; 0: it waits for the live run.
	Waiting   uint8
	Paused    bool
	Deleting  bool // deleted while live
	PausedMS  unixtime.Milli
	PauseNote string
	// BulkPause is the last pause of many jobs that paused this one, also after its end.
	BulkPause BulkPause
	// LastNominal is the nominal time of the last scheduled run of this generation that ended; the next planned
	// one is later.
	LastNominal unixtime.Milli
	// Fired counts the scheduled runs of this generation, for Spec.MaxRuns.
	Fired uint32
	Hint  Hint
	// BufferedUntil: the nominal times after LastNominal up to this instant have
	// been judged, and each is to have its run; 0 is none.
	BufferedUntil unixtime.Milli
	Backfills     []Backfill
	// Children are the slots of runs that are records of their own, by bit;
	// Started those of them that have begun. In a child, its own bit.
	Children, Started uint64

	// History in a nutshell.
	Failures     uint32 // failed runs in a row
	LastOutcome  Outcome
	LastStarted  unixtime.Milli
	LastFinished unixtime.Milli
	LastError    string
	// LateMS is the lag of the last run that was judged, if that broke Definition.MaxLag.
	LateMS int64
	// LateNominal is the nominal time of the current run if that was counted as late, so that
	// it is counted once. WatchedBy shows that this version made the last decision: see
	// [Decision.WatchMS].
	LateNominal  unixtime.Milli
	WatchedBy    uint8
	SettledToken uint64 // token of the last attempt that was settled
	Runs         uint64 // ended
	Succeeded    uint64
	Dead         uint64
	Lost         uint64     // attempts
	TimedOut     uint64     // attempts
	Skipped      uint64     // nominal times
	Recent       RequestIDs // requests for the last manual runs, newest last; see RequestedRun
	// Callers are the trace contexts of the requests for the manual runs that are current or waiting. The list
	// is shared with other states: it is read-only.
	Callers []Caller

	// Exempt are the ids of the runs, current or waiting, that the schedule's exclusions do not hold back. The
	// list is shared with other states: it is read-only.
	Exempt []string

	// Rename, if not nil, marks a record that only keeps a name for a rename: no input changes it.
	Rename *RenameMark
	// OwnPayload describes the payload that the run of a child record, or of a dead letter, has in place of its job's;
	// nil: it has the job's.
	OwnPayload *PayloadInfo
	// OwnBytes is the size of the payloads of all child records that have their own; 0 in child records.
	OwnBytes uint64

	// KeptRun is the run that has ended, as package codec encodes it, while the state keeps it in place of the history;
	// "" for none. The store sets it.
	KeptRun string

	// Unknown carries stored fields that this version does not know, as they are
	// written. They stay with their record whatever is decided.
	Unknown string
}

// BulkPause is a pause of many jobs.
type BulkPause struct {
	ID string
	// AtMS is State.PausedMS of the pause. If a job has another PausedMS, or none, this pause has ended.
	AtMS unixtime.Milli
}

// PausedBy reports whether the job is paused since the pause of many jobs that has this id.
func (s *State) PausedBy(id string) bool {
	return s.Paused && id != "" && s.BulkPause == BulkPause{ID: id, AtMS: s.PausedMS}
}

// HasRun reports whether there is a current run.
func (s *State) HasRun() bool {
	return s.Region == RegionDue || s.Region == RegionLeased || (s.Region == RegionPaused && s.Due != 0)
}

// Live reports whether a worker holds a lease.
func (s *State) Live() bool { return s.Region == RegionLeased }

// AtLeastDue returns nowMS, or the due time of a leased run if that is a little later. No handler starts before
// that, but the lease may be older ([MaxAdvance]), and a process's reading of a clock may lag behind it.
func (s *State) AtLeastDue(nowMS unixtime.Milli) unixtime.Milli {
	if s.Live() && s.Due > nowMS && int64(s.Due-nowMS) <= MaxAdvance.Milliseconds() {
		return s.Due
	}
	return nowMS
}

// RunID returns the identity of the current run: generation and nominal time, or the
// request id of a manual run.
func (s *State) RunID() string { return RunID(s.Trigger, s.Generation, s.Nominal, s.ManualID) }

// RunID names a run inside its job.
func RunID(t Trigger, generation uint32, nominalMS unixtime.Milli, manualID string) string {
	switch t {
	case TriggerManual:
		return "m-" + manualID
	case TriggerBackfill:
		return "b-" + manualID + "-" + strconv.FormatInt(int64(nominalMS), 10)
	}
	id := strconv.AppendUint(make([]byte, 0, 32), uint64(generation), 10)
	return string(strconv.AppendInt(append(id, '-'), int64(nominalMS), 10))
}

// Leased returns the state as the leasing script leaves it: the only change of
// state that is not a decision.
func (s State) Leased(token uint64) State {
	s.Region, s.Token, s.Acked, s.Epoch = RegionLeased, token, false, 0
	return s
}

// Run is a run that has ended, as history and dead letters keep it.
type Run struct {
	ID         string
	Trigger    Trigger
	ManualID   string // as in State; kept in dead letters only
	NominalMS  unixtime.Milli
	DueMS      unixtime.Milli
	StartedMS  unixtime.Milli
	FinishedMS unixtime.Milli
	Attempts   uint32
	Losses     uint32
	Outcome    Outcome
	Error      string
	Output     []byte
	Worker     string
	DeadLetter bool
	// AttemptLog is the latest attempts, oldest first; empty if the run succeeded at its first one, or if a version
	// that keeps none ended the run. The list is shared with states: it is read-only.
	AttemptLog []Attempt
	// Caller is the trace of the sampled call that asked for the run; nil: there was none.
	Caller *TraceID
	// OwnPayload is as in State.
	OwnPayload *PayloadInfo
}

// Limits of stored text.
const (
	MaxError  = 512
	MaxOutput = 4096
	MaxNote   = 256
)

// Clip shortens text to at most n bytes at a rune boundary and replaces bytes
// that are not UTF-8.
func Clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}
