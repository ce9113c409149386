package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fermata-io/fermata/internal/lib/yamldoc"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const (
	// MaxFile bounds a file in bytes.
	MaxFile = 64 << 20
	// MaxJobs bounds the jobs of a file of lines.
	MaxJobs = 250_000
	// MaxErrors is the maximum number of reported faults of a file.
	MaxErrors = 1000
)

// Job is one job of a file.
type Job struct {
	// ID is empty where the file names none.
	ID string
	// Job has no name: it belongs to the namespace of the reader.
	Job *fermatav1.Job
	// Paused is nil if the file does not set it.
	Paused *bool

	at nodePlace
}

// Queue is the limits of one queue of a file.
type Queue struct {
	Name     string
	Settings *fermatav1.QueueSettings

	at nodePlace
}

// Content is the content of one or more files.
type Content struct {
	Jobs   []Job
	Queues []Queue
}

// FileError is one thing that is wrong with a file.
type FileError struct {
	File string
	Line int // from 1
	// Column is the column of the field's name, from 1, in bytes; 0 if unknown.
	Column int
	// Field is a path in the file, "schedule.cron.expressions[0]"; may be empty.
	Field string
	Text  string
}

func (f FileError) String() string {
	text := f.Text
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	if f.Column > 0 {
		return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, text)
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, text)
}

// FileErrors are all that is wrong with files.
type FileErrors []FileError

func (f FileErrors) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// Sorted orders faults by file and line.
func (f FileErrors) Sorted() FileErrors {
	slices.SortStableFunc(f, func(a, b FileError) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Field, b.Field))
	})
	return f
}

// Locate returns a fault at the position of a field, given by its path in the API: "job.timeout",
// "job.labels[\"team\"]", "job_id".
func (j *Job) Locate(path, text string) FileError {
	path = strings.TrimPrefix(path, "job.")
	if path == "job_id" || path == "parent" {
		path = "id"
	}
	return j.at.faultAt(path, text)
}

// Locate is as that of a job, for paths such as "settings.rate".
func (q *Queue) Locate(path, text string) FileError {
	return q.at.faultAt(strings.TrimPrefix(path, "settings."), text)
}

// Add appends the content of another file.
func (s *Content) Add(o Content) {
	s.Jobs, s.Queues = append(s.Jobs, o.Jobs...), append(s.Queues, o.Queues...)
}

// Check returns contradictions between files: jobs with the same id, or several limits of one queue.
func (s *Content) Check() (faults FileErrors) {
	ids, queues := map[string]*nodePlace{}, map[string]*nodePlace{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.ID == "" {
			continue
		}
		if first := ids[j.ID]; first != nil {
			faults = append(faults, j.at.faultAt("id",
				fmt.Sprintf("job %s is in %s:%d already", j.ID, first.file, first.lineAt(""))))
			continue
		}
		ids[j.ID] = &j.at
	}
	for i := range s.Queues {
		q := &s.Queues[i]
		if first := queues[q.Name]; first != nil {
			faults = append(faults, q.at.faultAt("",
				fmt.Sprintf("queue %s is in %s:%d already", q.Name, first.file, first.lineAt(""))))
			continue
		}
		queues[q.Name] = &q.at
	}
	return faults
}

// reader reads one file.
type reader struct {
	file, namespace string
	budget          *Budget
	set             Content
	faults          FileErrors
}

// Read reads the text of a file for a namespace.
func Read(file string, text []byte, namespace string) (Content, FileErrors) {
	return ReadWithin(&Budget{}, file, text, namespace)
}

// Budget bounds the content of several files together, with aliases expanded.
type Budget = yamldoc.Budget

// ReadWithin is Read for one of several files, which share a budget.
func ReadWithin(b *Budget, file string, text []byte, namespace string) (Content, FileErrors) {
	r := &reader{file: file, namespace: namespace, budget: b}
	if len(text) > MaxFile {
		r.faults = append(r.faults, FileError{File: file, Line: 1,
			Text: fmt.Sprintf("has %d bytes, at most %d are allowed", len(text), MaxFile)})
		return Content{}, r.faults
	}
	for _, root := range r.readDocuments(text) {
		r.readDocument(root)
	}
	if more := len(r.faults) - MaxErrors; more > 0 {
		r.faults = r.faults[:MaxErrors]
		r.addFault(position{line: r.faults[MaxErrors-1].Line}, "", fmt.Sprintf("%d more faults are not shown", more))
	}
	return r.set, r.faults
}

// readDocument reads a job, a list of them, or a mapping of jobs and queues.
func (r *reader) readDocument(root *yaml.Node) {
	var value any
	if err := root.Decode(&value); err != nil {
		r.addReadFault(err, root.Line)
		return
	}
	node := resolveAlias(root)
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		node = resolveAlias(node.Content[0])
	}
	switch value := value.(type) {
	case nil:
	case []any:
		r.readList(value, node)
	case map[string]any:
		if _, jobs := value["jobs"]; jobs {
			r.readSections(value, node)
		} else if _, queues := value["queues"]; queues {
			r.readSections(value, node)
		} else {
			r.addJob(value, node, "")
		}
	default:
		r.addFault(positionOf(node), "", "a job is a mapping, not "+kindOf(value))
	}
}

func (r *reader) addFault(at position, field, text string) {
	r.faults = append(r.faults, FileError{File: r.file, Line: max(1, at.line), Column: at.column,
		Field: printableText(field), Text: printableText(text)})
}

func (r *reader) readList(items []any, node *yaml.Node) {
	for i, item := range items {
		if item != nil && i < len(node.Content) {
			r.readItem(item, resolveAlias(node.Content[i]), "")
		}
	}
}

func (r *reader) readItem(item any, node *yaml.Node, id string) {
	if fields, ok := item.(map[string]any); ok {
		r.addJob(fields, node, id)
		return
	}
	r.addFault(positionOf(node), "", "a job is a mapping, not "+kindOf(item))
}

// readSections reads a document of jobs and queues.
func (r *reader) readSections(value map[string]any, node *yaml.Node) {
	at := nodePlace{file: r.file, node: node}
	for _, name := range sortedKeys(value) {
		if name != "jobs" && name != "queues" {
			r.addFault(at.positionAt(quotedStep(name)), name,
				`is unknown; a document with "jobs" or "queues" has nothing else`)
			continue
		}
		section, below := value[name], resolveAlias(at.findNode(name))
		switch section := section.(type) {
		case nil:
		case []any:
			if name == "jobs" {
				r.readList(section, below)
				continue
			}
			r.addFault(at.positionAt(name), name, "is a list, want a mapping of names to limits")
		case map[string]any:
			for _, key := range sortedKeys(section) {
				r.readEntry(name, key, section[key], nodePlace{file: r.file, node: below})
			}
		default:
			r.addFault(at.positionAt(name), name, "is "+kindOf(section)+", want a mapping")
		}
	}
}

func (r *reader) readEntry(section, key string, value any, at nodePlace) {
	node := resolveAlias(at.findNode(quotedStep(key)))
	switch {
	case value == nil: // as a chart's values take an entry of a default away
	case section == "jobs":
		r.readItem(value, node, key)
	default:
		r.addQueue(key, value, node)
	}
}
