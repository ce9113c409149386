package admission

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

// Pauses of a queue that may start nothing now.
const (
	// restLeast and restMost bound the pause until the next start of a rate.
	restLeast = 50 * time.Millisecond
	restMost  = 5 * time.Second
	// restRoom is the pause for a queue at its concurrency limit. A run that ends
	// at this node ends it at once.
	restRoom = 100 * time.Millisecond
	// restError is the pause when Redis could not be asked. It doubles from one such try to
	// the next, up to mostDoublings times: who asks waits for the answer, and what is due of
	// other queues may wait with it.
	restError     = 200 * time.Millisecond
	mostDoublings = 3
	// restPaused is the pause for a queue that is paused. That it is resumed ends it at
	// once, at nodes that have slots for it; others have it as an answer to permits.
	restPaused = time.Second
)

// restingQueue is a queue that has nothing to grant until an instant, for a limit.
type restingQueue struct {
	until    time.Time
	limit    job.QueueLimit
	failures int // tries in a row that had no answer
}

// promise is how much of a queue's room was granted to runs that have not come to
// their gate yet. What is not heard of within promiseLife is not counted any more.
type promise struct {
	n     int
	since time.Time // of the last one
}

const promiseLife = time.Second

// promised is what was granted and is not taken yet. The caller holds mu.
func (a *Admission) promised(q job.QueueKey) int {
	p, known := a.mu.promises[q]
	if known && time.Since(p.since) > promiseLife {
		delete(a.mu.promises, q)
		return 0
	}
	return p.n
}

// promise notes room that was granted, if there is that much beside what was
// granted before; it returns how much there is.
func (a *Admission) promise(q job.QueueKey, n, free int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.promised(q)
	n = max(0, min(n, free-before))
	if n > 0 {
		a.mu.promises[q] = promise{before + n, time.Now()}
	}
	return n
}

// arrived notes that runs have taken the room that they were promised, or have no
// use for it.
func (a *Admission) arrived(q job.QueueKey, limits job.QueueSettings, n int) {
	if limits.MaxConcurrency == 0 || n == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if left := a.promised(q) - n; left > 0 {
		a.mu.promises[q] = promise{left, a.mu.promises[q].since}
	} else {
		delete(a.mu.promises, q)
	}
}

// Limited tells whether a queue is paused, or has limits to be asked for before a
// lease. Before the settings are known, all have.
func (a *Admission) Limited(namespace, queue string) bool {
	s := a.settings.Load()
	if s == nil {
		return true
	}
	if len(*s) == 0 {
		return false
	}
	q := (*s)[job.QueueKey{Namespace: namespace, Queue: queue}]
	return q.Rate > 0 || q.MaxConcurrency > 0 || q.Paused
}

// Paused tells whether a queue is paused, as far as this node knows.
func (a *Admission) Paused(q job.QueueKey) bool { return a.queue(q).Paused }

// Take grants starts of queues. What it grants of a rate is taken; what it grants of
// a concurrency limit is a guess, and the unit that the run takes at its gate is the
// truth.
func (a *Admission) Take(ctx context.Context, asks []job.QueueAsk) []job.QueueGrant {
	grants := make([]job.QueueGrant, len(asks))
	now := time.Now()
	read := a.settings.Load()
	known := read != nil
	paused := func(q job.QueueKey) bool { return known && (*read)[q].Paused }
	a.mu.Lock()
	for i, ask := range asks {
		resting := a.mu.rests[ask.Queue]
		rest := resting.until.Sub(now)
		switch {
		case !known:
			grants[i].Again = restLeast
		case paused(ask.Queue):
			grants[i].Again = restPaused
		case rest > 0:
			grants[i].Again, grants[i].Limit = rest, resting.limit
		default:
			grants[i].N = ask.N
		}
	}
	asked, rooms := slices.Clone(grants), a.mu.rooms
	a.mu.Unlock()
	a.takeAll(ctx, asks, grants)
	now = time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, ask := range asks {
		if asked[i].N == 0 {
			continue
		}
		a.rest(ask.Queue, &grants[i], now)
		if grants[i].Limit != job.NoLimit && a.mu.roomOf[ask.Queue] > rooms {
			delete(a.mu.rests, ask.Queue) // the answer may not know of the room
		}
	}
	return grants
}

// rest keeps until when a queue that was asked for and has nothing to grant need not be
// asked for again. The caller holds mu.
func (a *Admission) rest(q job.QueueKey, g *job.QueueGrant, now time.Time) {
	failures := a.mu.rests[q].failures
	delete(a.mu.rests, q)
	if g.N > 0 {
		return
	}
	if g.Limit == job.NoLimit {
		g.Again = restError << min(failures, mostDoublings)
		failures++
	} else {
		failures = 0
	}
	a.mu.rests[q] = restingQueue{now.Add(g.Again), g.Limit, failures}
}

// takeAll cuts grants to what limits allow. Starts of a rate are taken for as many as there is
// room for. If no queue has both limits, neither kind waits for the answer about the other.
func (a *Admission) takeAll(ctx context.Context, asks []job.QueueAsk, grants []job.QueueGrant) {
	limits := make([]job.QueueSettings, len(asks)) // as they are now: they may change meanwhile
	both := false
	for i, ask := range asks {
		limits[i] = a.queue(ask.Queue)
		both = both || limits[i].MaxConcurrency > 0 && limits[i].Rate > 0
	}
	if both {
		a.takeRoom(ctx, asks, limits, grants)
		a.takeRates(ctx, asks, limits, grants)
		return
	}
	var rates sync.WaitGroup
	rates.Go(func() { a.takeRates(ctx, asks, limits, grants) })
	a.takeRoom(ctx, asks, limits, grants)
	rates.Wait()
}

// takeRoom cuts grants to what is free under concurrency limits.
func (a *Admission) takeRoom(ctx context.Context, asks []job.QueueAsk, limits []job.QueueSettings, grants []job.QueueGrant) {
	var rooms []job.UnitAsk
	var places []int
	for i, ask := range asks {
		if n := limits[i].MaxConcurrency; n > 0 && grants[i].N > 0 {
			rooms = append(rooms, job.UnitAsk{Name: job.QueueLimitName(ask.Queue), Limit: n})
			places = append(places, i)
		}
	}
	if len(rooms) == 0 {
		return
	}
	free, err := a.o.Limits.Rooms(ctx, rooms)
	if err != nil {
		a.failed("room of queues", err)
	} else {
		a.worked()
	}
	for i, place := range places {
		g := &grants[place]
		n := a.promise(asks[place].Queue, g.N, free[i])
		switch {
		case err != nil && n == 0: // see rest
		case n < g.N:
			g.Again, g.Limit = restRoom, job.LimitRoom
		}
		g.N = n
	}
}

// takeRates takes starts of rates for what is granted so far.
func (a *Admission) takeRates(ctx context.Context, asks []job.QueueAsk, limits []job.QueueSettings, grants []job.QueueGrant) {
	var rates []job.RateAsk
	var places []int
	for i, ask := range asks {
		if limits[i].Rate > 0 && grants[i].N > 0 {
			rates = append(rates, rateAsk(ask.Queue, limits[i], grants[i].N))
			places = append(places, i)
		}
	}
	if len(rates) == 0 {
		return
	}
	for i, taken := range a.o.Limits.TakeRate(ctx, rates) {
		g := &grants[places[i]]
		switch {
		case taken.Err != nil:
			a.failed("rates of queues", taken.Err)
			a.arrived(asks[places[i]].Queue, limits[places[i]], g.N)
			*g = job.QueueGrant{} // see rest
		case taken.N < g.N:
			a.worked()
			a.arrived(asks[places[i]].Queue, limits[places[i]], g.N-taken.N)
			next := time.Duration(taken.AtMS-taken.NowMS) * time.Millisecond
			*g = job.QueueGrant{N: taken.N, Again: max(restLeast, min(next, restMost)), Limit: job.LimitRate}
		}
	}
}

// GiveBack returns starts that were granted and not used.
func (a *Admission) GiveBack(unused []job.QueueAsk) {
	for _, u := range unused {
		a.arrived(u.Queue, a.queue(u.Queue), u.N)
	}
	a.send(errands{unused: unused})
}

// rateAsk asks for n starts of a queue's rate.
func rateAsk(q job.QueueKey, limits job.QueueSettings, n int) job.RateAsk {
	burst := limits.Burst
	if burst == 0 {
		burst = max(1, int(limits.Rate))
	}
	return job.RateAsk{Name: job.QueueRateName(q), N: n, Interval: intervalOf(limits.Rate), Burst: burst}
}
