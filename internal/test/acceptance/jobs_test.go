package acceptance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const namespace = "namespaces/default"

func jobName(id string) string { return namespace + "/jobs/" + id }

// callContext bounds one call.
func callContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newJob is a job of the tests' handler; callers add a schedule.
func newJob(b behaviour) *fermatav1.Job {
	return &fermatav1.Job{Handler: handlerName, Payload: b.encodePayload(), Timeout: durationpb.New(5 * time.Minute)}
}

func everyInterval(d time.Duration, first time.Time) *fermatav1.Schedule {
	return &fermatav1.Schedule{
		Rule:      &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(d)}},
		StartTime: timestamppb.New(first),
	}
}

func onceAt(at time.Time) *fermatav1.Schedule {
	return &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(at)}}
}

// noBackoff keeps the interval of failing jobs.
func noBackoff() *fermatav1.BackoffPolicy { return &fermatav1.BackoffPolicy{Disabled: true} }

// callUntilAnswered makes a call again as long as it is answered UNAVAILABLE, as clients do: a machine
// that stands still for a moment may have kept Redis from answering in time.
func callUntilAnswered[T any](t testing.TB, what string, do func(context.Context) (T, error)) (answer T) {
	t.Helper()
	redistest.Eventually(t, patience, what, func() (err error) {
		answer, err = do(callContext(t))
		switch status.Code(err) {
		case codes.OK, codes.Unavailable, codes.Aborted:
			return err
		}
		t.Fatalf("%s: %v", what, err)
		return nil
	})
	return answer
}

func (n *schedulerNode) createJob(id string, j *fermatav1.Job) *fermatav1.Job {
	n.t.Helper()
	return callUntilAnswered(n.t, "create "+id, func(ctx context.Context) (*fermatav1.Job, error) {
		return n.jobs.CreateJob(ctx, &fermatav1.CreateJobRequest{Parent: namespace, JobId: id, Job: j})
	})
}

func (n *schedulerNode) getJob(id string) *fermatav1.Job {
	n.t.Helper()
	return callUntilAnswered(n.t, "get "+id, func(ctx context.Context) (*fermatav1.Job, error) {
		return n.jobs.GetJob(ctx, &fermatav1.GetJobRequest{Name: jobName(id)})
	})
}

func (n *schedulerNode) listRuns(id string) []*fermatav1.Run {
	n.t.Helper()
	return callUntilAnswered(n.t, "runs of "+id, func(ctx context.Context) (*fermatav1.ListRunsResponse, error) {
		return n.jobs.ListRuns(ctx, &fermatav1.ListRunsRequest{Parent: jobName(id)})
	}).GetRuns()
}

// listAllJobs lists every job of the namespace by its id.
func (n *schedulerNode) listAllJobs() map[string]*fermatav1.Job {
	n.t.Helper()
	jobs := map[string]*fermatav1.Job{}
	for token := ""; ; {
		page := callUntilAnswered(n.t, "list jobs", func(ctx context.Context) (*fermatav1.ListJobsResponse, error) {
			return n.jobs.ListJobs(ctx, &fermatav1.ListJobsRequest{Parent: namespace, PageSize: 1000, PageToken: token})
		})
		for _, j := range page.GetJobs() {
			jobs[j.GetName()[len(jobName("")):]] = j
		}
		if token = page.GetNextPageToken(); token == "" {
			return jobs
		}
	}
}

// listDeadLetters lists all dead letters of the namespace.
func (n *schedulerNode) listDeadLetters() (letters []*fermatav1.DeadLetter) {
	n.t.Helper()
	for token := ""; ; {
		page := callUntilAnswered(n.t, "list dead letters", func(ctx context.Context) (*fermatav1.ListDeadLettersResponse, error) {
			return n.jobs.ListDeadLetters(ctx, &fermatav1.ListDeadLettersRequest{Parent: namespace, PageToken: token})
		})
		letters = append(letters, page.GetDeadLetters()...)
		if token = page.GetNextPageToken(); token == "" {
			return letters
		}
	}
}

// redriveLetters redrives the dead letters of jobs whose ids begin so, and counts them.
func (n *schedulerNode) redriveLetters(idPrefix string) (redriven int) {
	n.t.Helper()
	for token := ""; ; {
		page, err := n.jobs.RedriveDeadLetters(callContext(n.t), &fermatav1.RedriveDeadLettersRequest{Parent: namespace, IdPrefix: idPrefix, PageToken: token})
		if err != nil {
			n.t.Fatalf("redrive %s: %v", idPrefix, err)
		}
		redriven += int(page.GetRedriven())
		if token = page.GetNextPageToken(); token == "" {
			return redriven
		}
	}
}

// load is a set of interval jobs with what was promised of them.
type load struct {
	jobs     map[string]*fermatav1.Job
	promises []historycheck.ExpectedSchedule
}

// newLoad makes n jobs that run every 1 to 5 s (each interval as often), spread
// over these queues, phases spread over the interval, handlers of 0 to 40 ms.
// The first is due at first.
func newLoad(n int, first time.Time, queues ...string) *load {
	l := &load{jobs: map[string]*fermatav1.Job{}}
	for i := range n {
		interval := time.Duration(1+i%5) * time.Second
		// Stepping by the golden ratio spreads any number of phases evenly.
		phase := time.Duration(float64(interval) * fractionalPart(float64(i)*0.6180339887)).Truncate(time.Millisecond)
		start := first.Add(phase).Truncate(time.Millisecond)
		j := newJob(behaviour{Sleep: time.Duration(i%9*5) * time.Millisecond})
		j.Queue, j.Schedule = queues[i%len(queues)], everyInterval(interval, start)
		id := fmt.Sprintf("load-%04d", i)
		l.jobs[id] = j
		l.promises = append(l.promises, historycheck.ExpectedSchedule{Job: id, AnchorMS: start.UnixMilli(), Every: interval, FromMS: start.UnixMilli()})
	}
	return l
}

func fractionalPart(x float64) float64 { return x - float64(int(x)) }

// registerLoad creates the jobs in batches of at most 1,000.
func (n *schedulerNode) registerLoad(l *load) {
	n.t.Helper()
	request := &fermatav1.BatchCreateJobsRequest{Parent: namespace}
	send := func() {
		for len(request.Requests) > 0 {
			response := callUntilAnswered(n.t, "batch", func(ctx context.Context) (*fermatav1.BatchCreateJobsResponse, error) {
				return n.jobs.BatchCreateJobs(ctx, request)
			})
			var again []*fermatav1.CreateJobRequest
			for i, r := range response.GetResults() {
				switch codes.Code(r.GetCode()) {
				case codes.OK:
				case codes.Unavailable, codes.Aborted:
					again = append(again, request.Requests[i])
				default:
					n.t.Fatalf("batch, %s: %d %s", request.Requests[i].GetJobId(), r.GetCode(), r.GetMessage())
				}
			}
			request.Requests = again
		}
	}
	for id, j := range l.jobs {
		request.Requests = append(request.Requests, &fermatav1.CreateJobRequest{JobId: id, Job: j})
		if len(request.Requests) == 1000 {
			send()
		}
	}
	send()
	// Times that passed before the acknowledgement were not promised.
	acknowledged := time.Now().UnixMilli()
	for i := range l.promises {
		l.promises[i].FromMS = max(l.promises[i].FromMS, acknowledged)
	}
}

// storedJobs is the set of ids that a listing gave.
func storedJobs(jobs map[string]*fermatav1.Job) map[string]bool {
	ids := map[string]bool{}
	for id := range jobs {
		ids[id] = true
	}
	return ids
}

// pauseAllJobs pauses all jobs and waits until none of them runs, so that counters
// stand still.
func (n *schedulerNode) pauseAllJobs() map[string]*fermatav1.Job {
	n.t.Helper()
	for id := range n.listAllJobs() {
		callUntilAnswered(n.t, "pause "+id, func(ctx context.Context) (*fermatav1.Job, error) {
			return n.jobs.PauseJob(ctx, &fermatav1.PauseJobRequest{Name: jobName(id)})
		})
	}
	var jobs map[string]*fermatav1.Job
	redistest.Eventually(n.t, patience, "all jobs are paused", func() error {
		jobs = n.listAllJobs()
		for id, j := range jobs {
			if s := j.GetStatus().GetState(); s != fermatav1.JobStatus_STATE_PAUSED {
				return fmt.Errorf("%s is %v", id, s)
			}
		}
		return nil
	})
	return jobs
}
