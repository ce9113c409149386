package dispatch

import (
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/job"
)

const (
	// lateGrace is how long a result has to come after the lateness objective of its run is
	// broken: the decision on it counts that as well.
	lateGrace = time.Second
	// lateRetry is the pause until a run is judged again that the ledger could not judge.
	lateRetry = 5 * time.Second
)

// watch has the lateness objective of the attempt's run judged, if it starts too late or not
// at all, nowMS by the shard's clock being now. Those that wait in the store are not this
// node's to judge.
func (a *attempt) watch(now time.Time, nowMS int64) {
	if at := a.rec.Definition.BreaksAt(&a.rec.State); at != 0 {
		a.lateAt = now.Add(time.Duration(max(0, at-nowMS))*time.Millisecond + lateGrace)
	}
}

// judge has the run of an attempt counted as late.
func (fx *effects) judge(a *attempt) {
	a.lateAt = time.Time{}
	fx.judged = append(fx.judged, a)
	fx.judgements = append(fx.judgements, job.Change{
		Record: a.record, Event: job.FindLate{Token: a.token, StartedMS: a.startedMS}, Known: a.rec,
	})
}

// judged takes the ledger's answers. Where it could not decide it is asked again; a result
// that comes meanwhile counts the run as well.
func (d *Dispatcher) judged(attempts []*attempt, answers []job.Answered) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range answers {
		if r.Err != nil && !errors.Is(r.Err, job.ErrNotFound) && !errors.Is(r.Err, job.ErrCorrupt) {
			a := attempts[r.Nth]
			a.lateAt = time.Now().Add(lateRetry)
			d.schedule(a)
		}
	}
}
