package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// Bounds of one round with the store and of one script call in it.
const (
	maxRenewed = job.MaxLeasesPerCall
)

// queueIO puts an attempt in line for the store.
func (d *Dispatcher) queueIO(a *attempt) {
	if a.inIO {
		return
	}
	a.inIO = true
	d.mu.io = append(d.mu.io, a)
	signal(d.ioWake)
}

func (d *Dispatcher) ioLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.ioWake:
		}
		for ctx.Err() == nil && d.ioRound(ctx) {
		}
	}
}

// ioRound reads what has to be read and renews what has to be renewed, for
// everything that waits, all at once: a round takes as long as its slowest call,
// and a shard that cannot be reached must not cost the leases of the others.
// Leases that were only read are renewed in the next round. It returns false when
// nothing waits.
func (d *Dispatcher) ioRound(ctx context.Context) bool {
	d.mu.Lock()
	n := len(d.mu.io)
	batch := d.mu.io[:n:n]
	d.mu.io = d.mu.io[n:]
	if len(d.mu.io) == 0 {
		d.mu.io = nil
	}
	reads, calls := d.reads(batch), d.renewals(batch)
	d.mu.Unlock()
	if n == 0 {
		return false
	}
	failed := make(map[*attempt]bool) // guarded by the dispatcher's mutex
	var reading sync.WaitGroup
	for _, r := range reads {
		reading.Go(func() { d.read(ctx, r, failed) })
	}
	replies, at := d.renew(ctx, calls)
	reading.Wait()

	var fx effects
	d.mu.Lock()
	for i, c := range calls {
		d.renewed(c, replies[i], at, &fx)
	}
	for _, a := range batch {
		a.inIO = false
		if a.wantRenew && a.rec != nil && a.session != nil && !a.gone && !a.over {
			d.queueIO(a)
		}
		d.readAgain(a, failed[a])
		d.schedule(a)
	}
	d.confirmSessions(batch)
	d.mu.Unlock()
	d.finish(&fx)
	return true
}

// renewCall is one script call and whom it is about.
type renewCall struct {
	request  job.RenewRequest
	attempts []*attempt
	sessions []*Session // as they were when the call was made
}

func (d *Dispatcher) renewals(batch []*attempt) []*renewCall {
	type kind struct {
		shard int
		ttl   time.Duration
	}
	var calls []*renewCall
	open := map[kind]*renewCall{}
	now := time.Now()
	for _, a := range batch {
		if !a.wantRenew || a.gone || a.over || a.rec == nil || a.session == nil {
			continue
		}
		a.wantRenew = false
		k := kind{a.shard, d.leaseLife(a, now)}
		c := open[k]
		if c == nil || len(c.attempts) == maxRenewed {
			c = &renewCall{request: job.RenewRequest{Shard: k.shard, TTL: k.ttl}}
			open[k] = c
			calls = append(calls, c)
		}
		c.request.Renewals = append(c.request.Renewals, job.Renewal{
			Record: a.record, Lane: a.rec.State.Lane, Token: a.token,
			Epoch: a.session.hello.Epoch, Acked: a.started, HardStopMS: a.hardStop,
		})
		c.attempts = append(c.attempts, a)
		c.sessions = append(c.sessions, a.session)
	}
	return calls
}

// renew makes the calls. The time returned is from before them.
func (d *Dispatcher) renew(ctx context.Context, calls []*renewCall) ([]job.RenewReply, time.Time) {
	at := time.Now()
	if len(calls) == 0 {
		return nil, at
	}
	requests := make([]job.RenewRequest, len(calls))
	for i, c := range calls {
		requests[i] = c.request
	}
	ctx, cancel := context.WithTimeout(ctx, d.o.callTimeout())
	defer cancel()
	return d.o.Store.Renew(ctx, requests), at
}

// renewed takes the answer to one call.
func (d *Dispatcher) renewed(c *renewCall, reply job.RenewReply, at time.Time, fx *effects) {
	if reply.Err != nil {
		d.storeFailed(reply.Err)
		for _, a := range c.attempts {
			a.renewAt = time.Now().Add(d.o.retryPause())
		}
		return
	}
	d.mu.failing = false
	for i, a := range c.attempts {
		switch {
		case a.gone || a.over:
		case a.session != c.sessions[i]:
			// Another session has it now; its own renewal is due.
			a.renewAt = at
		default:
			d.answer(a, reply.Results[i], grant{c.request.TTL, reply.NowUS / 1000, at}, fx)
		}
	}
}

// grant is what a call has renewed leases for.
type grant struct {
	ttl   time.Duration
	nowMS int64     // the shard's clock
	at    time.Time // before the call
}

func (d *Dispatcher) answer(a *attempt, r job.RenewResult, g grant, fx *effects) {
	switch {
	case r.Code == job.Renewed:
		d.prolonged(a, r, g, fx)
	case a.pending != nil:
		// The lease has ended because the event went through, or the event will
		// be answered as stale.
	case r.Code == job.Moved:
		d.metrics.lost.WithLabelValues("moved").Inc()
		if a.live() {
			a.session.stop(job.ErrSuperseded)
		}
		d.forget(a, fx)
	case a.adopting:
		d.metrics.lost.WithLabelValues("refused").Inc()
		d.lose(a, true, fx)
	default:
		d.metrics.lost.WithLabelValues("lease_lost").Inc()
		d.lose(a, true, fx)
	}
}

// prolonged notes a renewal.
func (d *Dispatcher) prolonged(a *attempt, r job.RenewResult, g grant, fx *effects) {
	a.until = g.at.Add(g.ttl) // nobody here relies on it
	if a.live() {
		a.until = d.trust(g.at, g.ttl, fx.now())
	}
	if a.adopting {
		a.adopting = false
		d.metrics.adopted.Inc()
		d.adopted(a, fx)
		if a.startedMS == 0 {
			a.resumed(time.Now(), g.nowMS, d.o.margin())
		}
	}
	if a.rec != nil && r.Revision != a.rec.State.Revision && a.pending == nil && a.live() {
		a.wantRead = true
	}
	a.renewAt = time.Time{}
	switch {
	case !a.live() && a.pending == nil && a.session.shortens() && g.ttl > d.o.SessionTTL:
		a.renewAt = g.at // the stream was cut during the call
	case a.live() && !a.byNode:
		a.renewAt = d.onGrid(g.at.Add(d.o.renewEvery()))
	}
}

// storeFailed logs the first failure of a series.
func (d *Dispatcher) storeFailed(err error) {
	d.metrics.storeFailures.Inc()
	if !d.mu.failing {
		d.o.Logger.Warn("cannot renew leases", "error", err)
	}
	d.mu.failing = true
}
