package gateway

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Whoever comes back from the issuer makes the gateway send it a code, which may be invented. An address may have so
// many codes refused; those that are accepted do not count.
const (
	failedExchangesPerSecond = 1
	failedExchangeBurst      = 20
	// maxFailingAddresses bounds the addresses that are remembered, each of some 200 bytes.
	maxFailingAddresses = 4096
)

// failedExchanges counts the codes that the issuer refused, for each remote address.
type failedExchanges struct {
	mu        sync.Mutex
	byAddress map[string]*rate.Limiter
}

func newFailedExchanges() *failedExchanges {
	return &failedExchanges{byAddress: map[string]*rate.Limiter{}}
}

// mayExchange reports whether the issuer may be asked for an address.
func (f *failedExchanges) mayExchange(address string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.byAddress[address]
	return l == nil || l.TokensAt(now) >= 1
}

// count counts a refused code.
func (f *failedExchanges) count(address string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.byAddress[address]
	if l == nil {
		f.makeRoomLocked(now)
		l = rate.NewLimiter(failedExchangesPerSecond, failedExchangeBurst)
		f.byAddress[address] = l
	}
	l.AllowN(now, 1)
}

// makeRoomLocked forgets addresses whose failures no longer count, or any one if there are none.
func (f *failedExchanges) makeRoomLocked(now time.Time) {
	if len(f.byAddress) < maxFailingAddresses {
		return
	}
	for address, l := range f.byAddress {
		if l.TokensAt(now) >= failedExchangeBurst {
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
