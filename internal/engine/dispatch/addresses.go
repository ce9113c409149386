package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// announceEvery is the shortest time between two messages with addresses to one worker.
const announceEvery = time.Second

// AddressesChanged makes workers be sent the current addresses of other nodes soon. It may be called at any time
// and does not block.
func (d *Dispatcher) AddressesChanged() { wakeUp(d.addressWake) }

// announceLoop sends addresses when they have changed, until ctx ends.
func (d *Dispatcher) announceLoop(ctx context.Context) {
	pause := time.NewTicker(announceEvery)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.addressWake:
		}
		d.announceAddresses()
		pause.Reset(announceEvery)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// announceAddresses sends every worker the addresses of the other nodes, unless it has them. An empty list is
// not sent: the worker keeps the addresses that it knows.
func (d *Dispatcher) announceAddresses() {
	addresses := d.o.Addresses()
	slices.Sort(addresses)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.announcedAddresses = addresses
	if len(addresses) == 0 {
		return
	}
	for _, s := range d.mu.workers {
		if !s.closed && !s.stopping && !slices.Equal(s.addresses, addresses) {
			s.addresses = addresses
			s.sendMessage(job.Addresses(addresses))
		}
	}
}
