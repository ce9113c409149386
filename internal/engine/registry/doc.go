// Package registry is what clients do to jobs: register, read, list, edit, pause,
// run, cancel, delete; hint, backfill, try dead runs again; preview and explain. It
// checks what it is given, gives it identity and hands it to the store (what is
// new) or to the ledger (what changes).
//
// Invariants:
//
//  1. Nothing is stored of a request that is refused. A refusal names every
//     faulty field.
//  2. Every call can be repeated. A repeated creation with the same request id
//     (or without one) and the same definition answers what is stored; a
//     repeated edit or manual run with the same request id answers without
//     another effect.
//  3. An edit is made from the definition that it replaces: when somebody edits
//     in between, it is merged again, or refused if the caller gave an etag.
//  4. The first due time of a job is decided with the clock of its shard.
//  5. A deleted job whose last run is still live is gone for everyone but for
//     who wants its id. Runs of it that have not begun end with it.
//  6. A call that changes many jobs does a page of them at a time; when it fails and
//     is repeated, what was changed is not changed again.
//  7. What a caller asks for who may reach some queues only is done to a job of these
//     queues or not at all, also if the job is moved to another one meanwhile.
package registry
