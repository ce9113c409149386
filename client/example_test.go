package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fermata-io/fermata/client"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// Register a job that calls a URL every half minute, and backs off up to ten
// minutes while that fails.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.Dial([]string{"localhost:7070"}, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	job, err := c.CreateJob(ctx, "ping", &client.Job{
		Handler:  "http",
		Payload:  client.HTTPRequest{URL: "https://example.com/health"}.Payload(),
		Schedule: client.Every(30 * time.Second),
		BackoffPolicy: &client.BackoffPolicy{
			MaxRatio: 20,
			Jitter:   &fermatav1.Jitter{Kind: fermatav1.Jitter_KIND_EQUAL},
		},
	})
	switch {
	case client.IsAlreadyExists(err):
		fmt.Println("somebody else has a job of this name")
	case err != nil:
		fmt.Println(err, client.Violations(err))
	default:
		fmt.Println("first due at", job.GetStatus().GetNextDueTime().AsTime())
	}
}

// Find the jobs that keep failing.
func ExampleClient_Jobs() {
	ctx := context.Background()
	c, err := client.Dial([]string{"localhost:7070"}, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for job, err := range c.Jobs(ctx, client.Filter{MinFailures: 3}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(client.JobID(job), job.GetStatus().GetLastError())
	}
}

// Change one field, unless somebody edited the job since it was read.
func ExampleClient_UpdateJob() {
	ctx := context.Background()
	c, err := client.Dial([]string{"localhost:7070"}, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	job, err := c.GetJob(ctx, "ping")
	if err != nil {
		fmt.Println(err)
		return
	}
	job.Schedule = client.Cron("*/5 * * * *", "Europe/Berlin")
	if _, err := c.UpdateJob(ctx, job, "schedule"); client.IsConflict(err) {
		fmt.Println("read it again")
	}
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
	fmt.Println(client.Cron("@daily", "").GetCron().GetExpressions())
	fmt.Println(client.Once(time.Unix(1, 0)).GetOnce().AsTime())
	// Output:
	// 1m0s
	// false
	// [@daily]
	// 1970-01-01 00:00:01 +0000 UTC
}
