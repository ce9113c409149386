package job

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
)

// compileSteps is how many steps it takes to compile an expression.
const compileSteps = 20

// ScheduleWork bounds what the schedules of one call cost together. A step is about a look at one
// nominal time by one expression.
type ScheduleWork interface {
	// Spent reports whether nothing is left: what comes now is refused unseen.
	Spent() bool
	Charge(steps int64)
	// Known returns what was noted of a schedule that is the same, if that is remembered:
	// a call that repeats a fault is not worth as many looks.
	Known(s schedule.Spec, anchor time.Time) []Violation
	Note(s schedule.Spec, anchor time.Time, v []Violation)
}

// unbounded is for who gives no work.
type unbounded struct{}

func (unbounded) Spent() bool                                { return false }
func (unbounded) Charge(int64)                               {}
func (unbounded) Known(schedule.Spec, time.Time) []Violation { return nil }
func (unbounded) Note(schedule.Spec, time.Time, []Violation) {}

// countSteps returns what it took to look at a schedule, that passed over so many nominal times.
func countSteps(s schedule.Spec, passed int) int64 {
	return int64(s.Weight()) * int64(compileSteps+passed)
}
