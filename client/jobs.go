package client

import (
	"cmp"
	"context"
	"iter"
	"sync"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// CreateJob creates a job with this id in the client's namespace. If id is empty, an id is
// generated so that jobs of one batch are stored together, which is cheapest for the cluster.
// Creating the same job twice succeeds; if another job has the id, the error is [ErrAlreadyExists].
//
// Concurrent calls may share a call to the cluster, if they have the same token. Each still has its own result,
// and its own context: a caller that gives up leaves the others alone. A call with metadata or a sampled span in ctx
// is always sent alone, and so are all with [Options].SeparateCreates. A job that exists and was edited since may come
// without its payload, if that has 4 KiB more than the one in the call.
func (c *Client) CreateJob(ctx context.Context, id string, j *Job) (*Job, error) {
	q := &fermatav1.CreateJobRequest{Parent: c.namespaceName(), JobId: id, Job: j, RequestId: requestIDOf(ctx)}
	// The cluster derives the id of a job without one from the request id, so that a retry finds the job. The id that
	// a batch would assign differs each time, and the program may repeat a request id of its own later.
	alone := c.options.SeparateCreates || id == "" && q.RequestId != ""
	if id == "" && q.RequestId == "" {
		q.RequestId = NewRequestID()
	}
	if alone || !isBatched(ctx, proto.Size(j)) {
		return callWithRetry(ctx, c, c.jobs.CreateJob, q)
	}
	place, result, err := c.createBatcher.enqueue(ctx, q)
	switch {
	case err != nil:
		return nil, wrapError(status.FromContextError(err).Err())
	case place:
		return c.createBatched(ctx, q)
	case result == nil: // no batch was sent in time, or it failed as a whole
		return callWithRetry(ctx, c, c.jobs.CreateJob, q)
	}
	if _, again := delayAfter(result.Err, 1); again {
		return callWithRetry(ctx, c, c.jobs.CreateJob, q)
	}
	return result.Job, result.Err
}

// createBatched creates a job by a call of its own. Others wait for the call, but not while it pauses before a
// retry.
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

// NewJob is one job of CreateJobs. If ID is empty, an id is generated: see [Client.CreateJob].
type NewJob struct {
	ID  string
	Job *Job
}

// CreateResult is the result for a [NewJob]: a job or an error.
type CreateResult struct {
	Job *Job
	Err error
}

// Limits of one BatchCreateJobs call.
const (
	maxBatchJobs     = 1000
	maxBatchJobBytes = 8 << 20
)

// CreateJobsOptions configure [Client.CreateJobs].
type CreateJobsOptions struct {
	// NamesOnly returns jobs that have only Name and Etag, which costs client and cluster much less.
	NamesOnly bool
}

// CreateJobs creates any number of jobs in batches. Each has its own result. The error is that of a call that
// failed as a whole; the results of later jobs are then missing.
func (c *Client) CreateJobs(ctx context.Context, jobs []NewJob, o CreateJobsOptions) ([]CreateResult, error) {
	results := make([]CreateResult, 0, len(jobs))
	for len(jobs) > 0 {
		q := &fermatav1.BatchCreateJobsRequest{Parent: c.namespaceName(), NamesOnly: o.NamesOnly}
		size := 0
		for _, j := range jobs {
			size += proto.Size(j.Job)
			if n := len(q.Requests); n == maxBatchJobs || (n > 0 && size > maxBatchJobBytes) {
				break
			}
			item := &fermatav1.CreateJobRequest{JobId: j.ID, Job: j.Job, RequestId: requestIDOf(ctx)}
			if j.ID == "" && item.RequestId == "" {
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
			results = append(results, newCreateResult(r))
		}
		jobs = jobs[len(q.Requests):]
	}
	return results, nil
}

func newCreateResult(r *fermatav1.BatchCreateJobsResponse_Result) CreateResult {
	if err := itemError(r); err != nil {
		return CreateResult{Err: err}
	}
	return CreateResult{Job: r.GetJob()}
}

// GetJob returns a job.
func (c *Client) GetJob(ctx context.Context, job string) (*Job, error) {
	return callWithRetry(ctx, c, c.jobs.GetJob, &fermatav1.GetJobRequest{Name: c.JobName(job)})
}

// Selection selects jobs of the client's namespace. Zero fields select all.
type Selection struct {
	Queue    string
	IDPrefix string
	Labels   map[string]string
}

// Filter selects jobs. Zero fields select all.
type Filter struct {
	Selection
	State JobState
	// MinFailures is the minimum number of failed runs in a row.
	MinFailures int64
	// Expression is a filter in the language of AIP-160, such as `queue = mail AND failing = true`.
	Expression string
	// OrderBy is the order of the jobs: "id", "next_due_time", "consecutive_failures desc" or "last_run_time desc".
	// Default "": no particular order.
	OrderBy string
	// AllNamespaces selects the jobs of all namespaces that the caller may see, instead of the client's namespace.
	AllNamespaces bool
	// PageSize is the number of jobs per call, 1 to 1000. Default 100.
	PageSize int32
}

// Jobs returns the selected jobs in the order of the filter. It requests pages as they
// are needed, and ends after the first error.
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
			token = next
			if token == "" {
				return
			}
		}
	}
}

// ListJobs returns one page of jobs and the token of the next page, which is empty after the last.
func (c *Client) ListJobs(ctx context.Context, f Filter, token string) ([]*Job, string, error) {
	r, err := callWithRetry(ctx, c, c.jobs.ListJobs, &fermatav1.ListJobsRequest{
		Parent: c.spanningParent(f.AllNamespaces), OrderBy: f.OrderBy, PageSize: f.PageSize,
		PageToken: token, Queue: f.Queue, State: f.State,
		IdPrefix: f.IDPrefix, Labels: f.Labels, MinConsecutiveFailures: f.MinFailures, Filter: f.Expression,
	})
	return r.GetJobs(), r.GetNextPageToken(), err
}

// UpcomingOptions configure [Client.UpcomingRuns].
type UpcomingOptions struct {
	// Expression selects jobs, as in [Filter].
	Expression string
	// AllNamespaces selects the jobs of all namespaces that the caller may see, instead of the client's namespace.
	AllNamespaces bool
	// ExcludeHeld leaves out runs that a gate holds back, and runs of paused queues.
	ExcludeHeld bool
	// Limit is the maximum number of runs. Default 20.
	Limit int
}

// UpcomingRuns returns the planned runs that are due next, in the order of their due times.
func (c *Client) UpcomingRuns(ctx context.Context, o UpcomingOptions) ([]*UpcomingRun, error) {
	limit := cmp.Or(o.Limit, 20)
	var runs []*UpcomingRun
	for token := ""; ; {
		r, err := callWithRetry(ctx, c, c.jobs.ListUpcomingJobs, &fermatav1.ListUpcomingJobsRequest{
			Parent: c.spanningParent(o.AllNamespaces), Filter: o.Expression, ExcludeHeld: o.ExcludeHeld,
			PageSize: int32(min(limit-len(runs), 1000)), PageToken: token,
		})
		runs = append(runs, r.GetRuns()...)
		token = r.GetNextPageToken()
		if err != nil || token == "" || len(runs) >= limit {
			return runs, err
		}
	}
}

// UpdateJob sets the fields named by paths, such as "schedule" or "retry_policy.max_attempts", to their values
// in j; "*" sets all. j.Name names the job. With j.Etag set, as it is after a read, the call fails with
// [ErrConflict] if the job was changed since: read it again and repeat the change.
func (c *Client) UpdateJob(ctx context.Context, j *Job, paths ...string) (*Job, error) {
	q := proto.CloneOf(j)
	q.Name = c.JobName(j.GetName())
	return callWithRetry(ctx, c, c.jobs.UpdateJob, &fermatav1.UpdateJobRequest{
		Job: q, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}, RequestId: cmp.Or(requestIDOf(ctx), NewRequestID()),
	})
}

// DeleteOptions configure [Client.DeleteJob].
type DeleteOptions struct {
	// Etag is that of the job as it was read. If the job was changed since, the call fails with [ErrConflict].
	// Default "": the job is deleted in any case.
	Etag string
}

// DeleteJob deletes a job. A live run finishes.
func (c *Client) DeleteJob(ctx context.Context, job string, o DeleteOptions) error {
	return c.retryCall(ctx, func(attempt int) error {
		// A retry finds no job if the first attempt succeeded and its response was lost.
		_, err := c.jobs.DeleteJob(ctx, &fermatav1.DeleteJobRequest{
			Name: c.JobName(job), Etag: o.Etag, AllowMissing: attempt > 1,
		})
		return err
	})
}

// PauseOptions configure [Client.PauseJob] and [Client.PauseJobs].
type PauseOptions struct {
	// Note explains the pause to people.
	Note string
}

// PauseJob pauses a job until [Client.ResumeJob] is called. A live run continues.
func (c *Client) PauseJob(ctx context.Context, job string, o PauseOptions) (*Job, error) {
	return callWithRetry(ctx, c, c.jobs.PauseJob, &fermatav1.PauseJobRequest{Name: c.JobName(job), Note: o.Note})
}

// ResumeOptions configure [Client.ResumeJob] and [Client.ResumeJobs].
type ResumeOptions struct {
	// CatchUp handles scheduled times that passed during the pause by the job's misfire policy. Otherwise they
	// are skipped.
	CatchUp bool
}

// ResumeJob ends a pause.
func (c *Client) ResumeJob(ctx context.Context, job string, o ResumeOptions) (*Job, error) {
	return callWithRetry(ctx, c, c.jobs.ResumeJob,
		&fermatav1.ResumeJobRequest{Name: c.JobName(job), CatchUp: o.CatchUp})
}

// PauseJobs pauses the selected jobs that are not paused yet, and returns their number. After an error n jobs
// have been paused, and the call can be repeated.
func (c *Client) PauseJobs(ctx context.Context, s Selection, o PauseOptions) (n int, err error) {
	for token := ""; ; {
		r, err := callWithRetry(ctx, c, c.jobs.PauseJobs, &fermatav1.PauseJobsRequest{
			Parent: c.namespaceName(), Queue: s.Queue, IdPrefix: s.IDPrefix, Labels: s.Labels, Note: o.Note,
			PageToken: token,
		})
		n += int(r.GetPaused())
		token = r.GetNextPageToken()
		if err != nil || token == "" {
			return n, err
		}
	}
}

// PausedSelection selects paused jobs.
type PausedSelection struct {
	Selection
	// Note selects the jobs that were paused with this note. Default "": all.
	Note string
}

// ResumeJobs resumes the selected paused jobs and returns their number. They start at the recovery rate of their
// queue. After an error n jobs have been resumed, and the call can be repeated for the rest.
func (c *Client) ResumeJobs(ctx context.Context, s PausedSelection, o ResumeOptions) (n int, err error) {
	for token := ""; ; {
		r, err := callWithRetry(ctx, c, c.jobs.ResumeJobs, &fermatav1.ResumeJobsRequest{
			Parent: c.namespaceName(), Queue: s.Queue, IdPrefix: s.IDPrefix, Labels: s.Labels, Note: s.Note,
			CatchUp: o.CatchUp, PageToken: token,
		})
		n += int(r.GetResumed())
		token = r.GetNextPageToken()
		if err != nil || token == "" {
			return n, err
		}
	}
}

// HintJob overrides when the job runs next, or how often it runs for a while. A nil hint removes the current
// hint.
func (c *Client) HintJob(ctx context.Context, job string, h *Hint) (*Job, error) {
	return callWithRetry(ctx, c, c.jobs.HintJob, &fermatav1.HintJobRequest{Name: c.JobName(job), Hint: h})
}

// ExplainJob returns why the job does not run now, and what it waits for.
func (c *Client) ExplainJob(ctx context.Context, job string) (*Explanation, error) {
	return callWithRetry(ctx, c, c.jobs.ExplainJob, &fermatav1.ExplainJobRequest{Name: c.JobName(job)})
}

// TopKind is the order of [Client.TopJobs].
type TopKind = fermatav1.TopJobsRequest_Kind

// Values of [TopKind]: the jobs that are latest, or those that have failed longest.
const (
	TopLate    = fermatav1.TopJobsRequest_KIND_LATE
	TopFailing = fermatav1.TopJobsRequest_KIND_FAILING
)

// TopOptions configure [Client.TopJobs].
type TopOptions struct {
	// AllNamespaces selects the jobs of all namespaces, instead of the client's namespace.
	AllNamespaces bool
	// Limit is the maximum number of jobs, 1 to 100. Default 20.
	Limit int
}

// TopJobs returns the worst jobs of a kind, the worst first. The list says if jobs may be missing.
func (c *Client) TopJobs(ctx context.Context, kind TopKind, o TopOptions) (*TopList, error) {
	return callWithRetry(ctx, c, c.jobs.TopJobs,
		&fermatav1.TopJobsRequest{Parent: c.listParent(o.AllNamespaces), Kind: kind, Limit: int32(o.Limit)})
}

// PreviewSchedule returns due times of a schedule without storing it.
func (c *Client) PreviewSchedule(ctx context.Context, q *PreviewRequest) (*Preview, error) {
	return callWithRetry(ctx, c, c.jobs.PreviewSchedule, q)
}

// Presets returns the policies that a job can refer to by name.
func (c *Client) Presets(ctx context.Context) ([]*Preset, error) {
	r, err := callWithRetry(ctx, c, c.jobs.ListPresets, &fermatav1.ListPresetsRequest{})
	return r.GetPresets(), err
}
