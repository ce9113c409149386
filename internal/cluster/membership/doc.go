// Package membership detects live nodes with gossip. It runs a hashicorp/memberlist
// cluster and turns its events into versioned views ([sharding.View]).
//
// # Model
//
// Every node gossips over UDP and TCP on one port. Its gRPC address, its peer address and
// the name of its process in locks are its gossip metadata. A view is a hint, never a proof:
// the views of two nodes may differ for seconds, or for as long as the network between them
// is partitioned. Shard locks decide.
//
// Failure detection is tuned for a data centre. Each node probes another one every 500 ms
// and waits 250 ms for the answer, also through other nodes and over TCP. A suspected node
// has 2 s to refute in clusters of up to ten nodes. In larger clusters the time grows with
// the logarithm of the size, up to three times that while no other node confirms the
// suspicion. A crash is detected in about 3 to 4 s, a leave at once. (Nodes whose
// connections a process refuses detect sooner that it has ended.) A node that is slow itself
// suspects others later: [Cluster] exports its health score.
//
// A node that knows no other node listens, but neither probes nor gossips: the timers
// would be a third of the cost of an idle node. Gossip starts, and does not end again, when
// there is a first node to join or a first node connects.
//
// # Invariants
//
//  1. The view contains this node until it leaves.
//  2. The version of the view grows by one with each change of the members or of their
//     addresses. Views reach a subscriber in that order, one at a time. A slow subscriber
//     misses intermediate views, never the last one.
//  3. Subscribers are called by a goroutine of this package, never by gossip, which a slow
//     one would block.
//  4. Failing to join is not fatal. The addresses to join are resolved and tried again every
//     RejoinEvery. So are nodes that departed recently: after a partition the two sides
//     reunite, whichever side has the seeds. A node that was withdrawn tries at once
//     when it returns: until it knows the others, it holds the shards that they release to
//     it and knows no node whose workers could run due jobs.
//  5. With keys, nothing unencrypted is sent or accepted. Nothing is compressed; without
//     keys, what nodes of the previous build compress is accepted. With a label, packets
//     of other clusters are refused. Keys are replaced without a gap if every node has the new
//     key before the first one encrypts with it, and the old key is removed after the last
//     node has stopped encrypting with it.
//  6. A name may return with another address 5 s after its node was declared dead: a
//     rescheduled pod is not locked out. It is known again after the next full exchange, at
//     most 5 s later in small clusters. Two live nodes with one name are an error that is
//     logged; the first one keeps the name.
//  7. Memberlist receives only traffic from an allowed network, with the cluster's label, and,
//     with keys, encrypted with one of them. Unauthenticated streams are few, in all
//     and per address, and end after 3 s. Their bytes are bounded, and nothing is
//     kept of an unauthenticated packet. Authenticated traffic is bounded too: a stream by the
//     size of a list of [MaxMembers] members, and the number of known names by MaxMembers.
//     Without keys, a stream has 3 s for its message, and its bytes count as unauthenticated
//     until it ends.
//  8. Neither a holder of the key nor, without keys, anybody who reaches the port can crash a
//     node or exceed these bounds: messages that no node sends are refused before memory is
//     allocated for them, and compressed ones are decompressed up to the bounds of others. Nor
//     can they publish a state of a node that this node could not refute: incarnations are
//     bounded, and the bound grows.
package membership
