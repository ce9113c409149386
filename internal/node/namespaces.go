package node

import (
	"context"
	"maps"
	"slices"

	"github.com/fermata-io/fermata/internal/api/rpc"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/engine/queuestats"
	"github.com/fermata-io/fermata/internal/engine/quota"
)

// Namespaces adds up the lanes that the caller may see. Other lanes are not read, so that they add nothing to the
// numbers.
func (v clusterView) Namespaces(ctx context.Context, scope job.QueueScope,
	whole func(namespace string) bool) ([]rpc.Namespace, error) {
	stats, err := queuestats.CountLanes(ctx, v.clientStore, v.allShards(), func(l job.Lane) bool {
		return scope == nil || scope(job.QueueKey{Namespace: l.Namespace, Queue: l.Queue})
	})
	if err != nil {
		return nil, err
	}
	sums, queues := map[string]*rpc.Namespace{}, map[job.QueueKey]bool{}
	for _, lanes := range stats {
		for _, l := range lanes {
			addToNamespace(sums, l)
			queues[job.QueueKey{Namespace: l.Lane.Namespace, Queue: l.Lane.Queue}] = true
		}
	}
	for q := range queues {
		sums[q.Namespace].Queues++
	}
	if err := v.addWhole(ctx, sums, whole); err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(sums))
	list := make([]rpc.Namespace, len(names))
	for i, name := range names {
		list[i] = *sums[name]
	}
	return list, nil
}

func addToNamespace(sums map[string]*rpc.Namespace, l queuestats.LaneStat) {
	name := l.Lane.Namespace
	n := sums[name]
	if n == nil {
		n = &rpc.Namespace{Name: name}
		sums[name] = n
	}
	n.Jobs += l.Backlog + l.Scheduled + l.Leased + l.Paused + l.Done
	n.Running += l.Leased
	n.Paused += l.Paused
	n.Dead += l.Dead
}

// addWhole adds what is counted for whole namespaces only.
func (v clusterView) addWhole(ctx context.Context, sums map[string]*rpc.Namespace,
	whole func(namespace string) bool) error {
	some := false
	for name, n := range sums {
		n.Whole = whole(name)
		some = some || n.Whole
		if n.Whole {
			n.JobsQuota, n.BytesQuota = quotaUse(v.quota, name), quotaUse(v.byteQuota, name)
		}
	}
	if !some {
		return nil
	}
	failing, _, err := v.clientStore.ReadRanking(ctx, job.RankingFailing)
	if err != nil {
		return err
	}
	for _, e := range failing {
		if n := sums[e.Record.Key().Namespace]; n != nil && n.Whole && e.Score >= job.RankOfFailures(1) {
			n.Failing++
		}
	}
	return nil
}

// quotaUse returns how much of a quota a namespace uses, nil if it has none.
func quotaUse(q *quota.Quota, namespace string) *rpc.QuotaUse {
	limit := q.Limit(namespace)
	if limit == 0 {
		return nil
	}
	used, counted := q.Used(namespace)
	return &rpc.QuotaUse{Used: int64(used), Counted: counted, Limit: int64(limit)}
}
