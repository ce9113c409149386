// Package worker runs the handlers of Fermata's jobs.
//
//	w, err := worker.New(worker.Options{Addresses: []string{"scheduler:7070"}, Slots: 32})
//	w.Handle("send-invoice", func(ctx context.Context, t *worker.Task) error { ... })
//	err = w.Run(ctx) // until ctx ends, then drains
//
// [HandleJSON] registers a handler whose payload is JSON. [Worker.Stop] drains without a context
// of Run, and [Worker.Abort] cancels the handlers at once.
//
// A worker keeps one stream, its session, to one scheduler node. The node leases attempts to
// it, at most as many as it has free slots and places to wait for a slot. The worker runs
// their handlers and reports the results. Delivery is at least once: a handler may run again
// for the same run. So it should be idempotent, or pass [Task.Token] to the systems that it
// writes to, which then reject smaller tokens.
//
// The handler's return value decides the outcome: nil succeeds; an error fails the attempt,
// and the job's retry policy applies; [Permanent] ends the run at once; [RetryAfter] asks for
// a delay. A panic fails the attempt. The handler's context ends at the attempt's timeout,
// when the run is cancelled, and when the lease is lost; [context.Cause] returns the reason:
// [ErrTimeout], [ErrCancelled], [ErrLeaseLost] or [ErrStopped].
//
// # States
//
// A session has the states
//
//	dialing -> hello sent -> current -> superseded (another node was sent a Hello) -> closed
//	   ^           | refused    |            | that Hello was refused: current again
//	   \-----------/            \----------> closed (cut, trust has ended, or the worker stops)
//
// The worker opens the next session when the current one is cut, and before it closes the
// current one when that node drains or does not acknowledge heartbeats in time.
//
// For each lease there is one attempt, with the states
//
//	queued -> early -> ready -> running -> ended (its result is sent until acknowledged) -> gone
//	   |         \------> |        \-----------------------> gone (stopped by the worker)
//	   \---------\--------\------> gone (returned: nothing has started)
//
// queued waits for a slot. early has a slot and is not due yet. ready waits for a goroutine
// that calls handlers. An attempt enters at the first state that applies. An attempt that times
// out before it has started goes to ended at once.
//
// Invariants:
//
//  1. At most Options.Slots handlers run at once.
//  2. A result is kept and sent again until a node has acknowledged it. Only after its lease
//     has ended by this process's monotonic clock it is sent once more and then dropped.
//  3. A cut stream has no effect if it is shorter than the rest of the session: handlers
//     continue, and another node takes their leases over. If it is longer, or the stream stays
//     open and silent, handlers are cancelled before their leases can be given to others. No
//     handler starts on a lease that may have ended, also after this process was suspended. A
//     loss whose worker comes back does not count toward the quarantine of a run.
//  4. A node that drains is replaced without a gap: the new session is open before the old
//     one ends.
//  5. An error caused by a lost lease or by stopping the worker is not reported as a failure
//     of the handler; such an attempt is leased again.
//  6. Run returns after all its goroutines, except those of handlers that ignore their
//     context.
//
// # The protocol
//
// A worker in any language with gRPC makes one bidirectional call,
// fermata.v1.WorkerService/Work:
//
//  1. Send Hello: a worker_id unique to the process, queues, slots, and session_epoch 1.
//     Receive Welcome: lease_ttl and the addresses of other nodes. With Hello.supports_heartbeats and
//     Welcome.session_ttl, send a Heartbeat at once and then every quarter of session_ttl.
//     The leases can be trusted for session_ttl, less the time that handlers need to stop,
//     from when the latest acknowledged heartbeat was sent. After that, make all handlers end,
//     close the stream, and start no handler before the next Welcome. The leases named in
//     Hello.live_lease_ids can be trusted so from the first HeartbeatAck with confirmed set.
//  2. Receive Leases: at most slots at once, and up to Hello.prefetch more, which wait for a
//     slot and are Returned after 50 ms without one. With Hello.supports_start_after some leases come
//     before they are due: they take a slot at once and start lease.start_after later, also
//     if the stream has broken by then. For each lease: send Started, run the handler named
//     by lease.handler for at most lease.timeout, send a Result. Started may be left out if
//     the Result is sent at once. A lease with a trace_context belongs to a trace: pass its
//     headers on.
//  3. Send a Result again until a ResultAck names its lease_id. Every status is final.
//  4. On Cancel, end those handlers. REASON_REQUESTED: answer CANCELLED. REASON_TIMED_OUT:
//     answer TIMED_OUT. REASON_LEASE_LOST: if the handler failed, or the lease is unknown,
//     send Returned, which frees the slot; otherwise send the Result.
//  5. When the stream breaks, dial the known addresses, several at once, and open a stream on
//     the first connection that is ready. Send session_epoch + 1, and in Hello.live_lease_ids every
//     lease that runs or whose Result is not acknowledged, also a lost lease whose handler
//     still runs, because it takes a slot. Then send those Results again. Send Returned for
//     leases that had not started, which Hello.live_lease_ids leaves out, and again for those returned
//     in the last 15 s. Report leases that were given up as Lost, after their handlers have
//     ended, until a ResultAck names them. Without a stream, make the handlers end within two
//     thirds of lease_ttl (the last renewal may be a third of it old), or when the session can
//     no longer be trusted: after that, other workers may start the attempts.
//  6. On Drain do the same at once, and close the old stream after the new Welcome. From the
//     new Hello on, use acknowledgements of the new stream only. An Addresses message
//     replaces the addresses of the Welcome. On Relocate connect to one of its nodes; the
//     session goes on until the new Welcome.
//  7. To stop: send Draining, and Returned for what has not started. While a Hello to another
//     node is unanswered, the old stream gets no Draining. Finish what runs or was
//     named in a Hello, which counts as started. Wait for the ResultAcks, close the stream,
//     and wait for its end. If it ends with an error, send Returned on another stream.
//
// Send keepalive pings every 10 s to detect a dead peer.
package worker
