// Package dispatch owns the sessions of this node's workers: their slots, the leases
// that they hold, and all events of those leases.
//
// A session is one stream of one worker. Its slots are credits: a caller that leases due
// jobs reserves slots first ([Dispatcher.Reserve]) and then delivers its leases
// ([slots.Reservation]), so that nothing is leased that no worker can start now. The
// sessions of a queue are in a heap, the least loaded first, which is updated when it is
// used. Sessions of the same queues are a [WorkerGroup]: a caller that waits for slots of one
// of these queues can use any of them.
//
// For each lease there is one attempt, with the states
//
//	delivered -> started -> pending (a result is on its way to the ledger) -> gone
//	      \           \----> over (lease lost, or settled by this node: waits for the worker's answer)
//	       \-------\-------> orphaned (the stream was cut; the worker may come back)
//
// One goroutine keeps the deadlines of all attempts in one heap, another one calls the
// store for them in batches; there is no goroutine or timer per attempt.
//
// Invariants:
//
//  1. A session never has more attempts than slots, except for those that wait for a slot
//     at the worker ([Dispatcher.ReserveWaiting]) while handlers are short. A slot is taken by a
//     reservation, by an attempt on its way, waiting or running, and by one whose lease has
//     ended until the worker reports it or its stream ends.
//  2. A result that arrived is kept until the ledger has given a final answer. Only that
//     answer makes the node acknowledge the result to the worker.
//  3. A lease is renewed only while the stream of its worker is open and the worker has
//     reported that the attempt started. The leases of a cut stream are renewed once more,
//     which also stores that they were acknowledged, and then left alone: the worker may
//     take them to another node. If the worker sends heartbeats, that last renewal is for
//     the rest of its session, SessionTTL from the latest heartbeat on, and includes
//     attempts that have not started: the worker stops by then. It is made under the
//     session's epoch, so that it has no effect once a later session has the lease. A
//     session without heartbeats for SessionTTL is ended.
//  4. An attempt is returned uncounted only if it is proved that no handler saw it: it never
//     left this process, or its worker reports so, also at another node. If its start is
//     stored, it is lost instead.
//  5. This node trusts a lease no longer than TTL minus a tenth, counted by its own monotonic
//     clock from before the call that granted or renewed it. Then the worker is asked to stop,
//     whatever the store answers.
//  6. An attempt that has started ends at start + timeout + grace: this node settles it as
//     timed out, with or without its worker, and no renewal reaches much further, so that it
//     also ends when the node dies.
//  7. A component that keeps state for attempts (Attempts) is notified when this node gives
//     one up, also because its stream was cut, and exactly once that its lease has ended, if
//     that is known here.
//  8. Workers are sent the addresses of other nodes with their Welcome, when this node drains,
//     and, at most once a second, when the addresses have changed.
//  9. Everything done about a lease carries its token; an error here costs time and never a
//     second accepted result.
package dispatch
