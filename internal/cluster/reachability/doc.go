// Package reachability decides when a node withdraws from shard ownership, because Redis does
// not answer it, or answers it much later than it answers other nodes.
//
// Model. A node that cannot reach Redis cannot refresh its locks, and cannot run the due jobs of
// its shards. Gossip still shows it as alive, so that the other nodes would leave its shards to
// it. Each node therefore observes its own connection to Redis in two ways, and publishes a
// [Report] to the other nodes:
//
//   - Pings. Every sixth of the lock TTL the node pings each Redis primary. A primary that has not
//     answered for two thirds of the lock TTL counts as unreachable (redisReach).
//   - Latency. A [LatencyMeter] measures the node's own calls. The node compares the median with
//     that of its peers (latencyComparison). If no call that keeps locks is answered in time, the
//     latency is that of a server that answers no call: such a node can hold no shard.
//
// The node withdraws if no primary answers it, if another node has reached more primaries than it
// does for two thirds of the lock TTL, or if it has been much slower than the fastest quarter of its
// peers for a third of the lock TTL. A node that is withdrawn owns no shards, and asks its workers to move
// to nodes that do: starts and results of workers go through the node that they are connected to. Those that reach no
// other node still get runs from other nodes while Redis answers this node.
//
// Invariants:
//
//  1. A node compares itself. A primary that no node reaches, and a Redis that is slow for all
//     nodes, withdraw none: no other owner would do better.
//  2. The fastest node of those that own shards never withdraws because of its latency.
//  3. A withdrawn node returns only after a stable period, which gets longer when it withdraws
//     again soon, so that an unstable link does not move shards repeatedly. It returns at once if
//     no other node would do better.
//  4. Without other live nodes there are no pings, and the node does not withdraw.
//  5. The locks in Redis decide who owns a shard. A wrong decision here moves shards or delays
//     runs; it never makes two nodes own one shard.
//  6. The report is published at each tick, not at each change: the others have the current one after a
//     full gossip exchange at the latest, whichever updates were lost.
//     Reports come by gossip, which a holder of its key can forge: if no other node takes the shards of a node that has
//     withdrawn, its caller leaves them out for a while, and the node returns.
//  7. A node compares itself with each member that it has ever seen in the keyspace, not only with those that may
//     own shards by its last reading: a node whose Redis is slow cannot read again.
//
// Failure cases. Nodes of versions that publish nothing are left out of comparisons.
package reachability
