// Package simnet is a network inside one process, for clusters that run in a
// testing/synctest bubble: latency is bubble time, and every fault is a decision of the
// test.
//
// A [Network] routes by IP address. A [Host] is one incarnation of a machine at an address:
// it listens, dials and gossips until it crashes. A later incarnation at the address is
// another Host. The network guarantees:
//
//  1. A stream delivers its bytes in order, unchanged and at most once, after a latency
//     drawn from the network's seed.
//  2. A cut between two hosts delays streams, as TCP retransmissions do, and loses packets.
//     Cuts have a direction.
//  3. A host that crashes resets its streams; a host that loses its power leaves them open
//     at the other end, until another host has booted at its address.
//  4. A frozen host neither sends nor receives; data in flight waits.
//  5. An ended host sends nothing: its calls fail at once.
//
// Nothing here blocks on the operating system, so that a bubble's clock moves on while all
// goroutines wait.
//
// The package is test support: no product package imports it.
package simnet
