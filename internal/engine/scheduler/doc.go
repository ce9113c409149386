// Package scheduler leases the due records of the shards that a node holds. It knows when
// each lane of its shards is first due, sleeps until then, and leases the due records for
// workers with free slots.
//
// The shard's lock (Held) gives the right to lease. The leasing script checks the lock's
// value in the same atomic step, so everything here may be late or wrong without harm. Free
// slots come from the node's own workers first (Slots). If they have none, a peer that
// stated demand gets a permit: lane, count and lock value, valid for 250 ms, or up to a
// second where Redis answers late. The peer then leases for its own workers, by itself.
// Permits of one round for one peer are one message. The peer leases under them in one
// pipeline, and answers in one message.
//
//	lane due ----> slots free here? --yes--> lease, deliver
//	                    | no
//	                    +--> a peer has demand? --yes--> permit --> peer leases, delivers
//	                    | no                                 |
//	                    +--> may it wait for a slot, here or with a peer? --yes--> as above
//	                    | no                                 |
//	                    +--> wait for demand      <-- result: how many, next due time
//
// Nothing depends on polling: scripts report a lane that became due earlier, the node that
// ran the script nudges the holder, and slots that become free wake the loop. A rescan every
// second is the safety net for lost nudges and for lost notifications of free slots.
//
// Runs that wait for longer than their job's lateness objective are found by an index in the
// store. It is read once a second for the shards in which anything waits. The decision that
// counts such a run marks it. So it is counted once, whichever node looks, and however often.
//
// A few leasers share one picture of all shards (state). A lane that is not due yet is in its
// shard's heap. When it is due, it moves to the backlog, which has the lanes in the order in
// which they get slots. While a call or a permit for it is in flight, it is pending and in
// neither. So choosing the next calls costs one look at each shard, however much waits for
// slots.
//
// Invariants:
//
//  1. No lease without a slot: slots are reserved before the script runs, and unused ones are
//     released, whatever the outcome of the call.
//  2. A shard has at most one leasing call of this holder in flight, even if the shard is
//     lost and acquired again meanwhile. A lane has at most one unanswered permit, and no
//     call while it has one.
//  3. A lane's first due time is too late for at most one rescan. In a shard with more lanes than
//     one read lists, this holds for queues that have workers, if these are few enough to look up
//     all their lanes in one rescan; other lanes are read in turns (lane_pages.go). A known lane is
//     dropped only after a read of all lanes, or a lookup, that did not find it. A due time that is too
//     early costs one empty call. An answer, or a rescan's reading, that is older than a
//     nudge does not undo the nudge.
//  4. Lanes share scarce slots by weight (priority + 1), over all shards, so that priority 0
//     does not starve. A queue without slots delays no other queue.
//  5. An estimate of a shard's clock is late by at most the trip of an answer. If it is ahead
//     nevertheless, the first call that comes too early corrects it.
//  6. For a queue that is paused or has limits (Limits), no more is leased than was granted.
//     Grants that were not used are returned. The queue then rests; other queues are not
//     affected.
//  7. Every permit ends: it is answered, or it expires after 500 ms. Estimates of a peer's
//     free slots err high.
package scheduler
