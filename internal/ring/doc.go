// Package ring says who should hold which shard, and which shard a job is in.
//
// A View lists the live members. The owner of a shard is the member with the
// greatest hash of (name, shard): rendezvous hashing, so that a member that comes
// or goes moves only its own share. A view is a hint that says who should try for
// a lock; it proves nothing.
//
// All hashes are of fixed bytes with a fixed function, so that nodes of any
// version and architecture agree; golden tests pin them.
package ring
