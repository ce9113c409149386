package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// CountLanes counts the lanes of a shard that hold any record.
func (s *Store) CountLanes(ctx context.Context, shard int) (int64, error) {
	key := s.shards[shard].Lanes
	o := runner.NewCommand("zcard", key, "zcard", key)
	err := s.runner.Run(ctx, o)
	return o.Reply.IntAt(0), err
}

// checkLaneCount reports a shard with more lanes than one read lists, and the namespace that has most of them.
func (a *consistencyCheck) checkLaneCount() {
	if len(a.lanes) <= job.LanesPerRead {
		return
	}
	byNamespace := make(map[string]int)
	for l := range a.lanes {
		byNamespace[l.Namespace]++
	}
	most := slices.MaxFunc(slices.Sorted(maps.Keys(byNamespace)), func(x, y string) int {
		return cmp.Compare(byNamespace[x], byNamespace[y])
	})
	a.addFinding(job.Finding{Fault: job.FaultOversized, Detail: fmt.Sprintf(
		"shard %d has %d lanes (queues with their priorities), more than the %d that one read lists; %d are of namespace %s",
		a.shard, len(a.lanes), job.LanesPerRead, byNamespace[most], most)})
}
