package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/worker"
)

// connect returns a client for a namespace of the example's own.
func connect(namespace string) *client.Client {
	c, err := client.Dial(nodes(), client.Options{Namespace: namespace})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// startWorker runs a worker for the queue "default" until stop is called.
func startWorker(namespace string, handlers map[string]worker.Handler) (stop func()) {
	w, err := worker.New(worker.Options{Addresses: nodes(), Namespace: namespace, Logger: quiet})
	if err != nil {
		log.Fatal(err)
	}
	for name, h := range handlers {
		w.Handle(name, h)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()
	return func() {
		if err := errors.Join(w.Stop(context.Background()), <-ended); err != nil {
			log.Fatal(err)
		}
	}
}

// Create a job that calls a URL every half minute, and backs off up to ten minutes while that fails.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(nodes(), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	job, err := c.CreateJob(ctx, "ping", &client.Job{
		Handler:  "http",
		Payload:  client.HTTPRequest{URL: "https://example.com/health"}.Payload(),
		Schedule: client.Every(30 * time.Second),
		BackoffPolicy: &client.BackoffPolicy{
			MaxRatio: 20,
			Jitter:   &client.Jitter{Kind: client.JitterEqual},
		},
	})
	switch {
	case errors.Is(err, client.ErrAlreadyExists):
		fmt.Println("another job has this id")
	case err != nil:
		fmt.Println(err, client.Violations(err))
	default:
		fmt.Println("created", job.GetName())
	}
	// Output: created namespaces/default/jobs/ping
}

// An invalid job is refused with the path of each invalid field.
func ExampleViolations() {
	c := connect("violations")
	defer c.Close()
	_, err := c.CreateJob(context.Background(), "ping", &client.Job{Schedule: client.Cron("61 * * * *", "Mars/Base")})
	fmt.Println(errors.Is(err, client.ErrInvalid))
	for _, v := range client.Violations(err) {
		fmt.Println(v.Field)
	}
	// Output:
	// true
	// job.handler
	// job.schedule.cron.time_zone
	// job.schedule.cron.expressions[0]
}

// A job that runs once. It is deleted some time after its run.
func ExampleOnce() {
	c := connect("once")
	defer c.Close()
	job, err := c.CreateJob(context.Background(), "launch", &client.Job{
		Handler:  "launch",
		Schedule: client.Once(time.Date(2099, time.March, 1, 9, 0, 0, 0, time.UTC)),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.GetStatus().GetNextDueTime().AsTime())
	// Output: 2099-03-01 09:00:00 +0000 UTC
}

// A cron expression in a time zone. In the night of a clock change the local time is skipped or repeated: DstGap and
// DstRepeat choose what happens then.
func ExampleCron() {
	c := connect("cron")
	defer c.Close()
	schedule := client.Cron("30 2 * * *", "Europe/Berlin")
	schedule.GetCron().DstGap = client.DSTGapSkip
	preview, err := c.PreviewSchedule(context.Background(), &client.PreviewRequest{
		Schedule: schedule, Count: 3,
		After: timestamppb.New(time.Date(2027, time.March, 26, 12, 0, 0, 0, time.UTC)),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range preview.GetDueTimes() {
		fmt.Println(t.AsTime())
	}
	// Output:
	// 2027-03-27 01:30:00 +0000 UTC
	// 2027-03-29 00:30:00 +0000 UTC
	// 2027-03-30 00:30:00 +0000 UTC
}

// Mondays and Thursdays of every second week, at a local time.
func ExampleEveryWeek() {
	c := connect("weeks")
	defer c.Close()
	schedule := client.EveryWeek(2, []string{"MON", "THU"}, []string{"09:00"}, "Europe/Berlin")
	schedule.GetCalendar().From = "2027-01-04" // the first week is that of this day
	preview, err := c.PreviewSchedule(context.Background(), &client.PreviewRequest{
		Schedule: schedule, Count: 4,
		After: timestamppb.New(time.Date(2027, time.January, 4, 0, 0, 0, 0, time.UTC)),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range preview.GetDueTimes() {
		fmt.Println(t.AsTime().Format("Mon 2006-01-02 15:04 MST"))
	}
	// Output:
	// Mon 2027-01-04 08:00 UTC
	// Thu 2027-01-07 08:00 UTC
	// Mon 2027-01-18 08:00 UTC
	// Thu 2027-01-21 08:00 UTC
}

// What a job that keeps failing would do: the delays between the attempts of a run, and the intervals between runs.
func ExampleClient_PreviewSchedule() {
	c := connect("preview")
	defer c.Close()
	preview, err := c.PreviewSchedule(context.Background(), &client.PreviewRequest{
		Schedule: client.Every(time.Minute),
		RetryPolicy: &client.RetryPolicy{
			MaxAttempts: 4, Strategy: client.RetryExponential, BaseDelay: durationpb.New(time.Second),
		},
		BackoffPolicy: &client.BackoffPolicy{MaxRatio: 8},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range preview.GetRetryDelays() {
		fmt.Println("next attempt after", d.AsDuration())
	}
	for failures, d := range preview.GetBackoffIntervals() {
		fmt.Println("next run after", d.AsDuration(), "with failures:", failures)
	}
	// Output:
	// next attempt after 1s
	// next attempt after 2s
	// next attempt after 4s
	// next run after 1m0s with failures: 0
	// next run after 2m0s with failures: 1
	// next run after 4m0s with failures: 2
	// next run after 8m0s with failures: 3
}

// Create many jobs by few calls. Each has its own result.
func ExampleClient_CreateJobs() {
	ctx := context.Background()
	c := connect("batch")
	defer c.Close()
	jobs := []client.NewJob{
		{ID: "a", Job: &client.Job{Handler: "report"}},
		{ID: "b", Job: &client.Job{Handler: "report", Priority: new(int32(11))}},
		{Job: &client.Job{Handler: "report"}}, // with a generated id
	}
	results, err := c.CreateJobs(ctx, jobs, client.CreateJobsOptions{NamesOnly: true})
	if err != nil { // of a call as a whole
		log.Fatal(err)
	}
	for i, r := range results {
		fmt.Println(i, r.Err == nil, errors.Is(r.Err, client.ErrInvalid))
	}
	// Output:
	// 0 true false
	// 1 false true
	// 2 true false
}

// Find the jobs that keep failing.
func ExampleClient_Jobs() {
	c := connect("failing")
	defer c.Close()
	for job, err := range c.Jobs(context.Background(), client.Filter{MinFailures: 3}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(client.JobID(job), job.GetStatus().GetLastError())
	}
	// Output:
}

// Change one field, unless the job was edited since it was read.
func ExampleClient_UpdateJob() {
	ctx := context.Background()
	c := connect("update")
	defer c.Close()
	if _, err := c.CreateJob(ctx, "report", &client.Job{Handler: "report"}); err != nil {
		log.Fatal(err)
	}
	job, err := c.GetJob(ctx, "report")
	if err != nil {
		log.Fatal(err)
	}
	job.Schedule = client.Cron("*/5 * * * *", "Europe/Berlin")
	updated, err := c.UpdateJob(ctx, job, "schedule") // with the etag of job
	fmt.Println(updated.GetSchedule().GetCron().GetExpressions(), err)

	job.Priority = new(int32(7)) // in the job as it was before
	_, err = c.UpdateJob(ctx, job, "priority")
	fmt.Println("read it again:", errors.Is(err, client.ErrConflict))
	// Output:
	// [*/5 * * * *] <nil>
	// read it again: true
}

// Bring the jobs of a program to their desired state. The plan shows what would change. Jobs that were edited after
// the plan are not changed.
func ExampleClient_ApplyJobs() {
	ctx := context.Background()
	c := connect("apply")
	defer c.Close()
	owner := map[string]string{client.OwnerLabel: "billing"}
	desired := []*client.DesiredJob{
		{JobId: "invoices", Job: &client.Job{Handler: "invoices", Labels: owner}},
		{JobId: "reminders", Job: &client.Job{Handler: "reminders", Labels: owner}},
	}
	for range 2 { // the second time nothing is left to do
		plan, err := c.PlanJobs(ctx, desired, client.ApplyOptions{})
		if err != nil {
			log.Fatal(err)
		}
		for i, change := range plan {
			if err := client.ChangeError(change); err != nil {
				log.Fatal(err)
			}
			desired[i].Etag = change.GetBefore().GetEtag()
			fmt.Println(desired[i].GetJobId(), "to create:", change.GetAction() == client.ActionCreate)
		}
		changes, err := c.ApplyJobs(ctx, desired, client.ApplyOptions{})
		if err != nil {
			log.Fatal(err)
		}
		for _, change := range changes {
			if err := client.ChangeError(change); err != nil {
				fmt.Println(err)
			}
		}
	}
	// Output:
	// invoices to create: true
	// reminders to create: true
	// invoices to create: false
	// reminders to create: false
}

// Run a job now and wait for the end of the run. The request id makes the call idempotent: a program may repeat it
// after a restart.
func ExampleClient_WaitRun() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := connect("wait")
	defer c.Close()
	defer startWorker("wait", map[string]worker.Handler{
		"report": func(_ context.Context, t *worker.Task) error { t.SetOutput([]byte("12 pages")); return nil },
	})()
	if _, err := c.CreateJob(ctx, "report", &client.Job{Handler: "report"}); err != nil {
		log.Fatal(err)
	}
	run, _, err := c.RunJob(ctx, "report", client.RunOptions{RequestID: "order-4711"})
	if err != nil {
		log.Fatal(err)
	}
	end, err := c.WaitRun(ctx, run.GetName())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(end.GetOutcome() == client.OutcomeSucceeded, string(end.GetOutput()))

	again, _, err := c.RunJob(ctx, "report", client.RunOptions{RequestID: "order-4711"})
	fmt.Println("the same run:", again.GetName() == run.GetName(), err)
	// Output:
	// true 12 pages
	// the same run: true <nil>
}

// Dead runs are kept as dead letters. After the cause is repaired, they can run again.
func ExampleClient_RedriveSelected() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := connect("redrive")
	defer c.Close()
	var repaired atomic.Bool
	defer startWorker("redrive", map[string]worker.Handler{
		"report": func(context.Context, *worker.Task) error {
			if repaired.Load() {
				return nil
			}
			return worker.Permanent(errors.New("disk is full"))
		},
	})()
	if _, err := c.CreateJob(ctx, "report", &client.Job{Handler: "report"}); err != nil {
		log.Fatal(err)
	}
	run, _, err := c.RunJob(ctx, "report", client.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.WaitRun(ctx, run.GetName()); err != nil {
		log.Fatal(err)
	}
	for letter, err := range c.DeadLetters(ctx, client.Selection{}) {
		fmt.Println(letter.GetRun().GetError(), err)
	}

	repaired.Store(true)
	all := client.Selection{IDPrefix: "report"}
	would, err := c.RedriveSelected(ctx, all, client.RedriveOptions{DryRun: true})
	fmt.Println("would redrive", would.Redriven, err)
	did, err := c.RedriveSelected(ctx, all, client.RedriveOptions{})
	fmt.Println("redriven", did.Redriven, err)
	// Output:
	// disk is full <nil>
	// would redrive 1 <nil>
	// redriven 1 <nil>
}

// Read what happened to the jobs of a namespace. Without StopAtEnd, the loop goes on with new events. A program that
// stores the resume token with its own data misses no event and sees none twice.
func ExampleClient_WatchEvents() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := connect("watch")
	defer c.Close()
	begin := time.Now()
	if _, err := c.CreateJob(ctx, "report", &client.Job{Handler: "report"}); err != nil {
		log.Fatal(err)
	}
	if _, err := c.PauseJob(ctx, "report", client.PauseOptions{Note: "until the disk is replaced"}); err != nil {
		log.Fatal(err)
	}
	for batch, err := range c.WatchEvents(ctx, client.EventFilter{
		Kinds: []string{"job.*"}, Since: begin.Add(-time.Minute), StopAtEnd: true,
	}) {
		switch {
		case errors.Is(err, client.ErrEventsGone):
			log.Fatal("the resume token is too old: read the jobs again, then watch without it")
		case err != nil:
			log.Fatal(err)
		}
		for _, e := range batch.Events {
			fmt.Println(e.GetKind())
		}
	}
	// Output:
	// job.created
	// job.paused
}

// Change one limit of a queue, unless somebody changed the limits since they were read.
func ExampleAdmin_SetQueueSettings() {
	ctx := context.Background()
	c := connect("limits")
	defer c.Close()
	before, err := c.Admin().QueueSettings(ctx, "mail")
	if err != nil {
		log.Fatal(err)
	}
	settings := &client.QueueSettings{Name: "mail", Rate: before.GetRate(), MaxConcurrency: 20}
	after, err := c.Admin().SetQueueSettings(ctx, settings, client.SetQueueSettingsOptions{Expected: before})
	fmt.Println(after.GetMaxConcurrency(), err)

	settings.MaxConcurrency = 30 // of the limits as they were before
	_, err = c.Admin().SetQueueSettings(ctx, settings, client.SetQueueSettingsOptions{Expected: before})
	fmt.Println("read them again:", errors.Is(err, client.ErrConflict))
	// Output:
	// 20 <nil>
	// read them again: true
}

func ExampleHTTPRequest_Payload() {
	q := client.HTTPRequest{Method: "POST", URL: "https://example.com", Body: "x", ExpectedStatus: []string{"200-299", "409"}}
	fmt.Println(string(q.Payload()))
	// Output: {"method":"POST","url":"https://example.com","body":"x","expected_status":["200-299","409"]}
}

func ExampleCommand_Payload() {
	fmt.Println(string(client.Command{Argv: []string{"/bin/true"}}.Payload()))
	// Output: {"argv":["/bin/true"]}
}

func ExampleFixedDelay() {
	fmt.Println(client.FixedDelay(time.Minute).GetInterval().GetEvery().AsDuration())
	fmt.Println(client.Every(time.Minute).GetInterval().GetFixedDelay())
	// Output:
	// 1m0s
	// false
}
