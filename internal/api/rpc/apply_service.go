package rpc

import (
	"cmp"
	"context"
	"errors"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (s *jobService) PlanJobs(ctx context.Context, q *fermatav1.PlanJobsRequest) (*fermatav1.PlanJobsResponse, error) {
	desired, err := s.readDesiredJobs(q.GetParent(), q.GetDesiredJobs())
	if err != nil {
		return nil, err
	}
	hideSealedPayloads(ctx, desired)
	answers := s.definitions.PlanJobs(ctx, desired, q.GetForce())
	if err := findTooLargeError(answers); err != nil {
		return nil, err
	}
	changes := s.changesToPB(answers, true)
	s.warnOfChanges(ctx, q.GetDesiredJobs(), answers, changes)
	return &fermatav1.PlanJobsResponse{Changes: changes}, nil
}

// hideSealedPayloads has payloads compared with sealed ones only where the caller may edit the job: the answer would
// tell anybody else whether a guess is right.
func hideSealedPayloads(ctx context.Context, desired []job.DesiredJob) {
	for i := range desired {
		desired[i].MayCompare = func(present *job.Definition) bool {
			return guard.MayEditJobs(ctx, job.QueueKey{Namespace: present.Namespace, Queue: present.Queue})
		}
	}
}

func (s *jobService) ApplyJobs(ctx context.Context,
	q *fermatav1.ApplyJobsRequest) (*fermatav1.ApplyJobsResponse, error) {
	desired, err := s.readDesiredJobs(q.GetParent(), q.GetDesiredJobs())
	if err != nil {
		return nil, err
	}
	answers := s.definitions.ApplyJobs(ctx, desired, q.GetForce())
	if err := findTooLargeError(answers); err != nil {
		return nil, err
	}
	changes := s.changesToPB(answers, false)
	s.warnOfChanges(ctx, q.GetDesiredJobs(), answers, changes)
	return &fermatav1.ApplyJobsResponse{Changes: changes}, nil
}

// warnOfChanges adds warnings to jobs that a call creates or updates.
func (s *jobService) warnOfChanges(ctx context.Context, desired []*fermatav1.DesiredJob, answers []job.ApplyResult,
	changes []*fermatav1.JobChange) {
	var jobs []doubtfulJob
	for i, c := range changes {
		if a := answers[i].After; a != nil && c.GetAfter() != nil && c.GetAction() != fermatav1.JobChange_ACTION_UNCHANGED {
			jobs = append(jobs, doubtfulJob{desired[i].GetJob(), a, c.GetAfter()})
		}
	}
	s.addWarnings(ctx, jobs...)
}

// findTooLargeError returns the error of a call that was too large and changed nothing.
func findTooLargeError(answers []job.ApplyResult) error {
	for _, a := range answers {
		if errors.Is(a.Err, job.ErrTooLarge) {
			return a.Err
		}
	}
	return nil
}

func (s *jobService) readDesiredJobs(parent string, list []*fermatav1.DesiredJob) ([]job.DesiredJob, error) {
	if n := len(list); n > maxBatch {
		return nil, job.Invalid("desired_jobs", "has %d entries, at most %d are allowed", n, maxBatch)
	}
	namespace, err := convert.ParseNamespace("parent", parent)
	if err != nil {
		return nil, err
	}
	return convert.Map(list, func(p *fermatav1.DesiredJob) job.DesiredJob {
		return convert.DesiredJobFromPB(s.defaults, namespace, p)
	}), nil
}

func (s *jobService) changesToPB(answers []job.ApplyResult, planned bool) []*fermatav1.JobChange {
	return convert.Map(answers, func(a job.ApplyResult) *fermatav1.JobChange { return s.changeToPB(a, planned) })
}

func (s *jobService) changeToPB(a job.ApplyResult, planned bool) *fermatav1.JobChange {
	p := &fermatav1.JobChange{}
	var before *fermatav1.Job
	if a.Before != nil {
		before = s.jobToPB(*a.Before)
	}
	if planned {
		p.Before = before
	}
	if a.Err != nil {
		st, _ := apierror.ToStatus(a.Err)
		sp := st.Proto()
		p.Code, p.Message, p.Details = sp.GetCode(), sp.GetMessage(), sp.GetDetails()
		return p
	}
	p.Action, p.PayloadNotCompared = convert.ApplyActions.ToPB(a.Action), a.PayloadHidden
	if a.After != nil {
		if planned {
			p.After = convert.DefinitionToPB(a.After.Definition)
			if p.After.PayloadSealed {
				p.After.Payload = nil
			}
		} else {
			p.After = s.jobToPB(*a.After)
		}
	}
	if a.Action == job.ApplyUpdate {
		p.Fields = convert.ChangedFields(before, p.After)
		if a.PauseChanges {
			p.Fields = append(p.Fields, "paused")
		}
	}
	return p
}

// recordApplied completes the record of a call of ApplyJobs.
func recordApplied(r *job.TrailRecord, q *fermatav1.ApplyJobsRequest, a *fermatav1.ApplyJobsResponse) {
	r.Resource = q.GetParent()
	for i, c := range a.GetChanges() {
		switch {
		case c.GetCode() != 0:
			r.Refused++
		case c.GetAction() != fermatav1.JobChange_ACTION_UNCHANGED:
			r.Changed++
			name := q.GetParent() + "/jobs/" + q.GetDesiredJobs()[i].GetJobId()
			if c.GetAction() == fermatav1.JobChange_ACTION_UPDATE {
				name = cmp.Or(convert.NameOfCurrentRevision(c.GetAfter()), name)
			}
			r.Names = append(r.Names, name)
		}
	}
	if q.GetForce() {
		r.Fields = []string{"force"}
	}
}
