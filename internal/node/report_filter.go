package node

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// reportFilter decides whether the reports of other nodes about Redis count, by which this node may give up its shards.
// Reports come by gossip, where others may publish some in the names of nodes. Which nodes hold shards is in Redis: while
// no other node does, none would do better than this one. If that is so after this node has given up its shards, the
// reports were wrong, and none count for a while.
type reportFilter struct {
	withdrawn atomic.Bool // this node has given up its shards

	// Only the monitor uses these.
	distrustedUntil time.Time
	distrust        time.Duration // the last time for which reports did not count
	holdersReadAt   time.Time
}

const (
	minDistrust = time.Minute
	maxDistrust = 16 * time.Minute
)

// accepts reports whether reports count now. othersHold: other nodes hold shards.
func (f *reportFilter) accepts(othersHold bool, now time.Time) bool {
	switch {
	case now.Before(f.distrustedUntil):
		return false
	case othersHold:
		return true
	case f.withdrawn.Load():
		if now.Sub(f.distrustedUntil) > 4*f.distrust {
			f.distrust = 0
		}
		f.distrust = min(max(2*f.distrust, minDistrust), maxDistrust)
		f.distrustedUntil = now.Add(f.distrust)
	}
	return false
}

// readHolders reads the holders of shards, and keeps those that are known: some primaries may not answer.
func (n *Node) readHolders(ctx context.Context) (all, known []shardlock.Holder) {
	all, _ = n.locks.Holders(ctx)
	known = slices.DeleteFunc(slices.Clone(all), func(h shardlock.Holder) bool { return h.Unknown })
	if len(known) > 0 {
		n.shardHolders.Store(&known)
	}
	return all, known
}

// rereadHolders reads the holders again after a second while this node has given up its shards: if nobody takes them, it
// has to return soon. Only the monitor calls it.
func (n *Node) rereadHolders() {
	if !n.reports.withdrawn.Load() || time.Since(n.reports.holdersReadAt) < time.Second {
		return
	}
	n.reports.holdersReadAt = time.Now()
	ctx, cancel := context.WithTimeout(n.ctx, time.Second)
	defer cancel()
	n.readHolders(ctx)
}

// othersHoldShards reports whether other nodes hold shards, by the locks that could be read last.
func (n *Node) othersHoldShards() bool {
	holders := n.shardHolders.Load()
	if holders == nil {
		return true
	}
	for _, h := range *holders {
		if h.Node != "" && h.Node != n.cfg.Name {
			return true
		}
	}
	return false
}
