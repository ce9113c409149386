package rpc

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (f *fakeJobs) RecentRuns(_ context.Context, records []job.Record, most int) ([][]job.Run, error) {
	runs := []job.Run{
		{ID: "s3", Outcome: job.OutcomeDead, NominalMS: 3000, StartedMS: 3001, FinishedMS: 3002, Attempts: 2},
		{ID: "s2", Outcome: job.OutcomeSucceeded, FinishedMS: 2002, Attempts: 1},
	}
	return [][]job.Run{runs[:min(most, len(runs))]}, f.err
}

func TestListWithRecentRuns(t *testing.T) {
	b := serve(t)
	b.jobs.present = stored()
	c := fermatav1.NewJobServiceClient(b.conn)
	list := func(q *fermatav1.ListJobsRequest) (*fermatav1.ListJobsResponse, error) {
		q.Parent = "namespaces/default"
		return c.ListJobs(t.Context(), q)
	}
	without, err := list(&fermatav1.ListJobsRequest{})
	if err != nil || len(without.GetJobs()[0].GetStatus().GetRecentRuns()) != 0 {
		t.Fatalf("without recent runs: %v (%v)", without, err)
	}
	with, err := list(&fermatav1.ListJobsRequest{RecentRuns: 10, PageSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	runs := with.GetJobs()[0].GetStatus().GetRecentRuns()
	if len(runs) != 2 || runs[0].GetOutcome() != fermatav1.Outcome_OUTCOME_DEAD || runs[0].GetAttempts() != 2 ||
		runs[0].GetFinishTime().AsTime().UnixMilli() != 3002 || runs[1].GetOutcome() != fermatav1.Outcome_OUTCOME_SUCCEEDED {
		t.Errorf("recent runs %v", runs)
	}
	for name, q := range map[string]*fermatav1.ListJobsRequest{
		"too many runs": {RecentRuns: 11}, "negative": {RecentRuns: -1}, "large page": {RecentRuns: 1, PageSize: 101},
	} {
		if _, err := list(q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}
