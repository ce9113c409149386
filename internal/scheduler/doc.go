// Package scheduler is the loop of a node that holds shards: it knows when each
// lane of its shards is first due, sleeps until then, and has the due records
// leased to whoever has free slots.
//
// The shard's lock (Held) gives the right to lease; the leasing script checks the
// lock's value in the same atomic step, so everything here may be late or wrong
// without harm. Free slots come from the node's own workers first (Slots). Where
// those have none, a peer that stated demand gets a permit: lane, count and lock
// value, valid for 250 ms. It then leases for its own workers, itself.
//
//	lane due ----> slots free here? --yes--> lease, deliver
//	                    | no
//	                    +--> a peer has demand? --yes--> permit --> peer leases, delivers
//	                    | no                                 |
//	                    +--> wait for demand      <-- result: how many, next due time
//
// Nothing waits for a poll: scripts report a lane that became due earlier, the
// node that ran the script nudges the holder, and slots that become free wake the
// loop. A rescan every second is the safety net.
//
// Invariants:
//
//  1. No lease without a slot: slots are reserved before the script runs, and what
//     it did not use is released.
//  2. A shard has at most one leasing call of this node in flight, and a lane at
//     most one unanswered permit.
//  3. A lane's first due time is never later than the truth for longer than one
//     rescan; too early a value costs one empty call.
//  4. Queues and priorities share scarce slots by weight (priority + 1), so that
//     priority 0 does not starve.
package scheduler
