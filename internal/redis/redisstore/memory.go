package redisstore

import (
	"sync"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// applyMemory is the memory of one call of Apply, for reuse by the next one. It saves the items, their
// states, guards and arguments: about 800 bytes a record (BenchmarkApplyItems).
type applyMemory struct {
	items      []applyItem
	list       []*applyItem
	groups     [][]*applyItem
	textBuffer []byte
	seen       map[job.RecordID]bool
	args       runner.ArgumentArena
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
	r.args.Reset()
	applyMemoryPool.Put(r)
}
