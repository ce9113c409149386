package admission

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

// Store has the methods of the store of records that admission needs.
type Store interface {
	// Now is the clock of a shard, Unix milliseconds.
	Now(ctx context.Context, shard int) (unixtime.Milli, error)
	// Latest is an upper bound of that clock.
	Latest(shard int) lease.ClockBound
	GetRecords(ctx context.Context, shard int, records []job.RecordID) ([]*job.Record, error)
}

// Limits are the values that runs of all shards share. Answers come in the order of the asks.
type Limits interface {
	AcquireUnits(ctx context.Context, asks []job.UnitRequest) []job.UnitGrant
	// ReleaseUnits releases units, or places in line, and returns the waiters to be woken.
	ReleaseUnits(ctx context.Context, releases []job.UnitRelease) []job.UnitReleased
	// RenewUnits renews units and returns those that are no longer held. With an error, other units may not have
	// been reached.
	RenewUnits(ctx context.Context, keeps []job.UnitRenewal) (lost []job.UnitRenewal, err error)
	// FreeUnitsOf returns how many units of limits are free, by Name and Limit.
	FreeUnitsOf(ctx context.Context, asks []job.UnitRequest) ([]int, error)
	TakeRate(ctx context.Context, asks []job.RateRequest) []job.RateGrant
	ReadCells(ctx context.Context, names []string) []job.CellReply
	SwapCells(ctx context.Context, swaps []job.CellSwap) []job.CellReply
	QueueSettings(ctx context.Context) (map[job.QueueKey]job.QueueSettings, error)
	// SwapQueueSettings replaces the settings of a queue if they are still the old ones. New ones are part of the share
	// of an identity; "": of none.
	SwapQueueSettings(ctx context.Context, q job.QueueKey, old, s job.QueueSettings, identity string) error
}

// Ledger decides and stores changes of a record. Submit must not block; done is called once, on another
// goroutine or before Submit returns.
type Ledger interface {
	Submit(change job.Change, done func(job.ChangeResult))
	// CompiledDefinition compiles the definition of a job, or returns it from a cache.
	CompiledDefinition(record job.RecordID, d *job.Definition) (*job.Compiled, error)
}

// Slots are the free slots of this node's workers.
type Slots interface {
	Reserve(namespace, queue string, n int) slots.Reservation
	ReserveWaiting(namespace, queue string, n int) slots.Reservation
	// MayAdvance reports whether slots reserved now may take leases that are not due yet.
	MayAdvance(namespace, queue string) bool
	// ReturnLeases gives leases back uncounted. It does not block; returns that cannot be stored at once are stored
	// later.
	ReturnLeases([]job.Leased)
	// AbandonAttempt makes the worker of an attempt at this node stop because the attempt lost something that it needs.
	AbandonAttempt(record job.RecordID, token uint64) bool
}

// RunCanceller asks the node of the worker that runs an attempt to cancel it, on any node. It must not block.
type RunCanceller interface {
	CancelAttempt(record job.RecordID, token uint64)
}

// Opener opens sealed payloads.
type Opener interface {
	// Decrypt returns the payload of a definition, if it may be delivered.
	Decrypt(d *job.Definition) ([]byte, error)
	// RequiresVersion2 reports whether Open refuses payloads that are not sealed.
	RequiresVersion2() bool
}

// Options configure an Admission. Store, Limits, Ledger, Slots and Canceller are
// required.
type Options struct {
	Store     Store
	Limits    Limits
	Ledger    Ledger
	Slots     Slots
	Canceller RunCanceller
	// Opener may be nil: runs whose payload is sealed are then held back.
	Opener Opener
	// OnRoom is called when a queue with limits may have room again. It must not block for long, nor call back.
	// May be nil.
	OnRoom func(namespace, queue string)
	// OnPaused is called when a queue is paused or resumed. It must not block. May be nil.
	OnPaused func(q job.QueueKey, paused bool)
	// Latency is how long Redis takes to answer this node now, 0 if unknown. It must not
	// block. Nil: unknown.
	Latency func() time.Duration
	// LeaseTTL is the life of a lease, and of a unit, without renewal. Default
	// 30 s, at least 1 s.
	LeaseTTL time.Duration
	// Refresh is the period in which the settings of queues are read. Default 1 s.
	Refresh time.Duration
	// Alignment is when that period begins. Default: by itself.
	Alignment ticks.Alignment

	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *Options) setDefaults() error {
	if o.Store == nil || o.Limits == nil || o.Ledger == nil || o.Slots == nil || o.Canceller == nil {
		return errors.New("admission: Store, Limits, Ledger, Slots and Canceller are required")
	}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = 30 * time.Second
	}
	if o.LeaseTTL < time.Second {
		return errors.New("admission: LeaseTTL must be at least 1 s")
	}
	if o.Refresh <= 0 {
		o.Refresh = time.Second
	}
	if o.Latency == nil {
		o.Latency = func() time.Duration { return 0 }
	}
	if o.OnPaused == nil {
		o.OnPaused = func(job.QueueKey, bool) {}
	}
	if o.OnRoom == nil {
		o.OnRoom = func(string, string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Derived durations.

// gateAnswers bounds how many answers of Redis a group waits for in sequence, beside one for each unit of the
// run that needs most: parent, pace, target (read and set), start (read and stored), and two more for answers
// that the ledger gives to others first.
const gateAnswers = 8

// gateBudget is how long a group may be at its gates whose runs need that many units at most. Where Redis
// answers late it is the time of all answers. Units are taken within it, and renewed by renewPeriod and a call
// after it: together that is less than their life. The rest of a lease is checked once more on delivery.
func (o *Options) gateBudget(units int) time.Duration {
	answers := time.Duration(gateAnswers+units) * o.Latency()
	return min(o.LeaseTTL/3, max(min(o.LeaseTTL/5, 3*time.Second), answers))
}

func (o *Options) renewPeriod() time.Duration { return o.LeaseTTL / 3 }

// callTimeout bounds one call of the loops.
func (o *Options) callTimeout() time.Duration { return min(o.LeaseTTL/6, 2*time.Second) }

// retryPause is the pause after a call that failed: without it a run that cannot pass would be tried without
// end.
func (o *Options) retryPause() time.Duration { return min(o.LeaseTTL/30, 500*time.Millisecond) }
