// Package ledger is the one place where stored state changes by decision.
//
// A change is an event that happened to a record. The ledger reads the record
// (unless the caller knows it), lets [job.Decide] decide, and hands the decision
// to the store, which writes it only if token and revision are still those that
// were decided on. Where they are not, the ledger reads and decides again.
//
// Changes are committed in groups: while one batch of a shard is on its way, what
// arrives waits and makes the next batch. So a quiet shard answers at once and a
// busy one pays one round trip for many changes; there is no timer.
//
// Invariants:
//
//  1. At most one batch of a shard is in flight, and one round of it holds at most
//     one change of a job, its runs included. Changes of a job are taken in the
//     order in which they were submitted.
//  2. Each change is answered exactly once.
//  3. A change is answered without error only after the store has confirmed it to
//     the durability class in force.
//  4. A change whose answer is an error may have been applied. Submitting it
//     again is safe: events carry tokens or request ids.
//  5. Whatever the store has written is told to Observer and Nudger once, even if
//     its durability is not confirmed.
//  6. A change that is limited to queues is stored only if the job is in one of them at
//     that instant: the definition that was looked at is guarded by token and revision
//     like the state.
//  7. A change that the store cannot take holds up no other for longer than its
//     own round trip, and neither does a server that is away.
package ledger
