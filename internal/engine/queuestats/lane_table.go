package queuestats

import (
	"cmp"
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// maxListedAnew is how many lanes a keyspace may have for its lanes to be listed anew for callers who need those of
	// this instant.
	maxListedAnew = 5000
	// maxQueuesByName is how many queues of a namespace are looked up by name.
	maxQueuesByName = 4
	// priorities is how many lanes a queue may have in a shard.
	priorities = job.MaxPriority + 1
)

// laneTable has all lanes of the keyspace by namespace, those of each namespace in the order of their due times.
type laneTable struct {
	byNamespace map[string][]job.ShardLane
	count       int
}

func (t laneTable) isLarge() bool { return t.count > maxListedAnew }

// laneIndex returns all lanes of the keyspace by namespace, listed once for all callers.
func (o *Overview) laneIndex(ctx context.Context) (map[string][]job.ShardLane, error) {
	t, err := o.lanes.get(ctx, o.life, o.listLanes)
	return t.byNamespace, err
}

func (o *Overview) listLanes(ctx context.Context) (laneTable, error) {
	t := laneTable{byNamespace: make(map[string][]job.ShardLane)}
	err := listAllLanes(ctx, o.store, allShards(o.store.Shards()), func(shard int, h job.LaneHead) {
		t.byNamespace[h.Lane.Namespace] = append(t.byNamespace[h.Lane.Namespace], job.ShardLane{Shard: shard, LaneHead: h})
		t.count++
	})
	for _, lanes := range t.byNamespace {
		slices.SortFunc(lanes, compareByDue)
	}
	return t, err
}

func compareByDue(a, b job.ShardLane) int { return cmp.Compare(a.DueMS, b.DueMS) }

// FindLanes lists the selected lanes in the order of their due times. The caller may change the list.
//
// The lanes of a few named queues are looked up, and those of a keyspace with up to 5,000 lanes are listed for the
// call, or for several calls at once: isCurrent, the list is that of this instant. In a larger keyspace the names of
// lanes are those of the shared list, which is at most [MaxAge] old, and the due times of up to 5,000 selected lanes
// are read for the call. So a call costs what it selects, however many lanes other namespaces have.
func (o *Overview) FindLanes(ctx context.Context, q job.LaneQuery) (lanes []job.ShardLane, isCurrent bool, err error) {
	if q.Namespace != "" && len(q.Queues) > 0 && len(q.Queues) <= maxQueuesByName {
		lanes, err = o.refreshLanes(ctx, o.lanesByName(q))
		return lanes, true, err
	}
	t, isNew, err := o.lanes.getUpToDate(ctx, o.life, o.listLanes, laneTable.isLarge)
	if err != nil {
		return nil, false, err
	}
	lanes = t.selectLanes(q)
	if isNew || len(lanes) == 0 {
		return lanes, isNew, nil
	}
	first := lanes[:min(maxRefreshedLanes, len(lanes))]
	fresh, err := o.refreshLanes(ctx, first)
	if err != nil {
		return nil, false, err
	}
	lanes = append(fresh, lanes[len(first):]...)
	slices.SortFunc(lanes, compareByDue)
	return lanes, false, nil
}

// Namespaces returns the namespaces with a wanted queue, sorted, by the shared list of lanes.
func (o *Overview) Namespaces(ctx context.Context, wants func(job.QueueKey) bool) (names []string, err error) {
	index, err := o.laneIndex(ctx)
	for name, lanes := range index {
		isWanted := func(l job.ShardLane) bool {
			return wants(job.QueueKey{Namespace: name, Queue: l.Lane.Queue})
		}
		if slices.ContainsFunc(lanes, isWanted) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// lanesByName are all lanes that the selected queues may have.
func (o *Overview) lanesByName(q job.LaneQuery) (lanes []job.ShardLane) {
	for _, queue := range q.Queues {
		if q.Wants != nil && !q.Wants(job.QueueKey{Namespace: q.Namespace, Queue: queue}) {
			continue
		}
		for priority := range uint8(priorities) {
			l := job.Lane{Namespace: q.Namespace, Queue: queue, Priority: priority}
			for shard := range o.store.Shards() {
				lanes = append(lanes, job.ShardLane{Shard: shard, LaneHead: job.LaneHead{Lane: l}})
			}
		}
	}
	return lanes
}

// selectLanes returns the selected lanes in the order of their due times.
func (t laneTable) selectLanes(q job.LaneQuery) []job.ShardLane {
	if q.Namespace != "" {
		return appendSelected(nil, t.byNamespace[q.Namespace], q)
	}
	var lanes []job.ShardLane
	for _, list := range t.byNamespace {
		lanes = appendSelected(lanes, list, q)
	}
	slices.SortFunc(lanes, compareByDue)
	return lanes
}

// appendSelected appends the selected lanes of one namespace.
func appendSelected(selected, lanes []job.ShardLane, q job.LaneQuery) []job.ShardLane {
	wanted := make(map[string]bool)
	for _, l := range lanes {
		isWanted, known := wanted[l.Lane.Queue]
		if !known {
			isWanted = (len(q.Queues) == 0 || slices.Contains(q.Queues, l.Lane.Queue)) &&
				(q.Wants == nil || q.Wants(job.QueueKey{Namespace: l.Lane.Namespace, Queue: l.Lane.Queue}))
			wanted[l.Lane.Queue] = isWanted
		}
		if isWanted {
			selected = append(selected, l)
		}
	}
	return selected
}

// refreshLanes reads the due times of lanes again, and returns those that hold any record, in the order of their due
// times.
func (o *Overview) refreshLanes(ctx context.Context, lanes []job.ShardLane) ([]job.ShardLane, error) {
	found, err := o.store.FindLanes(ctx, lanesByShard(lanes))
	if err != nil {
		return nil, err
	}
	fresh := make([]job.ShardLane, 0, len(lanes))
	for shard, heads := range found {
		for _, h := range heads {
			fresh = append(fresh, job.ShardLane{Shard: shard, LaneHead: h})
		}
	}
	slices.SortFunc(fresh, compareByDue)
	return fresh, nil
}
