package gateway

import (
	"sync"
	"time"
)

// Whoever comes back from the issuer makes the gateway send it a code, which may be invented. An address may have so
// many codes refused; those that are accepted, and those that the issuer failed to judge, do not count.
const (
	failedExchangesPerSecond = 1
	failedExchangeBurst      = 20
	// maxFailingAddresses bounds the addresses that are remembered, each of some 200 bytes.
	maxFailingAddresses = 4096
)

// failedExchanges counts the codes that the issuer refused, for each remote address. A code counts from when it is
// sent, so that many that are sent at once do not pass together.
type failedExchanges struct {
	mu        sync.Mutex
	byAddress map[string]*exchangeBudget
}

// exchangeBudget is how many codes of an address may be sent at an instant.
type exchangeBudget struct {
	left float64
	at   time.Time
}

func newFailedExchanges() *failedExchanges {
	return &failedExchanges{byAddress: map[string]*exchangeBudget{}}
}

// reserve counts a code of an address, or returns false if the issuer may not be asked for it now.
func (f *failedExchanges) reserve(address string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.byAddress[address]
	if b == nil {
		f.makeRoomLocked(now)
		b = &exchangeBudget{left: failedExchangeBurst, at: now}
		f.byAddress[address] = b
	}
	b.refill(now)
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// giveBack no longer counts a code that was not refused.
func (f *failedExchanges) giveBack(address string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.byAddress[address]
	if b == nil {
		return // it was forgotten meanwhile
	}
	b.left++
	b.refill(now)
	if b.isFull() {
		delete(f.byAddress, address)
	}
}

// makeRoomLocked forgets addresses whose failures no longer count, or any one if there are none.
func (f *failedExchanges) makeRoomLocked(now time.Time) {
	if len(f.byAddress) < maxFailingAddresses {
		return
	}
	for address, b := range f.byAddress {
		b.refill(now)
		if b.isFull() {
			delete(f.byAddress, address)
		}
	}
	for address := range f.byAddress {
		if len(f.byAddress) < maxFailingAddresses {
			return
		}
		delete(f.byAddress, address)
	}
}

func (b *exchangeBudget) refill(now time.Time) {
	passed := max(0, now.Sub(b.at))
	b.left = min(failedExchangeBurst, b.left+failedExchangesPerSecond*passed.Seconds())
	b.at = b.at.Add(passed)
}

func (b *exchangeBudget) isFull() bool { return b.left >= failedExchangeBurst }
