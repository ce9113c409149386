package dispatch

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// readAgain sees to it that a record which is still to be read is: at once if an
// answer in this round asked for it, later if the store could not be asked.
func (d *Dispatcher) readAgain(a *attempt, failed bool) {
	if !a.wantRead || a.gone || a.over || a.pending != nil {
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
	records  []string
}

func (d *Dispatcher) reads(batch []*attempt) []*readCall {
	var calls []*readCall
	open := map[int]*readCall{}
	for _, a := range batch {
		if !a.wantRead || a.gone || a.over || a.pending != nil {
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

func (d *Dispatcher) read(ctx context.Context, c *readCall, failed map[*attempt]bool) {
	ctx, cancel := context.WithTimeout(ctx, d.o.callTimeout())
	defer cancel()
	records, err := d.o.Store.GetRecords(ctx, c.shard, c.records)
	var fx effects
	d.mu.Lock()
	if err != nil {
		d.storeFailed(err)
	}
	for i, a := range c.attempts {
		if err != nil {
			failed[a] = true
			continue
		}
		a.wantRead = false
		d.known(a, records[i], &fx)
	}
	d.mu.Unlock()
	d.finish(&fx)
}

// known takes a record as read for an attempt that was taken over, or whose
// record was edited.
func (d *Dispatcher) known(a *attempt, rec *job.Record, fx *effects) {
	if a.gone || a.over || a.pending != nil {
		return
	}
	if rec == nil || !rec.State.Live() || rec.State.Token != a.token {
		d.metrics.lost.WithLabelValues("refused").Inc()
		d.lose(a, true, fx)
		return
	}
	a.rec = rec
	if a.adopting {
		a.resume(d.o.LeaseTTL, d.o.margin())
	}
	if rec.State.Cancel && !a.cancelled && a.live() {
		a.session.cancel(a, job.CancelRequested)
	}
}
