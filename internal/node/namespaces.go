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

// maxCountedApart is how many namespaces are counted one by one for a caller who may not see all of them. More are
// counted with all others, at once.
const maxCountedApart = 64

// Namespaces adds up the lanes that the caller may see. Other lanes are not counted, so that they add nothing to the
// numbers. The lanes and rankings of all namespaces are listed once for all callers, and so are the counts of each.
func (v clusterView) Namespaces(ctx context.Context, scope job.QueueScope,
	whole func(namespace string) bool) ([]rpc.Namespace, error) {
	counts, err := v.countVisible(ctx, scope)
	if err != nil {
		return nil, err
	}
	sums := map[string]*rpc.Namespace{}
	for _, c := range counts {
		for q, n := range c.Queues {
			if scope == nil || scope(q) {
				addToNamespace(sums, q.Namespace, n)
			}
		}
	}
	list := make([]rpc.Namespace, 0, len(sums))
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		n := sums[name]
		if whole(name) {
			if err := v.addWhole(ctx, n); err != nil {
				return nil, err
			}
		}
		list = append(list, *n)
	}
	return list, nil
}

// countVisible counts the namespaces with queues that the caller may see; there may be others among them.
func (v clusterView) countVisible(ctx context.Context, scope job.QueueScope) ([]queuestats.Counts, error) {
	names := []string{""}
	if scope != nil {
		visible, err := v.overview.Namespaces(ctx, scope)
		if err != nil {
			return nil, err
		}
		if len(visible) <= maxCountedApart {
			names = visible
		}
	}
	counts := make([]queuestats.Counts, len(names))
	for i, name := range names {
		var err error
		if counts[i], err = v.overview.Counts(ctx, name); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// addToNamespace adds a queue to its namespace.
func addToNamespace(sums map[string]*rpc.Namespace, name string, q queuestats.QueueCount) {
	n := sums[name]
	if n == nil {
		n = &rpc.Namespace{Name: name}
		sums[name] = n
	}
	n.Queues++
	n.Jobs += q.Backlog + q.Scheduled + q.Leased + q.Paused + q.Done
	n.Running += q.Leased
	n.Paused += q.Paused
	n.Dead += q.Dead
}

// addWhole adds what is counted for whole namespaces only.
func (v clusterView) addWhole(ctx context.Context, n *rpc.Namespace) error {
	n.Whole = true
	n.JobsQuota, n.BytesQuota = quotaUse(v.quota, n.Name), quotaUse(v.byteQuota, n.Name)
	failing, _, err := v.overview.ListFailing(ctx, n.Name)
	for _, r := range failing {
		if r.Rank >= job.RankOfFailures(1) {
			n.Failing++
		}
	}
	return err
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
