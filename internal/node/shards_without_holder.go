package node

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// takeOverMargin is the documented bound of a take-over beyond the lock TTL.
const takeOverMargin = 2 * time.Second

// unheldShards finds shards that no node holds. While that lasts for shards that this node should hold, the node is
// not ready: it does not take the shards that the others leave to it, and a rollout should not continue. The node
// that holds the most shards stays ready, so that never all nodes are removed from service at once. If Redis
// itself fails, other checks report it.
//
// Shards that another live node should hold are abandoned after one more lock TTL: this node tries to take them.
type unheldShards struct {
	self      string
	graceTime time.Duration // how long a shard may have no holder
	lockTTL   time.Duration

	unheld map[int]unheldShard
	reason atomic.Pointer[string]
}

// unheldShard is a shard that has an owner and no holder.
type unheldShard struct {
	owner string
	since time.Time
}

func newUnheldShards(self string, lockTTL time.Duration) *unheldShards {
	return &unheldShards{self: self, graceTime: lockTTL + takeOverMargin, lockTTL: lockTTL, unheld: map[int]unheldShard{}}
}

// updateHolders updates the owner and the holder of each shard, as read from Redis. It returns the owners of
// abandoned shards.
func (u *unheldShards) updateHolders(owners []string, holders []shardlock.Holder,
	now time.Time) (abandoned map[int]string) {
	held, late := map[string]int{}, 0
	abandoned = map[int]string{}
	for _, h := range holders {
		if h.Node != "" {
			held[h.Node]++
		}
		if h.Node != "" || h.Unknown || h.Shard >= len(owners) || owners[h.Shard] == "" {
			delete(u.unheld, h.Shard)
			continue
		}
		shard := u.unheld[h.Shard]
		if owner := owners[h.Shard]; shard.owner != owner {
			shard = unheldShard{owner: owner, since: now}
			u.unheld[h.Shard] = shard
		}
		switch took := now.Sub(shard.since); {
		case shard.owner == u.self && took >= u.graceTime:
			late++
		case shard.owner != u.self && took >= u.graceTime+u.lockTTL:
			abandoned[h.Shard] = shard.owner
		}
	}
	u.setReason(late, held)
	if late > 0 {
		return nil // this node cannot hold its own shards
	}
	return abandoned
}

// setReason states why the node is not ready: late shards that it should hold have no holder.
func (u *unheldShards) setReason(late int, held map[string]int) {
	most := 0
	for _, n := range held {
		most = max(most, n)
	}
	if late == 0 || held[u.self] >= most {
		u.reason.Store(nil)
		return
	}
	text := fmt.Sprintf("shards: %d that this node should hold have had no holder for more than %v", late, u.graceTime)
	u.reason.Store(&text)
}
