package admission

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// errands are what is done behind the back of runs: nobody waits for them.
type errands struct {
	releases []release
	wakes    []wakeUp
	reports  []report
	unused   []job.QueueAsk // starts to give back to the rates of queues
}

// release gives a unit back, or, with a waiter, its place in line.
type release struct {
	unit
	holder, waiter string
	since          time.Time // of the first try; zero before it
}

func (e *errands) empty() bool { return len(e.releases)+len(e.wakes)+len(e.reports)+len(e.unused) == 0 }

func (e *errands) add(more errands) {
	e.releases = append(e.releases, more.releases...)
	e.wakes = append(e.wakes, more.wakes...)
	e.reports = append(e.reports, more.reports...)
	e.unused = append(e.unused, more.unused...)
}

// send has errands done soon.
func (a *Admission) send(e errands) {
	if e.empty() {
		return
	}
	a.mu.Lock()
	a.mu.errands.add(e)
	a.mu.Unlock()
	signal(a.errandWake)
}

// errandLoop does what waits, all at once: how much that is sets the size of a
// call. It ends when nothing is left to be done, or cannot be.
func (a *Admission) errandLoop() {
	rest := time.NewTimer(a.o.errorRest())
	defer rest.Stop()
	for {
		stopping := false
		select {
		case <-a.ctx.Done():
			stopping = true
		case <-a.errandWake:
		case <-rest.C:
		}
		for a.doErrands() {
		}
		if stopping {
			return
		}
		a.mu.Lock()
		left := !a.mu.errands.empty()
		a.mu.Unlock()
		if left {
			rest.Reset(a.o.errorRest())
		}
	}
}

// doErrands makes one round; true when there may be more to do at once. What
// failed is left for the next.
func (a *Admission) doErrands() bool {
	a.mu.Lock()
	e := a.mu.errands
	a.mu.errands = errands{}
	a.mu.Unlock()
	if e.empty() {
		return false
	}
	for _, w := range e.wakes {
		a.wake(w)
	}
	// Each kind has its own time, and so has what failed before: a server that is away takes
	// all of what it is asked in.
	var again errands
	var calls sync.WaitGroup
	do := func(n int, call func(ctx context.Context)) {
		if n == 0 {
			return
		}
		calls.Go(func() {
			// Errands outlive the loops' context: what is given back when all ends is
			// given back to those who go on.
			ctx, cancel := context.WithTimeout(context.Background(), a.o.callTimeout())
			defer cancel()
			call(ctx)
		})
	}
	var fresh, failed []release
	for _, r := range e.releases {
		if r.since.IsZero() {
			fresh = append(fresh, r)
		} else {
			failed = append(failed, r)
		}
	}
	var releases [2][]release
	do(len(fresh), func(ctx context.Context) { releases[0] = a.release(ctx, fresh) })
	do(len(failed), func(ctx context.Context) { releases[1] = a.release(ctx, failed) })
	do(len(e.reports), func(ctx context.Context) { again.reports = a.report(ctx, e.reports) })
	do(len(e.unused), func(ctx context.Context) { a.refund(ctx, e.unused) })
	calls.Wait()
	if again.releases = slices.Concat(releases[:]...); again.empty() {
		return true
	}
	a.mu.Lock()
	a.mu.errands.add(again)
	a.mu.Unlock()
	return false
}

// release gives units back and wakes who is first in line for them. It returns
// those that are to be tried again: until they have run out by themselves.
func (a *Admission) release(ctx context.Context, list []release) (again []release) {
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
			a.failed("release units", answer.Err)
			if r.since.IsZero() {
				r.since = time.Now()
			}
			if time.Since(r.since) < a.o.LeaseTTL {
				again = append(again, r)
			}
		} else {
			a.worked()
		}
		for _, record := range answer.Woken {
			a.wake(wakeUp{unit: r.unit, record: record})
		}
		if r.reason == job.HeldQueue {
			rooms[r.queue] = struct{}{}
		}
	}
	for q := range rooms {
		a.room(q)
	}
	return again
}

// wakeTries bounds how often a run is woken that is just being held back.
const wakeTries = 8

// wakeUp is a run for which a unit is reserved.
type wakeUp struct {
	unit
	record string
	tries  int
}

// wake makes a run due that waits for a unit. The unit may have become free before
// it was stored that the run waits: then the run is woken again. If it does not wait
// any more, what is reserved for it goes to the next in line.
func (a *Admission) wake(w wakeUp) {
	event := job.Wake{Reason: w.reason, Key: w.key}
	a.o.Ledger.Submit(job.Change{Record: w.record, Event: event}, func(r job.ChangeResult) {
		switch {
		case r.Err == nil && r.Answer == job.Applied:
			a.metrics.woken.Inc()
		case r.Err == nil && r.Record.State.Live() && w.tries < wakeTries:
			w.tries++
			a.send(errands{wakes: []wakeUp{w}})
		default:
			a.send(errands{releases: []release{{unit: w.unit, waiter: w.record}}})
		}
	})
}

// room tells that a queue may have room again.
func (a *Admission) room(q job.QueueKey) {
	a.mu.Lock()
	delete(a.mu.rests, q)
	a.mu.rooms++
	a.mu.roomOf[q] = a.mu.rooms
	a.mu.Unlock()
	a.o.OnRoom(q.Namespace, q.Queue)
}

// refund gives starts back that were not used. If it fails they are lost, which
// makes the queue slower for a moment.
func (a *Admission) refund(ctx context.Context, unused []job.QueueAsk) {
	var asks []job.RateAsk
	for _, u := range unused {
		if limits := a.queue(u.Queue); limits.Rate > 0 && u.N > 0 {
			asks = append(asks, rateAsk(u.Queue, limits, -u.N))
		}
	}
	if len(asks) == 0 {
		return
	}
	for _, grant := range a.o.Limits.TakeRate(ctx, asks) {
		if grant.Err != nil {
			a.failed("give starts back", grant.Err)
		}
	}
}
