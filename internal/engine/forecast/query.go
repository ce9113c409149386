package forecast

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	// answerAge is how long an answer serves others who ask the same.
	answerAge = time.Second
	// maxAnswerTime bounds the work for one answer.
	maxAnswerTime = 30 * time.Second
)

// answerKey is what an answer depends on.
type answerKey struct {
	forecast.Query
	held string
}

// sharedAnswer is an answer for all who ask the same while it is made, and for a second after that. The work for it
// ends when all of them have gone.
type sharedAnswer struct {
	done    chan struct{}
	answer  forecast.Answer
	err     error
	callers int // that wait
	cancel  context.CancelFunc
}

// Query returns the forecast of the held shards that were read. It waits for new reads if these cost little. Without
// NowMS it is for now. Callers who ask the same share the answer, and must not change it.
func (f *Forecaster) Query(ctx context.Context, q forecast.Query) (forecast.Answer, error) {
	held := f.o.Held()
	key := answerKey{q, fmt.Sprint(held)}
	a := f.joinAnswer(ctx, key, held)
	select {
	case <-a.done:
	case <-ctx.Done():
		f.leaveAnswer(key, a)
		return forecast.Answer{}, ctx.Err()
	}
	f.leaveAnswer(key, a)
	return a.answer, a.err
}

// joinAnswer returns the answer that serves a query, and begins to make it if there is none.
func (f *Forecaster) joinAnswer(ctx context.Context, key answerKey, held []int) *sharedAnswer {
	f.answersMu.Lock()
	defer f.answersMu.Unlock()
	a := f.answers[key]
	if a == nil {
		work, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxAnswerTime)
		a = &sharedAnswer{done: make(chan struct{}), cancel: cancel}
		f.answers[key] = a
		go func() {
			defer cancel()
			a.answer, a.err = f.makeAnswer(work, key.Query, held)
			close(a.done)
			if a.err != nil || len(a.answer.Shards) < len(held) {
				f.forgetAnswer(key, a)
				return
			}
			time.AfterFunc(answerAge, func() { f.forgetAnswer(key, a) })
		}()
	}
	a.callers++
	return a
}

// leaveAnswer ends the wait of a caller. The work for an answer that nobody waits for ends.
func (f *Forecaster) leaveAnswer(key answerKey, a *sharedAnswer) {
	f.answersMu.Lock()
	defer f.answersMu.Unlock()
	a.callers--
	select {
	case <-a.done:
		return
	default:
	}
	if a.callers == 0 {
		a.cancel()
		f.dropAnswerLocked(key, a)
	}
}

func (f *Forecaster) forgetAnswer(key answerKey, a *sharedAnswer) {
	f.answersMu.Lock()
	defer f.answersMu.Unlock()
	f.dropAnswerLocked(key, a)
}

func (f *Forecaster) dropAnswerLocked(key answerKey, a *sharedAnswer) {
	if f.answers[key] == a {
		delete(f.answers, key)
	}
}

// makeAnswer computes one answer at a time.
func (f *Forecaster) makeAnswer(ctx context.Context, q forecast.Query, held []int) (forecast.Answer, error) {
	wait, cancel := context.WithTimeout(ctx, queryWait)
	defer cancel()
	f.refreshDefinitions(wait)
	f.refreshDue(wait)
	select {
	case f.building <- struct{}{}:
		defer func() { <-f.building }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return forecast.Answer{}, err
	}
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
	answer.Load = f.table.Build(q, shards, func() bool { return ctx.Err() != nil })
	return answer, ctx.Err()
}

// refreshDefinitions asks for a round of definitions and waits for its end, unless the last one is fresh, or the
// allowance does not suffice for it.
func (f *Forecaster) refreshDefinitions(ctx context.Context) {
	now := time.Now()
	f.mu.Lock()
	f.askedAt = now
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
