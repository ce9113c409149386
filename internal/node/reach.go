package node

import (
	"context"
	"time"
)

// reach decides whether this node stands aside: a node that cannot reach Redis
// keeps no lock alive, and as long as gossip shows it among the living, the others
// would leave its shards to it.
type reach struct {
	patience time.Duration // without an answer until it stands aside
	answered time.Time     // last
	since    time.Time     // the first of an unbroken row of answers, or zero
	aside    bool
}

// asked takes over whether Redis has answered, and tells whether to stand aside.
// It comes back after having been answered for as long as it had patience, so that
// a link that comes and goes does not move shards about.
func (r *reach) asked(ok bool, now time.Time) (aside bool) {
	switch {
	case !ok:
		r.since = time.Time{}
		r.aside = r.aside || now.Sub(r.answered) >= r.patience
	case r.since.IsZero():
		r.since, r.answered = now, now
	default:
		r.answered = now
		r.aside = r.aside && now.Sub(r.since) < r.patience
	}
	return r.aside
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
	told := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !told && len(n.gossip.View().Members) < 2 {
			r.answered = time.Now() // counts from when there are others
			continue
		}
		ask, cancel := context.WithTimeout(ctx, every)
		err := n.lockConns.Ping(ask).Err()
		cancel()
		aside := r.asked(err == nil, time.Now())
		if ctx.Err() != nil {
			continue
		}
		// Its workers serve as soon as Redis answers again; only shards have to wait
		// until it has done so for a while.
		if dark := aside && err != nil; n.dark.Swap(dark) != dark {
			n.demandChanged()
		}
		if aside == told {
			continue
		}
		told = aside
		if aside {
			n.cfg.Logger.Warn("node stands aside: redis does not answer it", "error", err)
		} else {
			n.cfg.Logger.Info("node stands with the others again: redis answers")
		}
		if err := n.gossip.SetAside(aside, every); err != nil {
			n.cfg.Logger.Warn("the other nodes may not know yet", "error", err)
		}
	}
}
