package job

import (
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// Warning is a remark about a valid job that is probably not as it was meant. Field is a path as in the API.
type Warning struct{ Field, Text string }

// farAhead is from when on the first run of a schedule is probably a mistake, such as February 29.
const farAhead = 366 * 24 * time.Hour

// ScheduleWarnings returns what is doubtful about the schedule of a job. Without a state it looks at the definition
// alone.
func ScheduleWarnings(r *Record, now unixtime.Milli) []Warning {
	spec := &r.Definition.Schedule
	if spec.Kind == schedule.KindNone || spec.Kind == schedule.KindOnce {
		return nil
	}
	switch s := &r.State; {
	case !spec.EndAt.IsZero() && unixtime.MilliOf(spec.EndAt) <= now:
		return []Warning{{"schedule.end_time", "has passed: no scheduled run will start"}}
	case s.Revision == 0 || s.Paused: // not stored, or planned anew on resume
		return nil
	case s.Region == RegionDone && s.Fired == 0:
		return []Warning{{"schedule", "has no further time: no scheduled run will start"}}
	case s.HasRun() && s.Trigger == TriggerSchedule && s.Nominal.Sub(now) > farAhead:
		return []Warning{{"schedule", fmt.Sprintf("first starts a run at %s, in more than a year",
			s.Nominal.Time().UTC().Format(time.RFC3339))}}
	}
	return nil
}

// UsesPreset reports whether a job has any of some fields from a preset.
func (d *Definition) UsesPreset(name string, fields backoff.FieldSet) bool {
	from := d.PolicySources()
	for f := range backoff.FieldCount {
		if fields.Has(f) && from[f] == (backoff.Source{Kind: backoff.FromPreset, Name: name}) {
			return true
		}
	}
	return false
}
