package node

import (
	"context"
	"sync"
	"time"
)

// reach decides whether this node stands aside: a node that cannot reach Redis
// keeps no lock alive, and as long as gossip shows it among the living, the others
// would leave its shards to it. One whose Redis is slow must not: while all are slow,
// a shard would be nobody's. So an answer counts whenever it comes.
type reach struct {
	patience time.Duration // without an answer until it stands aside
	answered time.Time     // last
	since    time.Time     // the first of a row of answers without a gap
	aside    bool
}

// gap is a silence that ends a row of answers: longer than a question that was lost.
func (r *reach) gap() time.Duration { return r.patience * 3 / 4 }

// heard takes over that Redis has answered.
func (r *reach) heard(now time.Time) {
	if now.Sub(r.answered) >= r.gap() || r.since.IsZero() {
		r.since = now
	}
	r.answered = now
}

// look tells whether to stand aside, and whether Redis is out of reach just now. A node
// comes back after having been answered for as long as it had patience, so that a link
// that comes and goes does not move shards about.
func (r *reach) look(now time.Time) (aside, dark bool) {
	silent := now.Sub(r.answered)
	switch {
	case silent >= r.patience:
		r.aside, r.since = true, time.Time{}
	case silent < r.gap() && !r.since.IsZero() && r.answered.Sub(r.since) >= r.patience:
		r.aside = false
	}
	return r.aside, r.aside && silent >= r.gap()
}

// reachLoop asks Redis for nothing, several times in the life of a lock, while there
// are others who could take over.
func (n *Node) reachLoop(ctx context.Context) {
	every := n.cfg.LockTTL / 6
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	// By two thirds of a lock's life a refresh has failed, and there is time left
	// for the others to hear of it before the locks expire.
	r := reach{patience: n.cfg.LockTTL * 2 / 3, answered: time.Now()}
	p := pings{answers: make(chan struct{}, 1), node: n}
	defer p.asking.Wait()
	told := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.answers:
			r.heard(time.Now())
		case <-ticker.C:
			if !told && len(n.gossip.View().Members) < 2 {
				r.heard(time.Now()) // counts from when there are others
				continue
			}
			p.ask(ctx, r.patience)
		}
		aside, dark := r.look(time.Now())
		// Its workers serve as soon as Redis answers again; only shards have to wait
		// until it has done so for a while.
		if n.dark.Swap(dark) != dark {
			n.demandChanged()
		}
		if aside != told && ctx.Err() == nil {
			told = aside
			n.standAside(aside, every, p.failed())
		}
	}
}

// standAside tells the others.
func (n *Node) standAside(aside bool, within time.Duration, why error) {
	if aside {
		n.cfg.Logger.Warn("node stands aside: redis does not answer it", "error", why)
	} else {
		n.cfg.Logger.Info("node stands with the others again: redis answers")
	}
	if err := n.gossip.SetAside(aside, within); err != nil {
		n.cfg.Logger.Warn("the other nodes may not know yet", "error", err)
	}
}

// pings are questions on their way: one is not held up by those before it.
type pings struct {
	node    *Node
	asking  sync.WaitGroup
	answers chan struct{}

	mu   sync.Mutex
	last error // of the latest that has failed
}

// ask sends one, whose answer is waited for no longer than this.
func (p *pings) ask(ctx context.Context, within time.Duration) {
	p.asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		if err := p.node.lockConns.Ping(ctx).Err(); err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.last = err
			return
		}
		select {
		case p.answers <- struct{}{}:
		default: // another answer is about to be read
		}
	})
}

func (p *pings) failed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}
