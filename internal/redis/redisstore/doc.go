// Package redisstore keeps jobs in Redis 7.0 or later, in Valkey, or in an
// embedded imitation for trials; standalone, under Sentinel, or in a cluster.
//
// # Model
//
// A keyspace has a fixed number of shards. All keys of a shard carry its hash tag
// T, so that they are in one slot, and every key that a script touches is in its
// KEYS. P is the prefix:
//
//	P:{T}:meta   hash    c: clock and last token; b:<caller>:<n>: last lease batch
//	P:{T}:st     hash    record -> state, fixed-width header and a tail
//	P:{T}:def    hash    record -> definition, protobuf without what is usual
//	P:{T}:hist   hash    record.slot -> ended run, protobuf
//	P:{T}:l:<ns>/<queue>/<priority>   sorted set: the lane
//	P:{T}:lanes  sorted set: lane -> first due time
//	P:{T}:lock   the shard's lock, written by others
//	P:{T}:failing  sorted set: job -> rank among those that fail; bounded
//	P:{T}:late     sorted set: job -> rank among those that are late; bounded
//	P:{T}:objectives  sorted set: record -> when to look at the lateness objective of its run
//	P:{T}:u:<name>      sorted set: holder of a unit, by expiry
//	P:{T}:s:<name>      hash        holder of a unit -> since when
//	P:{T}:w:<name>      sorted set: waiter in line, by rank
//	P:{T}:q:<name>      sorted set: waiter, by when it last asked, or until when a
//	                    unit is reserved for it
//	P:{T}:rate:<name>   string      rate limit
//	P:{T}:cell:<name>   string      cell, a text under compare and set
//	P:{T}:events        stream      what happened in the shard, bounded
//	P:{T}:hooks         hash        webhook -> how far it is
//	P:{T}:hookdead:<webhook>  sorted set: what it gave up on, by time; bounded
//	P:{T}:hookdead      sorted set: what an older version keeps there of all webhooks
//	P:{meta}            hash        shards, schema, virtual; secret:<name>
//	P:{meta}:queues     hash        <ns>/<queue> -> settings of the queue, protobuf
//	P:{meta}:queues:counts  hash    namespace -> its queues that have settings
//	P:{meta}:jobs       hash        namespace -> its jobs, where they are limited
//	P:{meta}:jobs:new   hash        namespace -> those since the last census began
//	P:{meta}:bytes      hash        namespace -> bytes of its jobs, where they are limited
//	P:{meta}:bytes:new  hash        namespace -> those since the last census began
//	P:{meta}:life:<id>  string      a node's process lives, written by others
//	P:{meta}:audit      stream      who changed what through the API, bounded
//
// The user of a store may touch keys that begin with "P:{", by the commands of package
// redisacl and no others; [Open] fails where it lacks one, and [Store.Check] finds one that was
// taken away since.
//
// A record is a job, ns/id; a dead letter of it, ns/id#d<slot>, which keeps a copy
// of the definition; or a run of it that is a record of its own, ns/id#r<slot>,
// which has none: its job's counts. All of them live in the job's shard.
//
// A record is a member of one lane. Its score says in which region it is and
// since or until when (job.Score), so that a move is one ZADD. Scripts do all
// writing of records; the one that only Go's policy code drives, apply, is a compare and
// set on token and revision. Each script file begins with its contract.
//
// A limit has a name, and a home shard that the name alone decides: its keys are
// there, and that shard's clock counts. Three of the scripts are about units, rates
// and cells; two more, about the settings of queues and the jobs of namespaces, belong to
// no shard, like the keyspace. How many jobs a namespace has, and how many bytes those
// are, is counted where they are created and changed, and put right by a census of the members
// of lanes: no other script knows of it.
//
// # Invariants
//
//  1. Only a caller that presents the value of the shard's lock leases, in the
//     same atomic step. Only the token of the live lease renews it. Only token and
//     revision as stored let a record be written. Two writes that go together are
//     both made or neither, and a run never takes the place of another one.
//  2. Tokens of a shard only grow: greater than the last one stored, than any that
//     the caller has met, and than the shard's clock in microseconds.
//  3. Every call may be repeated, by its caller and by the store itself, which does
//     so while an answer is missing and time is left: a lease batch is remembered
//     by its id, and a copy that arrives when nobody waits for it any more leases
//     nothing; a record that has the state to be written was written (of two that
//     go together both, what was to be deleted being gone), a creation of the same
//     bytes is the same creation. The client never repeats anything by
//     itself (see [NewClient]).
//  4. The shard's clock is Redis's, made monotone by the rule of package lease, and
//     moved by every script. A clock far ahead of what this process's monotonic
//     clock allows is refused for 30 s, then accepted. Only a keyspace created as
//     virtual takes the time from its callers.
//  5. Scripts judge everything before they write anything, write to the destination
//     before they remove from the source, and put at most 1,000 values into one
//     command. No call takes more than 500 records or about a megabyte.
//  6. At maxmemory, Create is refused before its first write. Everything else
//     passes; history and dead letters are left out.
//  7. A record that cannot be read is put out of the way of the others, counted and
//     logged, never deleted; registering the job again mends it.
//  8. In durability class replica an answer is good only after WAIT on the
//     connection that carried the write. What is stored but not confirmed is
//     job.ErrDurability, with the answer beside it.
package redisstore
