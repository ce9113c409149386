package gateway

import (
	"context"
	"slices"
	"sync"
	"time"
)

// placeWait is how long a request waits for a place, or for memory for its body, before it is refused.
const placeWait = 2 * time.Second

// places bounds what is under way at once, in total and for each remote address. Who finds no place waits its turn.
// Those of an address that has all its places keep nobody else waiting.
type places struct {
	most, mostOfAddress int

	mu        sync.Mutex
	taken     int
	byAddress map[string]int
	waiting   []*placeWaiter // in the order of their arrival
}

type placeWaiter struct {
	address string
	granted chan struct{}
}

func newPlaces(most int) *places {
	return &places{most: most, mostOfAddress: max(1, most/4), byAddress: map[string]int{}}
}

// take takes a place; false: there was none in time. Then release must not be called.
func (p *places) take(ctx context.Context, address string) (release func(), ok bool) {
	w := &placeWaiter{address: address, granted: make(chan struct{})}
	release = sync.OnceFunc(func() { p.release(address) })
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	p.grantLocked()
	p.mu.Unlock()
	timer := time.NewTimer(placeWait)
	defer timer.Stop()
	select {
	case <-w.granted:
		return release, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return release, !p.leave(w)
}

// leave ends a wait; false: it has a place.
func (p *places) leave(w *placeWaiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	return i >= 0
}

func (p *places) release(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	p.byAddress[address]--
	if p.byAddress[address] == 0 {
		delete(p.byAddress, address)
	}
	p.grantLocked()
}

// grantLocked gives free places to those that have waited longest and whose address may have them.
func (p *places) grantLocked() {
	p.waiting = slices.DeleteFunc(p.waiting, func(w *placeWaiter) bool {
		if p.taken >= p.most || p.byAddress[w.address] >= p.mostOfAddress {
			return false
		}
		p.taken++
		p.byAddress[w.address]++
		close(w.granted)
		return true
	})
}

// inUse is how many places are taken.
func (p *places) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
