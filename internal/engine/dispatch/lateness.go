package dispatch

import (
	"errors"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

const (
	// lateGrace is how long a result has to come after the lateness objective of its run is
	// broken: the decision on it counts that as well.
	lateGrace = time.Second
	// lateRetry is the pause until a run is judged again that the ledger could not judge.
	lateRetry = 5 * time.Second
)

// watchObjective schedules the judgement of the run's lateness objective, for a run that starts late or not at
// all; nowMS is the shard's clock. Runs that wait in the store are judged by the scheduler.
func (a *attempt) watchObjective(now time.Time, nowMS unixtime.Milli) {
	if at := a.known.Definition.BreachAtMS(&a.known.State); at != 0 {
		a.lateAt = now.Add(max(0, at.Sub(nowMS)) + lateGrace)
	}
}

// submitJudgement submits the run of an attempt to be counted as late.
func (fx *pendingEffects) submitJudgement(a *attempt) {
	a.lateAt = time.Time{}
	fx.judgedAttempts = append(fx.judgedAttempts, a)
	fx.judgements = append(fx.judgements, job.Change{
		Record: a.record, Input: job.CheckLateness{Token: a.token, StartedMS: a.startedMS}, Known: a.known,
	})
}

// applyJudgements applies the ledger's answers. A run that it could not decide is submitted again; a result that
// comes meanwhile counts the run as well.
func (d *Dispatcher) applyJudgements(attempts []*attempt, answers []job.ChangeSummary) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range answers {
		if r.Err != nil && !errors.Is(r.Err, job.ErrNotFound) && !errors.Is(r.Err, job.ErrCorrupt) {
			a := attempts[r.Nth]
			a.lateAt = time.Now().Add(lateRetry)
			d.scheduleAttempt(a)
		}
	}
}
