// Package gctune sets a ballast for the garbage collector, so that small heaps are collected less often.
//
// A node has a small live heap, a few tens of megabytes, and allocates much. With the default of the
// collector it would be collected dozens of times a second under load, for a quarter of its CPU time.
// [ReserveBallast] adds a constant to the heap size at which the next collection starts. GOGC would
// multiply that size instead, and let large heaps grow several times as large: see
// docs/decisions/0018-libraries.md.
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

// ReserveBallast makes the garbage collector count size bytes, for which no memory is committed, as live. About twice
// as many bytes are allocated before the next collection. If a control group limits the memory of the process, it
// reserves less, and sets a memory limit below that of the group. If GOGC or GOMEMLIMIT is set, it does nothing. It is
// called once, in main.
func ReserveBallast(size int) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	size, most := fitLimit(size, cgroupLimit("/"))
	if most > 0 {
		debug.SetMemoryLimit(most)
	}
	ballast = make([]byte, size)
	runtime.KeepAlive(ballast)
}

// fitLimit reduces a reserve to an eighth of a memory limit. most is the memory limit for the collector, which counts
// the reserve as well; a fifth of the limit is left for memory outside of the heap. It is 0 if there is no limit.
func fitLimit(size int, limit int64) (reserve int, most int64) {
	if limit == math.MaxInt64 {
		return size, 0
	}
	reserve = int(min(int64(size), limit/8))
	return reserve, limit - limit/5 + int64(reserve)
}

// BallastSize is the reserve of processes of Fermata: enough to make collections rare, and small compared with the
// memory of a pod.
const BallastSize = 48 << 20
