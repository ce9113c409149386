// Package workerstream serves the gRPC streams of workers: it reads their messages into a session of the
// dispatcher and writes the session's messages back.
//
// A stream has one goroutine that reads and, while messages are queued, one that writes; the handler itself
// only waits, so that it can end the stream while both are blocked. An outbox merges the messages that queue up
// while another message is being written, and holds acknowledgements for up to 5 ms so that they share a
// message.
//
// Leases are encoded without protobuf structs (frame.go): 0.36 us and 2 allocations a lease, where protobuf takes 1.23
// us and 11 (BenchmarkLeaseFrame, BenchmarkLeaseFrameProtobuf), of about 20 us of CPU for a run. All other messages are
// plain protobuf; docs/decisions/0019-protobuf-by-hand.md has the figures.
//
// Invariants:
//
//  1. A stream has one session, which begins with the first message, Hello. The session is closed exactly once
//     and receives every message that was not sent.
//  2. With authenticated callers, a lease that a worker names reaches the session only if a node gave it to
//     that worker: each lease id carries a signature over the id, the worker and its identity (lease_signer.go).
//  3. A worker that does not read gets no more than a bounded number and size of queued items, and loses its
//     stream after guard.StuckTimeout. Queued bytes beyond a few are taken from what its identity may leave unread.
//     A message names no more leases than its worker can have (named_leases.go).
//  4. A stream whose caller loses its credential or its role for one of its queues ends within
//     guard.RecheckInterval.
package workerstream
