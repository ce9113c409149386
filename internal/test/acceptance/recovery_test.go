package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestOperatorsSteerFailingJobs walks through what people do about a job in trouble: it
// pauses itself, its dead runs are redriven, a range is backfilled, a hint makes
// it run sooner, a manual run leaves its backoff alone.
func TestOperatorsSteerFailingJobs(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	a, b := c.startNode("a"), c.startNode("b")
	c.awaitSettled()
	c.startWorker("w1", 20, a.grpc)
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := newJob(behaviour{FailWhile: broken})
	j.Schedule = everyInterval(time.Second, time.Now())
	j.Schedule.StartTime = nil // its grid goes on into the past
	j.BackoffPolicy = noBackoff()
	j.PauseAfterFailures = 3
	a.createJob("report", j)
	status := func(what string, ok func(*fermatav1.JobStatus) bool) {
		t.Helper()
		redistest.Eventually(t, patience, what, func() error { return wantStatus(b.getJob("report"), ok) })
	}
	status("it pauses itself", func(s *fermatav1.JobStatus) bool {
		return s.GetState() == fermatav1.JobStatus_STATE_PAUSED && s.GetConsecutiveFailures() == 3 && strings.Contains(s.GetPauseNote(), "3 failed runs")
	})

	// A manual run that keeps the backoff changes neither count nor pause.
	run, err := b.jobs.RunJob(callContext(t), &fermatav1.RunJobRequest{
		Name: jobName("report"), RequestId: "try", Backoff: fermatav1.RunJobRequest_BACKOFF_KEEP,
	})
	if err != nil {
		t.Fatal(err)
	}
	c.awaitEvent(patience, "the manual run starts", func(e historycheck.Event) bool {
		return strings.HasSuffix(e.Run, "/m-try") && e.Kind == historycheck.End
	})
	if !strings.HasSuffix(run.GetRun().GetName(), "/runs/m-try") {
		t.Errorf("the manual run is %v", run)
	}
	status("the manual run's failure counts as none", func(s *fermatav1.JobStatus) bool {
		return s.GetState() == fermatav1.JobStatus_STATE_PAUSED && s.GetConsecutiveFailures() == 3 && s.GetDeadTotal() == 4
	})

	// Mended, its dead runs are tried again, on top of the pause.
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if letters := b.listDeadLetters(); len(letters) != 3 {
		t.Fatalf("dead letters: %v; want the last three", letters)
	}
	if redriven := b.redriveLetters("rep"); redriven != 3 {
		t.Fatalf("redriven %d; want 3", redriven)
	}
	status("the redriven runs succeed", func(s *fermatav1.JobStatus) bool { return s.GetSucceededTotal() == 3 && s.GetConcurrentRuns() == 0 })
	if letters := b.listDeadLetters(); len(letters) != 0 {
		t.Errorf("dead letters after redriving: %v", letters)
	}

	// A range is backfilled, each nominal time once.
	from := time.Now().Add(-20 * time.Second).Truncate(time.Second)
	if _, err := b.jobs.BackfillJob(callContext(t), &fermatav1.BackfillJobRequest{
		Name: jobName("report"), StartTime: timestamppb.New(from), EndTime: timestamppb.New(from.Add(10 * time.Second)), RequestId: "fill",
	}); err != nil {
		t.Fatal(err)
	}
	filled := func(e historycheck.Event) bool {
		return strings.Contains(e.Run, "/b-fill-") && e.Kind == historycheck.Start
	}
	redistest.Eventually(t, patience, "the backfill runs", func() error {
		if n := len(c.matchingEvents(filled)); n < 10 {
			return fmt.Errorf("%d runs", n)
		}
		return nil
	})
	status("the backfill is done", func(s *fermatav1.JobStatus) bool { return len(s.GetBackfills()) == 0 && s.GetSucceededTotal() == 13 })
	seen := map[int64]bool{}
	for _, e := range c.matchingEvents(filled) {
		if seen[e.NominalMS] || e.NominalMS < from.UnixMilli() || e.NominalMS >= from.Add(10*time.Second).UnixMilli() {
			t.Errorf("backfilled %d", e.NominalMS)
		}
		seen[e.NominalMS] = true
	}

	// Resumed and hinted, it runs at the time of the hint, and goes back to its pace.
	if _, err := b.jobs.ResumeJob(callContext(t), &fermatav1.ResumeJobRequest{Name: jobName("report")}); err != nil {
		t.Fatal(err)
	}
	status("it runs again", func(s *fermatav1.JobStatus) bool {
		return s.GetSucceededTotal() >= 15 && s.GetConsecutiveFailures() == 0
	})
	hinted, err := b.jobs.HintJob(callContext(t), &fermatav1.HintJobRequest{Name: jobName("report"), Hint: &fermatav1.Hint{
		Interval: durationpb.New(30 * time.Second), ExpireTime: timestamppb.New(time.Now().Add(time.Hour)), Reason: "the database is being moved",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if h := hinted.GetStatus().GetHint(); h.GetSource() != fermatav1.Hint_SOURCE_OPERATOR || h.GetReason() == "" {
		t.Errorf("the job does not show its hint: %v", hinted.GetStatus())
	}
	status("the hint holds it back", func(s *fermatav1.JobStatus) bool {
		wait := time.Until(s.GetNextDueTime().AsTime())
		return s.GetState() == fermatav1.JobStatus_STATE_SCHEDULED && s.GetDelaySource() == fermatav1.DelaySource_DELAY_SOURCE_HINT && wait > 15*time.Second
	})
	why, err := b.jobs.ExplainJob(callContext(t), &fermatav1.ExplainJobRequest{Name: jobName("report")})
	if err != nil || !strings.Contains(why.GetSummary(), "hint") || !strings.Contains(why.GetSummary(), "the database is being moved") {
		t.Errorf("explain answers %q, %v", why.GetSummary(), err)
	}
	if _, err := b.jobs.HintJob(callContext(t), &fermatav1.HintJobRequest{Name: jobName("report")}); err != nil {
		t.Fatal(err)
	}
	status("without the hint it keeps its pace", func(s *fermatav1.JobStatus) bool {
		return s.GetHint() == nil && time.Until(s.GetNextDueTime().AsTime()) < 2*time.Second
	})
}
