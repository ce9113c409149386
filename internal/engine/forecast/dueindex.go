package forecast

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	// duePagesPerCall bounds the pages that are read at once.
	duePagesPerCall = 32
	// dueReach is how far ahead the due index is read: an index of some age still reaches to the horizon.
	dueReach = forecast.MaxHorizon + time.Hour
)

// refreshDue reads the due index anew if it is not fresh and the allowance suffices. A failure leaves the last read.
func (f *Forecaster) refreshDue(ctx context.Context) {
	f.dueRound.Lock()
	defer f.dueRound.Unlock()
	nowMS := unixtime.MilliOf(f.o.Now())
	shards, cost := f.beginDueRound(nowMS)
	defer f.endDueRound()
	if len(shards) == 0 || !f.due.suffices(cost, time.Now()) {
		return
	}
	indexes, cost, err := f.readDueIndex(ctx, shards, nowMS)
	if err != nil {
		if ctx.Err() == nil {
			f.o.Logger.Warn("failed to read the due index for the forecast", "error", err)
		}
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dueCost = cost
	for shard, index := range indexes {
		if s := f.shards[shard]; s != nil {
			index.Trim()
			s.Due = index
		}
	}
}

// beginDueRound returns the shards to read, unless the due index of all of them is fresh, and what the last round cost.
func (f *Forecaster) beginDueRound(nowMS unixtime.Milli) (shards []int, cost time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readingDue = true
	stale := false
	for shard, s := range f.shards {
		shards = append(shards, shard)
		stale = stale || s.Due == nil || s.Due.ReadMS < nowMS.Add(-fresh)
	}
	if !stale {
		return nil, 0
	}
	return shards, f.dueCost
}

func (f *Forecaster) endDueRound() {
	f.mu.Lock()
	f.readingDue = false
	f.mu.Unlock()
}

// readDueIndex reads the due times of all lanes of shards. It stops when the allowance is in debt by all that it
// saves up: the
// cost of the round was not foreseen, and the next round will wait.
func (f *Forecaster) readDueIndex(ctx context.Context, shards []int, nowMS unixtime.Milli) (map[int]*forecast.DueIndex,
	time.Duration, error) {
	began := time.Now()
	reads, err := f.listLanes(ctx, shards, nowMS.Add(dueReach))
	if err != nil {
		return nil, 0, err
	}
	_, cost := f.pay(f.due, readDue, time.Since(began), 0)
	indexes := make(map[int]*forecast.DueIndex, len(shards))
	for _, shard := range shards {
		indexes[shard] = f.table.NewDueIndex(nowMS)
	}
	for len(reads) > 0 {
		n := min(len(reads), duePagesPerCall)
		began := time.Now()
		pages, err := f.o.Store.DuePages(ctx, reads[:n], nowMS.Add(dueReach))
		if err != nil {
			return nil, cost, err
		}
		read := time.Now()
		following := f.addPages(indexes, reads[:n], pages)
		_, paid := f.pay(f.due, readDue, read.Sub(began), time.Since(read))
		cost += paid
		reads = append(following, reads[n:]...)
	}
	return indexes, cost, nil
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
func (f *Forecaster) listLanes(ctx context.Context, shards []int, uptoMS unixtime.Milli) (reads []job.DueRead, err error) {
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
					reads = append(reads, read)
				}
			}
			if page.More && page.Next.DueMS <= uptoMS {
				from[shard] = page.Next
			}
		}
	}
	return reads, nil
}
