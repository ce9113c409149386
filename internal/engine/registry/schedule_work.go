package registry

import (
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// callWork is after how many steps no more schedules of a call are looked at: a thousand
// schedules as people have them take a third of it, and the dearest one may take all of it.
const callWork = 500_000

// scheduleWork is what the schedules of one call have cost. It is safe for concurrent use.
type scheduleWork struct {
	used    atomic.Int64
	refused atomic.Pointer[refusedSchedule] // the last one
}

type refusedSchedule struct {
	spec       schedule.Spec
	anchor     time.Time
	violations []job.Violation
}

// forCall returns limits with the work that one call may make.
func forCall(l job.Limits) job.Limits {
	l.Work = new(scheduleWork)
	return l
}

// budgetOf is for searches of one schedule that take as much work as those of a call may.
func budgetOf(s schedule.Spec) *schedule.Budget { return schedule.NewBudgetOf(callWork / s.Weight()) }

func (w *scheduleWork) Spent() bool        { return w.used.Load() >= callWork }
func (w *scheduleWork) Charge(steps int64) { w.used.Add(steps) }

func (w *scheduleWork) Known(s schedule.Spec, anchor time.Time) []job.Violation {
	if r := w.refused.Load(); r != nil && r.anchor.Equal(anchor) && r.spec.Equal(s) {
		return r.violations
	}
	return nil
}

func (w *scheduleWork) Note(s schedule.Spec, anchor time.Time, v []job.Violation) {
	w.refused.Store(&refusedSchedule{s, anchor, v})
}
