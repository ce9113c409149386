// Package ledger changes stored state by decisions. No other package does.
//
// A change is an event that happened to a record. The ledger reads the record (unless the
// caller knows it), calls [job.Decide], and passes the decision to the store, which writes
// it only if token and revision are still those that were decided on. Otherwise the ledger
// reads and decides again.
//
// Changes are committed in groups: while one batch of a shard is in flight, changes that
// arrive wait and form the next batch. So a quiet shard answers at once, and a busy one pays
// one round trip for many changes. There is no timer. Small batches of several shards are
// committed by one goroutine in one call of the store: at a thousand results a second each
// shard has a change now and then, and to wake a goroutine for it takes longer than to decide
// it. Large batches, and changes for which something has to be read first, go their own way, and changes whose
// decisions may take long go together without the others.
//
// Invariants:
//
//  1. At most one batch of a shard is in flight, and one round of it has at most one change
//     of a job, its runs included. Changes of a job are handled in the order in which they
//     were submitted.
//  2. Each change is answered exactly once.
//  3. A change is answered without error only after the store has confirmed it to the
//     current durability class.
//  4. A change whose answer is an error may have been applied. Submitting it again is safe:
//     events carry tokens or request ids.
//  5. Everything that the store has written is reported to Observer and Nudger once, even if
//     its durability is not confirmed.
//  6. A change that is limited to queues is stored only if the job is in one of them at
//     that instant: the definition is guarded by token and revision like the state.
//  7. A change that the store cannot accept delays no other for longer than its own round
//     trip, and neither does a server that is down. Of shards that are committed together,
//     each is released as soon as its own writes are answered.
//  8. Decisions that take long delay the changes of another shard by one decision more than maxTogetherTime at most,
//     beside the wait for a committer: shards that were not decided by then go alone.
//  9. Changes whose calls have ended are dropped before a round, and changes that wait for another one of their job
//     leave room to those of other jobs in each batch: few callers of one job delay no other job for long.
package ledger
