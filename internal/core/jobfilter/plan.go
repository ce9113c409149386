package jobfilter

import (
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Plan has bounds of the jobs that a filter matches, which indexes can serve. Zero fields are no bounds.
type Plan struct {
	IDs       []string // the job has one of these ids, sorted
	IDPrefix  string   // its id begins with this text
	Namespace string   // it is in this namespace
	Queues    []string // it is in one of these queues, sorted
	Status    job.Status
	Failing   bool // its last run failed
	Paused    bool
	// Nothing: no job matches, because bounds exclude one another.
	Nothing bool
}

func planOf(root condition) Plan {
	var p Plan
	p.narrow(root)
	return p
}

// narrow adds the bounds that follow from a condition which holds.
func (p *Plan) narrow(c condition) {
	switch c := c.(type) {
	case allOf:
		for _, part := range c {
			p.narrow(part)
		}
	case anyOf:
		p.narrowQueues(valuesOf("queue", c))
		p.narrowIDs(valuesOf("id", c))
	case textIs:
		p.narrowText(c)
	case pattern:
		if c.Name == "id" && len(c.parts[0]) > len(p.IDPrefix) {
			p.IDPrefix = c.parts[0]
		}
	case flagIs:
		p.Failing = p.Failing || c.Name == "failing" && c.want
		p.Paused = p.Paused || c.Name == "paused" && c.want
	case numberIs:
		least := c.want
		if c.op == ">" {
			least++
		}
		p.Failing = p.Failing || c.Name == "consecutive_failures" && c.op[0] != '<' && least > 0
	}
}

func (p *Plan) narrowText(c textIs) {
	switch c.Name {
	case "id":
		p.narrowIDs([]string{c.want})
	case "namespace":
		p.Nothing = p.Nothing || c.want == "" || p.Namespace != "" && p.Namespace != c.want
		p.Namespace = c.want
	case "queue":
		p.narrowQueues([]string{c.want})
	case "state":
		status := job.Status(slices.Index(stateNames, c.want))
		p.Nothing = p.Nothing || p.Status != job.StatusAny && p.Status != status
		p.Status = status
	}
}

// narrowQueues leaves the queues that are in both sets; nil is no bound.
func (p *Plan) narrowQueues(queues []string) {
	if queues != nil {
		p.Queues = narrowed(p.Queues, queues)
		p.Nothing = p.Nothing || len(p.Queues) == 0
	}
}

// narrowIDs leaves the ids that are in both sets; nil is no bound. No job has an empty id.
func (p *Plan) narrowIDs(ids []string) {
	if ids != nil {
		p.IDs = slices.DeleteFunc(narrowed(p.IDs, ids), func(id string) bool { return id == "" })
		p.Nothing = p.Nothing || len(p.IDs) == 0
	}
}

// narrowed returns the values that are in both sets, sorted; a nil set has all.
func narrowed(set, values []string) []string {
	sorted := slices.Compact(slices.Sorted(slices.Values(values)))
	if set == nil {
		return sorted
	}
	return slices.DeleteFunc(sorted, func(v string) bool { return !slices.Contains(set, v) })
}

// valuesOf returns the values of a text field if each alternative names one of them, else nil.
func valuesOf(field string, alternatives anyOf) []string {
	var values []string
	for _, c := range alternatives {
		switch c := c.(type) {
		case textIs:
			if c.Name != field {
				return nil
			}
			values = append(values, c.want)
		case anyOf:
			more := valuesOf(field, c)
			if more == nil {
				return nil
			}
			values = append(values, more...)
		default:
			return nil
		}
	}
	return values
}
