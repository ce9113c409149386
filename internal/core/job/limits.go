package job

import (
	"errors"
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Requests for limits that runs of different shards share. Each limit has a home shard, which follows from its
// name; its times are of that shard's clock.

// QueueKey names a queue.
type QueueKey struct{ Namespace, Queue string }

// QueueScope reports whether a caller may reach a queue; nil: it may reach all.
type QueueScope func(QueueKey) bool

// Holds reports whether the job of a definition is in one of the queues.
func (s QueueScope) Holds(d *Definition) bool {
	return s == nil || s(QueueKey{Namespace: d.Namespace, Queue: d.Queue})
}

// QueueSettings are limits of a whole queue, and whether it is paused. The zero value
// limits nothing and paces recovery by the default.
type QueueSettings struct {
	// MaxConcurrency is how many runs may be live at once; 0 is no limit.
	MaxConcurrency int
	// Rate is how many runs may start a second, 0.001 to 100,000; 0 is no limit.
	Rate float64
	// Burst is how many may start at once after a rest, at least 1; 0 is one
	// second's worth.
	Burst int
	// RecoveryRate is how many runs a second catch-up, resumed jobs, backfills and
	// redriven runs may start together; 0 is DefaultRecoveryRate.
	RecoveryRate float64
	// Paused: no run of the queue is leased, manual runs included. Leased runs continue, and due ones wait in
	// order.
	Paused bool
	// PauseUntilMS is when nodes resume the queue, by the clock of shard [PauseClockShard]; 0: when a person does. It
	// is 0 if the queue is not paused.
	PauseUntilMS unixtime.Milli
}

// PauseClockShard is the shard whose clock ends the pauses of all queues. A shard's clock never goes back, and does not
// leap ahead with a wrong clock of a node.
const PauseClockShard = 0

// MaxQueuePause is how far ahead the end of a pause may lie.
const MaxQueuePause = 366 * 24 * time.Hour

// PauseEnded reports whether a queue is still stored as paused although its pause has ended.
func (s QueueSettings) PauseEnded(now unixtime.Milli) bool {
	return s.Paused && s.PauseUntilMS > 0 && s.PauseUntilMS <= now
}

// Resumed returns the settings without a pause.
func (s QueueSettings) Resumed() QueueSettings {
	s.Paused, s.PauseUntilMS = false, 0
	return s
}

// QueueChange replaces the settings of a queue.
type QueueChange struct {
	Settings QueueSettings
	// KeepPaused leaves the queue paused or not, whatever Settings has. The end of a pause stays as it is while the
	// queue stays paused.
	KeepPaused bool
	// Expected, if not nil, are the settings that the caller has read: if the stored ones differ, the call fails
	// with ErrSettingsChanged.
	Expected *QueueSettings
}

// ErrTooManyQueues means that no further queue can be given settings.
var ErrTooManyQueues = errors.New("too many queues have settings")

// Errors that are [ErrTooManyQueues] because of a share.
var (
	// ErrTooManyQueuesOfNamespace means that the namespace has its share of the queues with settings.
	ErrTooManyQueuesOfNamespace = fmt.Errorf("%w of the namespace", ErrTooManyQueues)
	// ErrTooManyQueuesOfIdentity means that the caller has given settings to as many queues as its share is.
	ErrTooManyQueuesOfIdentity = fmt.Errorf("%w of the caller", ErrTooManyQueues)
)

// ErrTooMuchWork means that a call about many jobs took as much work as one may, and has changed a part of
// them only.
var ErrTooMuchWork = errors.New("too much work for one call")

// ErrSettingsChanged means that the settings of a queue are no longer those that were
// to be replaced.
var ErrSettingsChanged = errors.New("the settings of the queue changed")

// ErrTooManyWatches means that a node watches as many queues for others as it does.
var ErrTooManyWatches = errors.New("too many queues are watched")

// QuotaError means that a namespace has reached its limit of jobs or of their bytes.
type QuotaError struct {
	Namespace string
	Limit     int
	// Bytes: the limit is one of bytes.
	Bytes bool
}

func (e *QuotaError) Error() string {
	if e.Bytes {
		return fmt.Sprintf("the jobs of namespace %s may have %d bytes together, and this would be more: delete "+
			"some, make payloads smaller, or ask for a greater limit", e.Namespace, e.Limit)
	}
	return fmt.Sprintf("namespace %s has its %d jobs: delete some, or ask for a greater limit", e.Namespace, e.Limit)
}

// TurnError means that a call waited too long for its turn. A node runs few calls of this kind at the same time. Nothing
// was changed, and the call may be repeated.
type TurnError struct {
	Work string // the kind of work, one lowercase word
	// Namespace has as many running calls as one namespace may have. If it is empty, the node has as many as it may have.
	Namespace string
}

func (e *TurnError) Error() string {
	if e.Namespace == "" {
		return "this node is at its limit of " + e.Work
	}
	return fmt.Sprintf("namespace %s is at its limit of %s on this node", e.Namespace, e.Work)
}

// DefaultRecoveryRate paces the recovery of a queue that sets no rate.
const DefaultRecoveryRate = 50.0

// UnitRequest asks for one unit of a limit: a lock, or a queue's concurrency.
type UnitRequest struct {
	Name   string // of the limit, unique in the cluster
	Limit  int
	Holder string   // lease id: asking again for the same holder prolongs
	Waiter RecordID // record to be woken when a unit is free; "" waits for nothing
	Rank   int64    // waiters with a smaller rank are woken first
	TTL    time.Duration
}

// UnitGrant answers a UnitRequest.
type UnitGrant struct {
	Granted bool
	// By is a holder that blocks the request and SinceMS when it got its unit; or, if no holder does, a waiter
	// for which a unit has been reserved since then. SinceMS of a grant is when this holder got its unit.
	By      string
	SinceMS unixtime.Milli
	// FreeMS is when the first unit expires unless it is renewed; 0 for waiters that are not among the first in
	// line.
	FreeMS unixtime.Milli
	NowMS  unixtime.Milli // clock of the home shard
	Err    error
}

// UnitRelease releases a unit. Limit is the limit of units, for the number of waiters to wake.
type UnitRelease struct {
	Name   string
	Holder string // "" gives nothing back
	Limit  int
	// Waiter is a record that no longer waits: it leaves the queue, and its reservation passes to the next. ""
	// is none.
	Waiter RecordID
}

// UnitReleased lists the first waiters. A unit is reserved for each of them for a moment; a waiter may be
// notified more than once.
type UnitReleased struct {
	Woken []RecordID
	Err   error
}

// UnitRenewal renews a unit.
type UnitRenewal struct {
	Name   string
	Holder string
	TTL    time.Duration
}

// RateRequest asks a rate limit for N starts; a negative N gives some back.
type RateRequest struct {
	Name string
	N    int
	// Interval is the time between two starts and Burst how many may come at
	// once after a rest.
	Interval time.Duration
	Burst    int
	// Reserve takes all N now: start i may happen at AtMS + i * Interval.
	// Otherwise only those are granted that may start now.
	Reserve bool
}

// RateGrant answers a RateRequest.
type RateGrant struct {
	N int
	// AtMS is when the first reserved start, or the next one that was not
	// granted, may happen.
	AtMS  unixtime.Milli
	NowMS unixtime.Milli
	Err   error
}

// Cell is a small durable value with a name, changed by compare and set. An
// empty Text is no cell.
type Cell struct {
	Name string
	Text string
}

// CellSwap replaces Old by New; Old "" creates, New "" deletes.
type CellSwap struct {
	Name     string
	Old, New string
}

// CellReply answers a read or a swap: the text that is stored now, and whether a
// swap was made.
type CellReply struct {
	Text    string
	Swapped bool
	NowMS   unixtime.Milli
	LagMS   int64 // see [lease.ClockBound]
	Err     error
}

// BulkName returns the progress of a change of many jobs.
func BulkName(id string) string { return "bulk/" + id }

// BulkListName returns the list of the changes of many jobs of a namespace whose progress is kept.
func BulkListName(namespace string) string { return "bulks/" + namespace }

// LockName returns the limit of a lock. No two kinds of limits share a name.
func LockName(namespace, key string) string { return "lock/" + namespace + "/" + key }

// QueueLimitName returns the concurrency of a queue.
func QueueLimitName(q QueueKey) string { return "queue/" + q.Namespace + "/" + q.Queue }

// QueueRateName returns the rate limit of a queue.
func QueueRateName(q QueueKey) string { return "rate/" + q.Namespace + "/" + q.Queue }

// RecoveryName returns the recovery budget of a queue.
func RecoveryName(q QueueKey) string { return "recovery/" + q.Namespace + "/" + q.Queue }

// TargetName returns the circuit of a target.
func TargetName(namespace, target string) string { return "target/" + namespace + "/" + target }
