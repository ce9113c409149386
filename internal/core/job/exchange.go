package job

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// This file holds the values that engines and the store pass to one another.

// Errors of the store that engines act on. The store wraps them.
var (
	// ErrNotHolder: the shard's lock has another value than the caller's.
	ErrNotHolder = errors.New("shard lock is not held under this value")
	// ErrClockJump: Redis's clock is far ahead of the bound from the caller's monotonic clock; nothing was
	// stored.
	ErrClockJump = errors.New("redis clock jumped ahead")
	// ErrNoMemory: Redis is at maxmemory; nothing was stored.
	ErrNoMemory = errors.New("redis is out of memory")
	// ErrUnavailable: Redis could not be asked, or its answer was lost. The call
	// may be repeated.
	ErrUnavailable = errors.New("redis is unavailable")
	// ErrNodeBusy: the node did not get to the call in time, because others before it took long. It is handled as
	// ErrUnavailable.
	ErrNodeBusy = fmt.Errorf("calls before this one took too long: %w", ErrUnavailable)
	// ErrDurability: stored, but not confirmed to the durability class in time.
	// The call may be repeated.
	ErrDurability = errors.New("durability is not confirmed")
	// ErrConflict: the record kept changing under the decision.
	ErrConflict = errors.New("record kept changing")
	// ErrNotFound: there is no such job.
	ErrNotFound = errors.New("no such job")
	// ErrCorrupt: the stored data of the job cannot be used, and a retry does not change that. An edit or
	// deletion of the job does.
	ErrCorrupt = errors.New("stored job cannot be used")
	// ErrCursor: a listing is to go on at a place that the store has never named.
	ErrCursor = errors.New("cursor is not valid")
	// ErrBusy: the job is deleted but its last run is still live.
	ErrBusy = errors.New("deleted job is still running")
)

// Record is a stored job or child.
type Record struct {
	// Definition is shared by all who hold the record; it is read-only.
	Definition *Definition
	State      State
	// IndexMS is the instant its score carries: see Region.
	IndexMS unixtime.Milli
}

// LaneHead is the first due time of a lane; NeverMS when nothing in it is due
// at any time.
type LaneHead struct {
	Lane  Lane
	DueMS unixtime.Milli
}

// ShardLane is a lane of a shard.
type ShardLane struct {
	Shard int
	LaneHead
}

// LanesPerRead bounds the lanes that one read of a shard's index lists: 1,000 queues of ten priorities.
const LanesPerRead = 10_000

// LaneCursor is a place in the index of a shard's lanes, which is ordered by due time. The zero value is its start.
type LaneCursor struct {
	DueMS unixtime.Milli // due time of the last lane that was listed
	Ties  int            // how many lanes with this due time were listed
}

// LanePage is a part of the index of a shard's lanes.
type LanePage struct {
	Heads []LaneHead
	// More reports that the index may have lanes after this page, which begin at Next.
	More bool
	Next LaneCursor
}

// Ranking is an index of the worst jobs of a shard.
type Ranking uint8

// Rankings of the worst jobs, by criterion: see Ranks.
const (
	RankingFailing Ranking = iota
	RankingLate
	RankingCount = 2
)

// Ranked is an entry of a ranking, or a record whose run is overdue.
type Ranked struct {
	Shard  int
	Record RecordID
	Rank   int64
}

// Compare orders entries: the worst first, and equals by name.
func (r Ranked) Compare(o Ranked) int {
	return cmp.Or(cmp.Compare(o.Rank, r.Rank), cmp.Compare(r.Record, o.Record))
}

// MaxRanked is how many jobs of a shard an index of the worst keeps, as apply.lua has it.
const MaxRanked = 1000

// Objective is an entry of the index of objectives: at AtMS the lateness objective of its
// record's run is to be looked at. Known is nil if there is no record, or an unreadable one.
type Objective struct {
	Record     RecordID
	Known      *Record
	Unreadable bool
	AtMS       unixtime.Milli
}

// ObjectiveMove moves an entry to ToMS, as its record was decided on; 0 takes it off.
type ObjectiveMove struct {
	Objective
	ToMS unixtime.Milli
}

// LaneQuota asks for up to N leases from a lane.
type LaneQuota struct {
	Lane Lane
	N    int
}

// MaxLanesPerCall and MaxLeasesPerCall bound one leasing script.
const (
	MaxLanesPerCall  = 16
	MaxLeasesPerCall = 200
)

// MaxAdvance bounds how long before it is due a record may be leased: for so long a
// slot is taken for nothing, and a pause or an edit comes too late.
const MaxAdvance = 100 * time.Millisecond

// LeaseRequest leases due records of one shard, oldest due first in each lane.
type LeaseRequest struct {
	Shard     int
	LockValue string
	Quotas    []LaneQuota
	TTL       time.Duration
	// Advance is how long before it is due a record may be leased, in whole milliseconds;
	// 0: it has to be due.
	Advance time.Duration
	// Batch makes the call repeatable: the same batch id gives the same leases.
	Batch string
}

// LeaseReply answers one LeaseRequest. Heads are those of the lanes asked for,
// as they are after the call.
type LeaseReply struct {
	Leased []Leased
	Heads  []LaneHead
	NowUS  unixtime.Micro // shard clock, microseconds
	Err    error
}

// Leased is one attempt handed out.
type Leased struct {
	Shard  int
	Record RecordID
	// Known is as leased: IndexMS is the deadline, by the shard clock. It may be shared; it is read-only.
	Known *Record
	// Own is the payload of a run that has one of its own; nil: the run has that of its definition.
	Own    *RunPayload
	Opened []byte // the payload, if it is sealed or the run's own
	// StartAt is when the run is due, by the clock of this process; zero: it is due. No
	// handler may start before.
	StartAt time.Time
}

// Write is one compare-and-set: Decision is stored if the record still has the
// token and revision that it was decided on.
type Write struct {
	Record   RecordID
	Token    uint64
	Revision uint32
	// IfExpired refuses the write while the lease has not ended.
	IfExpired bool
	// From is the lane the record sat in when it was decided on.
	From    Lane
	Current *Definition // before the decision; copied into a dead letter
	// Together: this write and the one before it are both stored, or neither.
	Together bool
	// Bare leaves out the history and the dead letter, as where Redis' memory is full.
	Bare bool
	// Revisions is how many earlier revisions the job keeps if its definition changes, the replaced one included. 0
	// stores none and leaves the stored ones; RemoveRevisions removes them.
	Revisions int
	Decision  *Decision
}

// WriteCode is the outcome of a Write.
type WriteCode uint8

// Write codes.
const (
	// Written: stored now, or by an earlier copy of the same call.
	Written WriteCode = iota
	// Conflict: token or revision differ; Current is the stored record.
	Conflict
	// NotFound: there is no such record.
	NotFound
	// NotExpired: the lease was renewed.
	NotExpired
)

// WriteResult answers one Write.
type WriteResult struct {
	Code    WriteCode
	Current *State // for Conflict
}

// ShardWrites are the writes of one shard.
type ShardWrites struct {
	Shard  int
	Writes []Write
}

// ApplyReply answers a batch of writes. Earlier lists lanes whose first due time became earlier, and Holder the
// lock value of the node to notify.
type ApplyReply struct {
	Results []WriteResult
	Earlier []LaneHead
	Holder  string
	NowUS   unixtime.Micro
	Err     error
}

// CreateCode is the outcome of a creation.
type CreateCode uint8

// Create codes.
const (
	Created CreateCode = iota
	// Exists: the id is taken; Existing is the stored record.
	Exists
	// Tombstone: the id belongs to a deleted job that still runs.
	Tombstone
)

// CreateResult answers one creation.
type CreateResult struct {
	Code     CreateCode
	Existing *Record
	// NoPayload: Existing comes without its payload, see [CreateBatch.PayloadBytes].
	NoPayload bool
	// Err is why Existing was not read: that of [CreateBatch.BeginRead].
	Err error
}

// CreateBatch asks for new records in one shard.
type CreateBatch struct {
	Shard   int
	Records []Record
	// PayloadBytes bounds, for each record, the payload of one that exists in its answer; nil: any. A payload with more
	// bytes is left out.
	PayloadBytes []int
	// BeginRead waits until existing records may be read, and returns a function to call when they are. Of the batches of
	// one call it is called once. Nil: they are read at once, perhaps together with those of other callers.
	BeginRead func() (end func(), err error)
}

// CreateReply answers a batch of creations in one shard.
type CreateReply struct {
	Results []CreateResult
	Earlier []LaneHead
	Holder  string
	NowUS   unixtime.Micro
	Err     error
}

// Renewal extends one lease.
type Renewal struct {
	Record RecordID
	Lane   Lane
	Token  uint64
	// Epoch of the session that renews. A greater one takes the lease over.
	Epoch uint32
	// Acked: a worker acknowledged the attempt.
	Acked bool
	// HardStopMS bounds the new deadline; 0 is no bound.
	HardStopMS unixtime.Milli
}

// RenewCode is the outcome of a Renewal.
type RenewCode uint8

// Renew codes.
const (
	Renewed RenewCode = iota
	// LeaseLost: the token is not that of a live lease.
	LeaseLost
	// Moved: a later session has taken the lease over.
	Moved
)

// RenewResult answers one Renewal. Revision shows whether the record was edited.
type RenewResult struct {
	Code     RenewCode
	Revision uint32
}

// RenewRequest has leases of one shard end TTL from now, whatever was left of them.
type RenewRequest struct {
	Shard    int
	TTL      time.Duration
	Renewals []Renewal
}

// RenewReply answers one RenewRequest.
type RenewReply struct {
	Results []RenewResult
	NowUS   unixtime.Micro
	Err     error
}

// Overdue is a record whose lease has expired, or whose time of deletion has come.
type Overdue struct {
	Record RecordID
	State  State
}

// Change is an event of a record. Known, if set, is the state that the caller believes to be stored. It saves a
// read, and the store checks it. The ledger owns it until the change is answered, which may be after its caller
// has returned: it is read-only from then on.
type Change struct {
	Record RecordID
	Input  Input
	Known  *Record
	// IfExpired: see Write.
	IfExpired bool
	// Covers, when set, limits the change to jobs of these queues, as they are when it is stored.
	// A dead run is redriven if its own queue, too, is one of them. Elsewhere nothing changes and
	// the error is ErrNotFound.
	Covers QueueScope
	// Begin, when set, is asked before a decision is stored. If it answers false, the caller has
	// been answered that nothing was, and nothing is. It must not block, and may be asked again.
	Begin func() bool
}

// MayBegin asks Begin.
func (c *Change) MayBegin() bool { return c.Begin == nil || c.Begin() }

// ChangeResult answers a Change. Err is one of the errors above.
type ChangeResult struct {
	Answer Answer
	// Changed: something was stored for the change. With an Err it is unset, and something may be.
	Changed bool
	// Record is the stored record after the change; zero when it was deleted.
	Record  Record
	Deleted bool
	// Parent is the stored record of the job, for a change of a child or of a dead letter; nil when it was
	// deleted too.
	Parent *Record
	// Arrival, Spawn, CancelChildren and TerminateChildren are as in Decision.
	Arrival                           Arrival
	Spawn                             *Spawned
	CancelChildren, TerminateChildren []int
	Err                               error
}

// ChangeSummary is the part of a [ChangeResult] that callers of many changes get for each: a ChangeResult is large
// and has more than they need.
type ChangeSummary struct {
	Nth    int // among the changes
	Answer Answer
	// Definition is the job's, where the change found one.
	Definition *Definition
	Err        error
}

// QueueDemand is how many runs the workers of one node could take from a queue.
type QueueDemand struct {
	Namespace, Queue string
	Free             int // slots
	Ahead            int // attempts beyond those that would wait for a slot
	// InAdvance: free slots take runs that are not due yet. It is false for nodes that do not send it.
	InAdvance bool
}

// Places returns how many attempts could be taken in all.
func (d QueueDemand) Places() int { return d.Free + d.Ahead }

// Permit allows another node to lease from a lane. The holder of the lane issues it.
type Permit struct {
	ID        int64
	Shard     int
	Lane      Lane
	N         int
	LockValue string
	ValidFor  time.Duration
	// Advance is how long before it is due a run may be leased; 0: when it is due. It is at most MaxAdvance.
	Advance time.Duration
}

// MaxPermitsPerMessage bounds the permits that are sent, and leased, together.
const MaxPermitsPerMessage = 64

// PermitValidity is how long a permit is valid from its arrival, and MaxPermitValidity the same for a node with
// slow replies of Redis.
const (
	PermitValidity    = 250 * time.Millisecond
	MaxPermitValidity = time.Second
)

// PermitResult is the outcome of a permit, for the holder. DueMS is the lane's first due time after it.
type PermitResult struct {
	ID     int64
	Leased int
	DueMS  unixtime.Milli
}

// HasNoSlots reports whether the node had no slots for the permit.
func (r PermitResult) HasNoSlots() bool { return r.Leased <= 0 && r.DueMS <= 0 }

// LanePermitResult is a PermitResult with the lane of its permit.
type LanePermitResult struct {
	PermitResult
	Lane Lane
}

// OverdueAfter is the wait after which a due run is late if no objective sets another.
const OverdueAfter = time.Second

// LaneStat counts the records of one lane by region.
type LaneStat struct {
	Lane                                           Lane
	Backlog, Scheduled, Leased, Paused, Dead, Done int64
	// Overdue are those of the backlog that have waited for longer than OverdueAfter.
	Overdue int64
	// OldestDueMS is the due time of the first record that is overdue; 0 when
	// nothing is.
	OldestDueMS unixtime.Milli
	// NextDueMS is when the first record will be due, where none is yet; 0 when none
	// ever will, or one is.
	NextDueMS unixtime.Milli
	// DeadUntilMS is when the first of its dead letters is deleted; 0 when there is
	// none.
	DeadUntilMS unixtime.Milli
	// OldestDeadMS is when the oldest of those dead letters died that are deleted first:
	// the oldest of all, where all are kept equally long. 0 when there is none.
	OldestDeadMS unixtime.Milli
}
