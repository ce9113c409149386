package job

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// compileSteps is how many steps it takes to compile an expression.
const compileSteps = 20

// ScheduleWork bounds the total cost of the schedules of one call. A step is about the check of one nominal time
// by one expression.
type ScheduleWork interface {
	// Exhausted reports whether the budget is used up: further schedules are refused unchecked.
	Exhausted() bool
	// Begin waits until the search of an expensive schedule may start, and returns a function to call at its end. It
	// fails if the call ends meanwhile, or waits too long.
	Begin(s schedule.Spec) (end func(), err error)
	Charge(steps int64)
	// Known returns the remembered result for an equal schedule, so that a call that repeats an invalid schedule
	// does not cost the same again.
	Known(s schedule.Spec, anchor time.Time) []Violation
	Note(s schedule.Spec, anchor time.Time, v []Violation)
}

// unboundedWork is used where the caller sets no bound.
type unbounded struct{}

func (unbounded) Exhausted() bool                            { return false }
func (unbounded) Begin(schedule.Spec) (func(), error)        { return func() {}, nil }
func (unbounded) Charge(int64)                               {}
func (unbounded) Known(schedule.Spec, time.Time) []Violation { return nil }
func (unbounded) Note(schedule.Spec, time.Time, []Violation) {}

// countSteps returns what it took to look at a schedule, that passed over so many nominal times.
func countSteps(s schedule.Spec, passed int) int64 {
	return int64(s.Weight()) * int64(compileSteps+passed)
}
