package jobfilter

import (
	"slices"

	"github.com/fermata-io/fermata/internal/core/job"
)

// Plan has bounds of the jobs that a filter matches, which indexes can serve. Zero fields are no bounds.
type Plan struct {
	ID        string   // the job has this id
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
		p.narrowQueues(queuesOf(c))
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
		p.Nothing = p.Nothing || c.want == "" || p.ID != "" && p.ID != c.want
		p.ID = c.want
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
	switch {
	case queues == nil:
		return
	case p.Queues != nil:
		queues = slices.DeleteFunc(slices.Clone(queues), func(q string) bool { return !slices.Contains(p.Queues, q) })
	}
	p.Queues = slices.Compact(slices.Sorted(slices.Values(queues)))
	p.Nothing = p.Nothing || len(p.Queues) == 0
}

// queuesOf returns the queues of alternatives that all name one, or nil.
func queuesOf(alternatives anyOf) []string {
	var queues []string
	for _, c := range alternatives {
		switch c := c.(type) {
		case textIs:
			if c.Name != "queue" {
				return nil
			}
			queues = append(queues, c.want)
		case anyOf:
			more := queuesOf(c)
			if more == nil {
				return nil
			}
			queues = append(queues, more...)
		default:
			return nil
		}
	}
	return queues
}
