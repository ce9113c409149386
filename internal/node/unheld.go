package node

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/redis/shardlock"
)

// takeOverMargin is what is promised of a take-over beyond the life of a lock.
const takeOverMargin = 2 * time.Second

// unheld finds shards that this node should hold and nobody does. A node where that lasts is
// not ready: it does not do what the others leave to it, and who rolls out a new version should
// not go on. The node that holds the most shards stays ready whatever it misses, so that never all
// nodes are taken out of service at once: where Redis itself fails, other checks say so.
type unheld struct {
	self  string
	after time.Duration // how long a shard may be without a holder

	since map[int]time.Time // of shards that this node should hold
	why   atomic.Pointer[string]
}

func newUnheld(self string, lockTTL time.Duration) *unheld {
	return &unheld{self: self, after: lockTTL + takeOverMargin, since: map[int]time.Time{}}
}

// look takes over who should hold each shard, and who does by what is in Redis.
func (u *unheld) look(owners []string, holders []shardlock.Holder, now time.Time) {
	held, late := map[string]int{}, 0
	for _, h := range holders {
		if h.Node != "" {
			held[h.Node]++
		}
		if h.Node != "" || h.Shard >= len(owners) || owners[h.Shard] != u.self {
			delete(u.since, h.Shard)
			continue
		}
		if u.since[h.Shard].IsZero() {
			u.since[h.Shard] = now
		}
		if now.Sub(u.since[h.Shard]) >= u.after {
			late++
		}
	}
	own, most := held[u.self], 0
	for _, n := range held {
		most = max(most, n)
	}
	if late == 0 || own >= most {
		u.why.Store(nil)
		return
	}
	text := fmt.Sprintf("shards: %d that this node should hold have had no holder for more than %v", late, u.after)
	u.why.Store(&text)
}
