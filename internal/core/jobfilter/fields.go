package jobfilter

import (
	"fmt"
	"strings"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Kind is the type of a field.
type Kind uint8

// Kinds of fields.
const (
	Text   Kind = iota // = and != with * as a wildcard; : is "contains", without regard to case
	Choice             // = and !=, one of a few values
	Flag               // = and !=, true or false
	Number             // all comparisons
	Time               // all comparisons
	Labels             // a map: labels.KEY is a text, labels:KEY asks whether there is the key
)

func (k Kind) String() string {
	return [...]string{"text", "choice", "true or false", "number", "time", "labels"}[k]
}

// Field is a field that a filter can name.
type Field struct {
	Name    string
	Kind    Kind
	Meaning string
	// Choices are the values of a choice.
	Choices []string

	text   func(*subject) string
	number func(*subject) int64 // also of a time, in Unix milliseconds; 0: it has none
	flag   func(*subject) bool
}

// Fields lists the fields in the order of the documentation.
func Fields() []Field { return fields }

var fields = []Field{
	{Name: "id", Kind: Text, Meaning: "id of the job", text: func(s *subject) string { return s.Definition.ID }},
	{Name: "namespace", Kind: Text, Meaning: "namespace of the job",
		text: func(s *subject) string { return s.Definition.Namespace }},
	{Name: "queue", Kind: Text, Meaning: "queue of the job", text: func(s *subject) string { return s.Definition.Queue }},
	{Name: "handler", Kind: Text, Meaning: "handler of the job",
		text: func(s *subject) string { return s.Definition.Handler }},
	{Name: "target", Kind: Text, Meaning: "target of the job, empty if it has none",
		text: func(s *subject) string { return s.Definition.Target }},
	{Name: "owner", Kind: Text, Meaning: "owner of the job, empty if it has none",
		text: func(s *subject) string { return s.Definition.Labels[job.OwnerLabel] }},
	{Name: "labels", Kind: Labels, Meaning: "labels of the job"},
	{Name: "priority", Kind: Number, Meaning: "priority within the queue, 0 to 9",
		number: func(s *subject) int64 { return int64(s.Definition.Priority) }},
	{Name: "state", Kind: Choice, Choices: stateNames[1:], Meaning: "state of the job",
		text: func(s *subject) string { return stateNames[s.State.Status()] }},
	{Name: "paused", Kind: Flag, Meaning: "whether the job is paused",
		flag: func(s *subject) bool { return s.State.Paused }},
	{Name: "pause_note", Kind: Text, Meaning: "why the job is paused",
		text: func(s *subject) string { return s.State.PauseNote }},
	{Name: "failing", Kind: Flag, Meaning: "whether the last run failed",
		flag: func(s *subject) bool { return s.State.Failures > 0 }},
	{Name: "consecutive_failures", Kind: Number, Meaning: "failed runs in a row",
		number: func(s *subject) int64 { return int64(s.State.Failures) }},
	{Name: "last_error", Kind: Text, Meaning: "error text of the last failure",
		text: func(s *subject) string { return s.State.LastError }},
	{Name: "last_outcome", Kind: Choice, Choices: outcomeNames(), Meaning: "outcome of the last attempt that ended",
		text: func(s *subject) string { return s.State.LastOutcome.String() }},
	{Name: "last_run_time", Kind: Time, Meaning: "start of the last attempt",
		number: func(s *subject) int64 { return int64(s.State.LastStarted) }},
	{Name: "next_due_time", Kind: Time, Meaning: "when the planned or live run is or was due", number: nextDueMS},
	{Name: "runs_total", Kind: Number, Meaning: "finished runs",
		number: func(s *subject) int64 { return int64(s.State.Runs) }},
	{Name: "create_time", Kind: Time, Meaning: "when the job was created",
		number: func(s *subject) int64 { return int64(s.Definition.CreatedMS) }},
	{Name: "update_time", Kind: Time, Meaning: "last edit of the definition",
		number: func(s *subject) int64 { return int64(s.Definition.UpdatedMS) }},
}

// stateNames are the names of states, by job.Status.
var stateNames = []string{
	job.StatusAny: "", job.StatusScheduled: "scheduled", job.StatusRunning: "running", job.StatusPaused: "paused",
	job.StatusDead: "dead", job.StatusDone: "done",
}

func outcomeNames() []string {
	var names []string
	for o := job.OutcomeNone; o <= job.OutcomeCancelled; o++ {
		names = append(names, o.String())
	}
	return names
}

func nextDueMS(s *subject) int64 {
	if !s.State.HasRun() {
		return 0
	}
	return int64(s.State.Due)
}

// findField returns the field of a name, or an error that lists the fields.
func findField(name string, position int) (*Field, error) {
	for i := range fields {
		if fields[i].Name == name {
			return &fields[i], nil
		}
	}
	return nil, &Error{position, fmt.Sprintf("there is no field %q; fields are %s", job.Clip(name, 40), fieldNames())}
}

func fieldNames() string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}
