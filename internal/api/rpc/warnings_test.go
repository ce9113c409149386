package rpc

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// warnedJobs answers with what it was asked to store.
type warnedJobs struct{ fakeJobs }

func (f *warnedJobs) Create(_ context.Context, d job.Definition, _ string) (job.Record, error) {
	return job.Record{Definition: &d}, nil
}

func (f *warnedJobs) CreateBatch(_ context.Context, requests []job.CreateRequest) []job.CreateAnswer {
	return convert.Map(requests, func(q job.CreateRequest) job.CreateAnswer {
		return job.CreateAnswer{Record: job.Record{Definition: &q.Definition}}
	})
}

func (f *warnedJobs) Update(_ context.Context, u job.UpdateRequest) (job.Record, error) {
	d, err := u.Merge(job.WithDefaults(job.Definition{Key: u.Key, Queue: "idle"}))
	return job.Record{Definition: &d}, err
}

func (f *warnedJobs) ApplyJobs(_ context.Context, desired []job.DesiredJob, _ bool) []job.ApplyResult {
	return convert.Map(desired, func(w job.DesiredJob) job.ApplyResult {
		action := job.ApplyCreate
		if w.Definition.ID == "same" {
			action = job.ApplyUnchanged
		}
		return job.ApplyResult{Action: action, After: &job.Record{Definition: &w.Definition}}
	})
}

func texts(list []*fermatav1.Warning) []string {
	return convert.Map(list, func(w *fermatav1.Warning) string { return w.GetField() })
}

// TestWarnings: each method that registers or changes jobs answers what is doubtful about them, once for each job, and
// asks once for all queues.
func TestWarnings(t *testing.T) {
	s := newJobService(&warnedJobs{}, time.Now, nil)
	var asked [][]job.QueueKey
	s.unservedQueues = func(_ context.Context, queues []job.QueueKey) (unserved []job.QueueKey) {
		asked = append(asked, queues)
		return slices.DeleteFunc(slices.Clone(queues), func(q job.QueueKey) bool { return q.Queue != "idle" })
	}
	ctx := t.Context()
	const preset = "webhook" // of retries
	doubtful := func(queue string) *fermatav1.Job {
		return &fermatav1.Job{Handler: "h", Queue: queue, RetryPolicy: &fermatav1.RetryPolicy{Preset: preset}}
	}
	check := func(what string, got []*fermatav1.Warning, err error, want ...string) {
		t.Helper()
		if err != nil || !slices.Equal(texts(got), want) {
			t.Errorf("%s: %v, %v, want %q", what, got, err, want)
		}
	}
	j, err := s.CreateJob(ctx, &fermatav1.CreateJobRequest{Parent: "namespaces/n", JobId: "a", Job: doubtful("idle")})
	check("create", j.GetWarnings(), err, "queue")
	j, err = s.CreateJob(ctx, &fermatav1.CreateJobRequest{Parent: "namespaces/n", JobId: "a", Job: doubtful("busy")})
	check("create for a served queue", j.GetWarnings(), err)
	j, err = s.UpdateJob(ctx, &fermatav1.UpdateJobRequest{
		Job: &fermatav1.Job{Name: "namespaces/n/jobs/a", Handler: "h"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"handler"}},
	})
	check("update", j.GetWarnings(), err, "queue")
	asked = nil
	batch := &fermatav1.BatchCreateJobsRequest{Parent: "namespaces/n"}
	for i, queue := range []string{"idle", "busy", "idle"} {
		batch.Requests = append(batch.Requests, &fermatav1.CreateJobRequest{JobId: fmt.Sprint("j", i), Job: doubtful(queue)})
	}
	r, err := s.BatchCreateJobs(ctx, batch)
	check("batch", r.GetResults()[0].GetJob().GetWarnings(), err, "queue")
	check("batch", r.GetResults()[1].GetJob().GetWarnings(), err)
	if len(asked) != 1 || len(asked[0]) != 2 {
		t.Errorf("asked for %v", asked)
	}
	applied, err := s.ApplyJobs(ctx, &fermatav1.ApplyJobsRequest{Parent: "namespaces/n", DesiredJobs: []*fermatav1.DesiredJob{
		{JobId: "new", Job: doubtful("idle")}, {JobId: "same", Job: doubtful("idle")},
	}})
	check("apply", applied.GetChanges()[0].GetAfter().GetWarnings(), err, "queue")
	check("a job that already matches", applied.GetChanges()[1].GetAfter().GetWarnings(), err)
}

// TestPresetWithoutEffect: a preset without effect gives a warning, in an update only if the mask names it.
func TestPresetWithoutEffect(t *testing.T) {
	d := job.WithDefaults(job.Definition{Key: job.Key{Namespace: "n", ID: "j"}})
	sent := &fermatav1.Job{RetryPolicy: &fermatav1.RetryPolicy{Preset: "p", MaxAttempts: 2},
		BackoffPolicy: &fermatav1.BackoffPolicy{Preset: "p"}}
	fieldsOf := func(sent *fermatav1.Job) []string {
		return convert.Map(presetWarnings(sent, &d), func(w job.Warning) string { return w.Field })
	}
	if got := fieldsOf(sent); !slices.Equal(got, []string{"retry_policy.preset", "backoff_policy.preset"}) {
		t.Errorf("%q", got)
	}
	if got := fieldsOf(sentByMask(sent, []string{"handler", "retry_policy.preset"})); !slices.Equal(got, []string{"retry_policy.preset"}) {
		t.Errorf("by a mask: %q", got)
	}
	from := d.PolicySources()
	for f := range backoff.FieldCount {
		from[f] = backoff.Source{Kind: backoff.FromPreset, Name: "p"}
	}
	d.SetSources(from)
	if got := fieldsOf(sent); len(got) != 0 {
		t.Errorf("with values of the preset: %q", got)
	}
}
