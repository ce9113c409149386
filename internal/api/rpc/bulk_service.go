package rpc

import (
	"context"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// selection is what requests that select jobs of a namespace have in common.
type selection interface {
	GetParent() string
	GetQueue() string
	GetIdPrefix() string
	GetLabels() map[string]string
}

func filterFromPB(q selection) (job.Filter, error) {
	namespace, err := convert.ParseNamespace("parent", q.GetParent())
	return job.Filter{Namespace: namespace, Queue: q.GetQueue(), IDPrefix: q.GetIdPrefix(), Labels: q.GetLabels()}, err
}

func (s *jobService) ListDeadLetters(ctx context.Context,
	q *fermatav1.ListDeadLettersRequest) (*fermatav1.ListDeadLettersResponse, error) {
	filter, err := filterFromPB(q)
	if err != nil {
		return nil, err
	}
	page, err := s.letters.ListDeadLetters(ctx, filter, int(q.GetPageSize()), q.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &fermatav1.ListDeadLettersResponse{
		DeadLetters: convert.Map(page.DeadLetters, convert.DeadLetterToPB), NextPageToken: page.Next,
	}, nil
}

func (s *jobService) RedriveDeadLetters(ctx context.Context,
	q *fermatav1.RedriveDeadLettersRequest) (*fermatav1.RedriveDeadLettersResponse, error) {
	filter, err := filterFromPB(q)
	if err != nil {
		return nil, err
	}
	request := job.RedriveRequest{
		Filter: filter, Token: q.GetPageToken(), DryRun: q.GetDryRun(), IgnoreExclusions: q.GetIgnoreExclusions(),
	}
	if n := len(q.GetNames()); n > maxBatch {
		return nil, job.Invalid("names", "has %d entries, at most %d are allowed", n, maxBatch)
	}
	for _, name := range q.GetNames() {
		record, err := convert.ParseDeadLetter("names", name, filter.Namespace)
		if err != nil {
			return nil, err
		}
		request.Records = append(request.Records, record)
	}
	done, err := s.letters.RedriveDeadLetters(ctx, request)
	if err != nil {
		return nil, err
	}
	return &fermatav1.RedriveDeadLettersResponse{
		Redriven: int32(done.Done), Refused: int32(done.Refused), NextPageToken: done.Next,
	}, nil
}

func (s *jobService) PauseJobs(ctx context.Context,
	q *fermatav1.PauseJobsRequest) (*fermatav1.PauseJobsResponse, error) {
	filter, err := filterFromPB(q)
	if err != nil {
		return nil, err
	}
	done, err := s.operations.PauseAll(ctx, filter, q.GetNote(), q.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &fermatav1.PauseJobsResponse{Paused: int32(done.Done), NextPageToken: done.Next}, nil
}

func (s *jobService) ResumeJobs(ctx context.Context,
	q *fermatav1.ResumeJobsRequest) (*fermatav1.ResumeJobsResponse, error) {
	filter, err := filterFromPB(q)
	if err != nil {
		return nil, err
	}
	done, err := s.operations.ResumeAll(ctx, filter, q.GetNote(), q.GetCatchUp(), q.GetPageToken())
	if err != nil {
		return nil, err
	}
	return &fermatav1.ResumeJobsResponse{Resumed: int32(done.Done), NextPageToken: done.Next}, nil
}

func (s *jobService) GetQueueSettings(ctx context.Context,
	q *fermatav1.GetQueueSettingsRequest) (*fermatav1.QueueSettings, error) {
	queue, err := convert.ParseQueueName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	settings, err := s.queues.QueueSettings(ctx, queue)
	if err != nil {
		return nil, err
	}
	return convert.QueueSettingsToPB(queue, settings), nil
}

func (s *jobService) UpdateQueueSettings(ctx context.Context,
	q *fermatav1.UpdateQueueSettingsRequest) (*fermatav1.QueueSettings, error) {
	p := q.GetSettings()
	queue, err := convert.ParseQueueName("settings.name", p.GetName())
	if err != nil {
		return nil, err
	}
	change := job.QueueChange{Settings: convert.QueueSettingsFromPB(p), KeepPaused: p.Paused == nil}
	if q.GetExpected() != nil {
		change.Expected = new(convert.QueueSettingsFromPB(q.GetExpected()))
	}
	settings, err := s.queues.SetQueueSettings(ctx, queue, change)
	if err != nil {
		return nil, err
	}
	return convert.QueueSettingsToPB(queue, settings), nil
}
