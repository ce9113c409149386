// Package webhook delivers events of jobs to HTTP endpoints (webhooks): each event of each shard
// that a webhook's filter selects, as a CloudEvent with a Standard Webhooks signature.
//
// A node delivers the events of the shards that it holds. A webhook's position in a shard is
// stored in Redis beside the shard and is written under the shard's lock. So the next holder
// continues where the previous one stopped or failed.
//
// Invariants:
//
//  1. An event is delivered, or stored as a dead letter, before the position of the
//     webhook moves past it: delivery is at least once. A node that dies or loses the
//     shard in between causes a second delivery. The event's id stays the same.
//  2. Events of one shard, and so those of one job, are sent one after the other. A
//     failed event is retried before the next ones are sent, until its retry policy ends.
//  3. A webhook delays neither other webhooks nor the scheduler. The shards of a webhook
//     take turns of one second, or of one event that takes longer.
//  4. Memory and storage are bounded: events wait in their stream, and dead letters in a
//     set of their webhook; both are bounded. Events that were trimmed before delivery are
//     counted and logged; dead letters that were evicted are counted.
//  5. Only public addresses are connected to, unless the file permits others, and
//     redirects are not followed. Keys appear in no error and no log line.
//  6. A change of the file applies from the next event on: only a request that is being sent
//     at that moment uses the old URL, key and filter. If it fails, the failure does not
//     count as an attempt.
package webhook
