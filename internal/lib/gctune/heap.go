// Package gctune gives the garbage collector of a small process room to be lazy.
//
// What a node keeps is little, a few tens of megabytes, and what it throws away is
// much: with the collector's default it would collect again for each few tens of
// megabytes of requests, dozens of times a second under load, for a quarter of its
// processor time. [Reserve] has it wait until so much more has been used.
package gctune

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
)

// ballast is never read or written, so no memory is committed for it: it only counts when the collector
// computes its next run.
var ballast []byte

// Reserve has the garbage collector count size bytes, which take no memory, as if
// they were live: it lets about twice as much be used before its next turn. Where a control
// group limits the memory of the process to little, it reserves less, and has the collector
// turn before the limit is reached. Whoever sets GOGC or GOMEMLIMIT knows better, then it
// does nothing. Call it once, in main.
func Reserve(size int) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	size, most := within(size, groupLimit("/"))
	if most > 0 {
		debug.SetMemoryLimit(most)
	}
	ballast = make([]byte, size)
	runtime.KeepAlive(ballast)
}

// within fits a reserve into a limit of memory: it is an eighth of it at most. most is what
// the collector is to keep to, with the reserve, which takes no memory; a fifth of the limit
// is left to what is not the heap. It is 0 if there is no limit.
func within(size int, limit int64) (reserve int, most int64) {
	if limit == math.MaxInt64 {
		return size, 0
	}
	reserve = int(min(int64(size), limit/8))
	return reserve, limit - limit/5 + int64(reserve)
}

// Node is what processes of Fermata reserve: enough to make collections rare, and
// little beside what a host grants a pod.
const Node = 48 << 20
