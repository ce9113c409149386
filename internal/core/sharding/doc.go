// Package sharding computes placements: the shard of a job, the member that should hold a shard,
// and the Redis Cluster slot of a shard's keys.
//
// A [View] is the list of live members as one node sees them. From it alone every node
// computes, by rendezvous hashing with equal parts, the same owner of each shard: the member
// with the highest weight, a hash of its name and the shard, that has not got its part yet. A
// view is a hint and never a proof: two nodes may have different views for a while. A node
// holds a shard only by the shard's lock.
//
// Invariants:
//
//  1. Equal members give equal owners, on every node and in every version, in whatever order
//     they are listed.
//  2. No member owns two shards more than another. A member that joins or leaves moves its
//     own part, and a few shards more to keep the parts equal: 1 to 4 of 64 on average with
//     up to eight members.
//  3. ShardOf, Tag and Slot are part of the stored format: they depend on their arguments
//     only and never change.
//  4. Tag(i, n) falls into the i-th of n equal parts of Redis Cluster's slots, so that masters
//     which own contiguous slots get equal numbers of shards.
package sharding
