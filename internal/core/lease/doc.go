// Package lease computes leases: the fencing tokens, the window in which a holder may rely on
// its lease, and the shard clock by which leases expire. It is pure: it does no IO and reads no
// clock.
//
// There are three clocks, which are never mixed:
//
//   - Redis's TIME of the shard's primary, which may be stepped, or jump when
//     another host is promoted;
//   - the shard clock ([Clock]), which is derived from it: it decides what is due and
//     what has expired. Its instants are Unix milliseconds in an int64;
//   - the caller's own monotonic clock, as a time.Time ([Window]): it only bounds how
//     much longer the caller may rely on the last reply of Redis.
//
// Mint, Deadline and Clock.Advance are mirrored by Lua scripts, so that their
// rules are written out here step by step, in operations that are exact in a
// double: all instants and tokens are below 2^53.
//
// Invariants:
//
//  1. A minted token is greater than the previous token and than the floor.
//  2. The shard clock never decreases. While TIME is behind, it advances at half
//     of TIME's rate or faster, and is equal to TIME in the end.
//  3. The shard clock never exceeds the greatest TIME it was given, except by
//     what rule 2 adds: at most half of the time that passed since.
//  4. A window ends no later than its lease does in Redis, as long as Redis's
//     clock does not run faster than the caller's by more than the margin.
package lease
