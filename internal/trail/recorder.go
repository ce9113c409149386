package trail

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/job"
)

// Defaults and limits of [Options].
const (
	DefaultKeep     = 10_000
	MinKeep         = 100
	MaxKeep         = 10_000_000
	DefaultBacklog  = 4096
	DefaultPatience = 30 * time.Second

	// batch is how many records are written with one call.
	batch = 100
	// retryPause is the wait after a failed call.
	retryPause = time.Second
)

// Store is what the recorder needs of the store.
type Store interface {
	// AppendTrail adds records, of which about the last keep are kept.
	AppendTrail(ctx context.Context, records []job.TrailRecord, keep int) error
	// ReadTrail returns up to n records that are older than the one called before.
	ReadTrail(ctx context.Context, before string, fromMS, toMS int64, n int) (records []job.TrailRecord, next string, err error)
}

// Options configure a Recorder. Store is required.
type Options struct {
	Store Store
	// Keep is about how many records are kept, 100 to 10,000,000. Default 10,000.
	Keep int
	// Backlog is how many records may be in line. Default 4096.
	Backlog int
	// Patience is how long one is tried to be written. Default 30 s.
	Patience time.Duration
	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Recorder writes records, and reads them back.
type Recorder struct {
	o       Options
	line    chan job.TrailRecord
	lost    prometheus.Counter
	written prometheus.Counter
	stop    chan struct{}
	stopped sync.Once
	done    chan struct{}
	ctx     context.Context // ends the write under way
	cancel  context.CancelFunc
}

// New starts a recorder. Who makes one calls Stop.
func New(o Options) (*Recorder, error) {
	o.Keep, o.Backlog, o.Patience = cmp.Or(o.Keep, DefaultKeep), cmp.Or(o.Backlog, DefaultBacklog), cmp.Or(o.Patience, DefaultPatience)
	switch {
	case o.Store == nil:
		return nil, errors.New("trail: Store is required")
	case o.Keep < MinKeep || o.Keep > MaxKeep:
		return nil, errors.New("trail: Keep must be 100 to 10,000,000")
	case o.Backlog < 1 || o.Patience < 0:
		return nil, errors.New("trail: Backlog and Patience must be positive")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Recorder{
		o: o, line: make(chan job.TrailRecord, o.Backlog), stop: make(chan struct{}), done: make(chan struct{}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_audit_lost_total", Help: "Audit records that could not be stored; their log lines were written."}),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_audit_records_total", Help: "Audit records that were stored."}),
	}
	if o.Registerer != nil {
		for _, c := range []prometheus.Collector{r.lost, r.written} {
			if err := o.Registerer.Register(c); err != nil {
				return nil, err
			}
		}
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.write()
	return r, nil
}

// Record puts a record in line. It does not block.
func (r *Recorder) Record(record job.TrailRecord) {
	select {
	case r.line <- record:
	default:
		r.lose(1, errors.New("too many are in line"))
	}
}

// Stop writes what is in line and ends the recorder, within ctx. It may be repeated.
// What is recorded after it is lost.
func (r *Recorder) Stop(ctx context.Context) {
	r.stopped.Do(func() { close(r.stop) })
	select {
	case <-r.done:
	case <-ctx.Done():
		r.cancel()
		<-r.done
	}
	r.cancel()
}

func (r *Recorder) write() {
	defer close(r.done)
	for {
		select {
		case first := <-r.line:
			r.append(r.gather(first))
		case <-r.stop:
			for len(r.line) > 0 {
				r.append(r.gather(<-r.line))
			}
			return
		}
	}
}

// gather takes what is in line behind a first one.
func (r *Recorder) gather(first job.TrailRecord) []job.TrailRecord {
	records := []job.TrailRecord{first}
	for len(records) < batch && len(r.line) > 0 {
		records = append(records, <-r.line)
	}
	return records
}

// append writes records, again and again for a while.
func (r *Recorder) append(records []job.TrailRecord) {
	ctx, cancel := context.WithTimeout(r.ctx, r.o.Patience)
	defer cancel()
	for {
		err := r.o.Store.AppendTrail(ctx, records, r.o.Keep)
		if err == nil {
			r.written.Add(float64(len(records)))
			return
		}
		pause := time.NewTimer(retryPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			r.lose(len(records), err)
			return
		}
	}
}

func (r *Recorder) lose(n int, err error) {
	r.lost.Add(float64(n))
	r.o.Logger.Error("audit records are lost but for their log lines", "records", n, "error", err)
}
