// Package trail keeps the audit trail: a record of each call that changed something.
//
// Invariants:
//
//  1. No call waits for its record, and none fails for it. Record puts it in line and
//     returns; one goroutine writes what has gathered, in one round trip.
//  2. A record that cannot be written within [Options.Patience], or that finds
//     [Options.Backlog] others in line, is counted as lost, and that is logged. The log
//     line of the call itself is written by the caller, in any case.
//  3. Stop writes what is in line, within its context.
package trail
