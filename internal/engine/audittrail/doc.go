// Package audittrail records an audit trail: one record for each call that changed something, in
// a hash chain that can be exported and verified.
//
// Invariants:
//
//  1. A call takes a place in line before it changes anything (Reserve). Those that wait for records
//     and calls are [Options.QueueSize], shared among identities. So a call that has a place leaves
//     its record while the store takes records. A call without one waits for up to 5 s, and is
//     refused then; or it goes ahead without one, if the store has taken nothing for 5 s.
//  2. No call waits for its record to be stored. Record queues the record and returns. One goroutine
//     writes the queued records, one batch in a round trip. It pauses for 5 ms after each write, so
//     that frequent calls share one.
//  3. A record that cannot be written within [Options.WriteTimeout], or of a call without a place
//     that finds none at its end either, is counted as lost, and the loss is logged. The caller
//     writes the log line of the call itself in any case. As soon as the store takes records again,
//     one record of the chain says how many were lost, and when.
//  4. The records of all nodes form one chain: a write succeeds only at the end of the chain that
//     it was linked to, and is not repeated once it has taken effect. If the stored end is before
//     the end that this node has seen, that is counted, and the chain continues from the latter.
//  5. A node with keys signs no link to what it has not verified. It takes an end that another node wrote
//     only if the newest record is that end, and is signed with one of its keys. Otherwise it counts that,
//     and the next record has the hash of the last end that this node has written or taken.
//  6. Records that an export has not acknowledged are removed only when the limit of bytes is
//     exceeded.
//     An export belongs to the identity that opened it last, and goes on from its position: whatever
//     else moves it is refused, or noted for the trail.
//  7. Stop writes the queued records, within its context.
package audittrail
