// Package membership says which nodes are alive. It runs a hashicorp/memberlist
// gossip cluster and turns it into a [sharding.View].
//
// # Model
//
// Every node gossips over UDP and TCP on one port. What the others must know of it,
// its gRPC and peer addresses and what its process is called in locks, travels as
// its gossip metadata. A view is a hint, never a proof: two nodes may differ about it
// for seconds, or for as long as the network between them is cut. Shard locks decide.
//
// Detection is tuned for a data centre: each node probes another one every
// 500 ms and waits 250 ms for the answer, also by way of others and by TCP; a
// suspect has 2 s to refute in clusters of up to ten, longer by the logarithm
// of the size in larger ones (up to three times that while nobody confirms the
// suspicion). A crash is noticed in about 3 to 4 s, a leave at once. (A process that
// has ended is known sooner by those whose connections it refuses.) A node that
// feels slow itself suspects others more slowly: [Cluster] exports that as its
// health score.
//
// A node that knows nobody listens, but neither probes nor gossips: the timers for that
// would be a third of what an idle node costs. It begins, for good, with the first node
// that is to be joined or that calls.
//
// # Invariants
//
//  1. The view always has this node in it, until it leaves.
//  2. Versions of views grow by one with each change of the members or of their
//     addresses, and views reach a subscriber in that order, one at a time. A
//     slow subscriber misses intermediate views, never the last one.
//  3. Subscribers are called by a goroutine of this package, never from within
//     gossip, which a slow one would stall.
//  4. Failing to join is not fatal: the addresses to join are resolved and tried
//     anew every RejoinEvery, and so are nodes that went away lately, so that a
//     healed partition reunites whichever side has the seeds. A node that stood aside
//     does so as soon as it is back: until it knows the others it holds the shards
//     that they leave to it and knows nobody whose workers could run what is due.
//  5. With keys, nothing unencrypted is sent or accepted, and nothing is
//     compressed before encryption. With a label, packets of other clusters are
//     refused. Keys are replaced without a gap when the new one is known
//     everywhere before the first node encrypts with it, and the old one goes when
//     none does any more.
//  6. A name may come back with another address 5 s after its node was found
//     dead, and is known again with the next full exchange, 5 s later at most
//     for small clusters: a pod that was rescheduled is not locked out. Two live nodes of one name are an
//     error that is logged; the first one keeps it.
//  7. Of what comes to the port, memberlist sees what comes from an allowed network, with the
//     cluster's label, and, with keys, encrypted by one of them. Until a key has fitted, streams are
//     few, in all and from one address, and end after 3 s; their bytes are bounded, and nothing is
//     kept of a packet. What comes later is bounded too: a stream by what a list of [MaxMembers]
//     members takes, and the names that are known by that number.
//  8. Who has the key cannot end a node, nor have it keep more than that: what no node says is
//     refused, before memberlist makes room for it. Nor can it say something of a node that the
//     node could not refute: incarnations are bounded, and the bound grows.
package membership
