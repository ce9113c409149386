package rpc

import (
	"context"
	"slices"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// doubtfulJob is a job of a call that may be answered with warnings: as it was sent, as it is, and in the answer.
type doubtfulJob struct {
	sent   *fermatav1.Job
	record *job.Record
	answer *fermatav1.Job
}

// addWarnings adds warnings to the answers about jobs.
func (s *jobService) addWarnings(ctx context.Context, jobs ...doubtfulJob) {
	unserved := s.findUnservedQueues(ctx, jobs)
	now := unixtime.MilliOf(s.now())
	for _, j := range jobs {
		d := j.record.Definition
		warnings := append(presetWarnings(j.sent, d), job.ScheduleWarnings(j.record, now)...)
		if unserved[job.QueueKey{Namespace: d.Namespace, Queue: d.Queue}] {
			text := d.Queue + " has no worker now: no run starts until one serves it"
			warnings = append(warnings, job.Warning{Field: "queue", Text: text})
		}
		for _, w := range warnings {
			j.answer.Warnings = append(j.answer.Warnings, &fermatav1.Warning{Field: w.Field, Text: w.Text})
		}
	}
}

// findUnservedQueues returns the queues of jobs that certainly have no worker.
func (s *jobService) findUnservedQueues(ctx context.Context, jobs []doubtfulJob) map[job.QueueKey]bool {
	if s.unservedQueues == nil || len(jobs) == 0 {
		return nil
	}
	var queues []job.QueueKey
	known := map[job.QueueKey]bool{}
	for _, j := range jobs {
		q := job.QueueKey{Namespace: j.record.Definition.Namespace, Queue: j.record.Definition.Queue}
		if !known[q] {
			known[q] = true
			queues = append(queues, q)
		}
	}
	unserved := map[job.QueueKey]bool{}
	for _, q := range s.unservedQueues(ctx, queues) {
		unserved[q] = true
	}
	return unserved
}

// presetWarnings finds presets without effect: the job sets all of their fields itself.
func presetWarnings(sent *fermatav1.Job, d *job.Definition) (warnings []job.Warning) {
	for _, p := range []struct {
		field, name string
		fields      backoff.FieldSet
	}{
		{"retry_policy.preset", sent.GetRetryPolicy().GetPreset(), backoff.RetryFields},
		{"backoff_policy.preset", sent.GetBackoffPolicy().GetPreset(), backoff.BackoffFields},
	} {
		if p.name != "" && !d.UsesPreset(p.name, p.fields) {
			text := "has no effect: the job sets all fields of the preset itself"
			warnings = append(warnings, job.Warning{Field: p.field, Text: text})
		}
	}
	return warnings
}

// sentByMask is the part of an update that can name presets.
func sentByMask(sent *fermatav1.Job, paths []string) *fermatav1.Job {
	named := func(policy string) bool {
		return slices.Contains(paths, "*") || slices.Contains(paths, policy) || slices.Contains(paths, policy+".preset")
	}
	part := &fermatav1.Job{}
	if named("retry_policy") {
		part.RetryPolicy = sent.GetRetryPolicy()
	}
	if named("backoff_policy") {
		part.BackoffPolicy = sent.GetBackoffPolicy()
	}
	return part
}
