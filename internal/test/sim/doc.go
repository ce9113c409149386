// Package sim runs a whole cluster in one process and in its own time: the real nodes,
// workers and clients, in a testing/synctest bubble, over a simulated network (package
// simnet), against a real redis-server outside of the bubble. Half a minute of the
// cluster's life takes a fraction of a second, so that thousands of different ones can
// be checked.
//
// A seed decides the plan of a run: the jobs, the edits of clients and their times, and
// which faults hit which machines for how long ([drawPlan]). Package historycheck judges the
// history, which has only what clients and handlers saw, and the stored state is audited at
// the end. A run that is not clean ends in a story: the seed, the plan, and all log lines, in
// the order of the bubble's clock.
//
// What is simulated and how:
//
//   - Time. The keyspace is virtual: scripts take the clock from their caller, which is the
//     bubble's, plus steps of the plan. The type redisServer carries the expiry of shard
//     locks over. Where the plan steps Redis's clock back and puts it right, the keyspace
//     has a real clock instead, whose rate nodes know: redisServer replaces TIME in the
//     scripts. Handlers and clients then use the bubble's clock, so that no lease, lock or
//     wait may end earlier by that clock.
//   - Redis. Requests and answers take time. Answers get lost, requests are executed twice or
//     long after their caller gave up, and either direction may be cut. The real server
//     executes the requests, one exchange at a time.
//   - Machines. The network of a killed process ends in an instant, before its goroutines are
//     cancelled; nothing that they do afterwards has an effect. A frozen process neither sends
//     nor receives, and its handlers stop; its timers continue, as for a process that wakes
//     up.
//
// The plan is a function of the seed alone. The run nearly is: latencies are drawn per
// connection, so that events happen at distinct instants, but goroutines that are ready at
// one instant run in an order that the Go runtime chooses, and parts of the product use
// random numbers (jitter of retries, gossip). A seed that fails is therefore run again
// several times.
//
// The package is test support: no product package imports it.
package sim
