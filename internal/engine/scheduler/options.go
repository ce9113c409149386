package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/slots"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/lib/ticks"
)

// Store has the methods of the store that the scheduler needs.
type Store interface {
	Lease(ctx context.Context, requests []job.LeaseRequest) []job.LeaseReply
	// LanePages lists a page of the lanes of each shard.
	LanePages(ctx context.Context, from map[int]job.LaneCursor) (map[int]job.LanePage, error)
	// FindLanes looks up lanes by name, and returns those that exist.
	FindLanes(ctx context.Context, lanes map[int][]job.Lane) (map[int][]job.LaneHead, error)
	// DueLanes lists the lanes in which something is due within some time, at most job.LanesPerRead of each shard.
	DueLanes(ctx context.Context, shards []int, within time.Duration) (map[int][]job.LaneHead, error)
	Now(ctx context.Context, shard int) (unixtime.Milli, error)
	// Latest bounds the shard's clock from above, by its replies so far.
	Latest(shard int) lease.ClockBound
	// FirstEnds returns the time of the first record in each region of the lanes, for those that have any, and
	// for all shards that could be read.
	FirstEnds(ctx context.Context, lanes map[int][]job.Lane, regions ...job.Region) (map[int][]job.LaneHead, error)
	Expired(ctx context.Context, shard int, lockValue string, lanes []job.Lane, limit int) ([]job.Overdue, error)
	// FirstObjectives, Objectives and MoveObjectives read and move entries of the index of
	// lateness objectives: see the store.
	FirstObjectives(ctx context.Context, shards []int) (map[int]unixtime.Milli, error)
	Objectives(ctx context.Context, shard int, upToMS unixtime.Milli, limit int) ([]job.Objective, error)
	MoveObjectives(ctx context.Context, shard int, moves []job.ObjectiveMove) error
	Sweep(ctx context.Context, shard int, lockValue string, lanes []job.Lane, limit int) (int, error)
}

// Ledger takes changes of records.
type Ledger interface {
	Submit(job.Change, func(job.ChangeResult))
}

// Slots are the free slots of this node's workers. An implementation calls DemandChanged when slots become free
// after there were too few, including those that Deliver releases.
type Slots interface {
	// Reserve takes up to n slots of workers that serve the queue; it is a
	// reservation without slots when none is free. It must not call the scheduler
	// back.
	Reserve(namespace, queue string, n int) slots.Reservation
	// Prefetch reserves up to n places for attempts that wait at workers for a slot. It is called when no slot
	// is free, here or with a peer.
	Prefetch(namespace, queue string, n int) slots.Reservation
	// MayAdvance reports whether slots reserved now may take leases that are not due yet; see [slots.Reservation]. It
	// must not call the scheduler back.
	MayAdvance(namespace, queue string) bool
	// FreeSlots is the number of free slots for a queue. It must not call the scheduler back.
	FreeSlots(namespace, queue string) int
	// HoldAssignments makes the next calls of Deliver hold their messages to workers, until ReleaseAssignments sends
	// them: one message with all leases of a worker. It is released at once after these calls.
	HoldAssignments()
	ReleaseAssignments()
	// Queues returns the queues that this node's workers serve. It must not call the scheduler back.
	Queues() []job.QueueKey
}

// Peers carries permits to other nodes and results back. Neither blocks, nor calls
// the scheduler back.
type Peers interface {
	// SendPermits sends permits that are to be leased together, at most job.MaxPermitsPerMessage. It returns how many
	// of them, from the first on, are on their way: none without a link to the node.
	SendPermits(node string, permits []job.Permit) (sent int)
	// SendPermitResults sends results of permits that came together.
	SendPermitResults(node string, results []job.LanePermitResult)
}

// Limits bound how many runs of whole queues start. None of its methods calls the
// scheduler back; see [Scheduler.LimitsChanged].
type Limits interface {
	// Limited reports whether the queue is paused, or has limits to be asked for before a lease. It is called
	// often.
	Limited(namespace, queue string) bool
	// TakeStarts asks for starts and takes the granted ones. It may block for a call to Redis. Answers come in the
	// order of the asks.
	TakeStarts(ctx context.Context, asks []job.QueueRequest) []job.QueueGrant
	// ReturnStarts returns starts that were granted and not used. It does not block.
	ReturnStarts(unused []job.QueueRequest)
}

// Options configure a Scheduler. Node, Store, Ledger, Slots, Peers and Held are
// required.
type Options struct {
	// Node is this node's name; it marks leasing calls.
	Node   string
	Store  Store
	Ledger Ledger
	Slots  Slots
	Peers  Peers
	// Limits of queues; nil is none.
	Limits Limits
	// Held returns the lock value of a shard while the lock can be trusted. It is
	// called often and must not call the scheduler back.
	Held func(shard int) (lockValue string, ok bool)
	// Latency is how long Redis takes to answer this node now, 0 if unknown. It must not
	// block, nor call the scheduler back. Nil: unknown.
	Latency func() time.Duration
	// OnLost is called for attempts whose leases expired without a result, once that is stored: what they held
	// is free. It must not block. Nil: not called.
	OnLost func(job.Ending)
	// FinishRenames is called once each Sweep period with the shards that this node holds, to end renames that their
	// callers have left. Nil: not called.
	FinishRenames func(ctx context.Context, shards []int) error
	// LeaseTTL is the life of a lease without renewal. Default 30 s, at least 1 s.
	LeaseTTL time.Duration
	// Rescan is the period of the safety net that reads all first due times.
	// Default 1 s.
	Rescan time.Duration
	// Reap is the period in which ended leases, and broken lateness objectives, are looked for. Default 1 s.
	Reap time.Duration
	// Sweep is the period in which finished and dead records past their time are
	// deleted. Default 15 s.
	Sweep time.Duration
	// Alignment is when those periods begin. Default: each by itself.
	Alignment ticks.Alignment
	// MaxLeasingCalls is the number of leasing calls in flight at once. Default 4.
	MaxLeasingCalls int
	Logger          *slog.Logger
	Registerer      prometheus.Registerer
}

func (o *Options) setDefaults() error {
	if o.Node == "" || o.Store == nil || o.Ledger == nil || o.Slots == nil || o.Peers == nil || o.Held == nil {
		return errors.New("scheduler: Node, Store, Ledger, Slots, Peers and Held are required")
	}
	setDefault(&o.LeaseTTL, 30*time.Second)
	setDefault(&o.Rescan, time.Second)
	setDefault(&o.Reap, time.Second)
	setDefault(&o.Sweep, 15*time.Second)
	if o.LeaseTTL < time.Second {
		return errors.New("scheduler: LeaseTTL must be at least 1 s")
	}
	if o.Latency == nil {
		o.Latency = func() time.Duration { return 0 }
	}
	if o.MaxLeasingCalls <= 0 {
		o.MaxLeasingCalls = 4
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}
