package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/jobfilter"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// queueScopedJobs limits callers whose roles name queues to the jobs of these queues. To such a caller a job of another
// queue does not exist. The queue of a job is that of its definition. Every method of [Jobs] is here, so that a new one
// has to be decided on.
//
// A job may move to another queue between this check and the call. So the code that carries out the calls asks
// [guard.ReachableQueues] where it reads a job and where it stores a change.
type queueScopedJobs struct{ inner Jobs }

// checkVisible denies access to a job of another queue.
func (j queueScopedJobs) checkVisible(ctx context.Context, key job.Key) error {
	scope := guard.RoleScopeFrom(ctx, key.Namespace)
	if scope == nil {
		return nil
	}
	record, err := j.inner.Get(ctx, key)
	if err == nil && !scope.Covers(record.Definition.Queue) {
		return &job.MissingError{Key: key}
	}
	return err
}

// requireCoveredQueue denies a call that changes all jobs which a filter selects, unless that names a
// queue of the caller.
func requireCoveredQueue(ctx context.Context, f job.Filter) error {
	if scope := guard.RoleScopeFrom(ctx, f.Namespace); scope != nil {
		return scope.Check(ctx, f.Queue)
	}
	return nil
}

// restrictListing is requireCoveredQueue for a listing. Without a queue the caller may go through all jobs, and the
// filter that it returns hides those of other queues. Listings of callers who may not see everything read only the
// lanes that they may see. Where these are more than one call may read, a listing walks all jobs: hidden ones take no
// place of a page and are named by no token, but how soon pages end shows that there are others.
func restrictListing(ctx context.Context, f job.Filter) (job.Filter, error) {
	f.Limited = isLimitedCaller(ctx)
	if f.AllNamespaces {
		f.Scope = reachableOfAll(ctx)
		return f, nil
	}
	scope := guard.RoleScopeFrom(ctx, f.Namespace)
	if scope == nil {
		return f, nil
	}
	f.Covers = scope.Covers
	if f.Queue == "" {
		return f, nil
	}
	return f, scope.Check(ctx, f.Queue)
}

// isLimitedCaller reports whether the caller may not see all namespaces.
func isLimitedCaller(ctx context.Context) bool {
	return guard.RoleScopeFrom(ctx, authz.AllNamespaces) != nil
}

// reachableOfAll are the queues of all namespaces that the caller may reach; nil: all.
func reachableOfAll(ctx context.Context) job.QueueScope {
	if guard.RoleScopeFrom(ctx, authz.AllNamespaces) == nil {
		return nil
	}
	reach, known := guard.ReachableQueues(ctx), map[job.QueueKey]bool{}
	return func(q job.QueueKey) bool {
		covered, ok := known[q]
		if !ok {
			covered = reach(q)
			known[q] = covered
		}
		return covered
	}
}

func (j queueScopedJobs) Create(ctx context.Context, d job.Definition, requestID string) (job.Record, error) {
	scope := guard.RoleScopeFrom(ctx, d.Key.Namespace)
	if scope == nil {
		return j.inner.Create(ctx, d, requestID)
	}
	if err := scope.Check(ctx, d.Queue); err != nil {
		return job.Record{}, err
	}
	record, err := j.inner.Create(ctx, d, requestID)
	j.hideHoldersOfJobs(ctx, &record)
	answer := hideMoved(scope, job.CreateAnswer{Record: record, Err: err})
	return answer.Record, j.explainTaken(ctx, scope, d.Key, answer.Err)
}

// explainTaken replaces the error for an id that belongs to a job of another queue: the caller can neither see nor
// change that job, and needs to know only that the id is taken.
func (j queueScopedJobs) explainTaken(ctx context.Context, scope *guard.RoleScope, key job.Key, err error) error {
	var exists *job.ExistsError
	if scope == nil || !errors.As(err, &exists) {
		return err
	}
	record, getErr := j.inner.Get(ctx, key)
	if getErr != nil && !isNotFound(getErr) || getErr == nil && scope.Covers(record.Definition.Queue) {
		return err
	}
	return apierror.WithDetails(codes.AlreadyExists,
		fmt.Sprintf("the id %q is taken by a job of a queue that your roles do not cover", key.ID),
		&errdetails.ErrorInfo{Reason: "ID_OF_OTHER_QUEUE", Domain: apierror.Domain}).Err()
}

func (j queueScopedJobs) CreateBatch(ctx context.Context, requests []job.CreateRequest) []job.CreateAnswer {
	answers := make([]job.CreateAnswer, len(requests))
	scopes := make([]*guard.RoleScope, len(requests))
	good, place := make([]job.CreateRequest, 0, len(requests)), make([]int, 0, len(requests))
	for i, q := range requests {
		d := &q.Definition
		scopes[i] = guard.RoleScopeFrom(ctx, d.Key.Namespace)
		if scopes[i] != nil && !scopes[i].Covers(d.Queue) {
			answers[i].Err = scopes[i].DenyItem(ctx, i, d.Key.ID, d.Queue)
			continue
		}
		good, place = append(good, q), append(place, i)
	}
	for i, answer := range j.inner.CreateBatch(ctx, good) {
		if scope := scopes[place[i]]; scope != nil {
			answer = hideMoved(scope, answer)
			answer.Err = j.explainTaken(ctx, scope, good[i].Definition.Key, answer.Err)
		}
		answers[place[i]] = answer
	}
	j.hideHoldersOfJobs(ctx, pointersTo(answers, func(a *job.CreateAnswer) *job.Record { return &a.Record })...)
	return answers
}

// hideMoved refuses to answer a repeated request with a job that has been moved to another
// queue since its creation.
func hideMoved(scope *guard.RoleScope, answer job.CreateAnswer) job.CreateAnswer {
	if d := answer.Record.Definition; answer.Err == nil && d != nil && !scope.Covers(d.Queue) {
		return job.CreateAnswer{Err: &job.ExistsError{Key: d.Key, Reason: "it has another definition"}}
	}
	return answer
}

func (j queueScopedJobs) Get(ctx context.Context, key job.Key) (job.Record, error) {
	record, err := j.inner.Get(ctx, key)
	if err == nil {
		if scope := guard.RoleScopeFrom(ctx, key.Namespace); scope != nil && !scope.Covers(record.Definition.Queue) {
			return job.Record{}, &job.MissingError{Key: key}
		}
	}
	j.hideHoldersOfJobs(ctx, &record)
	return record, err
}

func (j queueScopedJobs) List(ctx context.Context, f job.Filter, pageSize int, token string) (job.Page, error) {
	f, err := restrictListing(ctx, f)
	if err != nil {
		return job.Page{}, err
	}
	page, err := j.inner.List(ctx, f, pageSize, token)
	j.hideHoldersOfJobs(ctx, pointersTo(page.Records, func(r *job.Record) *job.Record { return r })...)
	return page, err
}

// Update looks at the queue that the job has and at the one that it is to have, both of the
// definitions that are compared and written together.
func (j queueScopedJobs) Update(ctx context.Context, u job.UpdateRequest) (job.Record, error) {
	scope := guard.RoleScopeFrom(ctx, u.Key.Namespace)
	if scope == nil {
		return j.inner.Update(ctx, u)
	}
	u.Check = func(present job.Definition) error {
		if !scope.Covers(present.Queue) {
			return &job.MissingError{Key: u.Key}
		}
		return nil
	}
	merge := u.Merge
	u.Merge = func(present job.Definition) (job.Definition, error) {
		next, err := merge(present)
		if err == nil {
			err = scope.Check(ctx, next.Queue)
		}
		return next, err
	}
	record, err := j.inner.Update(ctx, u)
	j.hideHoldersOfJobs(ctx, &record)
	return record, err
}

func (j queueScopedJobs) Delete(ctx context.Context, key job.Key, etag string) error {
	if err := j.checkVisible(ctx, key); err != nil {
		return err
	}
	return j.inner.Delete(ctx, key, etag)
}

func (j queueScopedJobs) Pause(ctx context.Context, key job.Key, note string) (job.Record, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.Record{}, err
	}
	record, err := j.inner.Pause(ctx, key, note)
	j.hideHoldersOfJobs(ctx, &record)
	return record, err
}

func (j queueScopedJobs) Resume(ctx context.Context, key job.Key, catchUp bool) (job.Record, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.Record{}, err
	}
	record, err := j.inner.Resume(ctx, key, catchUp)
	j.hideHoldersOfJobs(ctx, &record)
	return record, err
}

func (j queueScopedJobs) RunJob(ctx context.Context,
	key job.Key, q job.RequestManualRun) (v job.RunView, joined bool, err error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.RunView{}, false, err
	}
	v, joined, err = j.inner.RunJob(ctx, key, q)
	j.hideHoldersOfRuns(ctx, key.Namespace, &v)
	return v, joined, err
}

func (j queueScopedJobs) RunJobWithPayload(ctx context.Context, key job.Key,
	q job.RunWithPayloadRequest) (job.RunView, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.RunView{}, err
	}
	v, err := j.inner.RunJobWithPayload(ctx, key, q)
	j.hideHoldersOfRuns(ctx, key.Namespace, &v)
	return v, err
}

func (j queueScopedJobs) ListRuns(ctx context.Context, key job.Key) ([]job.RunView, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return nil, err
	}
	runs, err := j.inner.ListRuns(ctx, key)
	j.hideHoldersOfRuns(ctx, key.Namespace, pointersTo(runs, func(v *job.RunView) *job.RunView { return v })...)
	return runs, err
}

// RecentRuns is for jobs of a list, which has those of the caller only. The registry leaves out their dead runs of
// other queues, as it does for ListRuns and GetRun.
func (j queueScopedJobs) RecentRuns(ctx context.Context, records []job.Record, most int) ([][]job.Run, error) {
	return j.inner.RecentRuns(ctx, records, most)
}

func (j queueScopedJobs) ListEndedRuns(ctx context.Context, q job.EndedRunsQuery) (job.EndedRunsPage, error) {
	f, err := restrictListing(ctx, q.Filter)
	if err != nil {
		return job.EndedRunsPage{}, err
	}
	q.Filter = f
	return j.inner.ListEndedRuns(ctx, q)
}

func (j queueScopedJobs) GetRun(ctx context.Context, key job.Key, runID string) (job.RunView, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.RunView{}, err
	}
	v, err := j.inner.GetRun(ctx, key, runID)
	j.hideHoldersOfRuns(ctx, key.Namespace, &v)
	return v, err
}

func (j queueScopedJobs) CancelRun(ctx context.Context, key job.Key, runID string) (job.RunView, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.RunView{}, err
	}
	v, err := j.inner.CancelRun(ctx, key, runID)
	j.hideHoldersOfRuns(ctx, key.Namespace, &v)
	return v, err
}

func (j queueScopedJobs) Preview(ctx context.Context, p job.PreviewRequest) (job.Preview, error) {
	if p.Job != (job.Key{}) {
		if err := j.checkVisible(ctx, p.Job); err != nil {
			return job.Preview{}, err
		}
	}
	return j.inner.Preview(ctx, p)
}

func (j queueScopedJobs) Hint(ctx context.Context, key job.Key, h job.Hint) (job.Record, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.Record{}, err
	}
	record, err := j.inner.Hint(ctx, key, h)
	j.hideHoldersOfJobs(ctx, &record)
	return record, err
}

// Explain leaves holders to the registry: the text names them too.
func (j queueScopedJobs) Explain(ctx context.Context, key job.Key) (job.ExplainedJob, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.ExplainedJob{}, err
	}
	return j.inner.Explain(ctx, key)
}

func (j queueScopedJobs) ListUpcoming(ctx context.Context, q job.UpcomingQuery) (job.UpcomingPage, error) {
	f, err := restrictListing(ctx, q.Filter)
	if err != nil {
		return job.UpcomingPage{}, err
	}
	q.Filter = f
	page, err := j.inner.ListUpcoming(ctx, q)
	j.hideHoldersOfJobs(ctx, pointersTo(page.Runs, func(r *job.UpcomingRun) *job.Record { return &r.Record })...)
	return page, err
}

func (j queueScopedJobs) TopJobs(ctx context.Context, q job.TopQuery) (job.TopList, error) {
	q.Covers = guard.RoleScopeFrom(ctx, cmp.Or(q.Namespace, authz.AllNamespaces)).Filter()
	list, err := j.inner.TopJobs(ctx, q)
	j.hideHoldersOfJobs(ctx, pointersTo(list.Jobs, func(t *job.TopJob) *job.Record { return &t.Record })...)
	return list, err
}

func (j queueScopedJobs) Backfill(ctx context.Context, key job.Key, q job.BackfillRequest) (job.Record, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.Record{}, err
	}
	record, err := j.inner.Backfill(ctx, key, q)
	j.hideHoldersOfJobs(ctx, &record)
	return record, err
}

func (j queueScopedJobs) CancelBackfill(ctx context.Context, key job.Key, id string) (job.Record, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.Record{}, err
	}
	record, err := j.inner.CancelBackfill(ctx, key, id)
	j.hideHoldersOfJobs(ctx, &record)
	return record, err
}

func (j queueScopedJobs) ListDeadLetters(ctx context.Context, f job.Filter,
	pageSize int, token string) (job.DeadLetterPage, error) {
	f, err := restrictListing(ctx, f)
	if err != nil {
		return job.DeadLetterPage{}, err
	}
	return j.inner.ListDeadLetters(ctx, f, pageSize, token)
}

// RedriveDeadLetters takes a queue, or dead letters by their names, of jobs that the caller may see. A
// dead letter stays in the queue that its run had: both queues have to be the caller's.
func (j queueScopedJobs) RedriveDeadLetters(ctx context.Context, q job.RedriveRequest) (job.Bulk, error) {
	if len(q.Records) == 0 {
		if err := requireCoveredQueue(ctx, q.Filter); err != nil {
			return job.Bulk{}, err
		}
	}
	for _, record := range q.Records {
		key := record.Key()
		if err := j.checkVisible(ctx, key); err != nil {
			return job.Bulk{}, err
		}
	}
	q.Filter.Covers, q.Filter.Limited = guard.RoleScopeFrom(ctx, q.Filter.Namespace).Filter(), isLimitedCaller(ctx)
	return j.inner.RedriveDeadLetters(ctx, q)
}

func (j queueScopedJobs) DiscardDeadLetter(ctx context.Context, record job.RecordID, runID string) error {
	key := record.Key()
	if err := j.checkVisible(ctx, key); err != nil {
		return err
	}
	return j.inner.DiscardDeadLetter(ctx, record, runID)
}

func (j queueScopedJobs) ListTargets(ctx context.Context, f job.Filter, pageSize int,
	token string) (job.TargetPage, error) {
	f, err := restrictListing(ctx, f)
	if err != nil {
		return job.TargetPage{}, err
	}
	return j.inner.ListTargets(ctx, f, pageSize, token)
}

func (j queueScopedJobs) ListLocks(ctx context.Context, f job.Filter, pageSize int,
	token string) (job.LockPage, error) {
	f, err := restrictListing(ctx, f)
	if err != nil {
		return job.LockPage{}, err
	}
	return j.inner.ListLocks(ctx, f, pageSize, token)
}

// ProbeTarget and ResetTarget need a role for all queues: jobs of all queues may share a target.

func (j queueScopedJobs) ProbeTarget(ctx context.Context, namespace, target string) (job.ReleasedRuns, error) {
	return j.inner.ProbeTarget(ctx, namespace, target)
}

func (j queueScopedJobs) ResetTarget(ctx context.Context, namespace, target, token string) (job.ReleasedRuns, error) {
	return j.inner.ResetTarget(ctx, namespace, target, token)
}

func (j queueScopedJobs) PauseAll(ctx context.Context, f job.Filter, note, token string) (job.Bulk, error) {
	if err := requireCoveredQueue(ctx, f); err != nil {
		return job.Bulk{}, err
	}
	f.Limited = isLimitedCaller(ctx)
	return j.inner.PauseAll(ctx, f, note, token)
}

func (j queueScopedJobs) ResumeAll(ctx context.Context, f job.Filter,
	note string, catchUp bool, token string) (job.Bulk, error) {
	if err := requireCoveredQueue(ctx, f); err != nil {
		return job.Bulk{}, err
	}
	f.Limited = isLimitedCaller(ctx)
	return j.inner.ResumeAll(ctx, f, note, catchUp, token)
}

// ChangeMatching hides what is in other queues. A filter that names queues has to name queues of the caller.
func (j queueScopedJobs) ChangeMatching(ctx context.Context, q job.BulkRequest) (job.BulkPage, error) {
	q.Filter.Limited = isLimitedCaller(ctx)
	scope := guard.RoleScopeFrom(ctx, q.Filter.Namespace)
	if scope == nil {
		return j.inner.ChangeMatching(ctx, q)
	}
	if c, ok := q.Filter.Condition.(*jobfilter.Filter); ok {
		for _, queue := range c.Plan().Queues {
			if err := scope.Check(ctx, queue); err != nil {
				return job.BulkPage{}, err
			}
		}
	}
	q.Filter.Covers = scope.Covers
	return j.inner.ChangeMatching(ctx, q)
}

func (j queueScopedJobs) QueueSettings(ctx context.Context, q job.QueueKey) (job.QueueSettings, error) {
	if scope := guard.RoleScopeFrom(ctx, q.Namespace); scope != nil {
		if err := scope.Check(ctx, q.Queue); err != nil {
			return job.QueueSettings{}, err
		}
	}
	return j.inner.QueueSettings(ctx, q)
}

func (j queueScopedJobs) SetQueueSettings(ctx context.Context, q job.QueueKey,
	c job.QueueChange) (job.QueueSettings, error) {
	if scope := guard.RoleScopeFrom(ctx, q.Namespace); scope != nil {
		if err := scope.Check(ctx, q.Queue); err != nil {
			return job.QueueSettings{}, err
		}
	}
	return j.inner.SetQueueSettings(ctx, q, c)
}

func (j queueScopedJobs) PauseQueue(ctx context.Context, q job.QueueKey,
	until unixtime.Milli) (job.QueueSettings, error) {
	if scope := guard.RoleScopeFrom(ctx, q.Namespace); scope != nil {
		if err := scope.Check(ctx, q.Queue); err != nil {
			return job.QueueSettings{}, err
		}
	}
	return j.inner.PauseQueue(ctx, q, until)
}

func (j queueScopedJobs) PlanJobs(ctx context.Context, desired []job.DesiredJob, force bool) []job.ApplyResult {
	return j.hideHoldersOfChanges(ctx, j.inner.PlanJobs(ctx, limitDesiredJobs(ctx, desired), force))
}

func (j queueScopedJobs) ApplyJobs(ctx context.Context, desired []job.DesiredJob, force bool) []job.ApplyResult {
	return j.hideHoldersOfChanges(ctx, j.inner.ApplyJobs(ctx, limitDesiredJobs(ctx, desired), force))
}

// limitDesiredJobs has each desired job checked where its job is read. No desired job is left out before that,
// so that what is decided over all of them, such as a job that is named twice, holds.
func limitDesiredJobs(ctx context.Context, desired []job.DesiredJob) []job.DesiredJob {
	scopes := map[string]*guard.RoleScope{}
	limited := slices.Clone(desired)
	for i := range limited {
		w := &limited[i]
		namespace := w.Definition.Key.Namespace
		scope, known := scopes[namespace]
		if !known {
			scope = guard.RoleScopeFrom(ctx, namespace)
			scopes[namespace] = scope
		}
		if scope != nil {
			w.Check = func(present *job.Definition) error { return checkDesiredJob(ctx, scope, i, &desired[i], present) }
		}
	}
	return limited
}

// checkDesiredJob asks for the queue that a job has, which the answer does not name, and for the
// one that it is to have.
func checkDesiredJob(
	ctx context.Context, scope *guard.RoleScope, i int, w *job.DesiredJob, present *job.Definition,
) error {
	switch {
	case present != nil && !scope.Covers(present.Queue):
		return scope.DenyItem(ctx, i, w.Definition.Key.ID, "")
	case !w.Delete && !scope.Covers(w.Definition.Queue):
		return scope.DenyItem(ctx, i, w.Definition.Key.ID, w.Definition.Queue)
	}
	return nil
}

func (j queueScopedJobs) Revisions(ctx context.Context, key job.Key) (job.JobRevisions, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return nil, err
	}
	return j.inner.Revisions(ctx, key)
}

func (j queueScopedJobs) DiffRevisions(ctx context.Context, key job.Key, from, to uint32) (job.RevisionDiff, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.RevisionDiff{}, err
	}
	return j.inner.DiffRevisions(ctx, key, from, to)
}

func (j queueScopedJobs) RestoreRevision(ctx context.Context, key job.Key,
	revision uint32, etag, requestID string) (job.Record, error) {
	if err := j.checkVisible(ctx, key); err != nil {
		return job.Record{}, err
	}
	record, err := j.inner.RestoreRevision(ctx, key, revision, etag, requestID)
	j.hideHoldersOfJobs(ctx, &record)
	return record, err
}

// Rename is refused for a job of another queue. If there is no job, an earlier copy of the call may have renamed it:
// the registry answers that, and asks for the queue itself.
func (j queueScopedJobs) Rename(ctx context.Context, q job.RenameRequest) (job.Record, error) {
	scope := guard.RoleScopeFrom(ctx, q.Key.Namespace)
	if scope == nil {
		return j.inner.Rename(ctx, q)
	}
	record, err := j.inner.Get(ctx, q.Key)
	switch {
	case err == nil && !scope.Covers(record.Definition.Queue):
		return job.Record{}, &job.MissingError{Key: q.Key}
	case err != nil && !isNotFound(err):
		return job.Record{}, err
	}
	record, err = j.inner.Rename(ctx, q)
	j.hideHoldersOfJobs(ctx, &record)
	return record, j.explainTaken(ctx, scope, q.NewKey(), err)
}

// ExportJobs and Restore need a role for all queues: see allQueues in guard's table of permissions.

func (j queueScopedJobs) ExportJobs(ctx context.Context, f job.Filter, pageSize int,
	token string) (job.BackupPage, error) {
	f.Limited = isLimitedCaller(ctx)
	return j.inner.ExportJobs(ctx, f, pageSize, token)
}

func (j queueScopedJobs) Restore(ctx context.Context, backups []job.Backup, existing job.Existing) []job.RestoreAnswer {
	return j.inner.Restore(ctx, backups, existing)
}

// FindVisibleJobs asks for the queues itself.
func (j queueScopedJobs) FindVisibleJobs(ctx context.Context, keys []job.Key) (map[job.Key]bool, error) {
	return j.inner.FindVisibleJobs(ctx, keys)
}
