package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/test/historycheck"
)

const (
	beat = 25 * time.Millisecond
	// stalled is how long a beat may take on a busy machine.
	stalled = 400 * time.Millisecond
	// costly is a stall in which leases and results may be lost, beside time.
	costly = time.Second
)

// stallWatch distinguishes stalls of the machine from faults of the cluster: it records when this nearly idle process
// did not run in time.
type stallWatch struct {
	mu     sync.Mutex
	stalls []historycheck.Fault
}

func (p *stallWatch) follow(ctx context.Context) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for last := time.Now(); ; last = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		p.note(last, time.Now())
	}
}

func (p *stallWatch) note(last, now time.Time) {
	gap := now.Sub(last)
	if gap <= stalled {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalls = append(p.stalls, historycheck.Fault{
		Name: "machine stalled", FromNS: last.UnixNano(), ToNS: now.UnixNano(), Harmless: gap < costly,
	})
}

func (p *stallWatch) seen() []historycheck.Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.stalls)
}

// since is how long the machine stood still after an instant, in all.
func (p *stallWatch) since(fromNS int64) (sum time.Duration) {
	for _, s := range p.seen() {
		if s.ToNS > fromNS {
			sum += time.Duration(s.ToNS - s.FromNS)
		}
	}
	return sum
}
