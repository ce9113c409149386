package dispatch

import (
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// Started takes the worker's word that handlers began.
func (s *Session) Started(leaseIDs []string) {
	d := s.d
	clocks := d.clocksOf(leaseIDs)
	var fx effects
	d.mu.Lock()
	now := time.Now()
	fx.expect(len(leaseIDs))
	for _, id := range leaseIDs {
		a := d.mu.attempts[id]
		if a == nil || a.session != s || a.started || a.over || a.pending != nil {
			continue
		}
		a.start(now, a.nowMS(clocks), d.o.Store.Latest(a.shard), d.o.margin())
		fx.notices = d.appendStart(fx.notices, a)
		renew := a.until.Add(d.o.margin() - d.o.LeaseTTL + d.o.renewEvery())
		if mark := now.Add(d.o.AckAfter); mark.Before(renew) {
			renew = mark
		}
		a.renewAt = d.onGrid(renew)
		d.schedule(a)
	}
	d.mu.Unlock()
	d.finish(&fx)
}

// clocksOf reads the clocks of the shards of those attempts that have not
// started yet.
func (d *Dispatcher) clocksOf(leaseIDs []string) map[int]int64 {
	var shards map[int]int64
	d.mu.Lock()
	for _, id := range leaseIDs {
		if a := d.mu.attempts[id]; a != nil && !a.started {
			if shards == nil {
				shards = make(map[int]int64)
			}
			shards[a.shard] = 0
		}
	}
	d.mu.Unlock()
	d.clocks(shards)
	return shards
}

// giveBack returns an attempt that no handler has seen.
func (d *Dispatcher) giveBack(a *attempt, why string, fx *effects) {
	d.metrics.returned.WithLabelValues(why).Inc()
	d.free(a, fx)
	d.leave(a, job.Return{Token: a.token}, fx)
}

// Returned takes back leases that the worker will not start. Those of another node are what
// the worker could not say there, as its stream was cut.
func (s *Session) Returned(leaseIDs []string) {
	d := s.d
	var fx effects
	d.mu.Lock()
	for _, id := range leaseIDs {
		a := d.mu.attempts[id]
		switch {
		case a == nil:
			if s.owed >= s.hello.MaxLive() {
				continue
			}
			if a = d.foreign(s, id); a != nil {
				s.owed++
				d.giveBack(a, "worker", &fx)
			}
		case a.session != s:
		case a.over:
			d.forget(a, &fx)
		case a.byNode:
			a.reported = true
			d.free(a, &fx)
		case a.pending != nil:
		case a.started && s.hello.Heartbeats:
			// It was to start when Hello named it, and its session before ended too soon.
			d.metrics.lost.WithLabelValues("disclaimed").Inc()
			d.free(a, &fx)
			d.leave(a, d.loss(a), &fx)
		case a.started:
			// To hand a started attempt back for nothing would let it go round
			// for ever.
			d.free(a, &fx)
			d.leave(a, job.Settle{
				Token: a.token, Outcome: job.OutcomeFailed, Error: "worker gave the attempt back after its start",
				StartedMS: a.startedMS, Worker: s.hello.WorkerID,
			}, &fx)
		default:
			s.pace.forget()
			s.changed()
			d.giveBack(a, "worker", &fx)
		}
	}
	d.mu.Unlock()
	d.finish(&fx)
}

// timeOut ends an attempt whose worker did not answer within timeout and grace.
func (d *Dispatcher) timeOut(a *attempt, fx *effects) {
	d.metrics.timeouts.Inc()
	timeout, grace := time.Duration(0), time.Duration(0)
	if a.rec != nil {
		timeout, grace = a.rec.Definition.Timeout, a.rec.Definition.TimeoutGrace
	}
	a.session.cancel(a, job.CancelTimedOut)
	d.leave(a, job.Settle{
		Token: a.token, Outcome: job.OutcomeTimedOut,
		Error:     fmt.Sprintf("no answer within the timeout of %v and %v of grace", timeout, grace),
		StartedMS: a.startedMS, Worker: a.session.hello.WorkerID,
	}, fx)
}
