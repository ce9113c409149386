package main

import (
	"io"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/cli/config"
)

// jobFlags describe a job. Each flag sets one field; flags that are not given
// leave theirs unset.
type jobFlags struct {
	scheduleFlags
	handlerFlags
	runFlags
	policy policyFlags

	queue    string
	priority int32
	labels   map[string]string
	timeout  time.Duration
	grace    time.Duration
	history  int32
	keep     time.Duration
	dead     time.Duration
}

func (j *jobFlags) registerFlags(f *pflag.FlagSet) {
	j.scheduleFlags.registerFlags(f)
	j.handlerFlags.registerFlags(f)
	j.runFlags.registerFlags(f)
	j.policy.registerFlags(f)
	f.StringVar(&j.queue, "queue", "default", "queue whose workers run the job")
	f.Int32Var(&j.priority, "priority", 5, "0 (lowest) to 9 (highest) inside the queue")
	f.StringToStringVar(&j.labels, "label", nil, "label as key=value; may be repeated")
	config.DurationVar(f, &j.timeout, "timeout", 30*time.Second, "longest time of one attempt")
	config.DurationVar(f, &j.grace, "timeout-grace", 5*time.Second, "how long an attempt that timed out may take to end")
	f.Int32Var(&j.history, "history", 10, "finished runs that are kept")
	config.DurationVar(f, &j.keep, "retention", time.Hour, "how long a finished one-time job is kept")
	config.DurationVar(f, &j.dead, "dead-letter-ttl", 7*24*time.Hour, "how long dead runs are kept")
}

// buildJob returns the job of the flags and the paths of the set fields.
func (j *jobFlags) buildJob(f *pflag.FlagSet, stdin io.Reader, now time.Time) (*client.Job, []string, error) {
	changed := f.Changed
	job := &client.Job{}
	paths, err := j.handlerFlags.fillJob(changed, stdin, job)
	if err != nil {
		return nil, nil, err
	}
	schedule, of, err := j.buildSchedule(changed, now)
	if err != nil {
		return nil, nil, err
	}
	job.Schedule = schedule
	paths = append(paths, of...)
	runs, err := j.runFlags.fillJob(changed, job)
	if err != nil {
		return nil, nil, err
	}
	paths = append(paths, runs...)
	policies, err := j.policy.fillJob(changed, job)
	if err != nil {
		return nil, nil, err
	}
	paths = append(paths, policies...)
	plain := []struct {
		flag, path string
		set        func()
	}{
		{"queue", "queue", func() { job.Queue = j.queue }},
		{"priority", "priority", func() { job.Priority = &j.priority }},
		{"label", "labels", func() { job.Labels = j.labels }},
		{"timeout", "timeout", func() { job.Timeout = durationpb.New(j.timeout) }},
		{"timeout-grace", "timeout_grace", func() { job.TimeoutGrace = durationpb.New(j.grace) }},
		{"history", "history_limit", func() { job.HistoryLimit = &j.history }},
		{"retention", "retention", func() { job.Retention = durationpb.New(j.keep) }},
		{"dead-letter-ttl", "dead_letter_ttl", func() { job.DeadLetterTtl = durationpb.New(j.dead) }},
	}
	for _, p := range plain {
		if changed(p.flag) {
			p.set()
			paths = append(paths, p.path)
		}
	}
	return job, paths, nil
}
