package registry

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// maxCallWork is the number of steps after which a call evaluates no more schedules: a thousand common
// schedules take a third of it, and the most expensive one may take all of it.
const maxCallWork = 500_000

// scheduleWork counts the steps that the schedules of one call have taken. It is safe for concurrent use.
type scheduleWork struct {
	used    atomic.Int64
	refused atomic.Pointer[refusedSchedule] // the last one
}

// maxSlice is how long a part of a call keeps its turn for checks of schedules. Most checks take less: a part that took
// a turn for each of them would wait for one turn of others each time.
const maxSlice = 20 * time.Millisecond

// scheduleWorkInTurns is the work of a part of a call that checks expensive schedules in turns. It is for one goroutine.
// Call endTurn after the checks.
type scheduleWorkInTurns struct {
	*scheduleWork
	begin func() (end func(), err error) // takes a turn
	end   func()                         // of the turn that the part has; nil: it has none
	began time.Time
}

type refusedSchedule struct {
	spec       schedule.Spec
	anchor     time.Time
	violations []job.Violation
}

// limitsInTurns returns the limits for a part of a call that changes jobs of a namespace, with the work that the call may
// take. Call endTurn after the checks of schedules.
func (r *Registry) limitsInTurns(ctx context.Context, namespace string, work *scheduleWork,
	part *turnsOfPart) (l job.Limits, endTurn func()) {
	l = r.o.Limits
	w := &scheduleWorkInTurns{scheduleWork: work}
	w.begin = func() (func(), error) { return r.schedules.begin(ctx, namespace, part) }
	l.Work = w
	return l, w.endTurn
}

// limitsForSearch returns the limits for a call that only computes times: the API has it take a turn as a whole.
func (r *Registry) limitsForSearch() job.Limits {
	l := r.o.Limits
	l.Work = new(scheduleWork)
	return l
}

// scheduleBudget bounds the search of one schedule by the work of a call.
func scheduleBudget(s schedule.Spec) *schedule.Budget {
	return schedule.NewBudgetOf(maxCallWork / s.Weight())
}

func (w *scheduleWork) Exhausted() bool { return w.used.Load() >= maxCallWork }

// cheapExpressions is how many expressions without exclusions are cheap to check.
const cheapExpressions = 4

// Begin takes no turn.
func (w *scheduleWork) Begin(schedule.Spec) (end func(), err error) { return func() {}, nil }

// Begin takes a turn for a schedule with exclusions, or with many expressions, unless the part has one: others are cheap
// to check.
func (w *scheduleWorkInTurns) Begin(s schedule.Spec) (end func(), err error) {
	if w.end != nil && time.Since(w.began) >= maxSlice {
		w.endTurn()
	}
	isCheap := s.Exclude.Empty() && len(s.Cron) <= cheapExpressions
	if w.end == nil && !isCheap {
		w.end, err = w.begin()
		w.began = time.Now()
	}
	return func() {}, err
}

func (w *scheduleWorkInTurns) endTurn() {
	if w.end != nil {
		w.end()
		w.end = nil
	}
}

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
