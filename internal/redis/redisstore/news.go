package redisstore

import "github.com/fermata-io/fermata/internal/core/job"

// laneNews gathers what calls say of lanes.
type laneNews struct {
	heads  []job.LaneHead
	holder string
}

func (n *laneNews) add(lanes *laneKeys, pairs reply, holder string) {
	if holder != "" {
		n.holder = holder
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		lane, ok := lanes.lane(pairs.int(i))
		if !ok {
			continue
		}
		head := job.LaneHead{Lane: lane, DueMS: pairs.int(i + 1)}
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

// tellEarlier has the holder of the shard hear of lanes that a repair made due earlier.
func (s *Store) tellEarlier(shard int, n laneNews) {
	if s.onEarlier != nil && len(n.heads) > 0 {
		s.onEarlier(shard, n.heads, n.holder)
	}
}
