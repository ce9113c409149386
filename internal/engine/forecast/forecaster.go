package forecast

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	// definitionsShare and dueShare are the shares of one core that the two reads may take.
	definitionsShare = 0.006
	dueShare         = 0.004
	// unaskedShare is definitionsShare while no query has come for unaskedAfter.
	unaskedShare = 0.001
	unaskedAfter = time.Hour
	// savedTime is how much of an allowance is saved up.
	savedTime = 2 * time.Second
	// roundPause is the pause between two rounds of definitions that no query asks for.
	roundPause = 5 * time.Minute
	// tickPause is how often it is looked for shards to read.
	tickPause = 5 * time.Second
	// fresh is how old a read may be before a query asks for a new one.
	fresh = time.Second
	// queryWait bounds how long a query waits for new reads.
	queryWait = 5 * time.Second
	// sweepEvery is how many shards are read between two sweeps of the table.
	sweepEvery = 16
)

// Store reads jobs and due times. [redisstore.Store] is one.
type Store interface {
	// WalkShard reads a page of the jobs of a shard. The first page is at ""; "" is the end.
	WalkShard(ctx context.Context, shard int, at string) (jobs []job.Record, next string, err error)
	// LanePages lists the lanes of shards.
	LanePages(ctx context.Context, from map[int]job.LaneCursor) (map[int]job.LanePage, error)
	// DuePages reads pages of due times.
	DuePages(ctx context.Context, reads []job.DueRead, uptoMS unixtime.Milli) ([]job.DuePage, error)
}

// Options of a [Forecaster]. Store and Held are required.
type Options struct {
	Store Store
	// Held returns the shards that this node holds.
	Held func() []int
	// Shards is the number of shards of the keyspace.
	Shards int
	// Nodes returns the number of nodes of the cluster. Default: one.
	Nodes func() int
	// Now is the time by which runs are due. Default: the clock of this node.
	Now        func() time.Time
	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil registers nothing
}

// Forecaster reads the shards of a node, and forecasts their load.
type Forecaster struct {
	o                Options
	definitions, due *allowance
	spent            *prometheus.CounterVec
	wanted           chan struct{} // a query asks for a round of definitions
	dueRound         chan struct{} // has an entry during a round of the due index
	building         chan struct{} // has an entry while an answer is computed

	answersMu sync.Mutex
	answers   map[answerKey]*sharedAnswer

	mu      sync.Mutex
	table   *forecast.Table
	shards  map[int]*forecast.Shard
	unswept int             // shards that were read since the last sweep
	roundAt time.Time       // when the last round of definitions began
	askedAt time.Time       // when the last query came
	waiters []chan struct{} // queries that wait for the next round of definitions
	taken   []chan struct{} // queries that wait for the present one
	roundOf time.Duration   // what the last round of definitions cost
	dueCost time.Duration   // what the last round of the due index cost
	// readingDue: a round of the due index refers to queues of the table.
	readingDue bool
}

// New makes a Forecaster. It reads nothing before Run.
func New(o Options) (*Forecaster, error) {
	if o.Store == nil || o.Held == nil {
		return nil, errors.New("forecast: Store and Held are required")
	}
	if o.Nodes == nil {
		o.Nodes = func() int { return 1 }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	now := time.Now()
	f := &Forecaster{
		o: o, wanted: make(chan struct{}, 1), building: make(chan struct{}, 1), dueRound: make(chan struct{}, 1),
		answers: map[answerKey]*sharedAnswer{}, table: forecast.NewTable(o.Shards), shards: map[int]*forecast.Shard{},
		definitions: newAllowance(unaskedShare, savedTime, now), due: newAllowance(dueShare, savedTime, now),
		spent: promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "fermata_forecast_read_seconds_total",
			Help: "Time that the forecast of due runs spent reading definitions, or the due index.",
		}, []string{"read"}),
	}
	for _, read := range []string{readDefinitions, readDue} {
		f.spent.WithLabelValues(read)
	}
	return f, nil
}

// The reads, as labels of metrics.
const (
	readDefinitions = "definitions"
	readDue         = "due"
)

// Run reads definitions until the context ends.
func (f *Forecaster) Run(ctx context.Context) error {
	ticker := time.NewTicker(tickPause)
	defer ticker.Stop()
	for {
		asked := false
		select {
		case <-ctx.Done():
			f.releaseWaiters()
			return ctx.Err()
		case <-f.wanted:
			asked = true
			f.takeWaiters()
		case <-ticker.C:
		}
		if err := f.readRound(ctx, asked); err != nil && ctx.Err() == nil {
			f.o.Logger.Warn("failed to read definitions for the forecast", "error", err)
		}
		f.releaseTaken()
	}
}

// takeWaiters has the queries that wait now wait for the round that begins. Later ones wait for the next round.
func (f *Forecaster) takeWaiters() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken, f.waiters = append(f.taken, f.waiters...), nil
}

// releaseTaken ends the wait of queries for the present round.
func (f *Forecaster) releaseTaken() {
	f.mu.Lock()
	defer f.mu.Unlock()
	closeAll(f.taken)
	f.taken = nil
}

// releaseWaiters ends the wait of all queries.
func (f *Forecaster) releaseWaiters() {
	f.releaseTaken()
	f.mu.Lock()
	defer f.mu.Unlock()
	closeAll(f.waiters)
	f.waiters = nil
}

func closeAll(waiting []chan struct{}) {
	for _, w := range waiting {
		close(w)
	}
}

// paceDefinitions sets the share of definitions by when a query came last.
func (f *Forecaster) paceDefinitions() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, share := time.Now(), unaskedShare
	if !f.askedAt.IsZero() && now.Sub(f.askedAt) < unaskedAfter {
		share = definitionsShare
	}
	f.definitions.setShare(share, now)
}

// pay pays for a page: for what Redis did, once for each node. It returns how long to wait, and what was paid.
func (f *Forecaster) pay(from *allowance, read string, redis, rest time.Duration) (wait, cost time.Duration) {
	f.spent.WithLabelValues(read).Add((redis + rest).Seconds())
	cost = redis*time.Duration(max(1, f.o.Nodes())) + rest
	return from.spend(cost, time.Now()), cost
}
