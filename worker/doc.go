// Package worker runs the handlers of Fermata's jobs.
//
//	w, err := worker.New(worker.Options{Addresses: []string{"scheduler:7070"}, Slots: 32})
//	w.Handle("send-invoice", func(ctx context.Context, t *worker.Task) error { ... })
//	err = w.Run(ctx) // until ctx ends, then drains
//
// A worker keeps one stream to one scheduler node. The node leases attempts for
// it, never more than it has free slots and places to wait for one; the worker runs
// their handlers and reports how they ended. Delivery is at least once: a handler may run again for
// the same run, so it should be idempotent, or pass [Task.Token] on to what it
// writes to, which then refuses smaller ones.
//
// What a handler returns decides what happens: nil succeeds, an error fails the
// attempt and the job's retry policy goes on, [Permanent] ends the run at once,
// [RetryAfter] asks for a time. A panic fails the attempt. The handler's context
// ends at the attempt's timeout, when the run is cancelled, and when the lease is
// lost; [context.Cause] tells which: [ErrTimeout], [ErrCancelled], [ErrLeaseLost],
// [ErrStopped].
//
// Invariants:
//
//  1. At most Options.Slots handlers run at once.
//  2. A result is kept and repeated until a node has acknowledged it. Only when
//     its lease has ended by this process's monotonic clock is it sent once more
//     and then forgotten.
//  3. A cut stream costs nothing while it is shorter than what is left of the session:
//     handlers go on, and another node takes their leases over. When it lasts longer,
//     or the stream stays open and silent, handlers are cancelled before their leases
//     can be given to others. No handler begins on a lease that may have ended, also
//     when this process stood still. A loss whose worker comes back does not count to
//     those that quarantine a run.
//  4. A node that drains is left for another one without a gap: the new stream
//     stands before the old one ends.
//  5. A failure that comes from losing a lease or from stopping the worker is not
//     reported as a failure of the handler; such an attempt is leased again.
//  6. Run returns after all its goroutines, except those of handlers that ignore
//     their context.
//
// # The protocol
//
// A worker in any language with gRPC takes one bidirectional call,
// fermata.v1.WorkerService/Work:
//
//  1. Send Hello: a worker_id unique to the process, queues, slots, and 1 as the
//     session_epoch. Receive Welcome: lease_ttl and addresses of other nodes. With
//     Hello.heartbeats and Welcome.session_ttl send a Heartbeat at once and every quarter
//     of session_ttl. The leases can be trusted for session_ttl, less what handlers have
//     to stop, from when the latest acknowledged one was sent; when that is over have all
//     handlers end, close the stream, and begin none before the next Welcome.
//     HeartbeatAck.confirmed tells from when on that holds for what Hello.live named.
//  2. Receive Leases, at most slots at once, or as many more as Hello.prefetch
//     says: these wait for a slot, and are Returned after 50 ms without one. With
//     Hello.starts_after some come before they are due: they take a slot at once and
//     begin lease.start_after later, also if the stream has broken by then. For
//     each: send Started, run the handler named by lease.handler for at most
//     lease.timeout, send a Result. Where the Result can go out at once, Started
//     may be left out. A lease with a trace_context belongs to a trace: pass its
//     headers on.
//  3. Repeat a Result until a ResultAck names its lease_id. Every status is final.
//  4. On Cancel end those handlers. REASON_REQUESTED: answer CANCELLED.
//     REASON_TIMED_OUT: answer TIMED_OUT. REASON_LEASE_LOST: if it failed, or if
//     the lease is unknown, send Returned, which frees the slot; else the Result.
//  5. When the stream breaks, dial the addresses that are known, several at once, and
//     open a stream on the first connection that is ready, with
//     session_epoch + 1 and Hello.live naming every lease that
//     runs or whose Result is not acknowledged; also one that is lost and whose handler
//     goes on, which takes a slot still. Then repeat those Results, and send Returned
//     for what had not begun, which Hello.live leaves out, and for what was returned
//     in the last 15 s. Report leases that were given up as Lost, when their handlers
//     have ended, until a ResultAck names them. Without a
//     stream, have the handlers end within two thirds of lease_ttl (the last renewal
//     may have been a third of it before), or when the session can be trusted no longer:
//     then others may start them.
//  6. On Drain do the same at once, closing the old stream after the new Welcome;
//     from the new Hello on, heed acknowledgements of the new stream only.
//     Addresses, when it comes, replaces those of the Welcome.
//  7. To stop: send Draining, Returned for what did not start, finish what runs or was
//     named in a Hello, which counts as started, wait for the ResultAcks, close, and
//     wait for the end of the stream. If that is an error, send Returned on another.
//
// Keepalive pings every 10 s tell a dead peer from a silent one.
package worker
