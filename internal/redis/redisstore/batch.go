package redisstore

import (
	"strconv"
	"sync"
)

// batchSlots are the places where a shard remembers this process's last lease
// batches. Each call in flight needs one of its own, and a repeated batch needs
// the one it had, so that the script recognises it.
type batchSlots struct {
	mu    sync.Mutex
	slots []batchSlot
}

// batchSlot holds the batch of the call in flight, or of the last call if that
// failed: it may be repeated.
type batchSlot struct {
	busy  bool
	batch string
}

// manySlots is how many failed batches are remembered before the oldest place is
// used again.
const manySlots = 8

// take returns the number of a place for the batch.
func (b *batchSlots) take(batch string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	free, idle := -1, -1
	for i, s := range b.slots {
		switch {
		case s.busy:
		case s.batch == batch:
			b.slots[i].busy = true
			return i
		case s.batch == "" && free < 0:
			free = i
		case idle < 0:
			idle = i
		}
	}
	if free < 0 && len(b.slots) >= manySlots {
		free = idle
	}
	if free < 0 {
		b.slots = append(b.slots, batchSlot{})
		free = len(b.slots) - 1
	}
	b.slots[free] = batchSlot{busy: true, batch: batch}
	return free
}

// give returns a place. A batch that was answered needs no memory.
func (b *batchSlots) give(slot int, answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slots[slot].busy = false
	if answered {
		b.slots[slot].batch = ""
	}
}

func (s *Store) batchField(slot int) string { return "b:" + s.caller + ":" + strconv.Itoa(slot) }
