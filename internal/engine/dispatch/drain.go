package dispatch

import (
	"context"
	"fmt"
	"time"
)

// drainPollPeriod is how often Drain checks whether all is done.
const drainPollPeriod = 20 * time.Millisecond

// Drain asks all workers to connect to other nodes and refuses new ones. It waits until every session has left
// or has nothing more to report, all reports are stored, and leases of calls in flight have been returned. It
// then ends the remaining sessions. If ctx ends first, it ends them at once and returns the error; the workers
// keep their leases and take them to another node.
func (d *Dispatcher) Drain(ctx context.Context) error {
	addresses := d.o.Addresses()
	d.mu.Lock()
	d.mu.draining = true
	for _, s := range d.mu.workers {
		s.sendAway(addresses)
	}
	d.mu.Unlock()
	d.o.OnDemand(nil)

	ticker := time.NewTicker(drainPollPeriod)
	defer ticker.Stop()
	for {
		left := d.countUndrained()
		if left == 0 {
			break
		}
		select {
		case <-ctx.Done():
			d.stopDraining()
			return fmt.Errorf("%d attempts and calls left: %w", left, context.Cause(ctx))
		case <-ticker.C:
		}
	}
	d.stopDraining()
	return nil
}

func (d *Dispatcher) stopDraining() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopSessions()
}

// countUndrained counts what a drain waits for: attempts whose worker is still here, whose event is not stored,
// or whose last renewal is not made, and slots reserved for leasing calls in flight.
func (d *Dispatcher) countUndrained() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.mu.openReservations
	for _, a := range d.mu.attempts {
		switch {
		case a.pendingEvent != nil:
			n++
		case a.streamOpen() && !a.over:
			n++
		case !a.streamOpen() && (a.inIO || !a.renewAt.IsZero()):
			n++
		}
	}
	return n
}
