// Package quota limits the number of jobs of each namespace, and their bytes, over all nodes.
//
// # Model
//
// Redis has one counter for each measure and each namespace with a limit. A call that creates or
// enlarges jobs first reserves as many as the limit leaves, in one atomic step, and returns what
// it did not store. What it stored beyond its reservation, it counts afterwards. No other operation
// updates the counter. Jobs that end, expire or are deleted without a call are corrected by a census:
// it counts what is stored. Any node starts a census when the last one is old enough.
//
// # Invariants
//
//  1. A job that is created through a node with a limit is counted before it is
//     written. So a node that dies, or a lost reply, leaves a counter that is too high,
//     never too low, and only until the next census. The exception is what takes nothing
//     because it exists, and is deleted before it is written: [Quota.Take] counts it
//     afterwards.
//  2. A census may miss reservations that were made before it began and written after it
//     counted: calls that are in progress at that instant. The limit may be exceeded by
//     their number. Reservations made during a census are added to its result.
//  3. Namespaces without a limit cost nothing: no command, no key.
//  4. [Quota.Full] calls no store: it returns the result of the last reading.
//  5. A census takes at most a fiftieth of the time.
package quota
