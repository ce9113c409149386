// Package redisacl states what the Redis user of a Fermata cluster may do, once: the
// product checks it at start, the test servers grant nothing else, and the command
// line prints it.
//
// Invariants:
//
//  1. A keyspace named P has keys that begin with "P:{" and no others. A name has no
//     '{' in it, so that no keyspace can reach into one whose name begins alike:
//     "fermata", "fermata2" and "fermata:b" share no key.
//  2. The grant names single commands, never categories, and no channel: Fermata
//     publishes nothing. None of them reads the server's settings, lists keys that are
//     not named, or empties anything.
//  3. HELLO and AUTH are not in it: a user that is on may always call them.
package redisacl
