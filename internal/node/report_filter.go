package node

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// reportFilter decides whether the reports of other nodes about Redis count, by which this node may give up its shards.
// Reports come by gossip, where others may publish some in the names of nodes. Which nodes hold shards is in Redis: if no
// other node takes the shards after this one has given them up, the reports were wrong. Then none count for a while, so
// that this node returns.
type reportFilter struct {
	withdrawn atomic.Bool // this node has given up its shards

	// Only the monitor uses these.
	untakenSince    time.Time // since when this node has withdrawn and no other one holds a shard; zero: that is not so
	distrustedUntil time.Time
	distrust        time.Duration // the last time for which reports did not count
	holdersReadAt   time.Time
}

const (
	// takeOverTime is how long shards that were given up may have no holder.
	takeOverTime = 5 * time.Second
	minDistrust  = time.Minute
	maxDistrust  = 16 * time.Minute
)

// accepts reports whether reports count now. othersHold: other nodes hold shards.
func (f *reportFilter) accepts(othersHold bool, now time.Time) bool {
	if now.Before(f.distrustedUntil) {
		return false
	}
	if othersHold || !f.withdrawn.Load() {
		f.untakenSince = time.Time{}
		return true
	}
	if f.untakenSince.IsZero() {
		f.untakenSince = now
	}
	if now.Sub(f.untakenSince) < takeOverTime {
		return true
	}
	if now.Sub(f.distrustedUntil) > 4*f.distrust {
		f.distrust = 0
	}
	f.distrust = min(max(2*f.distrust, minDistrust), maxDistrust)
	f.distrustedUntil, f.untakenSince = now.Add(f.distrust), time.Time{}
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
