package job

import "github.com/fermata-io/fermata/internal/core/schedule"

// Sizes of parts of a definition in a response, in bytes.
const (
	sizeOfFields = 200 // of all that have about the same size in each job
	sizeOfText   = 8   // of an entry of a list or map beside its text
	sizeOfPeriod = 32
)

// ResponseSize is about how many bytes a job takes in a response, beside its ended runs: its payload, and labels and
// schedules, which may be long too.
func (r *Record) ResponseSize() int {
	return r.Definition.ResponseSize() + len(r.State.LastError) + len(r.State.PauseNote)
}

// ResponseSize is about how many bytes the definition takes in a response.
func (d *Definition) ResponseSize() int {
	n := sizeOfFields + len(d.Payload)
	for key, value := range d.Labels {
		n += sizeOfText + len(key) + len(value)
	}
	return n + scheduleSize(&d.Schedule)
}

func scheduleSize(s *schedule.Spec) (n int) {
	for _, texts := range [][]string{s.Cron, s.Exclude.Cron, s.Exclude.Dates, s.Exclude.Windows} {
		for _, text := range texts {
			n += sizeOfText + len(text)
		}
	}
	return n + sizeOfPeriod*len(s.Exclude.Periods)
}

// ResponseSize is about how many bytes a dead letter takes in a response.
func (l *DeadLetter) ResponseSize() int {
	n := sizeOfFields + len(l.Run.Output) + len(l.Run.Error)
	for key, value := range l.Labels {
		n += sizeOfText + len(key) + len(value)
	}
	return n
}
