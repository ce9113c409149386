package forecast

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// readRound reads the definitions of the shards that need it: all, if a query asked or the last round is some time
// ago, otherwise those that were never read. When the allowance is spent it pauses, and queries wait no longer.
func (f *Forecaster) readRound(ctx context.Context, asked bool) error {
	began, cost := time.Now(), time.Duration(0)
	shards, whole := f.shardsToRead(f.o.Held(), asked || began.Sub(f.roundAt) >= roundPause)
	for _, shard := range shards {
		paid, err := f.readShard(ctx, shard)
		if err != nil {
			return err
		}
		cost += paid
	}
	if whole {
		f.mu.Lock()
		f.roundAt, f.roundOf = began, cost
		f.mu.Unlock()
	}
	return nil
}

// shardsToRead forgets shards that are not held any more, and returns those to read, the oldest first.
func (f *Forecaster) shardsToRead(held []int, all bool) (shards []int, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.shards, func(shard int, _ *forecast.Shard) bool { return !slices.Contains(held, shard) })
	readAt := func(shard int) unixtime.Milli {
		if s := f.shards[shard]; s != nil {
			return s.DefinitionsMS
		}
		return 0
	}
	for _, shard := range held {
		if all || f.shards[shard] == nil {
			shards = append(shards, shard)
		}
	}
	slices.SortStableFunc(shards, func(a, b int) int { return cmp.Compare(readAt(a), readAt(b)) })
	return shards, all
}

// readShard reads the definitions of a shard page by page, and replaces its last read when all are there.
func (f *Forecaster) readShard(ctx context.Context, shard int) (cost time.Duration, err error) {
	f.mu.Lock()
	next := f.table.NewShard(unixtime.MilliOf(f.o.Now()))
	f.mu.Unlock()
	for at, more := "", true; more; more = at != "" {
		f.paceDefinitions()
		began := time.Now()
		jobs, following, err := f.o.Store.WalkShard(ctx, shard, at)
		if err != nil {
			return cost, err
		}
		read := time.Now()
		f.mu.Lock()
		for _, j := range jobs {
			next.AddJob(j.Definition, &j.State)
		}
		f.mu.Unlock()
		wait, paid := f.pay(f.definitions, readDefinitions, read.Sub(began), time.Since(read))
		cost, at = cost+paid, following
		if wait > 0 {
			f.releaseWaiters()
			if err := sleep(ctx, wait); err != nil {
				return cost, err
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.shards[shard]; last != nil {
		next.Due = last.Due
	}
	f.shards[shard] = next
	f.unswept++
	if f.unswept >= sweepEvery && !f.readingDue {
		f.unswept = 0
		f.table.Sweep(slices.Collect(maps.Values(f.shards)))
	}
	return cost, nil
}

// sleep waits, or until the context ends.
func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
