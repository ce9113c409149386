// Package limits keeps what the runs of all shards share: units of locks and of the concurrency of queues, rates,
// circuits of targets, settings of queues, and the numbers of jobs and bytes of namespaces.
//
// # Model
//
// A limit has a name, and a home shard that the name alone decides. Its keys carry that shard's tag, and
// its times are those of that shard's clock. T is the tag, P the prefix:
//
//	P:{T}:u:<name>     sorted set  holder of a unit, score: expiry
//	P:{T}:s:<name>     hash        holder -> since when
//	P:{T}:w:<name>     sorted set  waiter in line, score: rank
//	P:{T}:q:<name>     sorted set  waiter, score: when it last asked, or until when a
//	                               unit is reserved for it
//	P:{T}:rate:<name>  string      rate limit
//	P:{T}:cell:<name>  string      cell: expiry and text
//	P:{meta}:queues    hash        namespace/queue -> settings, protobuf
//	P:{meta}:queues:counts  hash   namespace -> its queues that have settings
//	P:{meta}:queues:owners  hash   namespace/queue -> digest of the identity that gave it settings
//	P:{meta}:queues:owned   hash   digest of an identity -> its entries among the owners
//	P:{meta}:jobs      hash        namespace -> jobs, where their number is limited
//	P:{meta}:jobs:new  hash        namespace -> jobs taken since the last census began
//	P:{meta}:bytes     hash        namespace -> bytes of its jobs, where those are limited
//	P:{meta}:bytes:new hash        namespace -> bytes taken since the last census began
//
// One script handles units, one rates, and one cells: texts with compare-and-swap, in which package admission keeps
// circuits, and package registry the progress of changes by a filter. The settings of queues and the counts of
// namespaces belong to no shard, like the hash of the keyspace.
//
// # Invariants
//
//  1. Never are more units held, or reserved for waiters, than the limit, by the clock of the home shard. A
//     unit that is not renewed lapses.
//  2. Every call may be repeated. A holder that asks again keeps its unit, a repeated release wakes the same
//     waiters, a swap finds its own text, and a rate recognises the ids of the last eight calls.
//  3. What has expired by the shard's clock counts as missing. Redis deletes the keys of unused names: units
//     and waiters after three days, cells after two weeks, rate limits a minute after they are idle.
//  4. Everything that is stored is bounded: names, waiters in line, texts, queues with settings, namespaces
//     with counts. Changes of limits and releases therefore pass when Redis is at maxmemory.
//  5. A census looks at a bounded number of fields in each call, and each call is a round trip of its own, so
//     that other calls get their turn.
//
// # Failures
//
//   - A reply is lost: package runner sends the call again, and 2. holds. Only a call of a census is not sent
//     again: the server may still be at work on it.
//   - A replica does not confirm: units, cells and settings return job.ErrDurability beside a complete reply.
//     A failover may forget starts of a rate, which lets one burst through.
//   - A holder dies: its units expire, and the first waiters learn when.
//   - A process dies between its reservation in a count and the creation of the job: the next census corrects
//     the count.
//   - Settings of a queue cannot be read: they are logged, counted and omitted. Settings of other queues are not
//     affected.
package limits
