package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Defaults and limits of [Options].
const (
	DefaultLeaseTTL   = 30 * time.Second
	MinLeaseTTL       = time.Second
	DefaultSessionTTL = 8 * time.Second
	MinSessionTTL     = time.Second
	DefaultAckAfter   = 500 * time.Millisecond
)

// Store has the methods of the store that the dispatcher needs.
type Store interface {
	Renew(ctx context.Context, requests []job.RenewRequest) []job.RenewReply
	GetRecords(ctx context.Context, shard int, records []job.RecordID) ([]*job.Record, error)
	// Now is the shard's clock in Unix milliseconds; it calls Redis only if the last answer is too old.
	Now(ctx context.Context, shard int) (unixtime.Milli, error)
	// Latest is an upper bound of that clock.
	Latest(shard int) lease.ClockBound
	ShardOf(job.Key) int
}

// Ledger decides and stores changes of records. SubmitAll must not block; done is called with answers, several
// at a time and each of them once, on any goroutine and maybe before SubmitAll returns.
type Ledger interface {
	SubmitAll(changes []job.Change, done func([]job.ChangeSummary))
}

// Observer receives notices of what happened. It must not block, and must not keep the slice, whose memory is
// reused.
type Observer interface{ Observe([]job.Notice) }

// Attempts is notified of the attempts that this node has, one call at a time and in order. It must not block,
// nor call the dispatcher back.
type Attempts interface {
	// Adopted: an attempt that was delivered elsewhere continues at this node. Its deadline may have moved
	// since.
	Adopted(job.Leased)
	// Ended: an attempt that was delivered or adopted here is gone, or its stream is cut, so that it may
	// continue elsewhere. In the second case it is adopted if it comes back, and reported once more if it ends
	// here. Otherwise Ended is called exactly once for each. It is also called if only the result of an attempt,
	// or the report that it has not started, came to this node.
	Ended(job.Ending)
}

// Options configure a [Dispatcher]. Node, Store, Ledger and Observer are
// required.
type Options struct {
	// Node is this node's name, which is sent to workers.
	Node string
	// LeaseTTL is how long a lease lives after its last renewal, at least 1 s;
	// the one that leasing uses. Renewals are made every third of it.
	// Default 30 s.
	LeaseTTL time.Duration
	// SessionTTL is how long the session of a worker lives after its latest heartbeat, at least 1 s, and at most
	// two thirds of LeaseTTL, which is what leases have left when their node dies. Default 8 s.
	SessionTTL time.Duration
	// AckAfter is how long an attempt runs before it is stored that its worker
	// has acknowledged it; shorter ones save the write. Default 500 ms.
	AckAfter time.Duration

	Store    Store
	Ledger   Ledger
	Observer Observer
	// Attempts may be nil.
	Attempts Attempts
	// TraceID returns the trace of a record's live run, nil if it is not traced. May be nil: no run is traced.
	TraceID func(*job.Record) *job.TraceID
	// OnDemand is called when slots became free, when a queue has lost its last worker, and when the node
	// drains. It must neither block nor keep its argument. May be nil.
	OnDemand func([]FreedSlots)
	// OnServed is called when the first worker of a queue has come, and when the last one
	// has gone. It must neither block nor call back. May be nil.
	OnServed func(namespace, queue string, served bool)
	// Addresses are those of other nodes, for workers that have to leave. May
	// be nil.
	Addresses func() []string

	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	if o.LeaseTTL == 0 {
		o.LeaseTTL = DefaultLeaseTTL
	}
	if o.SessionTTL == 0 {
		o.SessionTTL = DefaultSessionTTL
	}
	if o.AckAfter == 0 {
		o.AckAfter = DefaultAckAfter
	}
	if o.OnDemand == nil {
		o.OnDemand = func([]FreedSlots) {}
	}
	if o.OnServed == nil {
		o.OnServed = func(string, string, bool) {}
	}
	if o.Addresses == nil {
		o.Addresses = func() []string { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Node == "":
		return o, errors.New("dispatch: Node is empty")
	case o.LeaseTTL < MinLeaseTTL:
		return o, errors.New("dispatch: LeaseTTL is below 1 s")
	case o.SessionTTL < MinSessionTTL:
		return o, errors.New("dispatch: SessionTTL is below 1 s")
	case o.AckAfter < 0:
		return o, errors.New("dispatch: AckAfter is negative")
	case o.Store == nil || o.Ledger == nil || o.Observer == nil:
		return o, errors.New("dispatch: Store, Ledger and Observer are required")
	}
	o.SessionTTL = min(o.SessionTTL, 2*o.LeaseTTL/3)
	return o, nil
}

// Derived durations.

// margin is how much earlier than the store this node gives up a lease.
func (o Options) margin() time.Duration { return o.LeaseTTL / 10 }

func (o Options) renewEvery() time.Duration { return o.LeaseTTL / 3 }

// minLeaseLife is the time that a lease must have left when it is handed to a worker. With less, the handler
// could lose it before the first renewal, and start in vain.
func (o Options) minLeaseLife() time.Duration { return o.LeaseTTL / 6 }

// renewalGrid is the grid to which renewals are rounded, so that they come in batches.
func (o Options) renewalGrid() time.Duration { return min(o.LeaseTTL/30, 100*time.Millisecond) }

// retryPause is the wait after a failed call of the store.
func (o Options) retryPause() time.Duration { return min(o.LeaseTTL/30, time.Second) }

// callTimeout bounds one call of the store. A renewal that falls due while a round is blocked waits for one call
// and makes one: after a third of the lease both have to fit into the trusted time.
func (o Options) callTimeout() time.Duration { return min(o.LeaseTTL/4, 5*time.Second) }
