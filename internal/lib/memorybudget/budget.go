// Package memorybudget shares an amount of memory among identities, so that a few of them leave something for all
// others.
package memorybudget

import (
	"context"
	"sync"
	"time"
)

// Budget is an amount of memory, in bytes, that identities share. It is safe for concurrent use.
//
// Of three quarters an identity may take more while it has less than what is left: one alone gets half of them, and the
// next half of the rest. So each of them that takes what it may halves what the next one may have: four leave it 3/128
// of the budget, six a 128th. The last quarter is for identities that have little, a 128th of the budget at most. It
// takes some forty identities to leave nothing to others. What an identity takes beyond its part (see TakeAnyway) is
// not taken from that quarter.
type Budget struct {
	most, little int

	mu         sync.Mutex
	used       int
	usedLittle int            // of used, by those that have little
	by         map[string]int // by identity
	freed      chan struct{}  // closed when something is given back; nil: nobody waits for it
}

// New makes a budget of so many bytes.
func New(most int) *Budget {
	return &Budget{most: most, little: most / 128, by: map[string]int{}}
}

// Largest is what an identity may have at most, while no other has anything.
func (b *Budget) Largest() int { return b.most / 8 * 3 }

// InUse is how much is taken.
func (b *Budget) InUse() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// TryTake takes memory; false: the identity may not have so much now.
func (b *Budget) TryTake(identity string, n int) bool {
	_, ok := b.tryTake(identity, n)
	return ok
}

// Take is TryTake that waits for memory of others to be given back, for some time at most.
func (b *Budget) Take(ctx context.Context, identity string, n int, patience time.Duration) bool {
	freed, ok := b.tryTake(identity, n)
	if ok || n > b.Largest() {
		return ok
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for !ok {
		select {
		case <-freed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
		freed, ok = b.tryTake(identity, n)
	}
	return true
}

func (b *Budget) tryTake(identity string, n int) (freed <-chan struct{}, ok bool) {
	if n <= 0 {
		return nil, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.allows(identity, n) {
		if b.freed == nil {
			b.freed = make(chan struct{})
		}
		return b.freed, false
	}
	b.add(identity, n)
	return nil, true
}

// Allows reports whether an identity may take so much now.
func (b *Budget) Allows(identity string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.allows(identity, n)
}

func (b *Budget) allows(identity string, n int) bool {
	own, used := b.by[identity]+n, b.used+n
	if own > b.little {
		return own <= b.most/4*3-used
	}
	return used <= b.most || b.usedLittle+n <= b.most/4
}

// add changes what an identity has.
func (b *Budget) add(identity string, n int) {
	own := b.by[identity]
	if own <= b.little {
		b.usedLittle -= own
	}
	own += n
	if own <= b.little {
		b.usedLittle += own
	}
	b.used += n
	if own <= 0 {
		delete(b.by, identity)
		return
	}
	b.by[identity] = own
}

// TakeAnyway takes memory that is in use already, also where the identity may not have it.
func (b *Budget) TakeAnyway(identity string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(identity, n)
}

// Give gives back memory that the identity has.
func (b *Budget) Give(identity string, n int) {
	if n <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(identity, -n)
	if b.freed != nil {
		close(b.freed)
		b.freed = nil
	}
}
