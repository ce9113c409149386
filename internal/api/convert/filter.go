package convert

import (
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// ParseFilter parses a filter in the language of package jobfilter. An empty one is nil.
func ParseFilter(field, text string) (*jobfilter.Filter, error) {
	f, err := jobfilter.Parse(text)
	if err != nil {
		return nil, job.Invalid(field, "is invalid %v", err)
	}
	return f, nil
}

// UpcomingRunToPB writes a run that is planned.
func UpcomingRunToPB(r job.UpcomingRun) *fermatav1.UpcomingRun {
	d, s := r.Definition, &r.State
	return &fermatav1.UpcomingRun{
		Name: RunName(d.Key, s.RunID()), DueTime: MillisToPB(s.Due), NominalTime: MillisToPB(s.Nominal),
		TimeZone: d.Schedule.TimeZone, Trigger: triggers.ToPB(s.Trigger), Queue: d.Queue, Handler: d.Handler,
		Attempt: int32(s.Attempt) + 1, DelaySource: delaySources.ToPB(s.Source), Hold: holdToPB(s.Held),
		QueuePaused: r.QueuePaused,
	}
}
