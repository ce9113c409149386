// Package quota bounds how many jobs each namespace has, and how many bytes those are, over
// all nodes.
//
// # Model
//
// One count in Redis for each measure and each namespace that has a limit of it. Whoever is
// about to create jobs, or to make one larger, first takes as many as the limit leaves, in one atomic step, and gives back what
// it did not store. Nothing else keeps the count: jobs that end, expire or are deleted
// while it is not asked are put right by a census, which any node begins when the last
// one is long enough ago, and which counts what is there.
//
// # Invariants
//
//  1. A job that is created through a node with a limit was counted before it was
//     written. So a node that dies, or an answer that is lost, leaves a count that is
//     too high, never one that is too low, and that until the next census.
//  2. A census may miss what was taken before it began and written after it counted:
//     calls that are under way at that instant. By so many may a limit be exceeded. What
//     is taken while it counts is added to what it finds.
//  3. Namespaces without a limit cost nothing: no command, no key.
//  4. Who asks whether a namespace is full asks no store: the answer is that of the last look.
//  5. A census takes at most a fiftieth of the time.
package quota
