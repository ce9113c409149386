package rpc

import (
	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
)

// spanNamespaces has a selection with the parent namespaces/- select jobs of all namespaces.
func spanNamespaces(f *job.Filter) {
	if f.Namespace == convert.AnyNamespace {
		f.Namespace, f.AllNamespaces = "", true
	}
}

// addCondition adds a filter in the language of package jobfilter to a selection of jobs. Its relative times count
// from now.
func (s *jobService) addCondition(f *job.Filter, text string) error {
	condition, err := convert.ParseFilter("filter", text)
	if err == nil && condition != nil {
		f.Condition, f.NowMS = condition, s.now().UnixMilli()
	}
	return err
}
