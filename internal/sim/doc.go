// Package sim runs a whole cluster in one process and in its own time: the real
// nodes, workers and clients, in a testing/synctest bubble, over a simulated network
// (package simnet), against a real redis-server outside of the bubble. Half a minute
// of the cluster's life takes a fraction of a second, so that thousands of different
// ones can be judged.
//
// A seed decides the plan of a run: the jobs, what people edit and when, and which
// faults hit whom and for how long ([newPlan]). Its history is judged by package
// check, which knows only what clients and handlers saw, and what is stored in the
// end is audited. A run that is not clean ends in a story: the seed, the plan, and
// what everybody said, in the order of the bubble's clock.
//
// What is simulated and how:
//
//   - Time. The keyspace is virtual: scripts take the clock from their caller, and
//     that is the bubble's, plus steps that the plan makes. The expiry of shard
//     locks is carried over by the server type. Where the plan steps Redis's clock back and
//     puts it right, the keyspace has a real clock instead, of which nodes know how it should go:
//     the server type replaces TIME in the scripts. Handlers and people then go by the bubble's
//     clock, so that no lease, lock or wait may end before that says so.
//   - Redis. Requests and answers travel for a while each. Answers get lost,
//     requests are executed twice or long after their caller gave up, and either way
//     may be cut. What is executed is executed by the real server, one exchange at a
//     time.
//   - Machines. A killed process is one whose network ends in an instant, before
//     its goroutines are told; nothing that they do afterwards reaches anybody. A
//     frozen one neither sends nor receives, and its handlers come to a stop; its
//     timers go on, which is what a process sees that wakes up.
//
// The plan is a function of the seed alone. What follows from it is nearly so: the
// latencies are drawn per connection, so that things happen at instants of their
// own, but goroutines that are ready at one instant run in an order that the Go
// runtime chooses, and parts of the product roll dice (jitter of retries, gossip).
// A seed that fails is therefore run again several times.
//
// The package is test support: no product package imports it.
package sim
