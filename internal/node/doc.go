// Package node assembles a scheduler node: it builds the engines and their adapters, connects
// and starts them, and drains them in order at the end.
//
// Policy that only the assembly can apply is here too: when a node withdraws from shard
// ownership because of Redis (redisReach, latencyComparison), how own shards and peers share
// scarce slots (slotShare), and how queues are counted for metrics (queueCounts).
//
// Stop drains. The node first leaves the gossip, so that no node sends it work. It then
// releases its shard locks and notifies the peers, redirects its workers to other nodes, and
// waits for their results. Last it closes the admission, which returns the units of ended
// runs, the ledger, the links and Redis. Each step is bounded by the caller's context. A step
// that is cut short leaves the state of a crash, which the cluster tolerates.
// what is cut short is what a crash would leave, which the cluster survives.
package node
