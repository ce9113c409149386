// Package shardlock holds the shard locks of one node: it obtains the locks of
// the shards that the ring gives to the node, refreshes them, detects their
// loss, hands them over when the ring changes, and takes over those of dead
// nodes. The locks are bsm/redislock locks, one key a shard.
//
// # Model
//
// A lock key holds 22 random characters, the token, followed by
// "node|peer address|process" of its holder. The whole string is the lock's
// value. Scripts that lease compare it with the value that their caller
// presents, and readers of the key learn the holder's address. Each acquisition
// has a new token, so a value never comes back. The process is another random
// name, new with each Manager. Under it the process writes a heartbeat while it
// runs and is not alone: one round trip every 400 ms, whatever the number of
// shards. The same round trip reads the heartbeats of the other members.
//
// Shards belong only to members whose heartbeat is in this keyspace and carries
// their name, because no other process can keep a lock here: not one that has the
// gossip key and no Redis, nor a node of another Redis. A new member becomes an
// owner with the first reading that has its heartbeat, under a second after it
// started. A member whose heartbeat is missing, or two thirds of a lock's life old,
// in all readings of TTL/5 is no owner any more. To become one again, its heartbeat
// has to be there for TTL/3, longer each time. While this node cannot read, the last
// answer stays; until it has read for three heartbeat periods, all members are
// owners. A heartbeat of the previous build has no name: it counts for the first
// member that named the process.
//
// One goroutine, [Manager.Run], owns the state of all shards and decides. A small
// pool of goroutines talks to Redis, with at most one call in flight for a shard.
// Refreshes are batched: one pipeline to each server renews all locks there. A
// shard is in one of these conditions:
//
//	free      no lock of this process is known to be in Redis
//	pending   a call to obtain ended in an error: its effect is unknown
//	held      obtained, and valid by the monotonic clock
//	doubtful  obtained, but the validity ended before a refresh was confirmed
//	dropping  given up, release not yet confirmed
//
// # Invariants
//
//  1. Validity is counted by the monotonic clock from the *start* of the last
//     successful call: start + TTL - Margin. [Manager.ValidLock] is false from that
//     instant on, whether or not Redis has answered since. (If the monotonic
//     clock of a machine stops with it, as in a suspended VM, only the comparison
//     of values in Redis protects.)
//  2. Held becomes false, and OnLose is called, before the key is released. So the
//     holder has stopped before the next one can start.
//  3. An error while obtaining means "not holder, perhaps an orphaned key". The
//     attempt is repeated with the same token, which redislock treats as
//     re-entrant, or discarded if the shard is no longer wanted. A token of that
//     kind was never published.
//  4. An error while refreshing means "unknown" until the validity ends;
//     redislock.ErrNotObtained means lost, at once. A doubtful lock is still
//     refreshed: if that succeeds, the value was in Redis all the time and is
//     valid again.
//  5. A lock is broken only if its holder is in no view that this node knows, and
//     in one script its value is the one that was read and its PTTL is below TTL/3:
//     two refreshes were missed. It is broken earlier if the holder's process is
//     known to have ended (ProcessEnded; or its node has another process now, whose
//     heartbeat is in this keyspace), three of its heartbeats were missed just
//     before, and in one script the value is the one that was read and has not been
//     refreshed since. A healthy lock is never
//     broken, whatever gossip reports. (A key without any TTL, which only a person
//     can make, counts as unrefreshed.)
//  6. A node breaks at most a quarter of the shards in any second, or half of them
//     if their processes are known to have ended. After it lost a shard to another
//     node it waits TTL before it competes for it again, unless it is the only
//     member. A lock that turned out to be free is taken at once: there is no
//     competition.
//  7. A member that has withdrawn ([sharding.Member.Withdrawn]) owns no shard, once
//     the set of such members has been unchanged for TTL/5, or has differed for three
//     times as long. Its lock is not broken, because it is alive. It releases its locks
//     when it can reach Redis; otherwise they expire.
//  8. A shard that stays without a holder while its owner is alive and has not withdrawn is taken by any other node
//     ([Manager.TakeAbandoned]), which keeps it for ten minutes or until the owner changes. The lock decides between
//     them, so that views may differ.
//  9. Every call has a deadline, and no command touches more than one key.
package shardlock
