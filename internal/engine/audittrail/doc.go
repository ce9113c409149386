// Package audittrail records an audit trail: one record for each call that changed something, in
// a hash chain that can be exported and verified.
//
// Invariants:
//
//  1. No call waits for its record, and none fails because of it. Record queues the record
//     and returns. One goroutine writes the queued records, one batch in a round trip. It pauses
//     for 5 ms after each write, so that frequent calls share one.
//  2. A record that cannot be written within [Options.WriteTimeout], or that finds a queue of
//     [Options.QueueSize] records, is counted as lost, and the loss is logged. The caller writes
//     the log line of the call itself in any case.
//  3. The records of all nodes form one chain: a write succeeds only at the end of the chain that
//     it was linked to, and is not repeated once it has taken effect. If the stored end is before
//     the end that this node has seen, that is counted, and the chain continues from the latter.
//  4. Records that an export has not acknowledged are removed only when the limit of bytes is
//     exceeded.
//  5. Stop writes the queued records, within its context.
package audittrail
