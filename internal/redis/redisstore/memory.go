package redisstore

import (
	"sync"

	"github.com/fermata-io/fermata/internal/core/job"
)

// applyMemory is the memory of one call of Apply, for reuse by the next one. It saves the items, their
// states, guards and arguments: about 800 bytes a record (BenchmarkApplyItems).
type applyMemory struct {
	items      []applyItem
	list       []*applyItem
	groups     [][]*applyItem
	textBuffer []byte
	seen       map[job.RecordID]bool
	args       argumentArena
}

var applyMemoryPool = sync.Pool{New: func() any { return newApplyMemory() }}

func newApplyMemory() *applyMemory { return &applyMemory{seen: make(map[job.RecordID]bool)} }

// acquireApplyMemory returns memory for the items of so many writes.
func acquireApplyMemory(writes int) *applyMemory {
	r := applyMemoryPool.Get().(*applyMemory)
	r.resize(writes)
	return r
}

// resize makes room for so many items.
func (r *applyMemory) resize(writes int) {
	if writes > cap(r.items) {
		r.items, r.list, r.groups = make([]applyItem, writes), make([]*applyItem, writes), make([][]*applyItem, writes)
	}
	r.items, r.list, r.groups = r.items[:writes], r.list[:writes], r.groups[:writes]
}

// release clears the memory and returns it to the pool.
func (r *applyMemory) release() {
	clear(r.items)
	clear(r.list)
	clear(r.groups)
	clear(r.seen)
	r.textBuffer = r.textBuffer[:0]
	r.args.reset()
	applyMemoryPool.Put(r)
}

// argumentArenaPool has the memory of pipelines whose replies have been read.
var argumentArenaPool = sync.Pool{New: func() any { return new(argumentArena) }}

// argumentArena is the memory of the arguments of one pipeline. It saves a slice for each
// command, which the benchmarks of bench/internal/storecycle count.
type argumentArena struct{ free []any }

// allocate returns an empty slice with room for n arguments, which no other slice overlaps.
func (r *argumentArena) allocate(n int) []any {
	if cap(r.free)-len(r.free) < n {
		r.free = make([]any, 0, max(n, 2*cap(r.free)))
	}
	start := len(r.free)
	r.free = r.free[:start+n]
	return r.free[start:start:len(r.free)]
}

// reset drops all arguments. No command may use them any more.
func (r *argumentArena) reset() {
	clear(r.free)
	r.free = r.free[:0]
}

// release resets the arena and returns it to the pool.
func (r *argumentArena) release() {
	r.reset()
	argumentArenaPool.Put(r)
}
