package admission

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Pauses of a queue that may start nothing now.
const (
	// minRatePause and restMost bound the pause until the next start of a rate.
	minRatePause = 50 * time.Millisecond
	maxRatePause = 5 * time.Second
	// roomPause is the pause for a queue at its concurrency limit. The end of a run at this node ends it at
	// once.
	roomPause = 100 * time.Millisecond
	// errorPause is the pause after Redis did not answer. It doubles with each such try, up to maxDoublings
	// times: the caller waits for the answer, and due runs of other queues may wait with it.
	errorPause   = 200 * time.Millisecond
	maxDoublings = 3
	// pausedPause is the pause for a paused queue. A resume ends it at once at nodes that have slots for the
	// queue; others receive it as an answer to permits.
	pausedPause = time.Second
)

// restingQueue is a queue that has nothing to grant until an instant, for a limit.
type restingQueue struct {
	until    time.Time
	limit    job.QueueLimit
	failures int // tries in a row that had no answer
}

// roomPromise is how much of a queue's room was granted to runs that have not reached their gate yet. It is
// dropped after promiseLife without a new grant.
type roomPromise struct {
	n     int
	since time.Time // of the last one
}

const promiseLife = time.Second

// promisedRoom is the room that was granted and is not taken yet. The caller holds mu.
func (a *Admission) promisedRoom(q job.QueueKey) int {
	p, known := a.mu.promises[q]
	if known && time.Since(p.since) > promiseLife {
		delete(a.mu.promises, q)
		return 0
	}
	return p.n
}

// promiseRoom grants room, if there is that much beside earlier grants; it returns how much there is.
func (a *Admission) promiseRoom(q job.QueueKey, n, free int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.promisedRoom(q)
	n = max(0, min(n, free-before))
	if n > 0 {
		a.mu.promises[q] = roomPromise{before + n, time.Now()}
	}
	return n
}

// settlePromise notes that runs have taken their promised room, or do not need it.
func (a *Admission) settlePromise(q job.QueueKey, limits job.QueueSettings, n int) {
	if limits.MaxConcurrency == 0 || n == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if left := a.promisedRoom(q) - n; left > 0 {
		a.mu.promises[q] = roomPromise{left, a.mu.promises[q].since}
	} else {
		delete(a.mu.promises, q)
	}
}

// Limited reports whether a queue is paused, or has limits to be asked for before a lease. Before the settings
// are known, all have.
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

// Paused reports whether a queue is paused, as far as this node knows.
func (a *Admission) Paused(q job.QueueKey) bool { return a.settingsOf(q).Paused }

// TakeStarts grants starts of queues. Granted starts of a rate are taken; granted starts of a concurrency limit are
// estimates: what counts is the unit that the run takes at its gate.
func (a *Admission) TakeStarts(ctx context.Context, asks []job.QueueRequest) []job.QueueGrant {
	grants := make([]job.QueueGrant, len(asks))
	now := time.Now()
	read := a.settings.Load()
	known := read != nil
	paused := func(q job.QueueKey) bool { return known && (*read)[q].Paused }
	a.mu.Lock()
	for i, ask := range asks {
		resting := a.mu.restingQueues[ask.Queue]
		rest := resting.until.Sub(now)
		switch {
		case !known:
			grants[i].Again = minRatePause
		case paused(ask.Queue):
			grants[i].Again = pausedPause
		case rest > 0:
			grants[i].Again, grants[i].Limit = rest, resting.limit
		default:
			grants[i].N = ask.N
		}
	}
	asked, rooms := slices.Clone(grants), a.mu.roomChanges
	a.mu.Unlock()
	a.takeAll(ctx, asks, grants)
	now = time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, ask := range asks {
		if asked[i].N == 0 {
			continue
		}
		a.restQueue(ask.Queue, &grants[i], now)
		if grants[i].Limit != job.NoLimit && a.mu.lastRoomChange[ask.Queue] > rooms {
			delete(a.mu.restingQueues, ask.Queue) // the answer may be older than the change
		}
	}
	return grants
}

// restQueue stores until when a queue with nothing to grant need not be asked for again. The caller holds mu.
func (a *Admission) restQueue(q job.QueueKey, g *job.QueueGrant, now time.Time) {
	failures := a.mu.restingQueues[q].failures
	delete(a.mu.restingQueues, q)
	if g.N > 0 {
		return
	}
	if g.Limit == job.NoLimit {
		g.Again = errorPause << min(failures, maxDoublings)
		failures++
	} else {
		failures = 0
	}
	a.mu.restingQueues[q] = restingQueue{now.Add(g.Again), g.Limit, failures}
}

// takeAll cuts grants to what limits allow, and takes as many starts of rates as there is room for. If no queue
// has both limits, neither kind waits for the answer about the other.
func (a *Admission) takeAll(ctx context.Context, asks []job.QueueRequest, grants []job.QueueGrant) {
	limits := make([]job.QueueSettings, len(asks)) // as they are now: they may change meanwhile
	both := false
	for i, ask := range asks {
		limits[i] = a.settingsOf(ask.Queue)
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

// takeRoom cuts grants to the free room of concurrency limits.
func (a *Admission) takeRoom(ctx context.Context, asks []job.QueueRequest, limits []job.QueueSettings,
	grants []job.QueueGrant) {
	var rooms []job.UnitRequest
	var places []int
	for i, ask := range asks {
		if n := limits[i].MaxConcurrency; n > 0 && grants[i].N > 0 {
			rooms = append(rooms, job.UnitRequest{Name: job.QueueLimitName(ask.Queue), Limit: n})
			places = append(places, i)
		}
	}
	if len(rooms) == 0 {
		return
	}
	free, err := a.o.Limits.FreeUnitsOf(ctx, rooms)
	if err != nil {
		a.logFailure("room of queues", err)
	} else {
		a.logRecovery()
	}
	for i, place := range places {
		g := &grants[place]
		n := a.promiseRoom(asks[place].Queue, g.N, free[i])
		switch {
		case err != nil && n == 0: // see restQueue
		case n < g.N:
			g.Again, g.Limit = roomPause, job.LimitConcurrency
		}
		g.N = n
	}
}

// takeRates takes starts of rates for the grants so far.
func (a *Admission) takeRates(ctx context.Context, asks []job.QueueRequest, limits []job.QueueSettings,
	grants []job.QueueGrant) {
	var rates []job.RateRequest
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
			a.logFailure("rates of queues", taken.Err)
			a.settlePromise(asks[places[i]].Queue, limits[places[i]], g.N)
			*g = job.QueueGrant{} // see restQueue
		case taken.N < g.N:
			a.logRecovery()
			a.settlePromise(asks[places[i]].Queue, limits[places[i]], g.N-taken.N)
			next := taken.AtMS.Sub(taken.NowMS)
			*g = job.QueueGrant{N: taken.N, Again: max(minRatePause, min(next, maxRatePause)), Limit: job.LimitRate}
		}
	}
}

// ReturnStarts returns starts that were granted and not used.
func (a *Admission) ReturnStarts(unused []job.QueueRequest) {
	for _, u := range unused {
		a.settlePromise(u.Queue, a.settingsOf(u.Queue), u.N)
	}
	a.deferCalls(deferredCalls{unused: unused})
}

// rateAsk asks for n starts of a queue's rate.
func rateAsk(q job.QueueKey, limits job.QueueSettings, n int) job.RateRequest {
	burst := limits.Burst
	if burst == 0 {
		burst = max(1, int(limits.Rate))
	}
	return job.RateRequest{Name: job.QueueRateName(q), N: n, Interval: intervalOf(limits.Rate), Burst: burst}
}
