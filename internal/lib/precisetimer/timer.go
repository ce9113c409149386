// Package precisetimer calls a function at an instant, more precisely than timers of the Go runtime.
//
// An idle process waits for its timers in epoll, in whole milliseconds: they are half a
// millisecond late on average. On Linux an alarm is a kernel timer (timerfd), whose
// descriptor ends that wait itself: it is about 50 us late (BenchmarkLateness). On other
// systems, if the kernel provides none, and after [UseRuntime] it is a timer of the runtime.
//
// An alarm has one instant at a time. It never calls earlier; but it may call although it
// was set to another instant meanwhile, so the function has to check what is due.
package precisetimer

import (
	"sync"
	"sync/atomic"
	"time"
)

// Timer calls a function at the set instant. Its methods may be called at any time, but not after Close.
type Timer struct {
	kernel    *kernelTimer // nil: timer is used
	timer     *time.Timer  // of the runtime
	callbacks sync.WaitGroup
}

var runtimeOnly atomic.Bool

// UseRuntime makes all later alarms timers of the runtime. It is for programs with a simulated clock, such as
// bubbles of testing/synctest.
func UseRuntime() { runtimeOnly.Store(true) }

// New makes an alarm that is not set. It calls ring on another goroutine.
func New(ring func()) *Timer {
	a := &Timer{}
	if !runtimeOnly.Load() {
		a.kernel = newKernelTimer()
	}
	if a.kernel != nil {
		a.callbacks.Go(func() { a.kernel.callOnExpiry(ring) })
		return a
	}
	a.timer = time.AfterFunc(time.Hour, ring)
	a.timer.Stop()
	return a
}

// Set sets the instant to t and replaces the one set before. If t has passed, the function is called at once.
func (a *Timer) Set(t time.Time) {
	in := max(time.Until(t), 0)
	if a.kernel != nil {
		a.kernel.setTimer(in)
		return
	}
	a.timer.Reset(in)
}

// Close ends the alarm. It waits for a running call, unless a timer of the runtime makes it.
func (a *Timer) Close() {
	if a.kernel == nil {
		a.timer.Stop()
		return
	}
	a.kernel.stopTimer()
	a.callbacks.Wait()
}
