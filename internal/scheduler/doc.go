// Package scheduler is the loop of a node that holds shards: it knows when each
// lane of its shards is first due, sleeps until then, and has the due records
// leased to whoever has free slots.
//
// The shard's lock (Held) gives the right to lease; the leasing script checks the
// lock's value in the same atomic step, so everything here may be late or wrong
// without harm. Free slots come from the node's own workers first (Slots). Where
// those have none, a peer that stated demand gets a permit: lane, count and lock
// value, valid for 250 ms, up to a second where Redis answers late. It then leases for its own workers, itself.
//
//	lane due ----> slots free here? --yes--> lease, deliver
//	                    | no
//	                    +--> a peer has demand? --yes--> permit --> peer leases, delivers
//	                    | no                                 |
//	                    +--> may it wait for a slot, here or with a peer? --yes--> as above
//	                    | no                                 |
//	                    +--> wait for demand      <-- result: how many, next due time
//
// Nothing waits for a poll: scripts report a lane that became due earlier, the
// node that ran the script nudges the holder, and slots that become free wake the
// loop. A rescan every second is the safety net, for lost nudges as well as for
// lost words of free slots.
//
// Runs that wait for longer than their job's lateness objective allows are found by an index
// that the store keeps of them, which is read once a second for the shards in which anything
// waits. The decision that counts such a run marks it, so that it is counted once, whoever
// looks, and however often.
//
// A few leasers share one picture of all shards (state). A lane is in its shard's
// heap of what is due later; when it is due, it moves to the backlog, which has
// the lanes in the order in which they are to get slots; while a call or a permit
// for it is on its way it is pending and in neither. So a look at what to do next
// costs a glance at each shard, whatever waits for slots.
//
// Invariants:
//
//  1. No lease without a slot: slots are reserved before the script runs, and what
//     it did not use is released, whatever became of the call.
//  2. A shard has at most one leasing call of this holder in flight, even if the
//     shard is lost and won meanwhile. A lane has at most one unanswered permit,
//     and no call while it has one.
//  3. A lane's first due time is never later than the truth for longer than one
//     rescan; too early a value costs one empty call. An answer, or a rescan's
//     reading, that is older than a nudge does not undo the nudge.
//  4. Lanes share scarce slots by weight (priority + 1), over all shards, so that
//     priority 0 does not starve. A queue without slots holds up no other.
//  5. An estimate of a shard's clock is late by at most the trip of an answer. If
//     it is ahead nevertheless, the first call that comes too early corrects it.
//  6. Of a queue that has limits or is paused (Limits), no more is leased than was
//     granted. What was granted and not leased is given back. The queue then rests;
//     other queues do not notice.
//  7. Every permit ends: answered, or run out after 500 ms. What a peer has free is
//     rather believed too great than too small.
package scheduler
