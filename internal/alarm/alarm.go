// Package alarm calls a function at an instant, and a good deal more exactly than timers of
// the runtime do.
//
// A process that has nothing else to do waits for its timers in epoll, in whole
// milliseconds: they are half a millisecond late on average. On Linux an alarm is a timer of
// the kernel, whose descriptor ends that wait itself: some 50 us (BenchmarkLateness).
// Elsewhere, where the kernel gives none, and after [UseRuntime] it is a timer of the
// runtime.
//
// An alarm has one instant at a time. It never calls before that; and it may call although
// it was set to another one meanwhile, so the function looks for itself what is due.
package alarm

import (
	"sync"
	"sync/atomic"
	"time"
)

// Alarm calls a function at the instant that it is set to. Its methods may be called at any
// time, but none after Close.
type Alarm struct {
	exact   *exact      // nil: timer is used
	timer   *time.Timer // of the runtime
	ringing sync.WaitGroup
}

var runtimeOnly atomic.Bool

// UseRuntime has all alarms made from now on be timers of the runtime: where time is not
// that of the system, as in the bubbles of testing/synctest.
func UseRuntime() { runtimeOnly.Store(true) }

// New makes an alarm that is not set. It calls ring on another goroutine.
func New(ring func()) *Alarm {
	a := &Alarm{}
	if !runtimeOnly.Load() {
		a.exact = newExact()
	}
	if a.exact != nil {
		a.ringing.Go(func() { a.exact.wait(ring) })
		return a
	}
	a.timer = time.AfterFunc(time.Hour, ring)
	a.timer.Stop()
	return a
}

// Set has the function called at t, or at once if that has passed, instead of when it was
// set to before.
func (a *Alarm) Set(t time.Time) {
	in := max(time.Until(t), 0)
	if a.exact != nil {
		a.exact.set(in)
		return
	}
	a.timer.Reset(in)
}

// Close ends the alarm. A call that is being made has returned by then, unless a timer of
// the runtime makes it.
func (a *Alarm) Close() {
	if a.exact == nil {
		a.timer.Stop()
		return
	}
	a.exact.close()
	a.ringing.Wait()
}
