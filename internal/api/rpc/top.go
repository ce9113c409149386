package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (s *jobService) TopJobs(ctx context.Context, q *fermatav1.TopJobsRequest) (*fermatav1.TopJobsResponse, error) {
	query := job.TopQuery{Limit: int(q.GetLimit())}
	if q.GetParent() != "" {
		var err error
		if query.Namespace, err = convert.ParseNamespace("parent", q.GetParent()); err != nil {
			return nil, err
		}
	}
	var known bool
	query.Ranking, known = convert.WorstKinds[q.GetKind()]
	if !known {
		return nil, job.Invalid("kind", "is %s, want KIND_LATE or KIND_FAILING", q.GetKind())
	}
	top, err := s.queries.TopJobs(ctx, query)
	return &fermatav1.TopJobsResponse{Jobs: convert.Map(top.Jobs, s.topJob), Incomplete: top.Incomplete}, err
}

func (s *jobService) topJob(t job.TopJob) *fermatav1.TopJob {
	p := &fermatav1.TopJob{Job: s.jobToPB(t.Record), Waiting: t.Waiting}
	p.Job.Payload = nil
	if t.Lag > 0 {
		p.Lag = durationpb.New(t.Lag)
	}
	return p
}
