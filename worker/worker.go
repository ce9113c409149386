package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/lib/precisetimer"
)

const (
	// stopGrace is what handlers have to return after their context ended with
	// ErrStopped.
	stopGrace = 5 * time.Second
	// maxWait is how long an attempt may wait for a slot here before it goes back.
	maxWait = 50 * time.Millisecond
	// tidyEvery is the pace of repeating; see Worker.tidy.
	tidyEvery = time.Second
)

// Worker runs handlers for the attempts that a node leases to it. Make one with
// [New], give it handlers, then call [Worker.Run].
type Worker struct {
	o        Options
	handlers map[string]*handler
	around   []func(Handler) Handler
	metrics  *metrics
	routes   *routes

	started  atomic.Bool
	stopOnce sync.Once
	stopNow  chan struct{}  // closed by Stop
	working  sync.WaitGroup // runners
	base     context.Context

	mu    sync.Mutex
	table table      // guarded by mu
	more  *sync.Cond // on mu: something is ready, or all is over
	late  *time.Timer
	// gathered calls tellAll.
	gathered *time.Timer
	due      *precisetimer.Alarm // calls beginDue; there while Run is
	beats    *time.Timer         // calls beat
	trustEnd *time.Timer         // calls checkTrust

	maxWait time.Duration // the constant, but for tests
}

// New makes a worker. The error lists all faults of the options.
func New(o Options) (*Worker, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		o: o, handlers: make(map[string]*handler), metrics: newMetrics(o.Registerer), stopNow: make(chan struct{}), maxWait: maxWait,
		routes: newRoutes(o.Addresses),
	}
	w.more = sync.NewCond(&w.mu)
	w.late = time.AfterFunc(time.Hour, w.returnLate)
	w.late.Stop()
	w.gathered = time.AfterFunc(time.Hour, w.tellAll)
	w.gathered.Stop()
	w.beats = time.AfterFunc(time.Hour, w.beat)
	w.beats.Stop()
	w.trustEnd = time.AfterFunc(time.Hour, w.checkTrust)
	w.trustEnd.Stop()
	w.table = table{
		attempts: make(map[string]*attempt), idle: make(chan struct{}), linkErr: errors.New("not connected yet"),
	}
	w.o.Logger = o.Logger.With("worker", o.ID, "namespace", o.Namespace)
	return w, nil
}

// ID is the worker's id, as nodes list it.
func (w *Worker) ID() string { return w.o.ID }

// Use has every handler run inside what around makes of it, the first outermost: to
// log, to measure, to put something into the context. What around returns sees panics
// of the handler, and an error that it returns is that of the attempt. Use panics
// after the first Handle: no handler is left out by mistake.
func (w *Worker) Use(around ...func(Handler) Handler) {
	if len(w.handlers) > 0 {
		panic("worker: Use after Handle")
	}
	w.around = append(w.around, around...)
}

// Handle registers the handler for jobs that name it. It panics when the name is
// empty or taken, the handler is nil, or the worker runs already: these are
// mistakes in the program.
func (w *Worker) Handle(name string, h Handler) {
	switch {
	case name == "" || h == nil:
		panic("worker: Handle needs a name and a handler")
	case w.handlers[name] != nil:
		panic(fmt.Sprintf("worker: handler %q is registered twice", name))
	case w.started.Load():
		panic("worker: Handle after Run")
	}
	for _, around := range slices.Backward(w.around) {
		h = around(h)
	}
	w.handlers[name] = w.metrics.handler(name, h)
}

// Run works until ctx ends, then drains: it takes no further attempts, waits up
// to Options.DrainTimeout for those that run, and for their results to be
// acknowledged. Handlers that are still not done see their context end with
// [ErrStopped] and have a few seconds to return; without success their attempts
// are left to be leased again.
//
// Run may be called once. It keeps reconnecting for as long as it takes, and
// returns nil when nothing was cut off.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.handlers) == 0 {
		return errors.New("worker: no handler is registered")
	}
	if w.started.Swap(true) {
		return errors.New("worker: Run was called before")
	}
	w.due = precisetimer.New(w.beginDue)
	defer w.due.Close()
	base, halt := context.WithCancelCause(context.WithoutCancel(ctx))
	w.base = base
	linked, unlink := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	parts.Go(func() { newLink(w).run(linked) })
	parts.Go(func() { w.tidyLoop(linked) })

	select {
	case <-ctx.Done():
	case <-w.stopNow:
	}
	err := w.drain(halt)
	unlink()
	parts.Wait()
	halt(ErrStopped)
	w.late.Stop()
	w.gathered.Stop()
	w.beats.Stop()
	w.trustEnd.Stop()
	return err
}

// Stop makes Run stop waiting: it cancels what still runs and returns within
// seconds. It may be called at any time, repeatedly, and does not wait.
func (w *Worker) Stop() { w.stopOnce.Do(func() { close(w.stopNow) }) }

// Ready is nil while the worker has a stream to a node and takes attempts, and
// says what is wrong otherwise.
func (w *Worker) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.table.draining:
		return errors.New("draining")
	case w.table.current == nil:
		return w.table.linkErr
	}
	return nil
}

func (w *Worker) drain(halt context.CancelCauseFunc) error {
	w.o.Logger.Info("draining", "running", w.beginDrain(), "timeout", w.o.DrainTimeout)
	patience := time.NewTimer(w.o.DrainTimeout)
	defer patience.Stop()
	select {
	case <-w.table.idle:
	case <-patience.C:
		w.halt(halt)
	case <-w.stopNow:
		w.halt(halt)
	}

	w.mu.Lock()
	cut, running := len(w.table.attempts)+w.table.cutOff, w.table.running
	w.mu.Unlock()
	w.dismiss()
	if running == 0 {
		w.working.Wait()
	}
	if cut > 0 {
		return fmt.Errorf("worker: %d attempts were cut off; they will be leased again", cut)
	}
	w.o.Logger.Info("drained")
	return nil
}

// halt cancels the handlers and waits a moment for their last words.
func (w *Worker) halt(halt context.CancelCauseFunc) {
	w.mu.Lock()
	w.giveBackReady(w.table.current)
	for _, a := range w.table.attempts {
		if a.phase == running {
			a.ctx.end(ErrStopped, time.Now())
		}
	}
	w.checkIdle()
	w.mu.Unlock()
	halt(ErrStopped)
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-w.table.idle:
	case <-grace.C:
	}
}

func (w *Worker) tidyLoop(ctx context.Context) {
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			w.tidy(now)
		}
	}
}
