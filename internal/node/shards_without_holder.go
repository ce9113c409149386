package node

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// takeOverMargin is the documented bound of a take-over beyond the lock TTL.
const takeOverMargin = 2 * time.Second

// unheldShards finds shards that this node should hold and no node does. While that lasts, the node is not
// ready: it does not take the shards that the others leave to it, and a rollout should not continue. The node
// that holds the most shards stays ready, so that never all nodes are removed from service at once. If Redis
// itself fails, other checks report it.
type unheldShards struct {
	self      string
	graceTime time.Duration // how long a shard may have no holder

	ownedSince map[int]time.Time // of shards that this node should hold
	reason     atomic.Pointer[string]
}

func newUnheldShards(self string, lockTTL time.Duration) *unheldShards {
	return &unheldShards{self: self, graceTime: lockTTL + takeOverMargin, ownedSince: map[int]time.Time{}}
}

// updateHolders updates the owner and the holder of each shard, as read from Redis.
func (u *unheldShards) updateHolders(owners []string, holders []shardlock.Holder, now time.Time) {
	held, late := map[string]int{}, 0
	for _, h := range holders {
		if h.Node != "" {
			held[h.Node]++
		}
		if h.Node != "" || h.Shard >= len(owners) || owners[h.Shard] != u.self {
			delete(u.ownedSince, h.Shard)
			continue
		}
		if u.ownedSince[h.Shard].IsZero() {
			u.ownedSince[h.Shard] = now
		}
		if now.Sub(u.ownedSince[h.Shard]) >= u.graceTime {
			late++
		}
	}
	own, most := held[u.self], 0
	for _, n := range held {
		most = max(most, n)
	}
	if late == 0 || own >= most {
		u.reason.Store(nil)
		return
	}
	text := fmt.Sprintf("shards: %d that this node should hold have had no holder for more than %v", late, u.graceTime)
	u.reason.Store(&text)
}
