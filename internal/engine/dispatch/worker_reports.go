package dispatch

import (
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// HandleStarted handles the worker's report that handlers started.
func (s *Session) HandleStarted(leaseIDs []string) {
	d := s.d
	clocks := d.clocksOfUnstarted(leaseIDs)
	var fx pendingEffects
	d.mu.Lock()
	now := time.Now()
	fx.reserveNotices(len(leaseIDs))
	for _, id := range leaseIDs {
		a := d.mu.attempts[id]
		if a == nil || a.session != s || a.started || a.over || a.pendingEvent != nil {
			continue
		}
		s.chargeStarted(1)
		a.markStarted(now, a.nowMS(clocks), d.o.Store.Latest(a.shard), d.o.margin())
		fx.notices = d.appendStart(fx.notices, a)
		renew := a.trustedUntil.Add(d.o.margin() - d.o.LeaseTTL + d.o.renewEvery())
		if mark := now.Add(d.o.AckAfter); mark.Before(renew) {
			renew = mark
		}
		a.renewAt = d.roundToGrid(renew)
		d.scheduleAttempt(a)
	}
	d.mu.Unlock()
	d.runEffects(&fx)
}

// clocksOfUnstarted reads the clocks of the shards of those attempts that have not started yet.
func (d *Dispatcher) clocksOfUnstarted(leaseIDs []string) map[int]unixtime.Milli {
	var shards map[int]unixtime.Milli
	d.mu.Lock()
	for _, id := range leaseIDs {
		if a := d.mu.attempts[id]; a != nil && !a.started {
			if shards == nil {
				shards = make(map[int]unixtime.Milli)
			}
			shards[a.shard] = 0
		}
	}
	d.mu.Unlock()
	d.readClocks(shards)
	return shards
}

// returnLease returns an attempt that no handler has seen.
func (d *Dispatcher) returnLease(a *attempt, why string, fx *pendingEffects) {
	d.metrics.returned.WithLabelValues(why).Inc()
	d.freeSlot(a, fx)
	d.submitOwnEvent(a, job.ReturnLease{Token: a.token}, fx)
}

// HandleReturned handles leases that the worker will not start. Those of another node could not be returned there,
// because the stream was cut.
func (s *Session) HandleReturned(leaseIDs []string) {
	d := s.d
	var fx pendingEffects
	d.mu.Lock()
	unstarted := 0
	for _, id := range leaseIDs {
		a := d.mu.attempts[id]
		switch {
		case a == nil:
			if s.returnedForeign >= s.hello.MaxLive() {
				continue
			}
			a = d.newForeignAttempt(s, id)
			if a != nil {
				s.returnedForeign++
				d.returnLease(a, "worker", &fx)
			}
		case a.session != s:
		case a.over:
			d.forgetAttempt(a, &fx)
		case a.ownEvent:
			a.resultArrived = true
			d.freeSlot(a, &fx)
		case a.pendingEvent != nil:
		case a.started && s.hello.Heartbeats:
			// Hello listed it, so it was to start, and then its previous session ended too early.
			d.metrics.lost.WithLabelValues("disclaimed").Inc()
			d.freeSlot(a, &fx)
			d.submitOwnEvent(a, d.newLossEvent(a), &fx)
		case a.started:
			// Returning a started attempt uncounted could repeat for ever.
			d.freeSlot(a, &fx)
			d.submitOwnEvent(a, job.FinishAttempt{
				Token: a.token, Outcome: job.OutcomeFailed, Error: "worker gave the attempt back after its start",
				StartedMS: a.startedMS, Worker: s.hello.WorkerID,
			}, &fx)
		default:
			s.resultPace.reset()
			s.markOutdated()
			d.returnLease(a, "worker", &fx)
			unstarted++
		}
	}
	if unstarted > 0 {
		s.chargeReturned(unstarted)
	}
	d.mu.Unlock()
	d.runEffects(&fx)
}

// settleTimedOut ends an attempt whose worker did not answer within timeout and grace.
func (d *Dispatcher) settleTimedOut(a *attempt, fx *pendingEffects) {
	d.metrics.timeouts.Inc()
	timeout, grace := time.Duration(0), time.Duration(0)
	if a.known != nil {
		timeout, grace = a.known.Definition.Timeout, a.known.Definition.TimeoutGrace
	}
	a.session.cancelAttempt(a, job.CancelTimedOut)
	d.submitOwnEvent(a, job.FinishAttempt{
		Token: a.token, Outcome: job.OutcomeTimedOut,
		Error:     fmt.Sprintf("no answer within the timeout of %v and %v of grace", timeout, grace),
		StartedMS: a.startedMS, Worker: a.session.hello.WorkerID,
	}, fx)
}
