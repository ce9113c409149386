// Package admission stands between the leasing of runs and their delivery: it
// takes those that have something to pass through their gates, keeps what they
// hold while they live, and gives it back when they are gone.
//
// Most runs have no gate. They go straight through to the slots that wait for
// them, at the cost of a glance. For the others a batch, what one leasing call
// brought for one queue, goes through
//
//	arrival -> pace -> locks, the queue's concurrency -> target -> spawn -> delivery
//	   |        |                  |                       |
//	   +--------+------------------+-----------------------+--> held back, until an instant or a wake
//
// each step of which is one call for the whole batch. What is shared between
// shards lives in Redis, at the home shard of its name: units with a holder, rates,
// and cells, which hold the circuits of targets. A unit's holder is the lease id of
// the job's record and the token, so that it stays the same when the run becomes a
// record of its own, or another node takes the attempt over.
//
// Before the lease, [Admission.Take] tells how many runs of a queue with limits
// may start, so that a backlog stays in Redis. Of a queue that is paused that is none;
// what is leased by then passes.
//
// Invariants:
//
//  1. A run with gates is delivered only after each has let it pass. If Redis
//     cannot be asked the run goes back uncounted; to wait is not to fail.
//  2. A run with gates holds up no run without: those of the same batch are
//     delivered first, and whoever leased does not wait.
//  3. The units of a run are taken one after the other, in the order of their
//     names, and all or none are kept. Nobody waits at one gate while it holds a
//     unit of another, so that there is no deadlock.
//  4. A held run is told when to come back (2 to 15 s at a lock, by how long it has
//     waited), so that a lost wake costs time only. The release of a lock wakes the
//     first in line at once; a wake that is of no use goes to the next. When a unit lapses
//     that nobody gives back, the first in line come by themselves.
//  5. Units are prolonged every third of the lease's life while the attempt is at
//     this node and its stream stands, and released when its lease has ended. An
//     attempt that may live on elsewhere keeps them: the node that takes it over
//     prolongs them at once. If none does, whoever finds that its lease has ended
//     releases them, under the holder's name, which no other attempt has.
//  6. An attempt that loses a lock while it lives is abandoned: its worker is told
//     to stop. To go on would be to run beside the lock's next holder. A lost place
//     in a queue's concurrency is only told, as a run more than allowed is better
//     than a run broken off.
//  7. The gates take at most a fifth of the lease's life, and at most 3 s, so that
//     what is delivered can be trusted for long enough. Where Redis answers late they take as
//     long as eight answers and one for each unit, and at most a third of the lease's life.
package admission
