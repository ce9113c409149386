// Package fairturn gives turns to holders, such as namespaces or identities, so that none keeps the others waiting for
// long.
//
// A free turn goes to the waiting holder that has the fewest turns, of these to the one that has used turns for the least
// time (start-time fair queueing, Goyal, Vin and Cheng, 1996), and of these to the one that has had none for the longest
// time. A holder with short turns therefore waits for few
// turns of others, no matter how many calls they make. A holder without calls gains nothing by it: when it comes back,
// it begins with what the one has used that had the last turn.
package fairturn

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// maxIdle bounds the holders that are remembered although they have no call.
const maxIdle = 4096

// Turns are a number of turns. They are safe for concurrent use.
type Turns struct {
	mu       sync.Mutex
	free     int
	ofHolder int
	waiting  int
	holders  map[string]*holder
	now      time.Duration // what the holder of the last turn had used before it: others begin there
	given    int           // turns that were given so far
}

// holder has turns, waits for some, or has used more than a new holder begins with.
type holder struct {
	held    int
	used    time.Duration
	last    int             // the number of its last turn, or of the one before it came
	waiting []chan struct{} // closed when the call has its turn
}

// New returns n free turns. A holder has at most ofHolder of them at once.
func New(n, ofHolder int) *Turns {
	return &Turns{free: n, ofHolder: ofHolder, holders: map[string]*holder{}}
}

// Take waits for a turn until the context ends. The holder returns it with Release. A turn that is free is taken even if
// the context has ended.
func (t *Turns) Take(ctx context.Context, name string) error {
	turn := t.takeOrQueue(name)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	if t.removeQueued(name, turn) {
		return ctx.Err()
	}
	return nil // it came just then
}

// TryTake takes a turn if one is free.
func (t *Turns) TryTake(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.take(name)
}

// Release returns a turn that the holder has used for some time.
func (t *Turns) Release(name string, used time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.holders[name]
	h.held--
	h.used += used
	t.free++
	for t.waiting > 0 && t.free > 0 && t.grantNext() {
	}
	t.forgetIdle(name)
}

// InUse is the number of turns and of calls that wait for one.
func (t *Turns) InUse() (turns, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.holders {
		turns += h.held
	}
	return turns, t.waiting
}

func (t *Turns) takeOrQueue(name string) (turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.take(name) {
		return nil
	}
	turn = make(chan struct{})
	h := t.holder(name)
	h.waiting = append(h.waiting, turn)
	t.waiting++
	return turn
}

// take takes a free turn. While one is free, those who wait have as many as they may have.
func (t *Turns) take(name string) bool {
	h := t.holder(name)
	if t.free == 0 || h.held >= t.ofHolder {
		t.forgetIdle(name)
		return false
	}
	t.give(h)
	return true
}

func (t *Turns) give(h *holder) {
	t.free--
	h.held++
	t.now = max(t.now, h.used)
	t.given++
	h.last = t.given
}

// holder returns a holder, which may be new.
func (t *Turns) holder(name string) *holder {
	h := t.holders[name]
	if h == nil {
		h = &holder{last: t.given}
		t.holders[name] = h
	}
	if h.isIdle() {
		h.used = max(h.used, t.now)
	}
	return h
}

func (h *holder) isIdle() bool { return h.held == 0 && len(h.waiting) == 0 }

// isBefore reports whether a holder gets a turn before another one.
func (h *holder) isBefore(o *holder) bool {
	return cmp.Or(cmp.Compare(h.held, o.held), cmp.Compare(h.used, o.used), cmp.Compare(h.last, o.last)) < 0
}

// grantNext gives a free turn to the next holder. False: none that waits may have one more.
func (t *Turns) grantNext() bool {
	var next *holder
	for name, h := range t.holders {
		switch {
		case len(h.waiting) == 0:
			t.forgetIdle(name)
		case h.held >= t.ofHolder:
		case next == nil || h.isBefore(next):
			next = h
		}
	}
	if next == nil {
		return false
	}
	t.give(next)
	t.waiting--
	close(next.waiting[0])
	next.waiting = slices.Delete(next.waiting, 0, 1)
	return true
}

// forgetIdle forgets a holder that would begin with as much if it was new. If there are too many, it forgets all those
// without a call.
func (t *Turns) forgetIdle(name string) {
	h := t.holders[name]
	if h != nil && h.isIdle() && h.used <= t.now {
		delete(t.holders, name)
	}
	if len(t.holders) > maxIdle+t.waiting {
		maps.DeleteFunc(t.holders, func(_ string, h *holder) bool { return h.isIdle() })
	}
}

// removeQueued removes a waiting call; false if it has its turn.
func (t *Turns) removeQueued(name string, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.holders[name]
	i := slices.Index(h.waiting, turn)
	if i < 0 {
		return false
	}
	h.waiting = slices.Delete(h.waiting, i, i+1)
	t.waiting--
	t.forgetIdle(name)
	return true
}
