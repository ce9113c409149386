// Package admission takes leased runs through their gates before they are delivered, keeps
// what they hold while they live, and gives it back when they have ended.
//
// Most runs have no gate. They go straight to the slots that are reserved for them, at almost
// no cost. Of the others a group, which is what one leasing call brought for one queue, goes
// through
//
//	arrival -> pace -> locks, the queue's concurrency -> target -> spawn -> delivery
//	    |        |                  |                       |
//	    +--------+------------------+-----------------------+--> held back, until an instant or a wake
//
// Each step is one call for the whole group. State that shards share is in Redis, at the home
// shard of its name: units with a holder, rates, and cells, which have the circuits of targets.
// A unit's holder is the lease id of the job's record and the token. So it stays the same when
// the run gets a record of its own, or another node adopts the attempt.
//
// Before the lease, [Admission.TakeStarts] returns how many runs of a queue with limits may start, so
// that a backlog stays in Redis. For a paused queue that is none; runs that are leased by then
// pass.
//
// Invariants:
//
//  1. A run with gates is delivered only after each gate has let it pass. If Redis does not
//     answer, the run is returned uncounted: waiting is not failing.
//     A run that was leased from a queue other than its job's goes back, whatever its gates.
//  2. A run with gates delays no run without: those of the same group are delivered first, and
//     the leasing call does not wait.
//  3. The units of a run are taken one after the other, in the order of their names, and all or
//     none are kept. No run waits at one gate while it holds a unit of another, so that there
//     is no deadlock.
//  4. A run that is held back gets a time at which it comes back (2 to 15 s at a lock, by how
//     long it has waited), so that a lost wake costs time only. The release of a lock wakes the
//     first in line at once; if that run does not wait any more, the next one is woken. If a
//     unit expires that no holder gave back, the first in line come by themselves.
//  5. Units are renewed every third of the lease's life while the attempt is at this node and
//     its stream is open, and released when its lease has ended. An attempt that may continue
//     elsewhere keeps them: the node that adopts it renews them at once. If none does, the node
//     that finds its lease expired releases them, under the holder's name, which no other
//     attempt has.
//  6. An attempt that loses a lock while it runs is abandoned: its worker is asked to stop.
//     Otherwise it would run beside the lock's next holder. A lost place in a queue's
//     concurrency is only logged, because one run more than allowed is better than an aborted
//     run.
//  7. The gates take at most a fifth of the lease's life, and at most 3 s, so that a delivered
//     lease has enough time left. Where Redis answers late they take as long as eight answers
//     and one for each unit, and at most a third of the lease's life.
package admission
