package queuestats

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

const (
	// lanesPerCount is how many lanes one call of the store counts.
	lanesPerCount = 1000
	// maxRefreshedLanes bounds the lanes of a namespace whose due times one call reads again.
	maxRefreshedLanes = 5000
	// maxIdleNamespaces is how many namespaces are kept before those without an answer are dropped.
	maxIdleNamespaces = 64
)

// OverviewStore reads what an [Overview] shows.
type OverviewStore interface {
	Store
	Shards() int
	// FindLanes looks up lanes by name, and returns the first due times of those that hold any record.
	FindLanes(ctx context.Context, lanes map[int][]job.Lane) (map[int][]job.LaneHead, error)
	// ListRanked lists the n worst jobs of some shards by their indexes, ListOverdue the n records that have waited
	// longest, and ListOverdueOf those of some lanes.
	ListRanked(ctx context.Context, shards []int, which job.Ranking, n int) ([]job.Ranked, error)
	ListOverdue(ctx context.Context, shards []int, n int) ([]job.Ranked, error)
	ListOverdueOf(ctx context.Context, lanes []job.ShardLane, n int) ([]job.Ranked, error)
}

// rankedJobs are the entries of the index of a ranking by namespace, the worst first.
type rankedJobs struct {
	byNamespace map[string][]job.Ranked
	isFull      bool // the index of a shard is full, so that jobs may be missing
}

// Overview answers what clients ask about the queues of the whole keyspace. The lanes and rankings of all namespaces
// are in common indexes. All callers of a node share the reads of these indexes, so that a call costs what its own
// namespace holds, whatever the others hold. Answers are at most [MaxAge] old.
type Overview struct {
	store OverviewStore
	life  context.Context
	stop  context.CancelFunc

	lanes    sharedLook[laneTable]
	rankings [job.RankingCount]sharedLook[rankedJobs]

	mu     sync.Mutex
	counts map[string]*sharedLook[Counts] // by namespace; "": of all
}

// NewOverview returns an overview that has read nothing yet.
func NewOverview(store OverviewStore) *Overview {
	o := &Overview{store: store, counts: make(map[string]*sharedLook[Counts])}
	o.life, o.stop = context.WithCancel(context.Background())
	return o
}

// Stop ends the reads that are in progress.
func (o *Overview) Stop() { o.stop() }

// Counts are the records of some lanes by queue and by shard.
type Counts struct {
	Queues map[job.QueueKey]QueueCount
	Shards map[int]ShardCount
}

// QueueCount counts the records of a queue.
type QueueCount struct {
	Backlog, Leased, Scheduled, Paused, Dead, Done int64
	OldestOverdue, OldestDead                      time.Duration
}

// ShardCount counts the records of a shard.
type ShardCount struct {
	Jobs int64
	Lag  time.Duration // age of its oldest due record
}

// Counts returns the counts of a namespace, or of all namespaces if it is empty. The caller must not change them.
func (o *Overview) Counts(ctx context.Context, namespace string) (Counts, error) {
	index, err := o.laneIndex(ctx)
	if err != nil {
		return Counts{}, err
	}
	if namespace != "" && len(index[namespace]) == 0 {
		return Counts{}, nil
	}
	return o.countsOf(namespace).get(ctx, o.life, func(ctx context.Context) (Counts, error) {
		c := Counts{Queues: make(map[job.QueueKey]QueueCount), Shards: make(map[int]ShardCount)}
		if namespace != "" {
			return c, o.addLanes(ctx, &c, index[namespace])
		}
		for _, lanes := range index {
			if err := o.addLanes(ctx, &c, lanes); err != nil {
				return Counts{}, err
			}
		}
		return c, nil
	})
}

// countsOf returns the shared counts of a namespace.
func (o *Overview) countsOf(namespace string) *sharedLook[Counts] {
	o.mu.Lock()
	defer o.mu.Unlock()
	look := o.counts[namespace]
	if look == nil {
		if len(o.counts) >= maxIdleNamespaces {
			for name, l := range o.counts {
				if l.isIdle() {
					delete(o.counts, name)
				}
			}
		}
		look = new(sharedLook[Counts])
		o.counts[namespace] = look
	}
	return look
}

// addLanes counts lanes, a bounded number at a time.
func (o *Overview) addLanes(ctx context.Context, c *Counts, lanes []job.ShardLane) error {
	for part := range slices.Chunk(lanes, lanesPerCount) {
		counts, err := countLanes(ctx, o.store, lanesByShard(part))
		if err != nil {
			return err
		}
		for shard, list := range counts {
			for _, s := range list {
				c.addLane(shard, s)
			}
		}
	}
	return nil
}

func lanesByShard(list []job.ShardLane) map[int][]job.Lane {
	lanes := make(map[int][]job.Lane)
	for _, l := range list {
		lanes[l.Shard] = append(lanes[l.Shard], l.Lane)
	}
	return lanes
}

func (c *Counts) addLane(shard int, s LaneStat) {
	key := job.QueueKey{Namespace: s.Lane.Namespace, Queue: s.Lane.Queue}
	q, sh := c.Queues[key], c.Shards[shard]
	q.Backlog += s.Backlog
	q.Leased += s.Leased
	q.Scheduled += s.Scheduled
	q.Paused += s.Paused
	q.Dead += s.Dead
	q.Done += s.Done
	q.OldestOverdue = max(q.OldestOverdue, s.OldestOverdue)
	q.OldestDead = max(q.OldestDead, s.OldestDead)
	sh.Jobs += s.Backlog + s.Scheduled + s.Leased + s.Paused + s.Dead + s.Done
	sh.Lag = max(sh.Lag, s.OldestOverdue)
	c.Queues[key], c.Shards[shard] = q, sh
}

func allShards(n int) []int {
	shards := make([]int, n)
	for i := range shards {
		shards[i] = i
	}
	return shards
}

// ListRanked lists the n worst jobs of some shards by an index, or those of a namespace in all shards. Entries may be
// outdated.
func (o *Overview) ListRanked(ctx context.Context, shards []int, which job.Ranking, namespace string,
	n int) ([]job.Ranked, error) {
	if namespace == "" {
		return o.store.ListRanked(ctx, shards, which, n)
	}
	index, err := o.readRanking(ctx, which)
	if err != nil {
		return nil, err
	}
	list := index.byNamespace[namespace]
	return list[:min(n, len(list))], nil
}

// ListFailing lists all failing jobs of a namespace, or of all namespaces if it is empty, by their index. isFull: the
// index of a shard is full, so that jobs may be missing. The caller must not change the list.
func (o *Overview) ListFailing(ctx context.Context, namespace string) (list []job.Ranked, isFull bool, err error) {
	index, err := o.readRanking(ctx, job.RankingFailing)
	if err != nil || namespace != "" {
		return index.byNamespace[namespace], index.isFull, err
	}
	for _, ranked := range index.byNamespace {
		list = append(list, ranked...)
	}
	return list, index.isFull, nil
}

// readRanking returns the index of a ranking, read once for all callers.
func (o *Overview) readRanking(ctx context.Context, which job.Ranking) (rankedJobs, error) {
	return o.rankings[which].get(ctx, o.life, func(ctx context.Context) (rankedJobs, error) {
		index := rankedJobs{byNamespace: make(map[string][]job.Ranked)}
		for part := range slices.Chunk(allShards(o.store.Shards()), shardsPerListing) {
			list, err := o.store.ListRanked(ctx, part, which, len(part)*job.MaxRanked)
			if err != nil {
				return index, err
			}
			inShard := make(map[int]int, len(part))
			for _, r := range list {
				namespace := r.Record.Key().Namespace
				index.byNamespace[namespace] = append(index.byNamespace[namespace], r)
				inShard[r.Shard]++
				index.isFull = index.isFull || inShard[r.Shard] >= job.MaxRanked
			}
		}
		for _, list := range index.byNamespace {
			slices.SortFunc(list, job.Ranked.Compare)
		}
		return index, nil
	})
}

// ListOverdue lists the n records of some shards that have waited longest for a slot, or those of a namespace in all
// shards. Of a namespace with more than 5,000 lanes it reads the 5,000 that were due first when they were listed.
func (o *Overview) ListOverdue(ctx context.Context, shards []int, namespace string, n int) ([]job.Ranked, error) {
	if namespace == "" {
		return o.store.ListOverdue(ctx, shards, n)
	}
	index, err := o.laneIndex(ctx)
	if err != nil {
		return nil, err
	}
	lanes := index[namespace][:min(maxRefreshedLanes, len(index[namespace]))]
	if len(lanes) > n {
		lanes, err = o.refreshLanes(ctx, lanes)
		if err != nil {
			return nil, err
		}
	}
	return o.store.ListOverdueOf(ctx, lanes[:min(n, len(lanes))], n)
}
