package convert

import (
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
)

// ParseFilter parses a filter in the language of package jobfilter. An empty one is nil.
func ParseFilter(field, text string) (*jobfilter.Filter, error) {
	f, err := jobfilter.Parse(text)
	if err != nil {
		return nil, job.Invalid(field, "is invalid %v", err)
	}
	return f, nil
}
