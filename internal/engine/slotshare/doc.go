// Package slotshare divides free worker slots between this node's own shards and its peers,
// and offers the peers what they may have.
//
// Model. Jobs of a queue may lie in shards of any node, and the workers of this node serve
// them all. The sessions of this node's workers that serve the same queues are a [WorkerGroup].
// When slots of a group become free, this node's scheduler can use them at once, while a
// peer has to be notified and has to reply with a permit. If slots are scarce, own shards
// would take each of them before any peer could. Therefore the node and its peers take turns
// at the slots of a group, while both wait for them: see groupTurns for the lengths of turns.
// Slots that peers leave in their turn go to own shards when it ends.
//
// The [Allocator] runs two loops. One offers free slots to the peers: at most every 2 ms
// after a change, and in full each second. The other takes the permits of peers in the order of
// their arrival, reserves slots for them, and makes up to eight calls at once; those of one message
// share a call.
//
// Invariants:
//
//  1. Without a peer that wants slots of a group, all of its slots go to own shards at once.
//  2. A peers' turn ends after 40 ms at most, used or not. No slot is kept idle for longer.
//  3. Each peer that wants slots has the weight of this node: with n of them, n peers' turns
//     follow each own turn. An unused peers' turn doubles the next own turn, up to 320 ms.
//  4. A permit that finds no room in the queue, or a node that stops, gets a result at once.
//
// Failure cases. A peer that ends in its turn leaves it unused. An offer that is lost is
// repeated within a second. If this node ends, permits in its queue expire at their senders.
package slotshare
