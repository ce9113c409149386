// Package peer keeps one gRPC stream from each node to each other node of the
// cluster, for as long as the membership view contains that node.
//
// On the link that a node dials, it sends the free slots of its workers, the
// results of permits, the lanes that became due earlier, and the attempts to
// cancel. The dialled node sends back its permits and the shards that it released.
// Permits that are to be leased together are one message, unless the node that dialled
// is of the previous build, and so are their results.
//
// Invariants:
//
//  1. Correctness does not depend on this package: every message is a hint that may
//     be late, lost or dropped.
//  2. Senders do not block. Queues are bounded; a message that does not fit is dropped
//     and counted. Only the latest demand is kept, and only the earliest due time of
//     each nudged lane.
//  3. A peer is notified of free slots when it has used up those that it knows of, or half
//     of them where slots are plenty. Peers
//     in that state are notified one after the other; if there are many, a few at once.
//     See [Peer.OfferSlots].
//  4. A link that reconnects starts with the latest demand. When a link goes down, the
//     demand received on it is void.
//  5. Messages of a peer are validated before they are passed on.
//  6. A peer's process counts as ended only if this node's link to it was up, has ended,
//     and the peer's address then refused a connection. Silence, a slow peer, or a network
//     that answers in another way prove nothing.
//  7. Nodes of different keyspaces have no link: each refuses the other by the keyspace's
//     id. A node that sends no id is assumed to use the same keyspace. What the open link to a
//     member has proven is not changed by a hello in that member's name.
//  8. The address at which clients reach a node is the one that the node itself sends over
//     a link, never the one that gossip reports. With credentials for both directions only
//     a node can send it. A node whose name differs from that of the dialled member gets
//     no link under that name.
//  9. A node has one served link. A later one of its name ends the earlier one with an error,
//     so that its dialer opens it again. Two processes that use one name replace each other's
//     links ever more slowly. What an earlier link passes on comes before all that a later one does.
//  10. Permits are sent only to nodes that the view has had since they dialled. The demand of
//     others is held until the view has them: a link may be opened before gossip has its node.
//  11. No message is larger than what any node takes: one that is would end the stream, or make its node unreachable,
//     again and again. What does not fit is left out, counted and logged.
package peer
