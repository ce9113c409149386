package admission

import (
	"context"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
)

// paceSlack is how early a start may be: holding a run back for less costs more than it saves.
const paceSlack = 20 * time.Millisecond

// applyPace gives each run that is part of a recovery its turn in the queue's budget.
func (a *Admission) applyPace(ctx context.Context, g *gateGroup) {
	n := 0
	for _, it := range g.items {
		if it.gates&job.GatePace != 0 {
			n++
		}
	}
	if n == 0 {
		return
	}
	rate := g.limits.RecoveryRate
	if rate <= 0 {
		rate = job.DefaultRecoveryRate
	}
	interval := intervalOf(rate)
	turns := a.o.Limits.TakeRate(ctx, []job.RateRequest{{
		Name: job.RecoveryName(g.queue), N: n, Interval: interval, Burst: 1, Reserve: true,
	}})[0]
	turn := int64(0)
	g.keepPassed(func(it *gatedRun) bool {
		if it.gates&job.GatePace == 0 {
			return true
		}
		if turns.Err != nil {
			a.removeFailed(g, it, "recovery budget", turns.Err)
			return false
		}
		a.logRecovery()
		wait := turns.AtMS.Sub(turns.NowMS) + time.Duration(turn)*interval
		turn++
		it.paced = true
		if wait <= paceSlack {
			return true
		}
		a.holdBack(g, it, job.HoldBack{
			Reason: job.HeldPace, Key: g.queue.Queue, Paced: true, UntilMS: it.latest.After(job.RoundUpMS(wait)),
		})
		return false
	})
}

// intervalOf is the time between two starts at a rate a second.
func intervalOf(rate float64) time.Duration {
	return max(time.Microsecond, time.Duration(float64(time.Second)/rate))
}
