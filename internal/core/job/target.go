package job

import (
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Target is a target of a namespace with its circuit.
type Target struct {
	Namespace, Name string
	Circuit         backoff.Circuit
	// NowMS is the clock that the instants of the circuit are of.
	NowMS unixtime.Milli
	// FailedJob is the job whose failure set the wait, and ProbeJob that of the probe; zero: there is none, or the
	// caller may not see it. Then Circuit lacks its text as well.
	FailedJob, ProbeJob Key
	// Jobs of the page name the target, and Held of them are held back by it.
	Jobs, Held int
}

// TargetPage is one page of a listing. An empty Next marks the last.
type TargetPage struct {
	Targets []Target
	Next    string
}

// ReleasedRuns answers a call that makes runs due which a target held back.
type ReleasedRuns struct {
	Target Target
	// Job is the job of the run that was made due as the probe; zero: there was none.
	Job Key
	// Released is the number of runs that were made due.
	Released int
	// Next is set when there is more: call again with it.
	Next string
}

// LockStatus is a lock of a namespace with its holders and waiters.
type LockStatus struct {
	Namespace, Key string
	// Capacity is the greatest limit that jobs of the page name. Jobs of the page name the lock.
	Capacity, Jobs int
	Held, Waiting  int
	Holders        []LockHolder
	Waiters        []LockWaiter
}

// LockHolder is a run that holds a unit of a lock. Job is zero if the caller may not see it; RunID is empty if its
// run has ended. Worker is empty if no worker of this node runs it.
type LockHolder struct {
	Job            Key
	RunID, Worker  string
	SinceMS, EndMS unixtime.Milli
}

// LockWaiter is a run that waits for a unit of a lock. Job and SinceMS are zero if the caller may not see it.
type LockWaiter struct {
	Job        Key
	SinceMS    unixtime.Milli
	ReservedMS unixtime.Milli // a unit is reserved until then; 0: none is
}

// LockPage is one page of a listing. An empty Next marks the last.
type LockPage struct {
	Locks []LockStatus
	Next  string
}

// UnitsView is what is stored about the units of a limit.
type UnitsView struct {
	Held, Waiting int
	Holders       []UnitHolder // the first to end in front
	Waiters       []UnitWaiter // those with a reservation, then those in line
	Err           error
}

// UnitHolder is a holder of a unit.
type UnitHolder struct {
	Holder         string // lease id
	SinceMS, EndMS unixtime.Milli
}

// UnitWaiter is a waiter for a unit: in line by its rank, or with a reservation.
type UnitWaiter struct {
	Record     RecordID
	Rank       int64          // 0 with a reservation
	ReservedMS unixtime.Milli // 0 in line
}

// ValidateTarget checks the name of a target. It returns "" for a good one.
func ValidateTarget(name string) string { return validateText(name, 1, MaxTarget) }
