// Package node wires one scheduler node: it builds the adapters and engines,
// connects them, starts them in order and stops them in the order that hands work
// over without a gap. It decides nothing itself.
//
// Stop drains: the node first leaves the gossip, so that nobody expects anything
// of it, then gives its shard locks up and tells the peers, then sends its workers
// to other nodes and waits for what they still have to report, and only then closes
// the admission, which gives back what the runs held, the ledger, the links and
// Redis. Each step is bounded by the caller's context;
// what is cut short is what a crash would leave, which the cluster survives.
package node
