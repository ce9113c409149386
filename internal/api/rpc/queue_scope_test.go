package rpc

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/proto/externalscaler"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// twoQueues are jobs of namespace team-a: "mine" in queue mail, "theirs" in queue web. It
// fails the test when a call reaches it that is about the second.
type twoQueues struct {
	fakeJobs
	t *testing.T
}

func inQueue(id, queue string) job.Record {
	d := stored()
	d.Key, d.Queue = job.Key{Namespace: "team-a", ID: id}, queue
	return job.Record{Definition: &d}
}

// mine waits for a lock that theirs holds.
var mine, theirs = inQueue("mine", "mail"), inQueue("theirs", "web")

func init() {
	mine.State.Region, mine.State.Trigger, mine.State.Held = job.RegionDue, job.TriggerSchedule, heldByTheirs
}

var heldByTheirs = job.Hold{Reason: job.HeldLock, Key: "ledger", By: "theirs", SinceMS: 1}

// heldRun is a run that waits for a lock that theirs holds.
func heldRun() job.RunView { return job.RunView{Run: job.Run{ID: "1-1"}, Hold: heldByTheirs} }

func (f *twoQueues) FindVisibleJobs(_ context.Context, keys []job.Key) (map[job.Key]bool, error) {
	visible := map[job.Key]bool{}
	for _, key := range keys {
		visible[key] = key.ID == "mine"
	}
	return visible, nil
}

func (f *twoQueues) reached(key job.Key) (job.Record, error) {
	if key.ID != "mine" {
		f.t.Errorf("a call about %v went through", key)
	}
	return mine, nil
}

func (f *twoQueues) selects(filter job.Filter) {
	if filter.Queue != "mail" {
		f.t.Errorf("a call about queue %q went through", filter.Queue)
	}
}

func (f *twoQueues) Get(_ context.Context, key job.Key) (job.Record, error) {
	switch key.ID {
	case "mine":
		return mine, nil
	case "theirs":
		return theirs, nil
	}
	return job.Record{}, &job.MissingError{Key: key}
}

func (f *twoQueues) Create(_ context.Context, d job.Definition, _ string) (job.Record, error) {
	f.selects(job.Filter{Queue: d.Queue})
	if d.Key.ID == "theirs" || d.Key.ID == "mine" {
		return job.Record{}, &job.ExistsError{Key: d.Key, Reason: "with another definition"}
	}
	return mine, nil
}

func (f *twoQueues) CreateBatch(_ context.Context, list []job.CreateRequest) []job.CreateAnswer {
	return convert.Map(list, func(q job.CreateRequest) job.CreateAnswer {
		f.selects(job.Filter{Queue: q.Definition.Queue})
		return job.CreateAnswer{Record: mine}
	})
}

func (f *twoQueues) List(_ context.Context, filter job.Filter, _ int, _ string) (job.Page, error) {
	records := []job.Record{theirs, mine, theirs}
	return job.Page{Records: slices.DeleteFunc(records, func(r job.Record) bool { return !filter.CoversAll(r.Definition.Queue) })}, nil
}

func (f *twoQueues) Update(ctx context.Context, u job.UpdateRequest) (job.Record, error) {
	r, err := f.Get(ctx, u.Key)
	if err == nil {
		err = u.Check(*r.Definition)
	}
	if err == nil {
		_, _ = f.reached(u.Key)
		_, err = u.Merge(*r.Definition)
	}
	return r, err
}

func (f *twoQueues) Delete(_ context.Context, key job.Key, _ string) error {
	_, err := f.reached(key)
	return err
}
func (f *twoQueues) Pause(_ context.Context, key job.Key, _ string) (job.Record, error) {
	return f.reached(key)
}
func (f *twoQueues) Resume(_ context.Context, key job.Key, _ bool) (job.Record, error) {
	return f.reached(key)
}
func (f *twoQueues) RunJob(_ context.Context, key job.Key, _ job.RequestManualRun) (job.RunView, bool, error) {
	_, err := f.reached(key)
	return heldRun(), false, err
}
func (f *twoQueues) RunJobWithPayload(_ context.Context, key job.Key, _ job.RunWithPayloadRequest) (job.RunView, error) {
	_, err := f.reached(key)
	return heldRun(), err
}
func (f *twoQueues) Revisions(_ context.Context, key job.Key) (job.JobRevisions, error) {
	r, err := f.reached(key)
	if err != nil {
		return nil, err
	}
	d := *r.Definition
	d.Revision = 1
	return job.JobRevisions{{Definition: &d}}, nil
}
func (f *twoQueues) DiffRevisions(_ context.Context, key job.Key, _, _ uint32) (job.RevisionDiff, error) {
	r, err := f.reached(key)
	return job.RevisionDiff{From: r.Definition, To: r.Definition}, err
}
func (f *twoQueues) RestoreRevision(_ context.Context, key job.Key, _ uint32, _, _ string) (job.Record, error) {
	return f.reached(key)
}
func (f *twoQueues) Rename(_ context.Context, q job.RenameRequest) (job.Record, error) {
	return f.reached(q.Key)
}
func (f *twoQueues) ListRuns(_ context.Context, key job.Key) ([]job.RunView, error) {
	_, err := f.reached(key)
	return []job.RunView{heldRun()}, err
}
func (f *twoQueues) GetRun(_ context.Context, key job.Key, _ string) (job.RunView, error) {
	_, err := f.reached(key)
	return heldRun(), err
}
func (f *twoQueues) CancelRun(_ context.Context, key job.Key, _ string) (job.RunView, error) {
	_, err := f.reached(key)
	return heldRun(), err
}
func (f *twoQueues) Preview(_ context.Context, p job.PreviewRequest) (job.Preview, error) {
	_, err := f.reached(p.Job)
	return job.Preview{}, err
}
func (f *twoQueues) Hint(_ context.Context, key job.Key, _ job.Hint) (job.Record, error) {
	return f.reached(key)
}
func (f *twoQueues) Explain(_ context.Context, key job.Key) (job.ExplainedJob, error) {
	r, err := f.reached(key)
	r.State.Held.By = "" // the registry hides it: TestExplainHidesHolders
	return job.ExplainedJob{Record: r}, err
}
func (f *twoQueues) ListUpcoming(_ context.Context, q job.UpcomingQuery) (job.UpcomingPage, error) {
	runs := []job.UpcomingRun{{Record: theirs}, {Record: mine}}
	return job.UpcomingPage{Runs: slices.DeleteFunc(runs, func(r job.UpcomingRun) bool { return !q.Filter.CoversAll(r.Definition.Queue) })}, nil
}

func (f *twoQueues) TopJobs(_ context.Context, q job.TopQuery) (job.TopList, error) {
	jobs := []job.TopJob{{Record: theirs}, {Record: mine}}
	jobs = slices.DeleteFunc(jobs, func(j job.TopJob) bool { return q.Covers != nil && !q.Covers(j.Definition.Queue) })
	return job.TopList{Jobs: jobs}, nil
}
func (f *twoQueues) Backfill(_ context.Context, key job.Key, _ job.BackfillRequest) (job.Record, error) {
	return f.reached(key)
}
func (f *twoQueues) CancelBackfill(_ context.Context, key job.Key, _ string) (job.Record, error) {
	return f.reached(key)
}

func (f *twoQueues) ListDeadLetters(_ context.Context, filter job.Filter, _ int, _ string) (job.DeadLetterPage, error) {
	before := inQueue("theirs-before", "mail") // in another queue when its run died
	page := job.DeadLetterPage{}
	for _, letter := range []struct {
		of    job.Record
		queue string
	}{{mine, "mail"}, {theirs, "web"}, {theirs, "mail"}, {before, "web"}} {
		if filter.CoversAll(letter.queue, letter.of.Definition.Queue) {
			page.DeadLetters = append(page.DeadLetters, job.DeadLetter{Record: letter.of.Definition.Key.Record() + "#1-1", Queue: letter.queue})
		}
	}
	return page, nil
}

func (f *twoQueues) RedriveDeadLetters(_ context.Context, q job.RedriveRequest) (job.Bulk, error) {
	for _, r := range q.Records {
		key := r.Key()
		_, _ = f.reached(key)
	}
	if len(q.Records) == 0 {
		f.selects(q.Filter)
	}
	if q.Filter.CoversAll("web") || !q.Filter.CoversAll("mail") {
		f.t.Error("a redrive went through without the queues of the caller")
	}
	return job.Bulk{Done: 1}, nil
}

func (f *twoQueues) ChangeMatching(_ context.Context, q job.BulkRequest) (job.BulkPage, error) {
	targets := []job.BulkTarget{}
	for _, r := range []job.Record{theirs, mine} {
		if q.Filter.CoversAll(r.Definition.Queue) {
			targets = append(targets, job.BulkTarget{Record: r.Definition.Key.Record(), RunID: "r"})
		}
	}
	return job.BulkPage{Names: targets}, nil
}

func (f *twoQueues) PauseAll(_ context.Context, filter job.Filter, _, _ string) (job.Bulk, error) {
	f.selects(filter)
	return job.Bulk{}, nil
}

func (f *twoQueues) ResumeAll(_ context.Context, filter job.Filter, _ string, _ bool, _ string) (job.Bulk, error) {
	f.selects(filter)
	return job.Bulk{}, nil
}

func (f *twoQueues) QueueSettings(_ context.Context, q job.QueueKey) (job.QueueSettings, error) {
	f.selects(job.Filter{Queue: q.Queue})
	return job.QueueSettings{}, nil
}

func (f *twoQueues) SetQueueSettings(_ context.Context, q job.QueueKey, _ job.QueueChange) (job.QueueSettings, error) {
	f.selects(job.Filter{Queue: q.Queue})
	return job.QueueSettings{}, nil
}

// PlanJobs reads each job once and asks for the desired job's check, as the registry does.
func (f *twoQueues) PlanJobs(ctx context.Context, desired []job.DesiredJob, _ bool) []job.ApplyResult {
	seen := map[job.Key]bool{}
	return convert.Map(desired, func(w job.DesiredJob) job.ApplyResult {
		key := w.Definition.Key
		if seen[key] {
			return job.ApplyResult{Err: job.Invalid("job_id", "%q is wished for twice", key.ID)}
		}
		seen[key] = true
		r, err := f.Get(ctx, key)
		if err := w.Allowed(r.Definition); err != nil {
			return job.ApplyResult{Err: err}
		}
		if !w.Delete {
			f.selects(job.Filter{Queue: w.Definition.Queue})
		}
		if err != nil {
			return job.ApplyResult{Action: job.ApplyCreate, After: &mine}
		}
		_, _ = f.reached(key)
		return job.ApplyResult{Action: job.ApplyUpdate, Before: &r, After: &r}
	})
}

func (f *twoQueues) ApplyJobs(ctx context.Context, desired []job.DesiredJob, force bool) []job.ApplyResult {
	return f.PlanJobs(ctx, desired, force)
}

// queueCase is what a caller may ask who is limited to queue mail, and what not.
type queueCase struct {
	ok      []proto.Message
	refused []proto.Message
	code    codes.Code // of what is refused; default PermissionDenied
	// holds is what an answer must have, and must not have.
	holds, lacks string
}

const nsA = "namespaces/team-a"

func byName[M proto.Message](code codes.Code, request func(id string) M) queueCase {
	return queueCase{ok: []proto.Message{request("mine")}, refused: []proto.Message{request("theirs")}, code: code}
}

func everyMinute(queue string) *fermatav1.Job {
	p := convert.DefinitionToPB(mine.Definition)
	p.Name, p.Queue = "", queue
	return p
}

func desiredJob(id, queue string) *fermatav1.DesiredJob {
	if queue == "" {
		return &fermatav1.DesiredJob{JobId: id, Delete: true, Etag: "e"}
	}
	return &fermatav1.DesiredJob{JobId: id, Job: everyMinute(queue)}
}

func metadataOf(queue string) *externalscaler.ScaledObjectRef {
	return &externalscaler.ScaledObjectRef{ScalerMetadata: map[string]string{"namespace": "team-a", "queue": queue, "targetBacklog": "5"}}
}

// queueCases has each method that a role of some queues may call. All others refuse it.
var queueCases = map[string]queueCase{
	"JobService/GetJob": byName(codes.NotFound, func(id string) *fermatav1.GetJobRequest { return &fermatav1.GetJobRequest{Name: nsA + "/jobs/" + id} }),
	"JobService/DeleteJob": byName(codes.NotFound, func(id string) *fermatav1.DeleteJobRequest {
		return &fermatav1.DeleteJobRequest{Name: nsA + "/jobs/" + id}
	}),
	"JobService/RenameJob": byName(codes.NotFound, func(id string) *fermatav1.RenameJobRequest {
		return &fermatav1.RenameJobRequest{Name: nsA + "/jobs/" + id, NewId: "other"}
	}),
	"JobService/PauseJob": byName(codes.NotFound, func(id string) *fermatav1.PauseJobRequest {
		return &fermatav1.PauseJobRequest{Name: nsA + "/jobs/" + id}
	}),
	"JobService/ResumeJob": byName(codes.NotFound, func(id string) *fermatav1.ResumeJobRequest {
		return &fermatav1.ResumeJobRequest{Name: nsA + "/jobs/" + id}
	}),
	"JobService/RunJobWithPayload": byName(codes.NotFound, func(id string) *fermatav1.RunJobWithPayloadRequest {
		return &fermatav1.RunJobWithPayloadRequest{Name: nsA + "/jobs/" + id}
	}),
	"JobService/RunJob":  byName(codes.NotFound, func(id string) *fermatav1.RunJobRequest { return &fermatav1.RunJobRequest{Name: nsA + "/jobs/" + id} }),
	"JobService/HintJob": byName(codes.NotFound, func(id string) *fermatav1.HintJobRequest { return &fermatav1.HintJobRequest{Name: nsA + "/jobs/" + id} }),
	"JobService/ExplainJob": byName(codes.NotFound, func(id string) *fermatav1.ExplainJobRequest {
		return &fermatav1.ExplainJobRequest{Name: nsA + "/jobs/" + id}
	}),
	"JobService/ListJobRevisions": byName(codes.NotFound, func(id string) *fermatav1.ListJobRevisionsRequest {
		return &fermatav1.ListJobRevisionsRequest{Parent: nsA + "/jobs/" + id}
	}),
	"JobService/GetJobRevision": byName(codes.NotFound, func(id string) *fermatav1.GetJobRevisionRequest {
		return &fermatav1.GetJobRevisionRequest{Name: nsA + "/jobs/" + id + "/revisions/1"}
	}),
	"JobService/DiffJobRevisions": byName(codes.NotFound, func(id string) *fermatav1.DiffJobRevisionsRequest {
		return &fermatav1.DiffJobRevisionsRequest{Name: nsA + "/jobs/" + id}
	}),
	"JobService/RestoreJobRevision": byName(codes.NotFound, func(id string) *fermatav1.RestoreJobRevisionRequest {
		return &fermatav1.RestoreJobRevisionRequest{Name: nsA + "/jobs/" + id + "/revisions/1"}
	}),
	"JobService/ListRuns": byName(codes.NotFound, func(id string) *fermatav1.ListRunsRequest {
		return &fermatav1.ListRunsRequest{Parent: nsA + "/jobs/" + id}
	}),
	"JobService/GetRun": byName(codes.NotFound, func(id string) *fermatav1.GetRunRequest {
		return &fermatav1.GetRunRequest{Name: nsA + "/jobs/" + id + "/runs/1-1"}
	}),
	"JobService/CancelRun": byName(codes.NotFound, func(id string) *fermatav1.CancelRunRequest {
		return &fermatav1.CancelRunRequest{Name: nsA + "/jobs/" + id + "/runs/1-1"}
	}),
	"JobService/BackfillJob": byName(codes.NotFound, func(id string) *fermatav1.BackfillJobRequest {
		return &fermatav1.BackfillJobRequest{Name: nsA + "/jobs/" + id, StartTime: convert.MillisToPB(1_700_000_000_000), EndTime: convert.MillisToPB(1_700_000_600_000)}
	}),
	"JobService/CancelBackfill": byName(codes.NotFound, func(id string) *fermatav1.CancelBackfillRequest {
		return &fermatav1.CancelBackfillRequest{Name: nsA + "/jobs/" + id}
	}),
	"JobService/PreviewSchedule": byName(codes.NotFound, func(id string) *fermatav1.PreviewScheduleRequest {
		return &fermatav1.PreviewScheduleRequest{Job: nsA + "/jobs/" + id, Count: 1}
	}),
	"JobService/CreateJob": {
		ok:      []proto.Message{&fermatav1.CreateJobRequest{Parent: nsA, JobId: "x", Job: everyMinute("mail")}},
		refused: []proto.Message{&fermatav1.CreateJobRequest{Parent: nsA, JobId: "x", Job: everyMinute("web")}, &fermatav1.CreateJobRequest{Parent: nsA, JobId: "x", Job: everyMinute("")}},
	},
	"JobService/UpdateJob": {
		ok: []proto.Message{&fermatav1.UpdateJobRequest{Job: &fermatav1.Job{Name: nsA + "/jobs/mine", Handler: "h"}, UpdateMask: mask("handler")}},
		// Moving a job takes both queues.
		refused: []proto.Message{&fermatav1.UpdateJobRequest{Job: &fermatav1.Job{Name: nsA + "/jobs/mine", Queue: "web"}, UpdateMask: mask("queue")}},
	},
	"JobService/BatchCreateJobs": {
		ok: []proto.Message{&fermatav1.BatchCreateJobsRequest{Parent: nsA, Requests: []*fermatav1.CreateJobRequest{
			{JobId: "x", Job: everyMinute("web")}, {JobId: "y", Job: everyMinute("mail")},
		}}},
		holds: "for queue",
	},
	"JobService/PlanJobs": {
		ok:    []proto.Message{&fermatav1.PlanJobsRequest{Parent: nsA, DesiredJobs: []*fermatav1.DesiredJob{desiredJob("theirs", "mail"), desiredJob("other", "web"), desiredJob("mine", "mail"), desiredJob("theirs", "mail"), desiredJob("theirs", "")}}},
		holds: "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/ApplyJobs": {
		ok:    []proto.Message{&fermatav1.ApplyJobsRequest{Parent: nsA, DesiredJobs: []*fermatav1.DesiredJob{desiredJob("theirs", "mail"), desiredJob("other", "web"), desiredJob("mine", "mail"), desiredJob("theirs", "mail"), desiredJob("theirs", "")}}},
		holds: "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/ListJobs": {
		ok:      []proto.Message{&fermatav1.ListJobsRequest{Parent: nsA}},
		refused: []proto.Message{&fermatav1.ListJobsRequest{Parent: nsA, Queue: "web"}}, holds: "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/ListUpcomingJobs": {
		ok: []proto.Message{&fermatav1.ListUpcomingJobsRequest{Parent: nsA}}, holds: "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/ListTargets": {
		ok: []proto.Message{&fermatav1.ListTargetsRequest{Parent: nsA}}, holds: "mine", lacks: "theirs",
	},
	"JobService/ListLocks": {
		ok: []proto.Message{&fermatav1.ListLocksRequest{Parent: nsA}}, holds: "mine", lacks: "theirs",
	},
	"JobService/DiscardDeadLetter": byName(codes.NotFound, func(id string) *fermatav1.DiscardDeadLetterRequest {
		return &fermatav1.DiscardDeadLetterRequest{Name: nsA + "/jobs/" + id + "/deadLetters/1", RunId: "1-1"}
	}),
	"JobService/ListDeadLetters": {
		ok:      []proto.Message{&fermatav1.ListDeadLettersRequest{Parent: nsA}},
		refused: []proto.Message{&fermatav1.ListDeadLettersRequest{Parent: nsA, Queue: "web"}}, holds: "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/TopJobs": {
		ok:      []proto.Message{&fermatav1.TopJobsRequest{Parent: nsA, Kind: fermatav1.TopJobsRequest_KIND_LATE}},
		refused: []proto.Message{&fermatav1.TopJobsRequest{Kind: fermatav1.TopJobsRequest_KIND_LATE}}, holds: "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/RedriveDeadLetters": {
		ok:      []proto.Message{&fermatav1.RedriveDeadLettersRequest{Parent: nsA, Queue: "mail"}, &fermatav1.RedriveDeadLettersRequest{Parent: nsA, Names: []string{nsA + "/jobs/mine/deadLetters/0"}}},
		refused: []proto.Message{&fermatav1.RedriveDeadLettersRequest{Parent: nsA, Queue: "web"}, &fermatav1.RedriveDeadLettersRequest{Parent: nsA}},
	},
	"JobService/PauseJobs": {
		ok:      []proto.Message{&fermatav1.PauseJobsRequest{Parent: nsA, Queue: "mail"}},
		refused: []proto.Message{&fermatav1.PauseJobsRequest{Parent: nsA, Queue: "web"}, &fermatav1.PauseJobsRequest{Parent: nsA}},
	},
	"JobService/ResumeJobs": {
		ok:      []proto.Message{&fermatav1.ResumeJobsRequest{Parent: nsA, Queue: "mail"}},
		refused: []proto.Message{&fermatav1.ResumeJobsRequest{Parent: nsA, Queue: "web"}, &fermatav1.ResumeJobsRequest{Parent: nsA}},
	},
	"JobService/BulkPauseJobs": {
		ok:      []proto.Message{&fermatav1.BulkPauseJobsRequest{Parent: nsA, Filter: "id:*"}, &fermatav1.BulkPauseJobsRequest{Parent: nsA, Filter: "queue = mail"}},
		refused: []proto.Message{&fermatav1.BulkPauseJobsRequest{Parent: nsA, Filter: "queue = web"}, &fermatav1.BulkPauseJobsRequest{Parent: nsA, Filter: "queue = web OR queue = mail"}},
		holds:   "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/BulkResumeJobs": {
		ok:      []proto.Message{&fermatav1.BulkResumeJobsRequest{Parent: nsA, Filter: "id:*"}, &fermatav1.BulkResumeJobsRequest{Parent: nsA, Filter: "queue = mail"}},
		refused: []proto.Message{&fermatav1.BulkResumeJobsRequest{Parent: nsA, Filter: "queue = web"}, &fermatav1.BulkResumeJobsRequest{Parent: nsA, Filter: "queue = web OR queue = mail"}},
		holds:   "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/BulkRunJobs": {
		ok:      []proto.Message{&fermatav1.BulkRunJobsRequest{Parent: nsA, Filter: "id:*"}, &fermatav1.BulkRunJobsRequest{Parent: nsA, Filter: "queue = mail"}},
		refused: []proto.Message{&fermatav1.BulkRunJobsRequest{Parent: nsA, Filter: "queue = web"}, &fermatav1.BulkRunJobsRequest{Parent: nsA, Filter: "queue = web OR queue = mail"}},
		holds:   "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/BulkCancelRuns": {
		ok:      []proto.Message{&fermatav1.BulkCancelRunsRequest{Parent: nsA, Filter: "id:*"}, &fermatav1.BulkCancelRunsRequest{Parent: nsA, Filter: "queue = mail"}},
		refused: []proto.Message{&fermatav1.BulkCancelRunsRequest{Parent: nsA, Filter: "queue = web"}, &fermatav1.BulkCancelRunsRequest{Parent: nsA, Filter: "queue = web OR queue = mail"}},
		holds:   "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/BulkDeleteJobs": {
		ok:      []proto.Message{&fermatav1.BulkDeleteJobsRequest{Parent: nsA, Filter: "id:*"}, &fermatav1.BulkDeleteJobsRequest{Parent: nsA, Filter: "queue = mail"}},
		refused: []proto.Message{&fermatav1.BulkDeleteJobsRequest{Parent: nsA, Filter: "queue = web"}, &fermatav1.BulkDeleteJobsRequest{Parent: nsA, Filter: "queue = web OR queue = mail"}},
		holds:   "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/BulkRedriveDeadLetters": {
		ok:      []proto.Message{&fermatav1.BulkRedriveDeadLettersRequest{Parent: nsA, Filter: "id:*"}, &fermatav1.BulkRedriveDeadLettersRequest{Parent: nsA, Filter: "queue = mail"}},
		refused: []proto.Message{&fermatav1.BulkRedriveDeadLettersRequest{Parent: nsA, Filter: "queue = web"}, &fermatav1.BulkRedriveDeadLettersRequest{Parent: nsA, Filter: "queue = web OR queue = mail"}},
		holds:   "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/BulkDiscardDeadLetters": {
		ok:      []proto.Message{&fermatav1.BulkDiscardDeadLettersRequest{Parent: nsA, Filter: "id:*"}, &fermatav1.BulkDiscardDeadLettersRequest{Parent: nsA, Filter: "queue = mail"}},
		refused: []proto.Message{&fermatav1.BulkDiscardDeadLettersRequest{Parent: nsA, Filter: "queue = web"}, &fermatav1.BulkDiscardDeadLettersRequest{Parent: nsA, Filter: "queue = web OR queue = mail"}},
		holds:   "jobs/mine", lacks: "jobs/theirs",
	},
	"JobService/GetQueueSettings": {
		ok:      []proto.Message{&fermatav1.GetQueueSettingsRequest{Name: nsA + "/queues/mail"}},
		refused: []proto.Message{&fermatav1.GetQueueSettingsRequest{Name: nsA + "/queues/web"}},
	},
	"JobService/UpdateQueueSettings": {
		ok:      []proto.Message{&fermatav1.UpdateQueueSettingsRequest{Settings: &fermatav1.QueueSettings{Name: nsA + "/queues/mail"}}},
		refused: []proto.Message{&fermatav1.UpdateQueueSettingsRequest{Settings: &fermatav1.QueueSettings{Name: nsA + "/queues/web"}}},
	},
	"JobService/PauseQueue": {
		ok:      []proto.Message{&fermatav1.PauseQueueRequest{Name: nsA + "/queues/mail"}},
		refused: []proto.Message{&fermatav1.PauseQueueRequest{Name: nsA + "/queues/web"}},
	},
	"ClusterService/ListNamespaces": {
		ok: []proto.Message{&fermatav1.ListNamespacesRequest{}}, holds: `"namespaces/team-a"`, lacks: `team-b`,
	},
	"ClusterService/ListQueues": {
		ok: []proto.Message{&fermatav1.ListQueuesRequest{Parent: nsA}}, refused: []proto.Message{&fermatav1.ListQueuesRequest{}}, holds: `"mail"`, lacks: `"web"`,
	},
	"ClusterService/ForecastLoad": {
		ok: []proto.Message{&fermatav1.ForecastLoadRequest{Parent: nsA}, &fermatav1.ForecastLoadRequest{Parent: nsA, Queue: "mail"}},
		refused: []proto.Message{&fermatav1.ForecastLoadRequest{}, &fermatav1.ForecastLoadRequest{Parent: "namespaces/-"},
			&fermatav1.ForecastLoadRequest{Parent: nsA, Queue: "web"}},
		holds: `"mail"`, lacks: `"web"`,
	},
	"ExternalScaler/IsActive": {
		ok: []proto.Message{metadataOf("mail")}, refused: []proto.Message{metadataOf("web"), metadataOf("mail,web")},
	},
	"ExternalScaler/GetMetricSpec": {ok: []proto.Message{metadataOf("mail")}, refused: []proto.Message{metadataOf("web"), metadataOf("mail,web")}},
	"ExternalScaler/GetMetrics": {
		ok:      []proto.Message{&externalscaler.GetMetricsRequest{ScaledObjectRef: metadataOf("mail")}},
		refused: []proto.Message{&externalscaler.GetMetricsRequest{ScaledObjectRef: metadataOf("web")}},
	},
}

// elsewhere are methods that other tests try with roles of some queues: streams, and
// what everybody may call or nobody limited may reach.
var elsewhere = []string{
	"ExternalScaler/StreamIsActive", "EventService/WatchEvents", // TestStreamsOfSomeQueues
	"WorkerService/Work",                             // TestWorkersServeTheirQueuesOnly
	"JobService/ListPresets", "AccessService/WhoAmI", // for everybody
}

func mask(paths ...string) *fieldmaskpb.FieldMask { return &fieldmaskpb.FieldMask{Paths: paths} }

// TestRolesOfSomeQueues calls every method as an administrator whose role is for one queue.
// A method without a case here has to refuse that role.
func TestRolesOfSomeQueues(t *testing.T) {
	rule := allow(authz.Admin, "team-a", "some")
	rule.Queues = []string{"mail"}
	b := serveGated(t, Options{Jobs: &twoQueues{t: t}, Authority: newAuthority(t, authz.Limits{}, rule)})
	conn := b.dial(t)
	call := func(method string, q proto.Message) (string, codes.Code) {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(method[1:], "/", ".")))
		if err != nil {
			t.Fatal(err)
		}
		kind, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Output().FullName())
		if err != nil {
			t.Fatal(err)
		}
		answer := kind.New().Interface()
		err = conn.Invoke(as(t.Context(), "some"), method, q, answer)
		return answer.(interface{ String() string }).String(), status.Code(err)
	}
	tried := 0
	for _, method := range servedMethods(t) {
		short := method[1:]
		if i := strings.LastIndexByte(short[:strings.IndexByte(short, '/')], '.'); i >= 0 {
			short = short[i+1:]
		}
		c, ok := queueCases[short]
		switch {
		case strings.Contains(method, "Health") || strings.Contains(method, "PeerService") || slices.Contains(elsewhere, short):
			continue
		case !ok:
			if code := knock(t, conn, method, "some", "team-a"); code != codes.PermissionDenied {
				t.Errorf("%s is for roles of all queues, and answers %v", method, code)
			}
			continue
		}
		tried++
		for _, q := range c.ok {
			answer, code := call(method, q)
			if strings.Contains(answer, "blocked_by:") {
				t.Errorf("%s names a job of another queue: %s", method, answer)
			}
			if code != codes.OK || !strings.Contains(answer, c.holds) || c.lacks != "" && strings.Contains(answer, c.lacks) {
				t.Errorf("%s %v: %v %s", method, q, code, answer)
			}
		}
		want := c.code
		if want == codes.OK {
			want = codes.PermissionDenied
		}
		for _, q := range c.refused {
			if answer, code := call(method, q); code != want {
				t.Errorf("%s %v: %v %s, want %v", method, q, code, answer, want)
			}
		}
	}
	if tried != len(queueCases) {
		t.Errorf("%d methods were tried, %d have cases", tried, len(queueCases))
	}
	// What is of another queue is refused as what is not there.
	missing, code := call(fermatav1.JobService_UpdateJob_FullMethodName, &fermatav1.UpdateJobRequest{Job: &fermatav1.Job{Name: nsA + "/jobs/theirs", Queue: "mail"}, UpdateMask: mask("queue")})
	if code != codes.NotFound {
		t.Errorf("a job is taken out of another queue: %v %s", code, missing)
	}
	if _, code := call(fermatav1.JobService_RedriveDeadLetters_FullMethodName, &fermatav1.RedriveDeadLettersRequest{Parent: nsA, Names: []string{nsA + "/jobs/theirs/deadLetters/0"}}); code != codes.NotFound {
		t.Errorf("a dead letter of another queue is redriven: %v", code)
	}
}

// TestItemsOfOtherQueues: items that are refused name the job that the caller sent. A job that
// was moved since its creation is not the answer to a repeated request.
func TestItemsOfOtherQueues(t *testing.T) {
	rule := allow(authz.Editor, "team-a", "some")
	rule.Queues = []string{"mail"}
	moved := &movedJobs{twoQueues: twoQueues{t: t}}
	b := serveGated(t, Options{Jobs: moved, Authority: newAuthority(t, authz.Limits{}, rule)})
	c, ctx := fermatav1.NewJobServiceClient(b.dial(t)), as(t.Context(), "some")
	w := desiredJob("theirs", "mail")
	applied, err := c.ApplyJobs(ctx, &fermatav1.ApplyJobsRequest{Parent: nsA, Force: true, DesiredJobs: []*fermatav1.DesiredJob{w, w, desiredJob("fresh", "web"), desiredJob("gone", "")}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		code codes.Code
		text string
	}{
		{codes.PermissionDenied, `job "theirs": `}, {codes.InvalidArgument, "wished for twice"}, {codes.PermissionDenied, `job "fresh": `}, {codes.OK, ""},
	} {
		if p := applied.GetChanges()[i]; codes.Code(p.GetCode()) != want.code || !strings.Contains(p.GetMessage(), want.text) {
			t.Errorf("desired job %d is answered by %v", i, p)
		}
	}
	// A plan that fails does not open the way for the desired jobs.
	for _, moved.planErr = range []error{job.ErrUnavailable, job.ErrTooLarge} {
		for _, w := range []*fermatav1.DesiredJob{desiredJob("theirs", "mail"), desiredJob("theirs", "")} {
			applied, err := c.ApplyJobs(ctx, &fermatav1.ApplyJobsRequest{Parent: nsA, Force: true, DesiredJobs: []*fermatav1.DesiredJob{w}})
			if code := codes.Code(applied.GetChanges()[0].GetCode()); err != nil || code != codes.PermissionDenied {
				t.Errorf("without a plan (%v): %v, %v", moved.planErr, applied, err)
			}
		}
	}
	batch, err := c.BatchCreateJobs(ctx, &fermatav1.BatchCreateJobsRequest{Parent: nsA, Requests: []*fermatav1.CreateJobRequest{
		{JobId: "fresh", Job: everyMinute("web")}, {Job: everyMinute("web")}, {JobId: "theirs", Job: everyMinute("mail"), RequestId: "r"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`job "fresh": `, "entry 1: ", "that your roles do not cover"} {
		if p := batch.GetResults()[i]; p.GetCode() == 0 || p.GetJob() != nil || !strings.Contains(p.GetMessage(), want) {
			t.Errorf("request %d is answered by %v", i, p)
		}
	}
	single, err := c.CreateJob(ctx, &fermatav1.CreateJobRequest{Parent: nsA, JobId: "theirs", Job: everyMinute("mail"), RequestId: "r"})
	if status.Code(err) != codes.AlreadyExists {
		t.Errorf("a repeated creation of a job that was moved: %v %v", single, err)
	}
}

// movedJobs answers creations as repeated requests for a job that is in another queue now, and
// has plans that fail.
type movedJobs struct {
	twoQueues
	planErr error
}

func (m *movedJobs) PlanJobs(ctx context.Context, desired []job.DesiredJob, force bool) []job.ApplyResult {
	if m.planErr == nil {
		return m.twoQueues.PlanJobs(ctx, desired, force)
	}
	return convert.Map(desired, func(job.DesiredJob) job.ApplyResult { return job.ApplyResult{Err: m.planErr} })
}

func (m *movedJobs) Create(context.Context, job.Definition, string) (job.Record, error) {
	return theirs, nil
}

func (m *movedJobs) CreateBatch(_ context.Context, list []job.CreateRequest) []job.CreateAnswer {
	return convert.Map(list, func(job.CreateRequest) job.CreateAnswer { return job.CreateAnswer{Record: theirs} })
}

// TestStreamsOfSomeQueues: a watcher of some queues sees the events of these.
func TestStreamsOfSomeQueues(t *testing.T) {
	rule := allow(authz.Viewer, "team-a", "some")
	rule.Queues = []string{"mail"}
	events := &listEvents{happenings: []job.Event{
		{Kind: job.KindRunDead, Key: theirs.Definition.Key, Queue: "web"}, {Kind: job.KindRunDead, Key: mine.Definition.Key, Queue: "mail"},
		{Kind: job.KindShardTaken},
	}}
	b := serveGated(t, Options{Events: events, Authority: newAuthority(t, authz.Limits{}, rule, allow(authz.Viewer, "team-a", "all"))})
	conn := b.dial(t)
	watch := func(token string, queues ...string) (n int, code codes.Code) {
		s, err := fermatav1.NewEventServiceClient(conn).WatchEvents(as(t.Context(), token), &fermatav1.WatchEventsRequest{Parent: nsA, Queues: queues})
		if err != nil {
			t.Fatal(err)
		}
		for {
			batch, err := s.Recv()
			if err != nil {
				return n, status.Code(err)
			}
			n += len(batch.GetEvents())
		}
	}
	if n, code := watch("all"); n != 3 || code != codes.Unknown && code != codes.OK {
		t.Errorf("%d events for all queues, %v", n, code)
	}
	for _, queues := range [][]string{nil, {"mail"}} {
		if n, code := watch("some", queues...); n != 1 || code == codes.PermissionDenied {
			t.Errorf("%d events of %v, %v", n, queues, code)
		}
	}
	for _, queues := range [][]string{{"web"}, {"mail", "web"}} {
		if n, code := watch("some", queues...); n != 0 || code != codes.PermissionDenied {
			t.Errorf("%d events of %v, %v", n, queues, code)
		}
	}
	for queue, want := range map[string]codes.Code{"mail": codes.OK, "web": codes.PermissionDenied, "mail,web": codes.PermissionDenied} {
		if code := knockStream(t, as(t.Context(), "some"), conn, externalscaler.ExternalScaler_StreamIsActive_FullMethodName, metadataOf(queue)); code != want {
			t.Errorf("a scaler's stream of %q: %v", queue, code)
		}
	}
}

// listEvents has some events, once.
type listEvents struct{ happenings []job.Event }

func (l *listEvents) Watch(_ context.Context, q job.EventQuery, send func(job.EventBatch) error) error {
	limits := job.EventFilter{Covers: q.Filter.Covers}
	return send(job.EventBatch{Events: slices.DeleteFunc(slices.Clone(l.happenings), func(h job.Event) bool { return !limits.Matches(&h) })})
}

// TestRefusalsOfRolesOfSomeQueues: they say for which queues the role is, and of an id that
// a hidden job has only that it is taken.
func TestRefusalsOfRolesOfSomeQueues(t *testing.T) {
	some, none := allow(authz.Admin, "team-a", "some"), allow(authz.Viewer, "team-a", "none")
	some.Queues = []string{"mail", "mail-*"}
	b := serveGated(t, Options{Jobs: &twoQueues{t: t}, Authority: newAuthority(t, authz.Limits{}, some, none)})
	conn := b.dial(t)
	jobs := fermatav1.NewJobServiceClient(conn)
	calls := map[string]func(ctx context.Context) error{
		"pause": func(ctx context.Context) error {
			_, err := jobs.PauseJobs(ctx, &fermatav1.PauseJobsRequest{Parent: nsA})
			return err
		},
		"redrive": func(ctx context.Context) error {
			_, err := jobs.RedriveDeadLetters(ctx, &fermatav1.RedriveDeadLettersRequest{Parent: nsA})
			return err
		},
		"export": func(ctx context.Context) error {
			_, err := fermatav1.NewBackupServiceClient(conn).ExportJobs(ctx, &fermatav1.ExportJobsRequest{Parent: nsA})
			return err
		},
	}
	for name, call := range calls {
		if err := call(as(t.Context(), "some")); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "is limited to queues mail, mail-*: name one by --queue") {
			t.Errorf("%s: %v", name, err)
		}
		if err := call(as(t.Context(), "none")); status.Code(err) != codes.PermissionDenied || strings.Contains(err.Error(), "limited") {
			t.Errorf("%s without a role: %v", name, err)
		}
	}
	for id, want := range map[string]bool{"theirs": true, "mine": false} {
		_, err := jobs.CreateJob(as(t.Context(), "some"), &fermatav1.CreateJobRequest{Parent: nsA, JobId: id, Job: everyMinute("mail")})
		if status.Code(err) != codes.AlreadyExists || strings.Contains(err.Error(), "is taken by a job of a queue that your roles do not cover") != want {
			t.Errorf("%s: %v", id, err)
		}
	}
}
