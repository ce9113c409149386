package playground

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

// minInterval lets the samples climb the whole ladder of backoff in two minutes.
const minInterval = time.Second

// onceDelay is when the sample that runs once is due, counted from the start.
const onceDelay = 20 * time.Second

// sampleJobs are the jobs that a run starts with, in the order of the view.
func sampleJobs(target string, now time.Time) []client.NewJob {
	get := func(url string) *client.Job {
		return &client.Job{Handler: "http", Payload: client.HTTPRequest{URL: url}.Payload()}
	}
	every := func(d time.Duration, j *client.Job) *client.Job {
		j.Schedule = client.Every(d)
		// Without jitter the doubling can be read off the screen.
		j.BackoffPolicy = &client.BackoffPolicy{Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE}}
		return j
	}
	// One lock of two: they are due together and run one after the other.
	slow := func() *client.Job {
		j := every(8*time.Second, get(target+"/slow"))
		j.Locks = []*fermatav1.Lock{{Key: "slow"}}
		return j
	}
	once := get(target + "/down")
	once.Schedule = client.Once(now.Add(onceDelay))
	once.RetryPolicy = &client.RetryPolicy{
		MaxAttempts: 3, BaseDelay: durationpb.New(2 * time.Second),
		Jitter: &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_NONE},
	}
	return []client.NewJob{
		{ID: "healthy", Job: every(2*time.Second, get(target+"/ok"))},
		{ID: "failing", Job: every(2*time.Second, get(target+"/down"))},
		{ID: "typo", Job: every(2*time.Second, get("ttps"+strings.TrimPrefix(target, "http")+"/ok"))},
		{ID: "flaky", Job: every(3*time.Second, get(target+"/flaky"))},
		{ID: "rate-limited", Job: every(3*time.Second, get(target+"/limited"))},
		{ID: "slow", Job: slow()},
		{ID: "slow-twin", Job: slow()},
		{ID: "every-minute", Job: &client.Job{Handler: "greet", Schedule: client.Cron("* * * * *", "")}},
		{ID: "hourly", Job: &client.Job{Handler: "greet", Schedule: client.Cron("H * * * *", "")}},
		{ID: "once", Job: once},
		{ID: "on-demand", Job: &client.Job{Handler: "greet"}},
	}
}

// sampleNames are the ids of the samples in their order.
func sampleNames() []string {
	var names []string
	for _, s := range sampleJobs("http://", time.Time{}) {
		names = append(names, s.ID)
	}
	return names
}

// registerJobs creates the samples as any client would.
func registerJobs(ctx context.Context, c *client.Client, jobs []client.NewJob) error {
	created, err := c.CreateJobs(ctx, jobs, client.CreateJobsOptions{})
	errs := []error{err}
	for i, r := range created {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", jobs[i].ID, r.Err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register the sample jobs: %w", err)
	}
	return nil
}

// greetHandler is a handler in Go.
func greetHandler(_ context.Context, t *worker.Task) error {
	t.SetOutput(fmt.Appendf(nil, "hello from %s, attempt %d, token %d", t.Job, t.Attempt, t.Token))
	return nil
}
