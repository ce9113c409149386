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
	// stopGrace is how long handlers have to return after their context ended with ErrStopped.
	stopGrace = 5 * time.Second
	// maxSlotWait is how long an attempt may wait for a slot before it is returned.
	maxSlotWait = 50 * time.Millisecond
	// resendInterval is the interval of Worker.resendUnacknowledged.
	resendInterval = time.Second
)

// Worker runs handlers for the attempts that nodes lease to it. Create one with [New], register handlers with
// [Worker.Handle], then call [Worker.Run].
type Worker struct {
	options    Options
	handlers   map[string]*handler
	middleware []func(Handler) Handler
	metrics    *metrics
	routes     *routes

	started     atomic.Bool
	stopOnce    sync.Once
	stopping    chan struct{} // closed by Stop
	abortOnce   sync.Once
	aborted     chan struct{} // closed by Abort
	done        chan struct{} // closed at the end of Run
	runError    error         // of Run, after done
	runners     sync.WaitGroup
	baseContext context.Context

	mu         sync.Mutex
	table      table      // guarded by mu
	runnerWake *sync.Cond // on mu: an attempt is ready, or the worker has stopped
	lateTimer  *time.Timer
	// flushTimer calls flushNow.
	flushTimer     *time.Timer
	startTimer     *precisetimer.Timer // calls startDue; exists during Run
	heartbeatTimer *time.Timer         // calls handleHeartbeatTimer
	trustTimer     *time.Timer         // calls checkTrust

	maxSlotWait time.Duration // the constant, except in tests
}

// New returns a worker. The error joins all invalid options.
func New(o Options) (*Worker, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		options: o, handlers: make(map[string]*handler), metrics: newMetrics(o.Registerer),
		stopping: make(chan struct{}), aborted: make(chan struct{}), done: make(chan struct{}),
		maxSlotWait: maxSlotWait, routes: newRoutes(o.Addresses),
	}
	w.runnerWake = sync.NewCond(&w.mu)
	w.lateTimer = time.AfterFunc(time.Hour, w.returnLateAttempts)
	w.lateTimer.Stop()
	w.flushTimer = time.AfterFunc(time.Hour, w.flushNow)
	w.flushTimer.Stop()
	w.heartbeatTimer = time.AfterFunc(time.Hour, w.handleHeartbeatTimer)
	w.heartbeatTimer.Stop()
	w.trustTimer = time.AfterFunc(time.Hour, w.checkTrust)
	w.trustTimer.Stop()
	w.table = table{
		attempts: make(map[string]*attempt), idle: make(chan struct{}), linkErr: errors.New("not connected yet"),
	}
	w.options.Logger = o.Logger.With("worker", o.ID, "namespace", o.Namespace)
	return w, nil
}

// ID returns the worker's id, as nodes list it.
func (w *Worker) ID() string { return w.options.ID }

// Use adds middleware around every handler, the first one outermost, for example to log, to measure, or to add
// values to the context. Middleware sees panics of the handler, and its error is the attempt's error. Use panics
// after the first call of Handle, so that no handler is left out by mistake.
func (w *Worker) Use(around ...func(Handler) Handler) {
	if len(w.handlers) > 0 {
		panic("worker: Use after Handle")
	}
	w.middleware = append(w.middleware, around...)
}

// Handle registers the handler for jobs that name it. It panics if the name is empty or registered already, if
// the handler is nil, or after Run.
func (w *Worker) Handle(name string, h Handler) {
	switch {
	case name == "" || h == nil:
		panic("worker: Handle needs a name and a handler")
	case w.handlers[name] != nil:
		panic(fmt.Sprintf("worker: handler %q is registered twice", name))
	case w.started.Load():
		panic("worker: Handle after Run")
	}
	for _, around := range slices.Backward(w.middleware) {
		h = around(h)
	}
	w.handlers[name] = w.metrics.newHandler(name, h)
}

// Run runs attempts until ctx ends or [Worker.Stop] is called, then drains: it takes no further
// attempts, and waits up to Options.DrainTimeout for running handlers and for the acknowledgement
// of their results. After that, or when [Worker.Abort] is called, it ends the contexts of the
// remaining handlers with [ErrStopped] and gives them 5 s to return. Their attempts are leased
// again.
//
// Run may be called once. It reconnects for as long as necessary. It returns nil if no
// attempt was cut off, and an error if no handler is registered or Run was called before.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.handlers) == 0 {
		return errors.New("worker: no handler is registered")
	}
	if w.started.Swap(true) {
		return errors.New("worker: Run was called before")
	}
	defer close(w.done)
	w.runError = w.runUntilStopped(ctx)
	return w.runError
}

func (w *Worker) runUntilStopped(ctx context.Context) error {
	w.startTimer = precisetimer.New(w.startDue)
	defer w.startTimer.Close()
	base, halt := context.WithCancelCause(context.WithoutCancel(ctx))
	w.baseContext = base
	linked, unlink := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	parts.Go(func() { newLink(w).run(linked) })
	parts.Go(func() { w.resendLoop(linked) })

	select {
	case <-ctx.Done():
	case <-w.stopping:
	case <-w.aborted:
	}
	err := w.drainAttempts(halt)
	unlink()
	parts.Wait()
	halt(ErrStopped)
	w.lateTimer.Stop()
	w.flushTimer.Stop()
	w.heartbeatTimer.Stop()
	w.trustTimer.Stop()
	return err
}

// Stop makes [Worker.Run] drain, as if its context had ended, waits for its return, and returns its error. If ctx
// ends first, Stop returns the error of ctx while Run continues to drain: call [Worker.Abort] to cut that short.
// Stop may be called at any time and more than once. Before Run it returns nil, and a later Run drains at once.
func (w *Worker) Stop(ctx context.Context) error {
	w.stopOnce.Do(func() { close(w.stopping) })
	if !w.started.Load() {
		return nil
	}
	select {
	case <-w.done:
		return w.runError
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Abort makes [Worker.Run] cancel running handlers at once and return within seconds. It may be called at any time
// and more than once. It does not wait.
func (w *Worker) Abort() { w.abortOnce.Do(func() { close(w.aborted) }) }

// Ready returns nil while the worker has a stream to a node and takes attempts. Otherwise it returns the reason
// why not.
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

func (w *Worker) drainAttempts(halt context.CancelCauseFunc) error {
	w.options.Logger.Info("draining", "running", w.beginDrain(), "timeout", w.options.DrainTimeout)
	patience := time.NewTimer(w.options.DrainTimeout)
	defer patience.Stop()
	select {
	case <-w.table.idle:
	case <-patience.C:
		w.haltHandlers(halt)
	case <-w.aborted:
		w.haltHandlers(halt)
	}

	w.mu.Lock()
	cut, running := len(w.table.attempts)+w.table.cutOffCount, w.table.slotsTaken
	w.mu.Unlock()
	w.stopRunners()
	if running == 0 {
		w.runners.Wait()
	}
	if cut > 0 {
		return fmt.Errorf("worker: %d attempts were cut off; they will be leased again", cut)
	}
	w.options.Logger.Info("drained")
	return nil
}

// haltHandlers cancels the handlers and waits up to stopGrace for their results.
func (w *Worker) haltHandlers(halt context.CancelCauseFunc) {
	w.mu.Lock()
	w.returnReady(w.table.current)
	for _, a := range w.table.attempts {
		if a.phase == phaseRunning {
			a.ctx.endWith(ErrStopped, time.Now())
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

func (w *Worker) resendLoop(ctx context.Context) {
	ticker := time.NewTicker(resendInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			w.resendUnacknowledged(now)
		}
	}
}
