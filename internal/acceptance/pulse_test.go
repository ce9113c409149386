package acceptance

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fermata-io/fermata/internal/check"
)

// pulse tells the machine's troubles from the cluster's: it asks each Redis server
// for nothing in particular, again and again, and notes when that takes long. A
// disk or a processor that is taken away from the tests shows there too.
type pulse struct {
	mu     sync.Mutex
	stalls []check.Fault
}

const (
	beat = 25 * time.Millisecond
	// stalled is how long a beat may take on a busy machine; the scripts of the
	// cluster are bounded to a fraction of it.
	stalled = 400 * time.Millisecond
)

func startPulse(t testing.TB, clients ...*redis.Client) *pulse {
	p := &pulse{}
	ctx, cancel := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	for _, client := range clients {
		beating.Go(func() { p.follow(ctx, client) })
	}
	t.Cleanup(func() {
		cancel()
		beating.Wait()
	})
	return p
}

func (p *pulse) follow(ctx context.Context, client *redis.Client) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if client.Ping(ctx).Err() != nil {
			continue // the gap shows at the next success
		}
		if now := time.Now(); now.Sub(last) > stalled {
			p.mu.Lock()
			p.stalls = append(p.stalls, check.Fault{
				Name: "machine stalled", FromNS: last.UnixNano(), ToNS: now.UnixNano(), Harmless: now.Sub(last) < time.Second,
			})
			p.mu.Unlock()
		}
		last = time.Now()
	}
}

// seen are the stalls so far.
func (p *pulse) seen() []check.Fault {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.stalls)
}

// undisturbed leaves out what stalls of the machine delayed.
func (p *pulse) undisturbed(lags []check.Lag) []check.Lag {
	stalls := p.seen()
	return slices.DeleteFunc(slices.Clone(lags), func(l check.Lag) bool {
		return slices.ContainsFunc(stalls, func(f check.Fault) bool {
			return f.FromNS <= l.AtNS && l.AtNS-int64(l.Lag) <= f.ToNS+int64(time.Second)
		})
	})
}
