package rpc

import (
	"context"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// listEndedRuns is ListRuns for all jobs of a namespace, or of all namespaces.
func (s *jobService) listEndedRuns(ctx context.Context, namespace string,
	q *fermatav1.ListRunsRequest) (*fermatav1.ListRunsResponse, error) {
	query, err := convert.EndedRunsQueryFromPB(q)
	if err != nil {
		return nil, err
	}
	query.Filter.Namespace = namespace
	spanNamespaces(&query.Filter)
	if err := s.addCondition(&query.Filter, q.GetFilter()); err != nil {
		return nil, err
	}
	page, err := s.runs.ListEndedRuns(ctx, query)
	if err != nil {
		return nil, err
	}
	return &fermatav1.ListRunsResponse{
		Runs: convert.Map(page.Runs, convert.EndedRunToPB), NextPageToken: page.Next, Incomplete: page.Incomplete,
	}, nil
}

// requireNoRunFilters refuses fields that have no effect on the list of one job's runs.
func requireNoRunFilters(q *fermatav1.ListRunsRequest) error {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"start_time", q.GetStartTime() != nil}, {"end_time", q.GetEndTime() != nil},
		{"outcomes", len(q.GetOutcomes()) > 0}, {"queue", q.GetQueue() != ""}, {"filter", q.GetFilter() != ""},
		{"page_size", q.GetPageSize() != 0}, {"page_token", q.GetPageToken() != ""},
	} {
		if f.set {
			return job.Invalid(f.name, "must be unset unless parent ends with jobs/-: a job has one page of runs")
		}
	}
	return nil
}
