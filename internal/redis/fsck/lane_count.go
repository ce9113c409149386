package fsck

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
)

// checkLaneCount reports a shard with more lanes than one read lists, and the namespace that has most of them.
func (a *check) checkLaneCount() {
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
