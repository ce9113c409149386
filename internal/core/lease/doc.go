// Package lease is the arithmetic of the right to run: the tokens that fence
// it, the window in which its holder may rely on it, and the one clock that it
// expires by. Nothing here does IO or reads a clock.
//
// Three clocks meet, and never mix:
//
//   - Redis's TIME of the shard's primary, which may be stepped, or jump when
//     another host is promoted;
//   - the shard clock ([Clock]), made of it: it decides what is due and what has
//     expired. Instants of it are Unix milliseconds in an int64;
//   - the caller's own monotonic clock, as a time.Time ([Window]): it only says how
//     much longer the caller may rely on the last answer of Redis.
//
// Mint, Deadline and Clock.Advance are mirrored by Lua scripts, so that their
// rules are written out here step by step, in operations that are exact in a
// double: all instants and tokens are below 2^53.
//
// Invariants:
//
//  1. A minted token is greater than the previous token and than the floor.
//  2. The shard clock never decreases. While TIME is behind, it goes on at half
//     of TIME's rate or faster, and meets TIME in the end.
//  3. The shard clock never exceeds the greatest TIME it was given, except by
//     what rule 2 adds: at most half of the time that passed since.
//  4. A window ends no later than its right does in Redis, as long as Redis's
//     clock does not run faster than the caller's by more than the margin.
package lease
