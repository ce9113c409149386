package forecast

import (
	"context"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/forecast"
)

// ShardRead says when a shard was read, ms.
type ShardRead struct {
	Shard                int
	DueMS, DefinitionsMS int64
}

// Answer is the forecast of the shards that a node holds.
type Answer struct {
	*forecast.Load
	Shards []ShardRead
}

// Query returns the forecast of the held shards that were read. It waits for new reads if these cost little.
func (f *Forecaster) Query(ctx context.Context, q forecast.Query) (Answer, error) {
	wait, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	f.refreshDefinitions(wait)
	f.refreshDue(wait)
	if err := ctx.Err(); err != nil {
		return Answer{}, err
	}
	held := f.o.Held()
	f.mu.Lock()
	defer f.mu.Unlock()
	var shards []*forecast.Shard
	answer := Answer{}
	for shard, s := range f.shards {
		if s.Due != nil && slices.Contains(held, shard) {
			shards = append(shards, s)
			answer.Shards = append(answer.Shards, ShardRead{shard, s.Due.ReadMS, s.DefinitionsMS})
		}
	}
	slices.SortFunc(answer.Shards, func(a, b ShardRead) int { return a.Shard - b.Shard })
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
