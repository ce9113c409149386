package observability

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/test/redistest"
	"github.com/fermata-io/fermata/proto/externalscaler"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const home = "namespaces/default"

// everyInterval is a job that runs a program.
func everyInterval(d time.Duration, argv string) *fermatav1.Job {
	return &fermatav1.Job{
		Handler: "exec", Payload: []byte(`{"argv": [` + argv + `]}`),
		Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: durationpb.New(d)}}},
	}
}

// fastRetries are retries that do not take long.
func fastRetries(attempts int32) *fermatav1.RetryPolicy {
	return &fermatav1.RetryPolicy{Strategy: fermatav1.RetryPolicy_STRATEGY_FIXED, BaseDelay: durationpb.New(300 * time.Millisecond), MaxAttempts: attempts}
}

func (b *bed) createJob(id string, j *fermatav1.Job) {
	b.t.Helper()
	if _, err := b.jobs.CreateJob(b.t.Context(), &fermatav1.CreateJobRequest{Parent: home, JobId: id, Job: j}); err != nil {
		b.t.Fatalf("create %s: %v", id, err)
	}
}

// createLoad gives the cluster work of every kind that has a figure of its own. There is little of it, as each run
// starts processes.
func (b *bed) createLoad() {
	b.t.Helper()
	for i := range 4 {
		b.createJob(fmt.Sprintf("ok-%d", i), everyInterval(time.Second, `"/bin/true"`))
	}
	for i := range 2 {
		j := everyInterval(time.Second, `"/bin/false"`)
		j.RetryPolicy = fastRetries(2)
		b.createJob(fmt.Sprintf("fails-%d", i), j)
	}
	for i := range 2 { // what fails for one holds the other back too
		j := everyInterval(time.Second, `"/bin/false"`)
		j.RetryPolicy, j.Target, j.BackoffPolicy = fastRetries(1), "broken-host", &fermatav1.BackoffPolicy{Disabled: true}
		b.createJob(fmt.Sprintf("target-%d", i), j)
	}
	for i := range 2 {
		j := everyInterval(time.Second, `"/bin/sleep", "0.8"`)
		j.Locks = []*fermatav1.Lock{{Key: "one-at-a-time"}}
		b.createJob(fmt.Sprintf("mutex-%d", i), j)
	}
	long := everyInterval(time.Second, `"/bin/sleep", "2.5"`)
	long.Queue = "slow"
	b.createJob("overlap", long)
	timeout := everyInterval(2*time.Second, `"/bin/sleep", "30"`)
	timeout.Timeout, timeout.TimeoutGrace, timeout.RetryPolicy = durationpb.New(300*time.Millisecond), durationpb.New(100*time.Millisecond), fastRetries(1)
	b.createJob("timeout", timeout)
	nobody := everyInterval(time.Second, `"/bin/true"`)
	nobody.Queue = "nobody"
	late := everyInterval(time.Second, `"/bin/sleep", "0.3"`) // which waits for those with the lock
	late.Locks, late.MaxLag = []*fermatav1.Lock{{Key: "one-at-a-time"}}, durationpb.New(100*time.Millisecond)
	b.createJob("late", late)
	b.createJob("nobody", nobody)
	halted := everyInterval(time.Second, `"/bin/true"`)
	halted.Queue = "halted"
	b.createJob("halted", halted)
	b.createJob("paused", everyInterval(time.Second, `"/bin/true"`))
	b.createJob("manual", &fermatav1.Job{Handler: "exec", Payload: []byte(`{"argv": ["/bin/true"]}`)})
	b.createJob("deleted", everyInterval(time.Hour, `"/bin/true"`))
	ctx := b.t.Context()
	_, paused := b.jobs.PauseJob(ctx, &fermatav1.PauseJobRequest{Name: home + "/jobs/paused", Note: "for the metrics"})
	_, queue := b.jobs.UpdateQueueSettings(ctx, &fermatav1.UpdateQueueSettingsRequest{
		Settings: &fermatav1.QueueSettings{Name: home + "/queues/halted", Paused: new(true)},
	})
	_, manual := b.jobs.RunJob(ctx, &fermatav1.RunJobRequest{Name: home + "/jobs/manual"})
	_, deleted := b.jobs.DeleteJob(ctx, &fermatav1.DeleteJobRequest{Name: home + "/jobs/deleted"})
	_, watched := b.scaler.StreamIsActive(ctx, &externalscaler.ScaledObjectRef{ScalerMetadata: map[string]string{"queue": "nobody", "targetBacklog": "10"}})
	if err := errors.Join(paused, queue, manual, deleted, watched); err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.jobs.GetJob(ctx, &fermatav1.GetJobRequest{Name: home + "/jobs/deleted"}); status.Code(err) != codes.NotFound {
		b.t.Fatalf("a deleted job: %v", err)
	}
}

// startLate has runs start long after they were due.
func (b *bed) startLate() {
	b.t.Helper()
	for i := range 200 {
		j := everyInterval(time.Hour, `"/bin/true"`)
		j.Queue, j.Schedule = "tardy", &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(time.Now().Add(-10 * time.Second))}}
		b.createJob(fmt.Sprintf("tardy-%d", i), j)
	}
}

// resumeLoad ends the pause.
func (b *bed) resumeLoad() {
	b.t.Helper()
	if _, err := b.jobs.ResumeJob(b.t.Context(), &fermatav1.ResumeJobRequest{Name: home + "/jobs/paused"}); err != nil {
		b.t.Fatal(err)
	}
}

// takenOver kills the first node and waits until the others have its shards.
func (b *bed) takenOver() {
	b.t.Helper()
	b.nodes[0].killProcess()
	redistest.Eventually(b.t, redistest.Patience, "take-over", func(context.Context) error {
		found, err := b.prometheus.queryNow(`sum(fermata_shard_takeovers_total{how="break"}) > 0 and max(fermata_shards_without_holder) == 0`)
		if err == nil && len(found) == 0 {
			err = errors.New("none yet")
		}
		return err
	})
}
