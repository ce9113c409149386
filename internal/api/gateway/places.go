package gateway

import (
	"context"
	"slices"
	"sync"
	"time"
)

// placeWait is how long a request waits for a place, or for memory for its body, before it is refused.
const placeWait = 2 * time.Second

// waitersPerPlace is how many requests may wait for each place, in total and for each remote address. A request that
// waits holds some kilobytes.
const waitersPerPlace = 16

// places bounds what is under way at once, in total and for each remote address. Who finds no place waits its turn.
// Those of an address that has all its places keep nobody else waiting.
type places struct {
	most, mostOfAddress int

	mu               sync.Mutex
	taken            int
	byAddress        map[string]int
	waiting          []*placeWaiter // in the order of their arrival
	waitingByAddress map[string]int
}

type placeWaiter struct {
	address string
	granted chan struct{}
}

func newPlaces(most int) *places {
	return &places{most: most, mostOfAddress: max(1, most/4), byAddress: map[string]int{},
		waitingByAddress: map[string]int{}}
}

// take takes a place; false: there was none in time, or too many wait. Then release must not be called.
func (p *places) take(ctx context.Context, address string) (release func(), ok bool) {
	w := &placeWaiter{address: address, granted: make(chan struct{})}
	release = sync.OnceFunc(func() { p.release(address) })
	if !p.join(w) {
		return release, false
	}
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

// tryTake takes a place without a wait; false: there is none.
func (p *places) tryTake(address string) (release func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.most || p.byAddress[address] >= p.mostOfAddress {
		return nil, false
	}
	p.countLocked(address)
	return sync.OnceFunc(func() { p.release(address) }), true
}

// join adds a request to those that wait, and gives it a place if one is free; false: too many wait.
func (p *places) join(w *placeWaiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) >= waitersPerPlace*p.most || p.waitingByAddress[w.address] >= waitersPerPlace*p.mostOfAddress {
		return false
	}
	if p.taken < p.most && p.byAddress[w.address] < p.mostOfAddress {
		p.grantLocked(w)
		return true
	}
	p.waiting = append(p.waiting, w)
	p.waitingByAddress[w.address]++
	return true
}

// leave ends a wait; false: it has a place.
func (p *places) leave(w *placeWaiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.endWaitLocked(w)
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
	p.grantNextLocked()
}

// grantNextLocked gives the place that is free now to the request that has waited longest and whose address may have
// it. Only one place is free: new requests take free places themselves.
func (p *places) grantNextLocked() {
	for i, w := range p.waiting {
		if p.byAddress[w.address] < p.mostOfAddress {
			p.waiting = slices.Delete(p.waiting, i, i+1)
			p.endWaitLocked(w)
			p.grantLocked(w)
			return
		}
	}
}

func (p *places) grantLocked(w *placeWaiter) {
	p.countLocked(w.address)
	close(w.granted)
}

func (p *places) countLocked(address string) {
	p.taken++
	p.byAddress[address]++
}

func (p *places) endWaitLocked(w *placeWaiter) {
	p.waitingByAddress[w.address]--
	if p.waitingByAddress[w.address] == 0 {
		delete(p.waitingByAddress, w.address)
	}
}

// inUse is how many places are taken.
func (p *places) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}
