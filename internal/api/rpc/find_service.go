package rpc

import (
	"context"
	"strings"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
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
		f.Condition, f.NowMS = condition, unixtime.MilliOf(s.now())
	}
	return err
}

// parseOrder reads order_by, in which spaces do not count.
func parseOrder(text string) (job.Order, error) {
	order, ok := job.ParseOrder(strings.Join(strings.Fields(text), " "))
	if !ok {
		return order, job.Invalid("order_by", "is %q, want id, next_due_time, consecutive_failures desc or "+
			"last_run_time desc", job.Clip(text, 40))
	}
	return order, nil
}

func (s *jobService) ListUpcomingJobs(ctx context.Context,
	q *fermatav1.ListUpcomingJobsRequest) (*fermatav1.ListUpcomingJobsResponse, error) {
	namespace, err := convert.ParseNamespace("parent", q.GetParent())
	if err != nil {
		return nil, err
	}
	query := job.UpcomingQuery{Filter: job.Filter{Namespace: namespace}, ExcludeHeld: q.GetExcludeHeld(),
		PageSize: int(q.GetPageSize()), Token: q.GetPageToken()}
	spanNamespaces(&query.Filter)
	if err := s.addCondition(&query.Filter, q.GetFilter()); err != nil {
		return nil, err
	}
	page, err := s.queries.ListUpcoming(ctx, query)
	if err != nil {
		return nil, err
	}
	return &fermatav1.ListUpcomingJobsResponse{
		Runs: convert.Map(page.Runs, convert.UpcomingRunToPB), NextPageToken: page.Next, Incomplete: page.Incomplete,
	}, nil
}
