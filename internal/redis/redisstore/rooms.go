package redisstore

import (
	"sync"

	"github.com/fermata-io/fermata/internal/core/job"
)

// applyRoom is the memory of one settlement, for the next one to use again: with states,
// guards and arguments it is a few hundred bytes for each record, of which nothing is
// needed once the answers are read.
type applyRoom struct {
	items  []applyItem
	list   []*applyItem
	groups [][]*applyItem
	texts  []byte
	seen   map[job.RecordID]bool
	args   argRoom
}

var applyRooms = sync.Pool{New: func() any { return &applyRoom{seen: make(map[job.RecordID]bool)} }}

// roomFor returns room for the items of so many writes.
func roomFor(writes int) *applyRoom {
	r := applyRooms.Get().(*applyRoom)
	if writes > cap(r.items) {
		r.items, r.list, r.groups = make([]applyItem, writes), make([]*applyItem, writes), make([][]*applyItem, writes)
	}
	r.items, r.list, r.groups = r.items[:writes], r.list[:writes], r.groups[:writes]
	return r
}

// done gives the room back, without what it knew.
func (r *applyRoom) done() {
	clear(r.items)
	clear(r.list)
	clear(r.groups)
	clear(r.seen)
	r.texts = r.texts[:0]
	r.args.reset()
	applyRooms.Put(r)
}

// argRooms have the arguments of pipelines that have been answered.
var argRooms = sync.Pool{New: func() any { return new(argRoom) }}

// argRoom is the memory of the arguments of one pipeline.
type argRoom struct{ free []any }

// take returns room for n more arguments, which those taken before do not share.
func (r *argRoom) take(n int) []any {
	if cap(r.free)-len(r.free) < n {
		r.free = make([]any, 0, max(n, 2*cap(r.free)))
	}
	start := len(r.free)
	r.free = r.free[:start+n]
	return r.free[start:start:len(r.free)]
}

// reset lets go of all arguments, when no command needs them any more.
func (r *argRoom) reset() {
	clear(r.free)
	r.free = r.free[:0]
}

// done is reset, and gives the room back.
func (r *argRoom) done() {
	r.reset()
	argRooms.Put(r)
}
