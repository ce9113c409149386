package client

import (
	"context"
	"iter"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// CreateJob registers a job under an id; if it is empty one is made, which is cheapest for
// the cluster where many are registered at once: their ids have them stored together.
// The job's namespace is the client's. Creating the same job twice is no error;
// another job under the same id is ([IsExists]).
//
// Calls of many goroutines at once share calls to the cluster. With metadata of its own,
// or a sampled span, in ctx a call is always sent by itself.
func (c *Client) CreateJob(ctx context.Context, id string, j *Job) (*Job, error) {
	q := &fermatav1.CreateJobRequest{Parent: c.namespaceName(), JobId: id, Job: j}
	if id == "" {
		// What is sent by itself has its id made from it by the cluster, so that a
		// repetition finds the job.
		q.RequestId = NewRequestID()
	}
	size := proto.Size(j)
	if !isBatched(ctx, size) {
		return callWithRetry(ctx, c, c.jobs.CreateJob, q)
	}
	place, result, err := c.createBatcher.enqueue(ctx, q, size)
	switch {
	case err != nil:
		return nil, status.FromContextError(err).Err()
	case place:
		return c.createBatched(ctx, q)
	case result == nil: // no batch came in time, or it failed as a whole
		return callWithRetry(ctx, c, c.jobs.CreateJob, q)
	}
	if _, again := delayAfter(result.Err, 1); again {
		return callWithRetry(ctx, c, c.jobs.CreateJob, q)
	}
	return result.Job, result.Err
}

// createBatched registers a job by a call of its own, which others wait for: not while
// it pauses before a repetition.
func (c *Client) createBatched(ctx context.Context, q *fermatav1.CreateJobRequest) (answer *Job, err error) {
	leave := sync.OnceFunc(func() { c.createBatcher.endCalls(1) })
	defer leave()
	err = c.retryCall(ctx, func(int) (err error) {
		answer, err = c.jobs.CreateJob(ctx, q)
		leave()
		return err
	})
	return answer, err
}

// createCoalesced registers jobs by one call that is tried once. It gives ids to those that
// have none.
func (c *Client) createCoalesced(ctx context.Context, requests []*fermatav1.CreateJobRequest) ([]Created, error) {
	assignGroupedIDs(c.options.Namespace, requests)
	answer, err := c.jobs.BatchCreateJobs(ctx, &fermatav1.BatchCreateJobsRequest{Parent: c.namespaceName(), Requests: requests})
	results := make([]Created, len(answer.GetResults()))
	for i, r := range answer.GetResults() {
		results[i] = newCreated(r)
	}
	return results, err
}

// NewJob is one entry of CreateJobs. If ID is empty, one is made: see [Client.CreateJob].
type NewJob struct {
	ID  string
	Job *Job
}

// Created is what became of a NewJob: a job, or an error.
type Created struct {
	Job *Job
	Err error
}

// Bounds of one BatchCreateJobs call.
const (
	maxBatchJobs     = 1000
	maxBatchJobBytes = 8 << 20
)

// CreateJobs registers any number of jobs in batches. Each has a result of its
// own; the error is that of a call that failed as a whole, after which the
// results of the later ones are missing.
func (c *Client) CreateJobs(ctx context.Context, jobs []NewJob) ([]Created, error) {
	return c.createBatches(ctx, jobs, false)
}

// CreateJobNames is CreateJobs for callers that do not look at what was stored: the
// jobs of the results have Name and Etag and nothing else, which costs both sides a good
// deal less.
func (c *Client) CreateJobNames(ctx context.Context, jobs []NewJob) ([]Created, error) {
	return c.createBatches(ctx, jobs, true)
}

func (c *Client) createBatches(ctx context.Context, jobs []NewJob, namesOnly bool) ([]Created, error) {
	results := make([]Created, 0, len(jobs))
	for len(jobs) > 0 {
		q := &fermatav1.BatchCreateJobsRequest{Parent: c.namespaceName(), NamesOnly: namesOnly}
		size := 0
		for _, j := range jobs {
			size += proto.Size(j.Job)
			if n := len(q.Requests); n == maxBatchJobs || (n > 0 && size > maxBatchJobBytes) {
				break
			}
			item := &fermatav1.CreateJobRequest{JobId: j.ID, Job: j.Job}
			if j.ID == "" {
				item.RequestId = NewRequestID()
			}
			q.Requests = append(q.Requests, item)
		}
		assignGroupedIDs(c.options.Namespace, q.Requests)
		answer, err := callWithRetry(ctx, c, c.jobs.BatchCreateJobs, q)
		if err != nil {
			return results, err
		}
		for _, r := range answer.GetResults() {
			results = append(results, newCreated(r))
		}
		jobs = jobs[len(q.Requests):]
	}
	return results, nil
}

func newCreated(r *fermatav1.BatchCreateJobsResponse_Result) Created {
	if codes.Code(r.GetCode()) == codes.OK {
		return Created{Job: r.GetJob()}
	}
	return Created{Err: status.ErrorProto(statusProto(r))}
}

// GetJob returns a job.
func (c *Client) GetJob(ctx context.Context, job string) (*Job, error) {
	return callWithRetry(ctx, c, c.jobs.GetJob, &fermatav1.GetJobRequest{Name: c.JobName(job)})
}

// Selection says which jobs of the client's namespace are meant; what is zero
// does not matter.
type Selection struct {
	Queue    string
	IDPrefix string
	Labels   map[string]string
}

// Filter selects jobs; what is zero does not matter.
type Filter struct {
	Selection
	State fermatav1.JobStatus_State
	// MinFailures in a row.
	MinFailures int64
	// PageSize of one call, 1 to 1000. Default 100.
	PageSize int32
}

// Jobs lists the jobs of the client's namespace in no particular order, page by
// page as they are asked for. It ends after the first error.
func (c *Client) Jobs(ctx context.Context, f Filter) iter.Seq2[*Job, error] {
	return func(yield func(*Job, error) bool) {
		for token := ""; ; {
			jobs, next, err := c.ListJobs(ctx, f, token)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, j := range jobs {
				if !yield(j, nil) {
					return
				}
			}
			if token = next; token == "" {
				return
			}
		}
	}
}

// ListJobs returns one page, and the token of the next one, empty after the last.
func (c *Client) ListJobs(ctx context.Context, f Filter, token string) ([]*Job, string, error) {
	r, err := callWithRetry(ctx, c, c.jobs.ListJobs, &fermatav1.ListJobsRequest{
		Parent: c.namespaceName(), PageSize: f.PageSize, PageToken: token, Queue: f.Queue, State: f.State,
		IdPrefix: f.IDPrefix, Labels: f.Labels, MinConsecutiveFailures: f.MinFailures,
	})
	return r.GetJobs(), r.GetNextPageToken(), err
}

// UpdateJob sets the fields that the paths name ("schedule",
// "retry_policy.max_attempts"; "*" is all) to what j has there. j.Name tells
// which job; with j.Etag set, an edit in between refuses the call ([IsConflict]).
func (c *Client) UpdateJob(ctx context.Context, j *Job, paths ...string) (*Job, error) {
	q := proto.CloneOf(j)
	q.Name = c.JobName(j.GetName())
	return callWithRetry(ctx, c, c.jobs.UpdateJob, &fermatav1.UpdateJobRequest{
		Job: q, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}, RequestId: NewRequestID(),
	})
}

// DeleteJob removes a job; a live run is left to finish. A non-empty etag
// refuses the call after an edit.
func (c *Client) DeleteJob(ctx context.Context, job, etag string) error {
	return c.retryCall(ctx, func(attempt int) error {
		// A repetition finds no job if the first try worked and its answer was lost.
		_, err := c.jobs.DeleteJob(ctx, &fermatav1.DeleteJobRequest{
			Name: c.JobName(job), Etag: etag, AllowMissing: attempt > 1,
		})
		return err
	})
}

// PauseJob holds a job; the note tells people why.
func (c *Client) PauseJob(ctx context.Context, job, note string) (*Job, error) {
	return callWithRetry(ctx, c, c.jobs.PauseJob, &fermatav1.PauseJobRequest{Name: c.JobName(job), Note: note})
}

// ResumeJob ends a pause. Nominal times that passed meanwhile are skipped, or,
// with catchUp, handed to the job's misfire policy.
func (c *Client) ResumeJob(ctx context.Context, job string, catchUp bool) (*Job, error) {
	return callWithRetry(ctx, c, c.jobs.ResumeJob, &fermatav1.ResumeJobRequest{Name: c.JobName(job), CatchUp: catchUp})
}

// PauseJobs holds all jobs that are selected and not held yet, and tells how many
// those were. After an error n have been paused, and the call can be repeated.
func (c *Client) PauseJobs(ctx context.Context, s Selection, note string) (n int, err error) {
	for token := ""; ; {
		r, err := callWithRetry(ctx, c, c.jobs.PauseJobs, &fermatav1.PauseJobsRequest{
			Parent: c.namespaceName(), Queue: s.Queue, IdPrefix: s.IDPrefix, Labels: s.Labels, Note: note, PageToken: token,
		})
		n += int(r.GetPaused())
		if token = r.GetNextPageToken(); err != nil || token == "" {
			return n, err
		}
	}
}

// ResumeOptions say what becomes of paused jobs.
type ResumeOptions struct {
	// CatchUp hands nominal times that passed meanwhile to the job's misfire policy.
	// Otherwise they are skipped.
	CatchUp bool
	// Note, if there is one, leaves out jobs that were paused with another note.
	Note string
}

// ResumeJobs ends the pause of all jobs that are selected and tells of how many.
// They start paced by the recovery budget of their queue. After an error n have
// been resumed; the rest is still paused, so that the call can be repeated.
func (c *Client) ResumeJobs(ctx context.Context, s Selection, o ResumeOptions) (n int, err error) {
	for token := ""; ; {
		r, err := callWithRetry(ctx, c, c.jobs.ResumeJobs, &fermatav1.ResumeJobsRequest{
			Parent: c.namespaceName(), Queue: s.Queue, IdPrefix: s.IDPrefix, Labels: s.Labels, Note: o.Note, CatchUp: o.CatchUp, PageToken: token,
		})
		n += int(r.GetResumed())
		if token = r.GetNextPageToken(); err != nil || token == "" {
			return n, err
		}
	}
}

// HintJob overrides when the job runs next, or how often for a while; nil takes
// the hint that is in force back.
func (c *Client) HintJob(ctx context.Context, job string, h *Hint) (*Job, error) {
	return callWithRetry(ctx, c, c.jobs.HintJob, &fermatav1.HintJobRequest{Name: c.JobName(job), Hint: h})
}

// ExplainJob tells why the job does not run right now, and what it waits for.
func (c *Client) ExplainJob(ctx context.Context, job string) (*fermatav1.ExplainJobResponse, error) {
	return callWithRetry(ctx, c, c.jobs.ExplainJob, &fermatav1.ExplainJobRequest{Name: c.JobName(job)})
}

// Top lists the jobs that are latest, or that fail longest, the worst first: of the
// client's namespace, or of all. limit is 1 to 100, 0 is 20.
func (c *Client) Top(ctx context.Context, kind fermatav1.TopJobsRequest_Kind, all bool, limit int) ([]*fermatav1.TopJob, error) {
	q := &fermatav1.TopJobsRequest{Parent: c.namespaceName(), Kind: kind, Limit: int32(limit)}
	if all {
		q.Parent = ""
	}
	r, err := callWithRetry(ctx, c, c.jobs.TopJobs, q)
	return r.GetJobs(), err
}

// PreviewSchedule returns due times of a schedule without storing it.
func (c *Client) PreviewSchedule(ctx context.Context, q *fermatav1.PreviewScheduleRequest) (*fermatav1.PreviewScheduleResponse, error) {
	return callWithRetry(ctx, c, c.jobs.PreviewSchedule, q)
}

// Presets lists the well-known policies that a job can name.
func (c *Client) Presets(ctx context.Context) ([]*fermatav1.Preset, error) {
	r, err := callWithRetry(ctx, c, c.jobs.ListPresets, &fermatav1.ListPresetsRequest{})
	return r.GetPresets(), err
}
