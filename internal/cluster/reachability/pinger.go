package reachability

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// pinger pings the primaries of Redis. A round does not wait for those before it.
type pinger struct {
	client   redis.UniversalClient
	rounds   sync.WaitGroup
	answered chan struct{} // signals that an answer arrived

	mu         sync.Mutex
	lastErr    error                // of the latest failed ping
	answeredAt map[string]time.Time // time of the latest answer of each current primary; zero: none
}

func newPinger(client redis.UniversalClient) *pinger {
	return &pinger{client: client, answered: make(chan struct{}, 1), answeredAt: map[string]time.Time{}}
}

// startRound pings each primary, and waits for an answer no longer than within.
func (p *pinger) startRound(ctx context.Context, within time.Duration) {
	p.rounds.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		asked, err := p.listPrimaries(ctx)
		if err != nil {
			p.mu.Lock()
			p.lastErr = err
			p.mu.Unlock()
			return
		}
		p.mu.Lock()
		maps.DeleteFunc(p.answeredAt, func(name string, _ time.Time) bool { return asked[name] == nil })
		for name := range asked {
			if _, is := p.answeredAt[name]; !is {
				p.answeredAt[name] = time.Time{}
			}
		}
		p.mu.Unlock()
		var each sync.WaitGroup
		for name, c := range asked {
			each.Go(func() { p.recordAnswer(name, c.Ping(ctx).Err()) })
		}
		each.Wait()
	})
}

// listPrimaries returns the primaries of a Redis Cluster that this node knows; otherwise one server without a
// name.
func (p *pinger) listPrimaries(ctx context.Context) (map[string]redis.Cmdable, error) {
	cluster, ok := p.client.(*redis.ClusterClient)
	if !ok {
		return map[string]redis.Cmdable{"": p.client}, nil
	}
	var mu sync.Mutex
	all := map[string]redis.Cmdable{}
	err := cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		all[c.Options().Addr] = c
		return nil
	})
	return all, err
}

func (p *pinger) recordAnswer(name string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.lastErr = err
		return
	}
	if _, is := p.answeredAt[name]; !is {
		return // it is no longer a primary
	}
	p.answeredAt[name] = time.Now()
	select {
	case p.answered <- struct{}{}:
	default: // the receiver is already signalled
	}
}

func (p *pinger) answerTimes() map[string]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.answeredAt)
}

func (p *pinger) lastError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastErr
}
