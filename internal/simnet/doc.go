// Package simnet is a network inside one process, for clusters that run in a
// testing/synctest bubble: latency is bubble time, and every fault is a decision of
// the test.
//
// A [Network] routes by IP address. A [Host] is one incarnation of a machine at an
// address: it listens, dials and gossips until it crashes, and whoever boots at the
// address afterwards is another Host. What it keeps true:
//
//  1. A stream delivers its bytes in order, unchanged and at most once, after a
//     latency drawn from the network's seed.
//  2. A way between two hosts that is cut holds streams back, as TCP does that goes
//     on retransmitting, and loses packets. Ways have a direction.
//  3. A host that crashes resets its streams; a host that loses its power leaves
//     them open at the other end, until somebody else has booted at its address.
//  4. A frozen host neither sends nor receives; what is under way waits.
//  5. Nothing of an ended host reaches anybody: its calls fail at once.
//
// Nothing here blocks on the operating system, so that a bubble's clock moves on
// while everybody waits.
//
// The package is test support: no product package imports it.
package simnet
