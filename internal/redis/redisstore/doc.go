// Package redisstore stores jobs in Redis 7.0 or later, in Valkey, or in an embedded imitation for
// trials; standalone, under Sentinel, or in a cluster. Package codec defines the bytes that it
// stores, and package runner runs its commands and scripts.
//
// # Model
//
// A keyspace has a fixed number of shards. All keys of a shard carry its hash tag
// T, so that they are in one slot, and every key that a script touches is in its
// KEYS. P is the prefix:
//
//	P:{T}:meta   hash    c: clock and last token; b:<caller>:<n>: last lease batch
//	P:{T}:st     hash    record -> state, fixed-width header and a tail
//	P:{T}:def    hash    record -> definition, protobuf without default values; of a run its own payload alone,
//	                     if it has one
//	P:{T}:hist   hash    record.slot -> ended run, protobuf; but the state of a one-time job keeps its only run
//	P:{T}:l:<ns>/<queue>/<priority>   sorted set: the lane
//	P:{T}:lanes  sorted set: lane -> first due time
//	P:{T}:revisions  hash  job -> earlier definitions, newest first, protobuf; bounded
//	P:{T}:renames  hash  renames that have not ended: "to:"<id> -> how far it is, "from:"<id> -> the job that was taken
//	P:{T}:renamed  hash  old name and request id of a rename that has ended -> the job that was renamed; bounded
//	P:{T}:renamed:times  sorted set: the same -> when it has ended; bounded, by shares of namespaces
//	P:{T}:lock   the shard's lock, written by others
//	P:{T}:failing  sorted set: job -> rank among failing jobs; bounded
//	P:{T}:late     sorted set: job -> rank among late jobs; bounded
//	P:{T}:objectives  sorted set: record -> when to check the lateness objective of its run
//	P:{T}:unsuccessful:<ns>/<queue>  sorted set: ended run that did not succeed -> its end; bounded
//	P:{T}:unsuccessful  sorted set: <ns>/<queue> -> when its index was last written; bounded by age
//	P:{T}:events        stream      events of the shard; bounded
//	P:{T}:hooks         hash        webhook -> its position in the stream
//	P:{T}:hookdead:<webhook>  sorted set: undelivered events, by time; bounded
//	P:{T}:hookdead      sorted set: undelivered events of all webhooks, from an older version
//	P:{meta}            hash        shards, schema, virtual; secret:<name>
//	P:{meta}:life:<id>  string      heartbeat of a node's process, written by others
//	P:{meta}:audit      stream      who changed what through the API, bounded
//
// The Redis user of a store needs the commands of package redisacl, on keys that begin with "P:{",
// and no others. [Open] fails if one is not permitted; [Store.Check] finds one that was revoked later.
//
// A record is one of three: a job, ns/id; a dead letter of a job, ns/id#d<slot>, which has a copy
// of the definition; or a run that is a record of its own, ns/id#r<slot>, which uses the definition
// of its job, with another payload if the run was requested with one. All of them are in the shard of the job.
//
// A record is a member of one lane. Its score has the region and a time (job.Score), so that a move
// is one ZADD. Only scripts write records. The script apply writes what Go code has decided, as a
// compare-and-swap on token and revision. Each script file begins with its contract.
//
// The indexes of unsuccessful runs are apart from the records: a job that forgets its runs, is deleted or moves to
// another queue leaves its entries where they are. They are written by the call of apply that ends the run, and by
// nothing else, so that nodes of an earlier version add none. When memory is short they are not written.
//
// Package limits has the keys of limits. [Store.Limits] returns those of the keyspace of a store.
//
// # Invariants
//
//  1. A caller leases only if it presents the value of the shard's lock, in the same atomic step.
//     A lease is renewed only with its token. A record is written only with its stored token and
//     revision. Of two writes that belong together, both are made or neither. A run never
//     overwrites another one.
//  2. Tokens of a shard only grow: a new one exceeds the last one stored, any that the caller has
//     seen, and the shard's clock in microseconds.
//  3. Every call may be repeated, by its caller and by package runner. A lease batch is remembered by
//     its id; a copy that arrives after its caller has given up leases nothing. A record that has the
//     state to be written counts as written. A creation of the same bytes is the same creation.
//  4. The shard's clock is that of Redis, made monotonic by the rule of package lease. Every script of
//     a shard advances it. Package runner has the rules for clocks that jump.
//  5. Scripts check everything before they write anything. They write to the destination before they
//     remove from the source, and put at most 1,000 values into one command. No call has more than
//     500 records or about a megabyte.
//  6. At maxmemory, Create fails before its first write. Everything else succeeds, without history,
//     dead letters and revisions.
//  7. An unreadable record is set aside, counted and logged, never deleted. Registering the job
//     again repairs it.
//  8. A write that is stored but not confirmed to the durability class returns job.ErrDurability with a
//     complete reply.
package redisstore
