package redisstore

import (
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// earlierLanes collects the lanes that calls made due earlier.
type earlierLanes struct {
	heads  []job.LaneHead
	holder string
}

func (n *earlierLanes) addPairs(lanes *laneKeys, pairs runner.Reply, holder string) {
	if holder != "" {
		n.holder = holder
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		lane, ok := lanes.laneAt(pairs.IntAt(i))
		if !ok {
			continue
		}
		head := job.LaneHead{Lane: lane, DueMS: unixtime.Milli(pairs.IntAt(i + 1))}
		known := false
		for k := range n.heads {
			if n.heads[k].Lane == lane {
				n.heads[k], known = head, true
			}
		}
		if !known {
			n.heads = append(n.heads, head)
		}
	}
}

// reportEarlierLanes notifies the holder of the shard of lanes that the store's own writes made due earlier: repairs,
// the deletion of ended records, and creations that failed after they had stored something. Other calls return such
// lanes to their caller, which notifies the holder.
func (s *Store) reportEarlierLanes(shard int, n earlierLanes) {
	if s.onEarlier != nil && len(n.heads) > 0 {
		s.onEarlier(shard, n.heads, n.holder)
	}
}
