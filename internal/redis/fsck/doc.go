// Package fsck checks whether all that is stored in a shard is consistent, and repairs what it can.
//
// # Model
//
// A check goes through a shard in passes: definitions, states, families of jobs and their runs, entries of lanes,
// the index of lanes, histories, revisions, and the indexes of unsuccessful runs. It reads everything, in steps of a
// bounded size. Findings are values
// of package job; a report lists a bounded number of them.
//
// # Invariants
//
//  1. A check takes no lock and may run beside everything else. A suspicion counts only if nothing of the
//     record changed while it was looked at again.
//  2. Without repair it writes nothing.
//  3. A repair loses nothing: it sets entries of indexes by the records, and removes histories and revisions
//     that have no record. The store makes each repair as a compare-and-swap on the record as it was read, or
//     only while there is no record. Unreadable records are reported, never changed.
//  4. A repair may be repeated. Lanes that it makes due earlier are reported to the holder of the shard.
//
// # Failures
//
//   - A read fails: the check ends with the error and the findings that it made before.
//   - A record changes at each look: after five looks it is taken for alive and is not reported.
//   - The process dies: the repairs that were made stay, and the next check makes the others.
package fsck
