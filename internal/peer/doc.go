// Package peer is how the nodes of a cluster talk: one stream from each node to
// each other node, kept open for as long as the view has that node.
//
// On the link that a node dials it says what its workers could take, how
// permits were used, which lanes became due earlier, and which attempts to
// cancel. Back come the permits of the node it dialled, and the shards that this
// one released.
//
// Invariants:
//
//  1. Nothing here is needed for correctness: every message is a hint that may
//     be late, lost or dropped.
//  2. No sender blocks. Queues are bounded; what does not fit is dropped and
//     counted. Of demand only the latest is kept, of nudges the earliest due
//     time of each lane.
//  3. A peer hears of free slots when it has used up those that it knows of, and
//     of several such peers one after the other, of many a few at once. See [Peer.Offer].
//  4. A link that comes up again starts with the latest demand. A link that goes
//     down takes the demand it brought with it.
//  5. What a peer says is checked for form before it goes further.
//  6. A peer is said to be gone only if this node's link to it was up, has ended,
//     and its address then refused a connection. Silence, slowness and a network
//     that answers for it in another way are no proof.
//  7. Nodes of two keyspaces have no link: each refuses the other by the keyspace's
//     id. A node that does not say which it uses is taken for one of the same.
//  8. Where clients reach a node is what that node says over a link, never what gossip says of it.
//     With credentials for both directions only a node can say it. A node that says it is another
//     member than the one that was dialled gets no link under that name.
package peer
