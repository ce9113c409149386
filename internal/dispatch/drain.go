package dispatch

import (
	"context"
	"fmt"
	"time"
)

// drainLook is how often Drain looks whether all is done.
const drainLook = 20 * time.Millisecond

// Drain asks all workers to go to other nodes, refuses new ones, and waits until
// every session has left or has nothing more to report, all that was reported is
// stored, and what is being leased meanwhile has been given back. It then ends the sessions that are left. When ctx ends
// first it ends them at once and returns the error; their leases stay with the
// workers, who take them along.
func (d *Dispatcher) Drain(ctx context.Context) error {
	addresses := d.o.Addresses()
	d.mu.Lock()
	d.mu.draining = true
	for _, s := range d.mu.workers {
		s.sendAway(addresses)
	}
	d.mu.Unlock()
	d.o.OnDemand(nil)

	ticker := time.NewTicker(drainLook)
	defer ticker.Stop()
	for {
		left := d.undrained()
		if left == 0 {
			break
		}
		select {
		case <-ctx.Done():
			d.end()
			return fmt.Errorf("drain: %d attempts and calls left: %w", left, context.Cause(ctx))
		case <-ticker.C:
		}
	}
	d.end()
	return nil
}

func (d *Dispatcher) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopAll()
}

// undrained counts what a drain waits for: attempts whose worker is still here,
// whose event is not stored, or whose last renewal is not made, and slots for which
// a leasing call is under way.
func (d *Dispatcher) undrained() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.mu.reserved
	for _, a := range d.mu.attempts {
		switch {
		case a.pending != nil:
			n++
		case a.live() && !a.over:
			n++
		case !a.live() && (a.inIO || !a.renewAt.IsZero()):
			n++
		}
	}
	return n
}
