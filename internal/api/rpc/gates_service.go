package rpc

import (
	"context"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// filterOfParent selects the jobs of a namespace, or of all that the caller may see.
func filterOfParent(parent string) (job.Filter, error) {
	namespace, err := convert.ParseNamespace("parent", parent)
	f := job.Filter{Namespace: namespace}
	spanNamespaces(&f)
	return f, err
}

func (s *jobService) ListTargets(ctx context.Context,
	q *fermatav1.ListTargetsRequest) (*fermatav1.ListTargetsResponse, error) {
	f, err := filterOfParent(q.GetParent())
	if err != nil {
		return nil, err
	}
	page, err := s.gates.ListTargets(ctx, f, int(q.GetPageSize()), q.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &fermatav1.ListTargetsResponse{
		Targets: convert.Map(page.Targets, convert.TargetToPB), NextPageToken: page.Next,
	}, nil
}

func (s *jobService) ProbeTarget(ctx context.Context,
	q *fermatav1.ProbeTargetRequest) (*fermatav1.ProbeTargetResponse, error) {
	namespace, err := convert.ParseNamespace("parent", q.GetParent())
	if err != nil {
		return nil, err
	}
	answer, err := s.gates.ProbeTarget(ctx, namespace, q.GetTarget())
	if err != nil {
		return nil, err
	}
	response := &fermatav1.ProbeTargetResponse{Target: convert.TargetToPB(answer.Target)}
	if answer.Job != (job.Key{}) {
		response.Job = convert.JobName(answer.Job)
	}
	return response, nil
}

func (s *jobService) ResetTarget(ctx context.Context,
	q *fermatav1.ResetTargetRequest) (*fermatav1.ResetTargetResponse, error) {
	namespace, err := convert.ParseNamespace("parent", q.GetParent())
	if err != nil {
		return nil, err
	}
	answer, err := s.gates.ResetTarget(ctx, namespace, q.GetTarget(), q.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &fermatav1.ResetTargetResponse{
		Target: convert.TargetToPB(answer.Target), Released: int32(answer.Released), NextPageToken: answer.Next,
	}, nil
}

func (s *jobService) ListLocks(ctx context.Context,
	q *fermatav1.ListLocksRequest) (*fermatav1.ListLocksResponse, error) {
	f, err := filterOfParent(q.GetParent())
	if err != nil {
		return nil, err
	}
	page, err := s.gates.ListLocks(ctx, f, int(q.GetPageSize()), q.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &fermatav1.ListLocksResponse{
		Locks: convert.Map(page.Locks, convert.LockToPB), NextPageToken: page.Next,
	}, nil
}

func (s *jobService) DiscardDeadLetter(ctx context.Context,
	q *fermatav1.DiscardDeadLetterRequest) (*emptypb.Empty, error) {
	record, err := convert.ParseDeadLetterName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, s.letters.DiscardDeadLetter(ctx, record, q.GetRunId())
}

func (s *jobService) PauseQueue(ctx context.Context, q *fermatav1.PauseQueueRequest) (*fermatav1.QueueSettings, error) {
	queue, err := convert.ParseQueueName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	var r convert.Reader
	var until unixtime.Milli
	if t := r.End("until_time", "", q.GetUntilTime()); !t.IsZero() {
		until = unixtime.MilliOf(t)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	settings, err := s.queues.PauseQueue(ctx, queue, until)
	if err != nil {
		return nil, err
	}
	return convert.QueueSettingsToPB(queue, settings), nil
}
