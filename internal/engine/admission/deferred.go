package admission

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// deferredCalls are background releases, wakes and reports that no run waits for.
type deferredCalls struct {
	releases []unitRelease
	wakes    []waiterWake
	reports  []targetReport
	unused   []job.QueueRequest // starts to give back to the rates of queues
}

// unitRelease gives a unit back, or, with a waiter, its place in line.
type unitRelease struct {
	heldUnit
	holder string
	waiter job.RecordID
	since  time.Time // of the first try; zero before it
}

func (e *deferredCalls) isEmpty() bool {
	return len(e.releases)+len(e.wakes)+len(e.reports)+len(e.unused) == 0
}

func (e *deferredCalls) addAll(more deferredCalls) {
	e.releases = append(e.releases, more.releases...)
	e.wakes = append(e.wakes, more.wakes...)
	e.reports = append(e.reports, more.reports...)
	e.unused = append(e.unused, more.unused...)
}

// deferCalls queues calls to be made soon.
func (a *Admission) deferCalls(e deferredCalls) {
	if e.isEmpty() {
		return
	}
	a.mu.Lock()
	a.mu.deferred.addAll(e)
	a.mu.Unlock()
	wakeUp(a.deferredWake)
}

// deferredLoop makes the queued calls, all at once: their number sets the size of a call. It ends when nothing
// is left, or nothing can be done.
func (a *Admission) deferredLoop() {
	rest := time.NewTimer(a.o.retryPause())
	defer rest.Stop()
	for {
		stopping := false
		select {
		case <-a.ctx.Done():
			stopping = true
		case <-a.deferredWake:
		case <-rest.C:
		}
		for a.makeDeferredCalls() {
		}
		if stopping {
			return
		}
		a.mu.Lock()
		left := !a.mu.deferred.isEmpty()
		a.mu.Unlock()
		if left {
			rest.Reset(a.o.retryPause())
		}
	}
}

// makeDeferredCalls makes one round; true if there may be more to do at once. Failed calls are left for the next
// round.
func (a *Admission) makeDeferredCalls() bool {
	a.mu.Lock()
	e := a.mu.deferred
	a.mu.deferred = deferredCalls{}
	a.mu.Unlock()
	if e.isEmpty() {
		return false
	}
	for _, w := range e.wakes {
		a.wakeWaiter(w)
	}
	// Each kind has its own timeout, and so have earlier failures: a server that is down uses up all of the time
	// of a call.
	var again deferredCalls
	var calls sync.WaitGroup
	do := func(n int, call func(ctx context.Context)) {
		if n == 0 {
			return
		}
		calls.Go(func() {
			// Deferred calls outlive the loops' context: on Stop they are still made, for the other nodes.
			ctx, cancel := context.WithTimeout(context.Background(), a.o.callTimeout())
			defer cancel()
			call(ctx)
		})
	}
	var fresh, failed []unitRelease
	for _, r := range e.releases {
		if r.since.IsZero() {
			fresh = append(fresh, r)
		} else {
			failed = append(failed, r)
		}
	}
	var releases [2][]unitRelease
	do(len(fresh), func(ctx context.Context) { releases[0] = a.releaseUnits(ctx, fresh) })
	do(len(failed), func(ctx context.Context) { releases[1] = a.releaseUnits(ctx, failed) })
	do(len(e.reports), func(ctx context.Context) { again.reports = a.reportToCircuits(ctx, e.reports) })
	do(len(e.unused), func(ctx context.Context) { a.returnStarts(ctx, e.unused) })
	calls.Wait()
	again.releases = slices.Concat(releases[:]...)
	if again.isEmpty() {
		return true
	}
	a.mu.Lock()
	a.mu.deferred.addAll(again)
	a.mu.Unlock()
	return false
}

// releaseUnits releases units and wakes the first in line for them. It returns the releases to be repeated:
// until the units have expired.
func (a *Admission) releaseUnits(ctx context.Context, list []unitRelease) (again []unitRelease) {
	if len(list) == 0 {
		return nil
	}
	asks := make([]job.UnitRelease, len(list))
	for i, r := range list {
		asks[i] = job.UnitRelease{Name: r.name, Holder: r.holder, Limit: r.limit, Waiter: r.waiter}
	}
	rooms := make(map[job.QueueKey]struct{})
	for i, answer := range a.o.Limits.ReleaseUnits(ctx, asks) {
		r := list[i]
		if answer.Err != nil {
			a.logFailure("release units", answer.Err)
			if r.since.IsZero() {
				r.since = time.Now()
			}
			if time.Since(r.since) < a.o.LeaseTTL {
				again = append(again, r)
			}
		} else {
			a.logRecovery()
		}
		for _, record := range answer.Woken {
			a.wakeWaiter(waiterWake{heldUnit: r.heldUnit, record: record})
		}
		if r.reason == job.HeldQueue {
			rooms[r.queue] = struct{}{}
		}
	}
	for q := range rooms {
		a.reportRoom(q)
	}
	return again
}

// wakeTries bounds how often a run is woken that is just being held back.
const wakeTries = 8

// waiterWake is a run for which a unit is reserved.
type waiterWake struct {
	heldUnit
	record job.RecordID
	tries  int
}

// wakeWaiter makes a run due that waits for a unit. The unit may have become free before it was stored that the
// run waits: then the run is woken again. If it does not wait any more, the reserved unit goes to the next in
// line.
func (a *Admission) wakeWaiter(w waiterWake) {
	event := job.Wake{Reason: w.reason, Key: w.key}
	a.o.Ledger.Submit(job.Change{Record: w.record, Input: event}, func(r job.ChangeResult) {
		switch {
		case r.Err == nil && r.Answer == job.Applied:
			a.metrics.woken.Inc()
		case r.Err == nil && r.Record.State.Live() && w.tries < wakeTries:
			w.tries++
			a.deferCalls(deferredCalls{wakes: []waiterWake{w}})
		default:
			a.deferCalls(deferredCalls{releases: []unitRelease{{heldUnit: w.heldUnit, waiter: w.record}}})
		}
	})
}

// reportRoom reports that a queue may have room again.
func (a *Admission) reportRoom(q job.QueueKey) {
	a.mu.Lock()
	delete(a.mu.restingQueues, q)
	a.mu.roomChanges++
	a.mu.lastRoomChange[q] = a.mu.roomChanges
	a.mu.Unlock()
	a.o.OnRoom(q.Namespace, q.Queue)
}

// returnStarts returns unused starts of rates. If it fails they are lost, which makes the queue slower for a
// moment.
func (a *Admission) returnStarts(ctx context.Context, unused []job.QueueRequest) {
	var asks []job.RateRequest
	for _, u := range unused {
		if limits := a.settingsOf(u.Queue); limits.Rate > 0 && u.N > 0 {
			asks = append(asks, rateAsk(u.Queue, limits, -u.N))
		}
	}
	if len(asks) == 0 {
		return
	}
	for _, grant := range a.o.Limits.TakeRate(ctx, asks) {
		if grant.Err != nil {
			a.logFailure("give starts back", grant.Err)
		}
	}
}
