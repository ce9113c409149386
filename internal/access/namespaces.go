package access

import (
	"fmt"
	"slices"
)

// NamespaceLimits bound namespaces, whoever acts in them.
type NamespaceLimits struct {
	Names []string // patterns; "*" is all
	// Jobs is how many jobs each of them may have; 0 is no limit.
	Jobs int
}

// MaxNamespaceJobs is the greatest limit of jobs.
const MaxNamespaceJobs = 1_000_000_000

// WithNamespaces adds limits of namespaces; the first that names one counts. The error
// is about the first fault.
func (p *Policy) WithNamespaces(list []NamespaceLimits) (*Policy, error) {
	for i, l := range list {
		at := fmt.Sprintf("namespaces[%d]", i)
		if len(l.Names) == 0 {
			return nil, fmt.Errorf("%s.names: there are none; \"*\" is all", at)
		}
		for _, n := range l.Names {
			if err := checkPattern(at+".names", n); err != nil {
				return nil, err
			}
		}
		if l.Jobs < 0 || l.Jobs > MaxNamespaceJobs {
			return nil, fmt.Errorf("%s.jobs: %d, want 0 (no limit) to %d", at, l.Jobs, MaxNamespaceJobs)
		}
	}
	with := *p
	with.namespaces = slices.Clone(list)
	return &with, nil
}

// Jobs is how many jobs a namespace may have, 0 if there is no limit; false if nothing
// says so.
func (p *Policy) Jobs(namespace string) (limit int, ok bool) {
	for _, l := range p.namespaces {
		if matchAny(l.Names, namespace) {
			return l.Jobs, true
		}
	}
	return 0, false
}

// LimitsJobs tells whether any namespace has a limit of jobs.
func (p *Policy) LimitsJobs() bool {
	return slices.ContainsFunc(p.namespaces, func(l NamespaceLimits) bool { return l.Jobs > 0 })
}
