// Package gctune sets a garbage collector ballast, so that small heaps are collected less often.
//
// A node keeps little memory, a few tens of megabytes, and allocates much: with the default
// settings the collector would run again for each few tens of megabytes of requests, dozens
// of times a second under load, for a quarter of the processor time. [Reserve] delays it until
// that much more has been used.
package gctune

import (
	"os"
	"runtime"
)

// ballast is never read or written, so no memory is committed for it: it only counts when the collector
// computes its next run.
var ballast []byte

// Reserve makes the garbage collector count size bytes, which take no memory, as live: about twice as much is
// used before its next run. It does nothing if GOGC or GOMEMLIMIT is set. Call it once, in main.
func Reserve(size int) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	ballast = make([]byte, size)
	runtime.KeepAlive(ballast)
}

// Node is what processes of Fermata reserve: enough to make collections rare, and little compared to the memory
// of a pod.
const Node = 48 << 20
