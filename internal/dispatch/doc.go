// Package dispatch owns the sessions of this node's workers: their slots, the
// leases they hold, and everything that is said about those leases.
//
// A session is one stream of one worker. Its slots are credits: whoever leases
// due jobs reserves slots first ([Dispatcher.Reserve]) and hands in what it
// leased ([Reservation.Deliver]), so that nothing is leased that no worker can
// start now. The sessions of a queue wait in a heap, the least loaded first, which is
// brought in line with them when it is asked. Sessions of the same queues are a [Fleet]: to
// whoever waits for slots of one of them any will do.
//
// For each lease there is one attempt, which lives through
//
//	delivered -> started -> pending (a result is on its way to the ledger) -> gone
//	     \           \----> over (lease lost, or settled by this node: the worker's answer is awaited)
//	      \-------\-------> orphaned (the stream was cut; the worker may come back)
//
// One goroutine keeps the time of all attempts in one heap, another one talks to
// the store about them in batches; there is no goroutine or timer per attempt.
//
// Invariants:
//
//  1. A session is never assigned more attempts than it has slots, but for those
//     that its worker lets wait for one ([Dispatcher.Prefetch]) while handlers
//     are short. A slot is taken by a reservation, an attempt on its way, waiting
//     or running, and by one whose lease has ended until the worker reports it or
//     its stream ends.
//  2. A result that arrived is kept until the ledger has given a final answer. A
//     worker is told that its result is stored only by that answer.
//  3. A lease is renewed only while the stream of its worker lives and the
//     worker has said that the attempt started. A cut stream's leases are
//     renewed once more, which also stores that they were acknowledged, and then
//     left alone: the worker may take them to another node. Of a worker that sends
//     heartbeats that last renewal is for the rest of its session, SessionTTL from the
//     latest heartbeat on, and comprises what has not started: the worker stops by
//     then. It is made under the session's epoch, so that it does nothing once a later
//     session has the lease. A session whose heartbeats stay away is ended.
//  4. An attempt is returned uncounted only if it is proved that no handler saw
//     it: it never left this process, or its worker says so, also at another node;
//     and one of which it is stored that it began is lost instead.
//  5. This node trusts a lease no longer than TTL minus a tenth, counted by its
//     own monotonic clock from before the call that granted or prolonged it. Then
//     the worker is told to stop, whatever the store may say.
//  6. An attempt that has started ends at start + timeout + grace: this node
//     settles it as timed out, with or without its worker, and no renewal
//     reaches much further, so that it also ends when the node dies.
//  7. Whoever keeps something for attempts (Attempts) hears when this node gives one
//     up, which it does when its stream is cut as well, and exactly once that its
//     lease has ended, if that is known here.
//  8. Workers hear of other nodes with their Welcome, when this one drains, and, at most
//     once a second, when there are others than before.
//  9. Everything done about a lease carries its token; a mistake here costs time
//     and never a second accepted result.
package dispatch
