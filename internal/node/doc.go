// Package node assembles a scheduler node: it builds the engines and their adapters, connects
// and starts them, and drains them in order at the end.
//
// It only wires. Decisions are made elsewhere: who owns shards in redis/shardlock and
// cluster/reachability, which jobs start in engine/scheduler, which slots peers get in
// engine/slotshare, how queues are counted in engine/queuestats. What remains here is what needs
// the whole node: the order of start and drain, checks of the configuration before anything is
// opened, periodic checks of Redis and of files, and the view of the cluster that the API shows.
//
// Stop drains. The node first leaves the gossip, so that no node sends it work. It then
// releases its shard locks and notifies the peers, redirects its workers to other nodes, and
// waits for their results. Last it closes the admission, which returns the units of ended
// runs, the ledger, the links and Redis. Each step is bounded by the caller's context. A step
// that is cut short leaves the state of a crash, which the cluster tolerates.
package node
