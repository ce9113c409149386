// Package slots has the reservation of worker slots, the contract between the scheduler, which leases runs, the
// admission, which takes them through their gates, and the dispatcher, which delivers them to workers.
//
// A slot lets a worker run one attempt. The scheduler reserves slots before it leases, so that no run is leased
// that no worker can start. Reservation and lease are two steps; the reservation joins them:
//
//	Reserve -> lease at most Count runs -> Deliver the leased runs, which releases the other slots
//
// Invariants:
//
//   - A reserved slot belongs to exactly one reservation, until Deliver.
//   - Deliver is called exactly once. It is called with no leases if nothing was leased. It may be left out only if
//     Count is 0.
//   - A call of a reservation does not block on Redis or a worker.
package slots

import "github.com/fermata-io/fermata/internal/core/job"

// Reservation is a number of slots of this node's workers, reserved for one caller.
type Reservation interface {
	// Count is the number of reserved slots.
	Count() int
	// Advance reports whether leases may be delivered before they are due: workers start them at their StartAt,
	// and many more slots are free.
	Advance() bool
	// Split moves up to n of the slots to a reservation of their own.
	Split(n int) Reservation
	// Deliver hands leases to the reserved slots and releases the rest. Leases beyond Count are given to other
	// free slots, or returned.
	Deliver([]job.Leased)
}
