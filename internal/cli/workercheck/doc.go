// Package workercheck checks whether a worker, written in any language, follows the protocol of
// docs/worker-protocol.md.
//
// Each case starts the command under test against scripted nodes of its own: gRPC servers in this process that speak
// WorkerService and have neither jobs nor Redis. The worker has the check handlers
// (docs/worker-protocol.md#the-check-program), which write a line to a journal when they start and when they end, so
// that a case knows what really ran.
//
// A [Case] is a function that sends and expects messages. Beside what it expects, rules that hold always are checked
// with each message and each line of the journal (observe.go). A violated rule is a [Fault], which names the rule and
// its place in the documents.
//
// Upper bounds of time are generous, and lower bounds exact. A case that fails while the machine was too busy to run
// this process in time is repeated with longer times.
package workercheck
