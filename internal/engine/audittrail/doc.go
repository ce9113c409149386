// Package audittrail keeps the audit trail: a record of each call that changed something.
//
// Invariants:
//
//  1. No call waits for its record, and none fails for it. Record puts it in line and
//     returns; one goroutine writes what has gathered, in one round trip.
//  2. A record that cannot be written within [Options.Patience], or that finds
//     [Options.Backlog] others in line, is counted as lost, and that is logged. The log
//     line of the call itself is written by the caller, in any case.
//  3. Records of all nodes are one chain: a write succeeds only at the end of the chain that
//     it was linked to, and is not repeated once it has taken effect. An end that is before what was
//     seen is counted, and the chain goes on from what was seen.
//  4. What an export has not acknowledged is removed for want of bytes alone.
//  5. Stop writes what is in line, within its context.
package audittrail
