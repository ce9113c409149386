// Package registry creates, reads, lists, changes and deletes jobs on behalf of clients, and manages their runs:
// manual runs, cancellation, hints, backfills, redrives of dead letters, previews and explanations. It validates
// a request, completes it, and passes new jobs to the store and changes of stored jobs to the ledger.
//
// Invariants:
//
//  1. A refused request stores nothing. A refusal names every invalid field.
//  2. Every call can be repeated. A repeated creation with the same request id (or without one) and the same
//     definition returns the stored job. A repeated edit or manual run with the same request id has no second
//     effect.
//  3. An edit is computed from the definition that it replaces. If another edit was stored meanwhile, it is merged
//     again, or refused if the caller gave an etag.
//  4. The first due time of a job is decided with the clock of its shard.
//  5. A deleted job whose last run is still live is missing for every caller, but its id cannot be used yet. Its
//     runs that have not started are cancelled.
//  6. A call that changes many jobs changes a page of them at a time. After an error it can be repeated: jobs that
//     were changed are not changed again. A change by a filter (bulk.go) also counts each match once, however often a
//     page is repeated.
//  7. A caller with access to some queues changes a job only while the job is in one of these queues, even if the
//     job is moved meanwhile.
package registry
