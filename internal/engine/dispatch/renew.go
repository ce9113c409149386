package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Bounds of one round with the store and of one script call in it.
const (
	maxRenewed = job.MaxLeasesPerCall
)

// queueIO queues an attempt for the store.
func (d *Dispatcher) queueIO(a *attempt) {
	if a.inIO {
		return
	}
	a.inIO = true
	d.mu.waitingIO = append(d.mu.waitingIO, a)
	wakeUp(d.ioWake)
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

// ioRound reads and renews everything that is queued, all at once: a round takes as long as its slowest call,
// and an unreachable shard must not cost the leases of the others. Leases that were only read are renewed in the
// next round. It returns false if nothing was queued.
func (d *Dispatcher) ioRound(ctx context.Context) bool {
	d.mu.Lock()
	n := len(d.mu.waitingIO)
	batch := d.mu.waitingIO[:n:n]
	d.mu.waitingIO = d.mu.waitingIO[n:]
	if len(d.mu.waitingIO) == 0 {
		d.mu.waitingIO = nil
	}
	reads, calls := d.collectReads(batch), d.collectRenewals(batch)
	d.mu.Unlock()
	if n == 0 {
		return false
	}
	failed := make(map[*attempt]bool) // guarded by the dispatcher's mutex
	var reading sync.WaitGroup
	for _, r := range reads {
		reading.Go(func() { d.readRecords(ctx, r, failed) })
	}
	replies, at := d.makeRenewals(ctx, calls)
	reading.Wait()

	var fx pendingEffects
	d.mu.Lock()
	for i, c := range calls {
		d.applyRenewals(c, replies[i], at, &fx)
	}
	for _, a := range batch {
		a.inIO = false
		if a.wantRenew && a.known != nil && a.session != nil && !a.forgotten && !a.over {
			d.queueIO(a)
		}
		d.scheduleRead(a, failed[a])
		d.scheduleAttempt(a)
	}
	d.confirmSessions(batch)
	d.mu.Unlock()
	d.runEffects(&fx)
	return true
}

// renewCall is one script call with its attempts.
type renewCall struct {
	request  job.RenewRequest
	attempts []*attempt
	sessions []*Session // as they were when the call was made
}

func (d *Dispatcher) collectRenewals(batch []*attempt) []*renewCall {
	type kind struct {
		shard int
		ttl   time.Duration
	}
	var calls []*renewCall
	open := map[kind]*renewCall{}
	now := time.Now()
	for _, a := range batch {
		if !a.wantRenew || a.forgotten || a.over || a.known == nil || a.session == nil {
			continue
		}
		a.wantRenew = false
		k := kind{a.shard, d.renewalTTL(a, now)}
		c := open[k]
		if c == nil || len(c.attempts) == maxRenewed {
			c = &renewCall{request: job.RenewRequest{Shard: k.shard, TTL: k.ttl}}
			open[k] = c
			calls = append(calls, c)
		}
		c.request.Renewals = append(c.request.Renewals, job.Renewal{
			Record: a.record, Lane: a.known.State.Lane, Token: a.token,
			Epoch: a.session.hello.Epoch, Acked: a.started, HardStopMS: a.hardStop,
		})
		c.attempts = append(c.attempts, a)
		c.sessions = append(c.sessions, a.session)
	}
	return calls
}

// makeRenewals makes the calls. The returned time is from before them.
func (d *Dispatcher) makeRenewals(ctx context.Context, calls []*renewCall) ([]job.RenewReply, time.Time) {
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

// applyRenewals applies the answer to one call.
func (d *Dispatcher) applyRenewals(c *renewCall, reply job.RenewReply, at time.Time, fx *pendingEffects) {
	if reply.Err != nil {
		d.logStoreFailure(reply.Err)
		for _, a := range c.attempts {
			a.renewAt = time.Now().Add(d.o.retryPause())
		}
		return
	}
	d.mu.storeFailing = false
	for i, a := range c.attempts {
		switch {
		case a.forgotten || a.over:
		case a.session != c.sessions[i]:
			// Another session has it now; its own renewal is due.
			a.renewAt = at
		default:
			d.applyRenewal(a, reply.Results[i], renewalGrant{c.request.TTL, reply.NowUS.Milli(), at}, fx)
		}
	}
}

// renewalGrant is the time for which a call has renewed leases.
type renewalGrant struct {
	ttl   time.Duration
	nowMS unixtime.Milli // the shard's clock
	at    time.Time      // before the call
}

func (d *Dispatcher) applyRenewal(a *attempt, r job.RenewResult, g renewalGrant, fx *pendingEffects) {
	switch {
	case r.Code == job.Renewed:
		d.extendLease(a, r, g, fx)
	case a.pendingEvent != nil:
		// The lease has ended because the event was stored, or the event will be answered as stale.
	case r.Code == job.Moved:
		d.metrics.lost.WithLabelValues("moved").Inc()
		if a.streamOpen() {
			a.session.stopStream(job.ErrSuperseded)
		}
		d.forgetAttempt(a, fx)
	case a.adopting:
		d.metrics.lost.WithLabelValues("refused").Inc()
		d.loseLease(a, true, fx)
	default:
		d.metrics.lost.WithLabelValues("lease_lost").Inc()
		d.loseLease(a, true, fx)
	}
}

// extendLease applies a renewal.
func (d *Dispatcher) extendLease(a *attempt, r job.RenewResult, g renewalGrant, fx *pendingEffects) {
	a.trustedUntil = g.at.Add(g.ttl) // no handler here relies on it
	if a.streamOpen() {
		a.trustedUntil = d.trustedUntil(g.at, g.ttl, fx.currentTime())
	}
	if a.adopting {
		a.adopting = false
		d.metrics.adopted.Inc()
		d.reportAdopted(a, fx)
		if a.startedMS == 0 {
			a.estimateStart(time.Now(), g.nowMS, d.o.margin())
		}
	}
	if a.known != nil && r.Revision != a.known.State.Revision && a.pendingEvent == nil && a.streamOpen() {
		a.wantRead = true
	}
	a.renewAt = time.Time{}
	switch {
	case !a.streamOpen() && a.pendingEvent == nil && a.session.endsLeasesEarly() && g.ttl > d.o.SessionTTL:
		a.renewAt = g.at // the stream was cut during the call
	case a.streamOpen() && !a.ownEvent:
		a.renewAt = d.roundToGrid(g.at.Add(d.o.renewEvery()))
	}
}

// logStoreFailure logs the first failure of a series.
func (d *Dispatcher) logStoreFailure(err error) {
	d.metrics.storeFailures.Inc()
	if !d.mu.storeFailing {
		d.o.Logger.Warn("failed to renew leases", "error", err)
	}
	d.mu.storeFailing = true
}
