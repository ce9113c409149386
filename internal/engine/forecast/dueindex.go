package forecast

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	// duePagesPerCall bounds the pages that are read at once.
	duePagesPerCall = 32
	// dueShardsPerPart is how many shards are read before what was read is kept.
	dueShardsPerPart = 16
	// dueReach is how far ahead the due index is read: an index of some age still reaches to the horizon.
	dueReach = forecast.MaxHorizon + time.Hour
)

// refreshDue reads the due index of shards anew whose last read is not fresh, if the allowance suffices. Shards that
// are read completely before a failure, or before the wait ends, are kept; the next round begins with the others. So a
// round that takes longer than a query waits is finished by the queries that follow.
func (f *Forecaster) refreshDue(ctx context.Context) {
	select {
	case f.dueRound <- struct{}{}:
		defer func() { <-f.dueRound }()
	case <-ctx.Done():
		return
	}
	nowMS := unixtime.MilliOf(f.o.Now())
	shards, cost := f.beginDueRound(nowMS)
	defer f.endDueRound()
	if len(shards) == 0 || !f.due.suffices(cost, time.Now()) {
		return
	}
	indexes, cost, err := f.readDueIndex(ctx, shards, nowMS)
	if err != nil && ctx.Err() == nil {
		f.o.Logger.Warn("failed to read the due index for the forecast", "error", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.dueCost = cost
	}
	for shard, index := range indexes {
		if s := f.shards[shard]; s != nil {
			index.Trim()
			s.Due = index
		}
	}
}

// beginDueRound returns the shards whose due index is not fresh, those that were never read and the oldest first, and
// what the last round cost.
func (f *Forecaster) beginDueRound(nowMS unixtime.Milli) (shards []int, cost time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readingDue = true
	readAt := func(shard int) unixtime.Milli {
		if due := f.shards[shard].Due; due != nil {
			return due.ReadMS
		}
		return 0
	}
	for shard := range f.shards {
		if readAt(shard) < nowMS.Add(-fresh) {
			shards = append(shards, shard)
		}
	}
	slices.SortFunc(shards, func(a, b int) int {
		return cmp.Or(cmp.Compare(readAt(a), readAt(b)), cmp.Compare(a, b))
	})
	return shards, f.dueCost
}

func (f *Forecaster) endDueRound() {
	f.mu.Lock()
	f.readingDue = false
	f.mu.Unlock()
}

// readDueIndex reads the due times of all lanes of shards, one shard after the other. It returns the shards that were
// read completely. It stops when the allowance is in debt by all that it saves up: the cost of the round was not
// foreseen.
func (f *Forecaster) readDueIndex(ctx context.Context, shards []int, nowMS unixtime.Milli) (map[int]*forecast.DueIndex,
	time.Duration, error) {
	began := time.Now()
	lanes, err := f.listLanes(ctx, shards, nowMS.Add(dueReach))
	if err != nil {
		return nil, 0, err
	}
	_, cost := f.pay(f.due, readDue, time.Since(began), 0)
	indexes := make(map[int]*forecast.DueIndex, len(shards))
	for part := range slices.Chunk(shards, dueShardsPerPart) {
		found, paid, inDebt, err := f.readDueShards(ctx, part, lanes, nowMS)
		cost += paid
		if err != nil {
			return indexes, cost, err
		}
		maps.Copy(indexes, found)
		if inDebt {
			break
		}
	}
	return indexes, cost, nil
}

// readDueShards reads the due times of some shards. inDebt: so much was spent that the round should end.
func (f *Forecaster) readDueShards(ctx context.Context, shards []int, lanes map[int][]job.DueRead,
	nowMS unixtime.Milli) (indexes map[int]*forecast.DueIndex, cost time.Duration, inDebt bool, err error) {
	indexes = make(map[int]*forecast.DueIndex, len(shards))
	var reads []job.DueRead
	for _, shard := range shards {
		indexes[shard] = f.table.NewDueIndex(nowMS)
		reads = append(reads, lanes[shard]...)
	}
	for len(reads) > 0 {
		n := min(len(reads), duePagesPerCall)
		began := time.Now()
		pages, err := f.o.Store.DuePages(ctx, reads[:n], nowMS.Add(dueReach))
		if err != nil {
			return nil, cost, false, err
		}
		read := time.Now()
		following := f.addPages(indexes, reads[:n], pages)
		wait, paid := f.pay(f.due, readDue, read.Sub(began), time.Since(read))
		cost, inDebt = cost+paid, time.Duration(float64(wait)*dueShare) >= savedTime
		reads = append(following, reads[n:]...)
	}
	return indexes, cost, inDebt, nil
}

// addPages adds pages to the indexes, and returns the reads that follow them.
func (f *Forecaster) addPages(indexes map[int]*forecast.DueIndex, reads []job.DueRead,
	pages []job.DuePage) (following []job.DueRead) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, page := range pages {
		lane := reads[i].Lane
		indexes[reads[i].Shard].Add(job.QueueKey{Namespace: lane.Namespace, Queue: lane.Queue}, page.DueMS)
		if page.More {
			following = append(following, page.Next)
		}
	}
	return following
}

// listLanes returns the first reads of the lanes in which something is due up to a time.
func (f *Forecaster) listLanes(ctx context.Context, shards []int,
	uptoMS unixtime.Milli) (map[int][]job.DueRead, error) {
	reads := make(map[int][]job.DueRead, len(shards))
	from := make(map[int]job.LaneCursor, len(shards))
	for _, shard := range shards {
		from[shard] = job.LaneCursor{}
	}
	listed := map[job.DueRead]bool{}
	for len(from) > 0 {
		pages, err := f.o.Store.LanePages(ctx, from)
		if err != nil {
			return nil, err
		}
		clear(from)
		for shard, page := range pages {
			for _, head := range page.Heads {
				read := job.DueRead{Shard: shard, Lane: head.Lane}
				if head.DueMS <= uptoMS && !listed[read] {
					listed[read] = true
					reads[shard] = append(reads[shard], read)
				}
			}
			if page.More && page.Next.DueMS <= uptoMS {
				from[shard] = page.Next
			}
		}
	}
	return reads, nil
}
