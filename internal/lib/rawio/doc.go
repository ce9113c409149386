// Package rawio reads and writes TCP connections by system calls that the Go scheduler does not see.
//
// The runtime prepares for each read and write of a socket that the call blocks: it wakes its monitor thread,
// which then naps and looks several times before it sleeps again. At a thousand small messages a second that
// costs more than the messages. The sockets of package net never block, so the preparation is not needed: a call
// that has nothing to do returns EAGAIN, and the goroutine waits in the network poller as it always does.
//
// While such a call runs, its processor cannot be given to another goroutine, and the garbage collector cannot
// stop the world. So one call moves at most 64 KiB.
//
// On other systems and processors, and under the race detector, everything here is the plain connection. The detector
// knows that a write to a socket happens before the read of it only where package syscall makes both calls.
package rawio
