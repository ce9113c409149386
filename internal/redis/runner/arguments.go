package runner

import "sync"

// argumentArenaPool has the memory of pipelines whose replies have been read.
var argumentArenaPool = sync.Pool{New: func() any { return new(ArgumentArena) }}

// ArgumentArena is the memory of the arguments of one pipeline. It saves a slice for each
// command, which the benchmarks of bench/internal/storecycle count. The zero value is ready for use.
type ArgumentArena struct{ free []any }

// Allocate returns an empty slice with room for n arguments, which no other slice overlaps.
func (r *ArgumentArena) Allocate(n int) []any {
	if cap(r.free)-len(r.free) < n {
		r.free = make([]any, 0, max(n, 2*cap(r.free)))
	}
	start := len(r.free)
	r.free = r.free[:start+n]
	return r.free[start:start:len(r.free)]
}

// Reset drops all arguments. No command may use them any more.
func (r *ArgumentArena) Reset() {
	clear(r.free)
	r.free = r.free[:0]
}

// release resets the arena and returns it to the pool.
func (r *ArgumentArena) release() {
	r.Reset()
	argumentArenaPool.Put(r)
}
