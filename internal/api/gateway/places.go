package gateway

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/lib/fairshare"
)

// placeWait is how long a request waits for a place, or for memory for its body, before it is refused.
const placeWait = 2 * time.Second

const (
	// waitersPerPlace is how many requests may wait for each place, in total and for each remote address. A request
	// that waits holds some kilobytes.
	waitersPerPlace = 16
	// addressFactor gives a remote address a quarter of all while it is alone, see [fairshare.MayTake].
	addressFactor = 3
)

// places bounds what is under way at once. A remote address may take another place while it has less than a third of
// what is left, so that few addresses leave some to others. Who finds no place waits: a place that becomes free is for
// the address that has the fewest.
type places struct {
	most int

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
	return &places{most: most, byAddress: map[string]int{}, waitingByAddress: map[string]int{}}
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
	if !p.mayTakeLocked(address) {
		return nil, false
	}
	p.countLocked(address)
	return sync.OnceFunc(func() { p.release(address) }), true
}

// join adds a request to those that wait, and gives it a place if one is free; false: too many wait.
func (p *places) join(w *placeWaiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mayTakeLocked(w.address) {
		p.grantLocked(w)
		return true
	}
	free := waitersPerPlace*p.most - len(p.waiting)
	if !fairshare.MayTake(p.waitingByAddress[w.address], free, addressFactor) {
		return false
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
	for p.grantNextLocked() {
	}
}

// mayTakeLocked reports whether an address may take another place.
func (p *places) mayTakeLocked(address string) bool {
	return fairshare.MayTake(p.byAddress[address], p.most-p.taken, addressFactor)
}

// grantNextLocked gives a place to a request whose address has the fewest, and of these to the one that has waited for
// the longest; false: none may have one.
func (p *places) grantNextLocked() bool {
	next := -1
	for i, w := range p.waiting {
		if next < 0 || p.byAddress[w.address] < p.byAddress[p.waiting[next].address] {
			next = i
		}
	}
	if next < 0 || !p.mayTakeLocked(p.waiting[next].address) {
		return false
	}
	w := p.waiting[next]
	p.waiting = slices.Delete(p.waiting, next, next+1)
	p.endWaitLocked(w)
	p.grantLocked(w)
	return true
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
