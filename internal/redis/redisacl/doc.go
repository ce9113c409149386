// Package redisacl defines the permissions of a Fermata cluster's Redis user. Nodes check them at
// start, the test servers grant nothing else, and the command line prints them.
//
// Invariants:
//
//  1. The keys of keyspace P begin with "P:{". A name contains no '{', so that no keyspace
//     can reach another one whose name starts with its own: "fermata", "fermata2" and
//     "fermata:b" share no key.
//  2. The grant lists single commands, never categories, and no channel: Fermata publishes
//     nothing. None of them reads the server's settings, lists other keys, or
//     flushes data.
//  3. HELLO and AUTH are not in it: an active user may always call them.
package redisacl
