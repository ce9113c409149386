package forecast

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Query returns the forecast of the held shards that were read. It waits for new reads if these cost little. Without
// NowMS it is for now.
func (f *Forecaster) Query(ctx context.Context, q forecast.Query) (forecast.Answer, error) {
	wait, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	f.refreshDefinitions(wait)
	f.refreshDue(wait)
	if err := ctx.Err(); err != nil {
		return forecast.Answer{}, err
	}
	held := f.o.Held()
	f.mu.Lock()
	defer f.mu.Unlock()
	var shards []*forecast.Shard
	answer := forecast.Answer{}
	for _, shard := range slices.Sorted(maps.Keys(f.shards)) {
		s := f.shards[shard]
		if s.Due != nil && slices.Contains(held, shard) {
			shards = append(shards, s)
			answer.Shards = append(answer.Shards,
				forecast.ShardRead{Shard: shard, DueMS: s.Due.ReadMS, DefinitionsMS: s.DefinitionsMS})
		}
	}
	if q.NowMS == 0 {
		q.NowMS = unixtime.MilliOf(f.o.Now())
	}
	answer.Load = f.table.Build(q, shards)
	return answer, nil
}

// refreshDefinitions asks for a round of definitions and waits for its end, unless the last one is fresh, or the
// allowance does not suffice for it.
func (f *Forecaster) refreshDefinitions(ctx context.Context) {
	now := time.Now()
	f.mu.Lock()
	if !f.roundAt.IsZero() && now.Sub(f.roundAt) < fresh || !f.definitions.suffices(f.roundOf, now) {
		f.mu.Unlock()
		return
	}
	done := make(chan struct{})
	f.waiters = append(f.waiters, done)
	f.mu.Unlock()
	select {
	case f.wanted <- struct{}{}:
	default:
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}
