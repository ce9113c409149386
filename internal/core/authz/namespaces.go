package authz

import (
	"fmt"
	"slices"
)

// NamespaceLimits limits namespaces, for all callers together.
type NamespaceLimits struct {
	Names []string // patterns; "*" is all
	// Jobs is the greatest number of jobs in each of the namespaces, and JobBytes the greatest number of their
	// bytes. 0 is no limit; nil leaves the limit to another entry.
	Jobs, JobBytes *int
}

// MaxNamespaceJobs is the greatest limit of jobs.
const MaxNamespaceJobs = 1_000_000_000

// MaxNamespaceJobBytes is the greatest limit of bytes of jobs.
const MaxNamespaceJobBytes = 1 << 50

// WithNamespaces adds limits of namespaces; the first that names one counts. The error
// is about the first fault.
func (p *Policy) WithNamespaces(list []NamespaceLimits) (*Policy, error) {
	for i, l := range list {
		at := fmt.Sprintf("namespaces[%d]", i)
		if len(l.Names) == 0 {
			return nil, fmt.Errorf("%s.names: required; \"*\" means all", at)
		}
		for _, n := range l.Names {
			if err := checkPattern(at+".names", n); err != nil {
				return nil, err
			}
		}
		if err := checkLimit(at+".jobs", l.Jobs, MaxNamespaceJobs); err != nil {
			return nil, err
		}
		if err := checkLimit(at+".job-bytes", l.JobBytes, MaxNamespaceJobBytes); err != nil {
			return nil, err
		}
	}
	with := *p
	with.namespaces = slices.Clone(list)
	return &with, nil
}

func checkLimit(field string, limit *int, most int) error {
	if limit != nil && (*limit < 0 || *limit > most) {
		return fmt.Errorf("%s: %d, want 0 (no limit) to %d", field, *limit, most)
	}
	return nil
}

// namespaceLimits returns the limits of the first entry that names a namespace.
func (p *Policy) namespaceLimits(namespace string) NamespaceLimits {
	for _, l := range p.namespaces {
		if matchAny(l.Names, namespace) {
			return l
		}
	}
	return NamespaceLimits{}
}

// JobsLimit returns how many jobs a namespace may have, 0 if there is no limit. ok is false if no entry sets the
// limit.
func (p *Policy) JobsLimit(namespace string) (limit int, ok bool) {
	return dereferenceLimit(p.namespaceLimits(namespace).Jobs)
}

// JobBytesLimit returns how many bytes the jobs of a namespace may have, 0 if there is no limit. ok is false if no
// entry sets the limit.
func (p *Policy) JobBytesLimit(namespace string) (limit int, ok bool) {
	return dereferenceLimit(p.namespaceLimits(namespace).JobBytes)
}

func dereferenceLimit(limit *int) (int, bool) {
	if limit == nil {
		return 0, false
	}
	return *limit, true
}

// LimitsJobs reports whether any namespace has a limit of jobs.
func (p *Policy) LimitsJobs() bool {
	return slices.ContainsFunc(p.namespaces, func(l NamespaceLimits) bool { return l.Jobs != nil && *l.Jobs > 0 })
}

// LimitsJobBytes reports whether any namespace has a limit of the bytes of its jobs.
func (p *Policy) LimitsJobBytes() bool {
	return slices.ContainsFunc(p.namespaces, func(l NamespaceLimits) bool {
		return l.JobBytes != nil &&
			*l.JobBytes > 0
	})
}
