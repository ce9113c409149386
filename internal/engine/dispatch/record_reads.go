package dispatch

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// scheduleRead schedules the read of a record that is still to be read: at once if an answer in this round
// requested it, later if the store could not be called.
func (d *Dispatcher) scheduleRead(a *attempt, failed bool) {
	if !a.wantRead || a.forgotten || a.over || a.pendingEvent != nil {
		return
	}
	if !failed {
		d.queueIO(a)
		return
	}
	if again := time.Now().Add(d.o.retryPause()); a.renewAt.IsZero() || again.Before(a.renewAt) {
		a.renewAt = again
	}
}

// readCall is one read of records of one shard.
type readCall struct {
	shard    int
	attempts []*attempt
	records  []job.RecordID
}

func (d *Dispatcher) collectReads(batch []*attempt) []*readCall {
	var calls []*readCall
	open := map[int]*readCall{}
	for _, a := range batch {
		if !a.wantRead || a.forgotten || a.over || a.pendingEvent != nil {
			continue
		}
		c := open[a.shard]
		if c == nil || len(c.records) == maxRenewed {
			c = &readCall{shard: a.shard}
			open[a.shard] = c
			calls = append(calls, c)
		}
		c.attempts = append(c.attempts, a)
		c.records = append(c.records, a.record)
	}
	return calls
}

func (d *Dispatcher) readRecords(ctx context.Context, c *readCall, failed map[*attempt]bool) {
	ctx, cancel := context.WithTimeout(ctx, d.o.callTimeout())
	defer cancel()
	records, err := d.o.Store.GetRecords(ctx, c.shard, c.records)
	var fx pendingEffects
	d.mu.Lock()
	if err != nil {
		d.logStoreFailure(err)
	}
	for i, a := range c.attempts {
		if err != nil {
			failed[a] = true
			continue
		}
		a.wantRead = false
		d.applyRecord(a, records[i], &fx)
	}
	d.mu.Unlock()
	d.runEffects(&fx)
}

// applyRecord applies a record that was read for an adopted attempt, or because the record was edited.
func (d *Dispatcher) applyRecord(a *attempt, rec *job.Record, fx *pendingEffects) {
	if a.forgotten || a.over || a.pendingEvent != nil {
		return
	}
	if rec == nil || !rec.State.Live() || rec.State.Token != a.token {
		d.metrics.lost.WithLabelValues("refused").Inc()
		d.loseLease(a, true, fx)
		return
	}
	a.known = rec
	if a.session != nil {
		a.session.countMemory(a, false)
	}
	if a.adopting {
		a.boundAdopted(d.o.LeaseTTL, d.o.margin())
	}
	if rec.State.Cancel && !a.cancelled && a.streamOpen() {
		a.session.cancelAttempt(a, job.CancelRequested)
	}
}
