package acceptance

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestRetriesSkipExclusions: a job whose runs and attempts fail starts nothing in a
// maintenance window, its preview shows when it will start instead, and only a manual run that
// is asked to ignores the window.
func TestRetriesSkipExclusions(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	n := c.startNode("a")
	c.awaitSettled()
	c.startWorker("w0", 8, n.grpc)

	now := time.Now().Truncate(time.Second)
	from, to := now.Add(4*time.Second), now.Add(14*time.Second)
	window := func(j *fermatav1.Job) *fermatav1.Job {
		j.Schedule.Exclusions = &fermatav1.Exclusions{Periods: []*fermatav1.Exclusions_Period{{
			StartTime: timestamppb.New(from), EndTime: timestamppb.New(to),
		}}}
		return j
	}
	fails := newJob(behaviour{Fail: true})
	fails.Schedule = everyInterval(time.Second, now.Add(2*time.Second))
	n.createJob("fails", window(fails))
	retries := newJob(behaviour{Fail: true})
	retries.Schedule = everyInterval(time.Minute, now.Add(3*time.Second))
	retries.RetryPolicy = &fermatav1.RetryPolicy{MaxAttempts: 3}
	n.createJob("retries", window(retries))
	fine := newJob(behaviour{})
	fine.Schedule = everyInterval(time.Second, now.Add(2*time.Second))
	n.createJob("fine", window(fine))
	ids := []string{"fails", "retries", "fine"}

	preview := callUntilAnswered(t, "preview", func(ctx context.Context) (*fermatav1.PreviewScheduleResponse, error) {
		return n.jobs.PreviewSchedule(ctx, &fermatav1.PreviewScheduleRequest{Job: jobName("fails"), Count: 4})
	})
	for _, due := range preview.GetProjectedDueTimes() {
		if at := due.AsTime(); !at.Before(from) && at.Before(to) {
			t.Errorf("the preview has a run at %v, in the window from %v to %v", at, from, to)
		}
	}

	for _, id := range ids {
		c.awaitEvent(patience, id+" starts before the window", isStartOf(id, "w0"))
	}
	time.Sleep(time.Until(from.Add(time.Second)))
	_, err := n.jobs.RunJob(callContext(t), &fermatav1.RunJobRequest{Name: jobName("fine"), RequestId: "refused"})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "ignore_exclusions") {
		t.Errorf("a manual run in the window: %v", err)
	}
	run, err := n.jobs.RunJob(callContext(t), &fermatav1.RunJobRequest{Name: jobName("fine"), RequestId: "asked", IgnoreExclusions: true})
	if err != nil || !strings.HasSuffix(run.GetRun().GetName(), "/m-asked") {
		t.Errorf("a manual run that ignores the window: %v, %v", run, err)
	}
	asked := func(e historycheck.Event) bool {
		return e.Kind == historycheck.Start && strings.HasSuffix(e.Run, "m-asked")
	}
	if e := c.awaitEvent(patience, "the manual run", asked); e.AtNS >= to.UnixNano() {
		t.Errorf("it starts at %v, after the window", time.Unix(0, e.AtNS))
	}
	why := callUntilAnswered(t, "explain", func(ctx context.Context) (*fermatav1.ExplainJobResponse, error) {
		return n.jobs.ExplainJob(ctx, &fermatav1.ExplainJobRequest{Name: jobName("retries")})
	})
	if len(why.GetReasons()) == 0 || why.GetReasons()[0].GetKind() != fermatav1.Reason_KIND_EXCLUSION {
		t.Errorf("a retry that waits for the end of the window: %v", why)
	}
	for _, id := range ids {
		after := func(e historycheck.Event) bool { return isStartOf(id, "w0")(e) && e.AtNS >= to.UnixNano() }
		c.awaitEvent(patience, id+" starts after the window", after)
	}
	for _, e := range c.readEvents() {
		// What was admitted just before the window has a moment to start.
		if e.Kind == historycheck.Start && !asked(e) && e.AtNS >= from.Add(time.Second).UnixNano() && e.AtNS < to.UnixNano() {
			t.Errorf("%s starts %v into the window", e.Run, time.Unix(0, e.AtNS).Sub(from))
		}
	}
}
