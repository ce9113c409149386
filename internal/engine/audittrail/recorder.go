package audittrail

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Defaults and limits of [Options].
const (
	DefaultMaxRecords   = 100_000
	MinKeep             = 100
	MaxKeep             = 10_000_000
	DefaultAge          = 90 * 24 * time.Hour
	MinAge              = time.Hour
	MaxAge              = 10 * 365 * 24 * time.Hour
	DefaultBytes        = 64 << 20
	MinBytes            = 1 << 20
	MaxBytes            = 64 << 30
	DefaultQueueSize    = 4096
	DefaultWriteTimeout = 30 * time.Second

	// maxBatch and maxBatchBytes bound the records that are written with one call. The last one may exceed the bytes.
	// More would keep Redis from other calls for milliseconds.
	maxBatch      = 300
	maxBatchBytes = 1 << 20
	// fullBatch is how many records are written without a wait for more.
	fullBatch = 100
	// appendPause is the wait after each write, so that the records of several calls are written with one.
	appendPause = 5 * time.Millisecond
	// retryPause is the wait after a failed call.
	retryPause = time.Second
	// checkEvery is the pause between two looks at the chain and the exports, checkTimeout bounds one.
	checkEvery   = 30 * time.Second
	checkTimeout = 5 * time.Second
)

// Store is the storage of the trail.
type Store interface {
	// TrailState reads the end of the chain, the sizes of the trail, and the exports.
	TrailState(ctx context.Context) (job.TrailState, error)
	// AppendTrail adds linked records and trims, if the chain still ends at head; done is false
	// if it does not.
	AppendTrail(ctx context.Context, head job.TrailHead, records []job.TrailRecord, trim job.TrailTrim) (done bool,
		err error)
	// ReadTrail returns up to n records that are older than the one called before.
	ReadTrail(ctx context.Context, before string, fromMS, toMS unixtime.Milli,
		n int) (records []job.TrailRecord, next string, err error)
	// ReadTrailFrom returns up to n records after the one called after, oldest first.
	ReadTrailFrom(ctx context.Context, after string, n int) ([]job.TrailRecord, error)
	// SaveTrailExport stores an export, if it is still as it was; done is false if it is not.
	SaveTrailExport(ctx context.Context, e, was job.TrailExport) (done bool, err error)
	DropTrailExport(ctx context.Context, name string) error
}

// Options configure a Recorder. Store is required.
type Options struct {
	Store Store
	// Node is the name of this one, in the records of the trail's own doings.
	Node string
	// MaxRecords is about how many records are kept, 100 to 10,000,000. Default 100,000.
	MaxRecords int
	// Age is about how long a record is kept, an hour to ten years. Default 90 days.
	Age time.Duration
	// MaxBytes bounds the approximate size of all records in the store, 1 MiB to 64 GiB. Default 64 MiB. It
	// applies even to records that the exports have not acknowledged.
	MaxBytes int64
	// Keys returns the keys of the node. The first one signs; the ends of the chain that other nodes wrote have to be
	// signed with one of them. None, or nil: records are not signed. It is called for each write.
	Keys func() []job.ChainKey
	// QueueSize is how many records may be in line, with the calls that may leave one. Default 4096.
	QueueSize int
	// WriteTimeout is how long one is tried to be written. Default 30 s.
	WriteTimeout time.Duration
	// Logger defaults to one that discards; Registerer nil registers nothing.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Recorder writes records, and reads them back.
type Recorder struct {
	options        Options
	retention      retention
	chain          chainEnd
	queue          chan queuedRecord // has room for each place
	places         *places
	losses         losses
	lostRecords    prometheus.Counter
	writtenRecords prometheus.Counter
	gauges         trailGauges
	stop           chan struct{}
	stopped        sync.Once
	done           chan struct{}
	ctx            context.Context // ends the write under way
	cancel         context.CancelFunc
}

// queuedRecord is a record in line. Its place is given back when it is taken out.
type queuedRecord struct {
	record job.TrailRecord // AtMS is when it was put in line
	holder string
}

// New starts a recorder. The caller must call Stop.
func New(o Options) (*Recorder, error) {
	o.MaxRecords, o.QueueSize = cmp.Or(o.MaxRecords, DefaultMaxRecords), cmp.Or(o.QueueSize, DefaultQueueSize)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, DefaultWriteTimeout)
	o.Age, o.MaxBytes = cmp.Or(o.Age, DefaultAge), cmp.Or(o.MaxBytes, DefaultBytes)
	switch {
	case o.Store == nil:
		return nil, errors.New("trail: Store is required")
	case o.MaxRecords < MinKeep || o.MaxRecords > MaxKeep:
		return nil, errors.New("trail: Keep must be 100 to 10,000,000")
	case o.Age < MinAge || o.Age > MaxAge:
		return nil, errors.New("trail: Age must be an hour to ten years")
	case o.MaxBytes < MinBytes || o.MaxBytes > MaxBytes:
		return nil, errors.New("trail: MaxBytes must be 1 MiB to 64 GiB")
	case o.QueueSize < 1 || o.WriteTimeout < 0:
		return nil, errors.New("trail: Backlog and Patience must be positive")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Recorder{
		retention: retention{maxRecords: int64(o.MaxRecords), maxAgeMS: o.Age.Milliseconds(), maxBytes: o.MaxBytes},
		gauges:    newGauges(),
		options:   o, queue: make(chan queuedRecord, o.QueueSize), places: newPlaces(o.QueueSize),
		stop: make(chan struct{}), done: make(chan struct{}),
		lostRecords: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_audit_lost_total", Help: "Audit records that could not be stored; their log lines were " +
				"written."}),
		writtenRecords: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fermata_audit_records_total", Help: "Audit records that were stored."}),
	}
	if o.Registerer != nil {
		for _, c := range append(r.gauges.collectors(), r.lostRecords, r.writtenRecords) {
			if err := o.Registerer.Register(c); err != nil {
				return nil, err
			}
		}
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.writeLoop()
	return r, nil
}

// Record puts a record in line, in the place that its call has. Without one it needs a free place. It does not block.
func (r *Recorder) Record(record job.TrailRecord, place job.TrailPlace) {
	record.AtMS = unixtime.MilliOf(time.Now())
	if place.Held || r.places.tryTake(place.Holder) {
		select {
		case r.queue <- queuedRecord{record, place.Holder}:
			return
		default: // a place was used twice
		}
	}
	r.countLost(lossOf([]job.TrailRecord{record}), errors.New("too many are in line"))
}

// Stop writes the queued records and ends the recorder, within ctx. It may be repeated. Records after it are
// lost.
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

func (r *Recorder) writeLoop() {
	defer close(r.done)
	looks := time.NewTicker(checkEvery)
	defer looks.Stop()
	for {
		select {
		case first := <-r.queue:
			r.appendRecords(r.collectBatch(first))
			r.waitForRecords()
		case <-looks.C:
			r.checkChain()
		case <-r.stop:
			for len(r.queue) > 0 {
				r.appendRecords(r.collectBatch(<-r.queue))
			}
			r.appendFor(checkTimeout, nil) // what was lost
			return
		}
	}
}

// collectBatch takes the records that are queued behind a first one, and gives back their places.
func (r *Recorder) collectBatch(first queuedRecord) []job.TrailRecord {
	records, holders := []job.TrailRecord{first.record}, []string{first.holder}
	for bytes := first.record.Size(); len(records) < maxBatch && bytes < maxBatchBytes && len(r.queue) > 0; {
		next := <-r.queue
		records, holders = append(records, next.record), append(holders, next.holder)
		bytes += next.record.Size()
	}
	r.places.give(holders...)
	return records
}

// waitForRecords waits for the records of the next write, unless there are enough. Stop ends it.
func (r *Recorder) waitForRecords() {
	if len(r.queue) >= fullBatch {
		return
	}
	pause := time.NewTimer(appendPause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.stop:
	}
}

// appendRecords writes records, again and again for a while.
func (r *Recorder) appendRecords(records []job.TrailRecord) {
	r.appendFor(r.options.WriteTimeout, records)
}

// appendFor writes the record of what was lost before, if anything was, and records behind it.
func (r *Recorder) appendFor(timeout time.Duration, records []job.TrailRecord) {
	calls, lost := records, r.losses.current()
	if lost.records > 0 {
		records = append([]job.TrailRecord{lost.record(r.options.Node)}, records...)
	}
	if len(records) == 0 {
		return
	}
	r.places.beginWrite()
	if err := r.tryAppendFor(timeout, records); err != nil {
		r.countLost(lossOf(calls), err)
		if len(r.queue) == 0 {
			r.places.endTrying()
		}
		return
	}
	r.places.endTrying()
	r.writtenRecords.Add(float64(len(records)))
	if lost.records > 0 {
		r.settleLoss(lost)
	}
}

func (r *Recorder) tryAppendFor(timeout time.Duration, records []job.TrailRecord) error {
	ctx, cancel := context.WithTimeout(r.ctx, timeout)
	defer cancel()
	var tried appendAttempt
	for {
		done, err := r.tryAppend(ctx, records, &tried)
		if done {
			return nil
		}
		if err == nil && ctx.Err() == nil {
			continue // another node was first, so that there is progress
		}
		pause := time.NewTimer(retryPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return cmp.Or(err, ctx.Err())
		}
	}
}

// appendAttempt is an attempt to append whose reply may have been lost.
type appendAttempt struct {
	stored job.TrailState // before it
	fault  endFault       // of the stored end
	end    job.TrailHead  // the one that it makes
}

// tryAppend appends at the current end of the chain. It first checks whether an earlier attempt has succeeded.
func (r *Recorder) tryAppend(ctx context.Context, records []job.TrailRecord, tried *appendAttempt) (done bool,
	err error) {
	state, err := r.options.Store.TrailState(ctx)
	if err != nil {
		return false, err
	}
	if tried.end.Hash != nil {
		if done, err := r.hasSucceeded(ctx, *tried, len(records)); done || err != nil {
			return done, err
		}
	}
	keys := r.keys()
	fault := r.chain.takeEnd(state, keys)
	linked := linkRecords(records, r.chain.selectBase(state.Head, fault), state, keys)
	last := linked[len(linked)-1]
	*tried = appendAttempt{stored: state, fault: fault, end: job.TrailHead{Seq: last.Seq, Hash: last.Hash}}
	done, err = r.options.Store.AppendTrail(ctx, state.Head, linked, r.retention.planTrim(state))
	if done {
		r.finishAppend(*tried)
	}
	return done, err
}

// finishAppend notes an attempt that has succeeded. The end was the same until then, and so its fault is no effect of a
// write in between.
func (r *Recorder) finishAppend(tried appendAttempt) {
	r.reportFault(tried.stored.Head, tried.fault)
	r.chain.seen = tried.end
}

// keys returns the keys of the node, the one that signs first; none: records are not signed.
func (r *Recorder) keys() []job.ChainKey {
	if r.options.Keys == nil {
		return nil
	}
	return r.options.Keys()
}

// hasSucceeded looks for the last record of an attempt behind those that were there before it.
func (r *Recorder) hasSucceeded(ctx context.Context, tried appendAttempt, n int) (bool, error) {
	records, err := r.options.Store.ReadTrailFrom(ctx, tried.stored.Newest.ID, n+DefaultPageSize)
	for _, record := range records {
		if bytes.Equal(record.Hash, tried.end.Hash) {
			r.finishAppend(tried)
			return true, nil
		}
	}
	return false, err
}

// checkChain checks the chain and the exports while nothing is written, and removes records that are too old.
// The removal is itself recorded, and so is what was lost.
func (r *Recorder) checkChain() {
	ctx, cancel := context.WithTimeout(r.ctx, checkTimeout)
	defer cancel()
	state, err := r.options.Store.TrailState(ctx)
	if err != nil {
		return // the next check or write reports the error
	}
	r.checkEnd(ctx, state)
	exports, err := r.exportStatus(ctx, state)
	if err != nil {
		return
	}
	r.gauges.update(state, exports)
	r.appendRecords(nil) // what was lost
	late := r.retention
	late.maxAgeMS += expirySlack.Milliseconds()
	if late.expiredBefore(state) != "" {
		r.appendRecords([]job.TrailRecord{{Identity: "fermata", Node: r.options.Node, Method: ExpireMethod,
			Resource: "audit"}})
	}
}

// ExpireMethod is the method of the record that removes older ones while no call leaves any.
const ExpireMethod = "fermata.audit/Expire"

// expirySlack is how long an expired record may remain while nothing else is written.
const expirySlack = time.Hour
