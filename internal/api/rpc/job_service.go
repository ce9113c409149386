package rpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// maxBatch bounds BatchCreateJobs.
const maxBatch = 1000

// jobService implements fermatav1.JobServiceServer. Its errors are those of the
// model; the interceptors turn them into statuses.
type jobService struct {
	fermatav1.UnimplementedJobServiceServer
	definitions JobDefinitions
	revisions   JobRevisions
	renames     JobRenames
	operations  JobOperations
	queries     JobQueries
	runs        JobRuns
	letters     DeadLetters
	queues      QueueSettings
	gates       SharedGates
	bulk        BulkChanges
	now         func() time.Time
	defaults    *backoff.Defaults // nil: the operator has set none
	// unservedQueues is that of Options.
	unservedQueues func(context.Context, []job.QueueKey) []job.QueueKey
}

// newJobService serves the jobs of one engine.
func newJobService(jobs Jobs, now func() time.Time, defaults *backoff.Defaults) *jobService {
	return &jobService{
		definitions: jobs, revisions: jobs, operations: jobs, queries: jobs, runs: jobs, letters: jobs, queues: jobs,
		gates: jobs, bulk: jobs, renames: jobs, now: now, defaults: defaults,
	}
}

// newReader is one that fills what messages leave unset with the operator's defaults.
func (s *jobService) newReader() convert.Reader { return convert.Reader{Defaults: s.defaults} }

func (s *jobService) jobToPB(r job.Record) *fermatav1.Job {
	return convert.RecordToPB(r, unixtime.MilliOf(s.now()))
}

func (s *jobService) CreateJob(ctx context.Context, q *fermatav1.CreateJobRequest) (*fermatav1.Job, error) {
	namespace, err := convert.ParseNamespace("parent", q.GetParent())
	if err != nil {
		return nil, err
	}
	r := s.newReader()
	r.RejectSealed(q.GetJob())
	d := r.Definition(job.Key{Namespace: namespace, ID: q.GetJobId()}, q.GetJob())
	d.MarkAsOwn(r.DoubtfulFields)
	if err := r.Err(); err != nil {
		return nil, err
	}
	record, err := s.definitions.Create(ctx, d, q.GetRequestId())
	if err != nil {
		return nil, err
	}
	answer := s.jobToPB(record)
	s.addWarnings(ctx, doubtfulJob{q.GetJob(), &record, answer})
	return answer, nil
}

func (s *jobService) BatchCreateJobs(ctx context.Context,
	q *fermatav1.BatchCreateJobsRequest) (*fermatav1.BatchCreateJobsResponse, error) {
	if n := len(q.GetRequests()); n > maxBatch {
		return nil, job.Invalid("requests", "has %d entries, at most %d are allowed", n, maxBatch)
	}
	namespace, err := convert.ParseNamespace("parent", q.GetParent())
	if err != nil {
		return nil, err
	}
	answers := make([]job.CreateAnswer, len(q.GetRequests()))
	good := make([]job.CreateRequest, 0, len(answers))
	place := make([]int, 0, len(answers))
	for i, item := range q.GetRequests() {
		if p := item.GetParent(); p != "" && p != q.GetParent() {
			answers[i].Err = job.Invalid("parent", "is %q, but that of the batch is %q", job.Clip(p, 80), q.GetParent())
			continue
		}
		r := s.newReader()
		r.RejectSealed(item.GetJob())
		d := r.Definition(job.Key{Namespace: namespace, ID: item.GetJobId()}, item.GetJob())
		d.MarkAsOwn(r.DoubtfulFields)
		answers[i].Err = r.Err()
		if answers[i].Err == nil {
			good = append(good, job.CreateRequest{Definition: d, RequestID: item.GetRequestId()})
			place = append(place, i)
		}
	}
	for i, answer := range s.definitions.CreateBatch(ctx, good) {
		answers[place[i]] = answer
	}
	response := s.batchToPB(q, answers)
	if !q.GetNamesOnly() {
		var jobs []doubtfulJob
		for i, result := range response.GetResults() {
			if result.GetJob() != nil {
				jobs = append(jobs, doubtfulJob{q.GetRequests()[i].GetJob(), &answers[i].Record, result.GetJob()})
			}
		}
		s.addWarnings(ctx, jobs...)
	}
	return response, nil
}

func (s *jobService) batchToPB(q *fermatav1.BatchCreateJobsRequest,
	answers []job.CreateAnswer) *fermatav1.BatchCreateJobsResponse {
	response := &fermatav1.BatchCreateJobsResponse{
		Results: make([]*fermatav1.BatchCreateJobsResponse_Result, len(answers)),
	}
	results := make([]fermatav1.BatchCreateJobsResponse_Result, len(answers))
	var compact convert.CompactWriter
	now := unixtime.MilliOf(s.now())
	for i := range answers {
		answer, result := &answers[i], &results[i]
		switch d := answer.Record.Definition; {
		case answer.Err != nil:
			st, _ := apierror.ToStatus(answer.Err)
			p := st.Proto()
			result.Code, result.Message, result.Details = p.GetCode(), p.GetMessage(), p.GetDetails()
		case q.GetNamesOnly():
			result.Job = &fermatav1.Job{Name: convert.JobName(d.Key), Etag: d.Etag()}
		case q.GetCompact():
			result.Job, result.Shared = compact.WriteJob(answer.Record, q.GetRequests()[i].GetJob(), now)
		default:
			result.Job = convert.RecordToPB(answer.Record, now)
		}
		response.Results[i] = result
	}
	response.Shared = compact.Shared
	return response
}

func (s *jobService) GetJob(ctx context.Context, q *fermatav1.GetJobRequest) (*fermatav1.Job, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	return s.recordOrError(s.definitions.Get(ctx, key))
}

func (s *jobService) recordOrError(record job.Record, err error) (*fermatav1.Job, error) {
	if err != nil {
		return nil, err
	}
	return s.jobToPB(record), nil
}

func (s *jobService) ListJobs(ctx context.Context, q *fermatav1.ListJobsRequest) (*fermatav1.ListJobsResponse, error) {
	filter, err := filterFromPB(q)
	if err != nil {
		return nil, err
	}
	spanNamespaces(&filter)
	filter.Status, filter.MinFailures = convert.JobStates.FromPB(q.GetState()), q.GetMinConsecutiveFailures()
	if err := s.addCondition(&filter, q.GetFilter()); err != nil {
		return nil, err
	}
	if filter.Order, err = parseOrder(q.GetOrderBy()); err != nil {
		return nil, err
	}
	if err := validateRecentRuns(q); err != nil {
		return nil, err
	}
	page, err := s.definitions.List(ctx, filter, int(q.GetPageSize()), q.GetPageToken())
	if err != nil {
		return nil, err
	}
	response := &fermatav1.ListJobsResponse{
		NextPageToken: page.Next, Incomplete: page.Incomplete, Jobs: make([]*fermatav1.Job, len(page.Records)),
	}
	for i, record := range page.Records {
		response.Jobs[i] = s.jobToPB(record)
	}
	return response, s.addRecentRuns(ctx, response.Jobs, page.Records, int(q.GetRecentRuns()))
}

// Bounds of a list with recent runs: what one page may read of histories.
const (
	maxRecentRuns     = 10
	maxRecentPageSize = 100
)

func validateRecentRuns(q *fermatav1.ListJobsRequest) error {
	var v []job.Violation
	if n := q.GetRecentRuns(); n < 0 || n > maxRecentRuns {
		v = append(v, job.Violation{Field: "recent_runs", Description: fmt.Sprintf("is %d, want 0 to %d", n, maxRecentRuns)})
	}
	if n := q.GetPageSize(); q.GetRecentRuns() > 0 && n > maxRecentPageSize {
		v = append(v, job.Violation{Field: "page_size",
			Description: fmt.Sprintf("is %d, want at most %d with recent_runs", n, maxRecentPageSize)})
	}
	if len(v) > 0 {
		return &job.InvalidError{Violations: v}
	}
	return nil
}

// addRecentRuns adds the latest runs of each job.
func (s *jobService) addRecentRuns(ctx context.Context, jobs []*fermatav1.Job, records []job.Record, most int) error {
	if most == 0 || len(jobs) == 0 {
		return nil
	}
	runs, err := s.runs.RecentRuns(ctx, records, most)
	if err != nil {
		return err
	}
	for i, list := range runs {
		jobs[i].Status.RecentRuns = convert.RecentRunsToPB(records[i].Definition.Key, list)
	}
	return nil
}

func (s *jobService) UpdateJob(ctx context.Context, q *fermatav1.UpdateJobRequest) (*fermatav1.Job, error) {
	key, err := convert.ParseJobName("job.name", q.GetJob().GetName())
	if err != nil {
		return nil, err
	}
	paths, reseal, err := convert.ParseUpdateMask(q.GetUpdateMask())
	if err != nil {
		return nil, err
	}
	sent, err := convert.FoldUpdate(q.GetJob())
	if err != nil {
		return nil, err
	}
	record, err := s.definitions.Update(ctx, job.UpdateRequest{
		Key: key, Etag: sent.GetEtag(), RequestID: q.GetRequestId(), Reseal: reseal,
		Merge: func(present job.Definition) (job.Definition, error) {
			merged := convert.DefinitionToPB(&present)
			convert.CopyFields(merged, sent, paths)
			r := s.newReader()
			d := r.Definition(present.Key, merged)
			d.SettleSources(&present, r.DoubtfulFields)
			if convert.KeepsPayload(sent, paths) {
				d.Payload, d.PayloadKey = present.Payload, present.PayloadKey
			}
			noteEdit(ctx, &present, &d)
			return d, r.Err()
		},
		KeepsPayload:     convert.KeepsPayload(sent, paths),
		NamesBoundFields: convert.NamesBoundFields(paths),
	})
	if err != nil {
		return nil, err
	}
	answer := s.jobToPB(record)
	s.addWarnings(ctx, doubtfulJob{sentByMask(sent, paths), &record, answer})
	return answer, nil
}

func (s *jobService) DeleteJob(ctx context.Context, q *fermatav1.DeleteJobRequest) (*emptypb.Empty, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	err = s.definitions.Delete(ctx, key, q.GetEtag())
	if q.GetAllowMissing() && isNotFound(err) {
		noteUnchanged(ctx)
		err = nil
	}
	return &emptypb.Empty{}, err
}

func (s *jobService) PauseJob(ctx context.Context, q *fermatav1.PauseJobRequest) (*fermatav1.Job, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	return s.recordOrError(s.operations.Pause(ctx, key, q.GetNote()))
}

func (s *jobService) ResumeJob(ctx context.Context, q *fermatav1.ResumeJobRequest) (*fermatav1.Job, error) {
	key, err := convert.ParseJobName("name", q.GetName())
	if err != nil {
		return nil, err
	}
	return s.recordOrError(s.operations.Resume(ctx, key, q.GetCatchUp()))
}
