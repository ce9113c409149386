// Package heap gives the garbage collector of a small process room to be lazy.
//
// What a node keeps is little, a few tens of megabytes, and what it throws away is
// much: with the collector's default it would collect again for each few tens of
// megabytes of requests, dozens of times a second under load, for a quarter of its
// processor time. [Reserve] has it wait until so much more has been used.
package heap

import (
	"os"
	"runtime"
)

// reserved is never read or written, so that no memory stands behind it: it only
// counts when the collector computes its next turn.
var reserved []byte

// Reserve has the garbage collector count size bytes, which take no memory, as if
// they were live: it lets about twice as much be used before its next turn. Whoever
// sets GOGC or GOMEMLIMIT knows better, then it does nothing. Call it once, in main.
func Reserve(size int) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	reserved = make([]byte, size)
	runtime.KeepAlive(reserved)
}

// Node is what processes of Fermata reserve: enough to make collections rare, and
// little beside what a host grants a pod.
const Node = 48 << 20
