package redisstore

import (
	"strconv"
	"sync"
	"time"
)

// batchSlots are the fields in which a shard remembers this process's last lease batches. Each call in
// flight needs its own slot. A repeated batch needs the slot that it had, so that the script
// recognises it.
type batchSlots struct {
	mu    sync.Mutex
	slots []batchSlot
}

// batchSlot has the batch of the call in flight, or of a failed call, which may be repeated.
type batchSlot struct {
	busy  bool
	batch string
	// lateUntil is until when a copy of a call with an unknown outcome may still arrive. Such a copy leases nothing
	// while the slot has its batch. In a slot that has been reused it would lease records that nobody receives.
	lateUntil time.Time
}

// maxRememberedBatches is how many failed batches are remembered before a slot is reused.
const maxRememberedBatches = 8

// acquire returns the number of a slot for the batch.
func (b *batchSlots) acquire(batch string, now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	free, idle := -1, -1
	for i, s := range b.slots {
		switch {
		case s.busy:
		case s.batch == batch:
			b.slots[i].busy = true
			return i
		case s.batch == "" && !now.Before(s.lateUntil):
			if free < 0 {
				free = i
			}
		case idle < 0 || s.lateUntil.Before(b.slots[idle].lateUntil):
			idle = i
		}
	}
	if free < 0 && len(b.slots) >= maxRememberedBatches {
		free = idle
	}
	if free < 0 {
		b.slots = append(b.slots, batchSlot{})
		free = len(b.slots) - 1
	}
	b.slots[free] = batchSlot{busy: true, batch: batch}
	return free
}

// release frees a slot. A batch that was answered is forgotten, but not before lateUntil; zero: no copy of its call
// is under way.
func (b *batchSlots) release(slot int, answered bool, lateUntil time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.slots[slot]
	s.busy = false
	if lateUntil.After(s.lateUntil) {
		s.lateUntil = lateUntil
	}
	if answered {
		s.batch = ""
	}
}

func (s *Store) batchField(slot int) string { return "b:" + s.caller + ":" + strconv.Itoa(slot) }
