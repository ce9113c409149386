package node_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/client"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
	"github.com/fermata-io/fermata/worker"
)

func metricsOf(ctx context.Context, n *node.Node) (string, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTPAddr()+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// sumOf adds up a series of some nodes. One that none has is 0.
func sumOf(ctx context.Context, series string, nodes ...*node.Node) (sum float64, err error) {
	for _, n := range nodes {
		text, err := metricsOf(ctx, n)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(text) {
			if value, is := strings.CutPrefix(line, series+" "); is {
				v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
				if err != nil {
					return 0, err
				}
				sum += v
			}
		}
	}
	return sum, nil
}

// TestRunsThatNeverStartBreakTheirObjectives: jobs on a queue without workers are counted
// and reported once, by whichever node holds their shards, though the nodes change; and once
// there is a worker their starts count nothing more.
func TestRunsThatNeverStartBreakTheirObjectives(t *testing.T) {
	t.Parallel()
	const many = 4
	redis := redistest.Start(t)
	record := func(c *node.Config) { c.EventsKeep, c.Shards = 10_000, 8 }
	a := startWith(t, redis.URL(), "a", record)
	b := startWith(t, redis.URL(), "b", record, a.GossipAddr())
	c := jobs(t, b)
	watcher, _ := watch(t, dial(t, b), client.EventFilter{Kinds: []string{job.KindRunLate}})
	for i := range many {
		j := once(-time.Second, "ok")
		j.MaxLag = durationpb.New(time.Second)
		create(t, c, fmt.Sprint("waits-", i), j)
	}
	j := once(-time.Second, "ok") // no objective, and late all the same
	create(t, c, "waits-too", j)
	const breaches = `fermata_lag_breaches_total{namespace="default",queue="default",reason="late"}`
	waitForBreaches := func(t *testing.T, nodes ...*node.Node) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, "each is counted once", func() error {
			if n, err := sumOf(t.Context(), breaches, nodes...); err != nil || n != many {
				return fmt.Errorf("counted %v (%v)", n, err)
			}
			if got := len(watcher.all()); got != many {
				return fmt.Errorf("%d events", got)
			}
			return nil
		})
	}
	waitForBreaches(t, a, b)
	for _, e := range watcher.all() {
		if e.GetReason() != job.LagLate || e.GetRunId() == "" || e.GetCorrelationId() == "" ||
			e.GetTime().AsTime().Sub(e.GetDueTime().AsTime()) <= time.Second {
			t.Errorf("%v", e)
		}
	}
	redistest.Eventually(t, redistest.Patience, "runs that wait are overdue", func() error {
		if n, err := sumOf(t.Context(), `fermata_runs_overdue{namespace="default",queue="default"}`, a,
			b); err != nil || n != many+1 {
			return fmt.Errorf("%v (%v)", n, err)
		}
		return nil
	})
	shown, err := c.GetJob(t.Context(), &fermatav1.GetJobRequest{Name: "namespaces/default/jobs/waits-0"})
	if err != nil || shown.GetStatus().GetBreachedLag().AsDuration() <= time.Second {
		t.Errorf("%v (%v)", shown.GetStatus(), err)
	}
	before, err := sumOf(t.Context(), breaches, b)
	if err != nil {
		t.Fatal(err)
	}

	// The first node goes, and another one comes: they look at the same runs.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	d := startWith(t, redis.URL(), "d", record, b.GossipAddr())
	var ran atomic.Int64
	work(t, d, many, map[string]func(context.Context,
		*worker.Task) error{"ok": func(context.Context, *worker.Task) error { ran.Add(1); return nil }})
	redistest.Eventually(t, redistest.Patience, "all have run", func() error {
		if n := ran.Load(); n != many+1 {
			return fmt.Errorf("%d runs", n)
		}
		return nil
	})
	redistest.Eventually(t, redistest.Patience, "none is overdue", func() error {
		if n, err := sumOf(t.Context(), `fermata_runs_overdue{namespace="default",queue="default"}`, b,
			d); err != nil || n != 0 {
			return fmt.Errorf("%v (%v)", n, err)
		}
		return nil
	})
	if n, err := sumOf(t.Context(), breaches, b, d); err != nil || n != before || len(watcher.all()) != many {
		t.Errorf("counted %v after the starts, %v before (%v); %d events", n, before, err, len(watcher.all()))
	}
}

func once(after time.Duration, handler string) *fermatav1.Job {
	return &fermatav1.Job{
		Handler:  handler,
		Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(time.Now().Add(after))}},
	}
}

// TestLateAndFailingJobsAreFound: jobs that wait, that broke their objective and that
// fail are listed by any node, also by one that took over what it lists, with figures
// of the node whose worker ran them.
func TestLateAndFailingJobsAreFound(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	a := start(t, redis.URL(), "a")
	b := startWith(t, redis.URL(), "b", func(c *node.Config) { c.MetricsTopJobs = 5 }, a.GossipAddr())
	c := jobs(t, b)
	late := &fermatav1.Job{
		Handler: "ok", MaxLag: durationpb.New(time.Millisecond),
		Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(time.Now().Add(-2 * time.Second))}},
	}
	create(t, c, "late", late)
	top := func(kind fermatav1.TopJobsRequest_Kind, check func(*fermatav1.TopJob) bool) {
		t.Helper()
		redistest.Eventually(t, redistest.Patience, kind.String(), func(ctx context.Context) error {
			r, err := c.TopJobs(ctx, &fermatav1.TopJobsRequest{Kind: kind})
			if err != nil {
				return err
			}
			for _, j := range r.GetJobs() {
				if check(j) {
					return nil
				}
			}
			return fmt.Errorf("not among %v", r.GetJobs())
		})
	}
	top(fermatav1.TopJobsRequest_KIND_LATE, func(j *fermatav1.TopJob) bool {
		return j.GetWaiting() && strings.HasSuffix(j.GetJob().GetName(), "/late") &&
			j.GetLag().AsDuration() > time.Second
	})

	// A worker of the first node runs it, late, and one that fails.
	failing := intervalJob(100*time.Millisecond, "fails")
	failing.BackoffPolicy = &fermatav1.BackoffPolicy{Disabled: true}
	create(t, c, "failing", failing)
	work(t, a, 2, map[string]func(context.Context, *worker.Task) error{
		"ok":    func(context.Context, *worker.Task) error { return nil },
		"fails": func(context.Context, *worker.Task) error { return fmt.Errorf("boom") },
	})
	top(fermatav1.TopJobsRequest_KIND_FAILING, func(j *fermatav1.TopJob) bool {
		return strings.HasSuffix(j.GetJob().GetName(), "/failing") &&
			j.GetJob().GetStatus().GetConsecutiveFailures() > 1
	})
	redistest.Eventually(t, redistest.Patience, "the broken objective", func(ctx context.Context) error {
		if n, err := sumOf(ctx, `fermata_lag_breaches_total{namespace="default",queue="default",reason="late"}`, a,
			b); err != nil || n != 1 {
			return fmt.Errorf("counted %v times (%v)", n, err)
		}
		return nil
	})
	conn := connect(t, b)
	redistest.Eventually(t, redistest.Patience, "figures of the other node", func(ctx context.Context) error {
		r, err := fermatav1.NewClusterServiceClient(conn).ListQueues(ctx, &fermatav1.ListQueuesRequest{})
		if err != nil {
			return err
		}
		for _, q := range r.GetQueues() {
			recent := q.GetRecentRuns()
			if recent.GetStarted() > 1 && recent.GetFailed() > 0 && recent.GetBreaches() == 1 &&
				recent.GetSpan().AsDuration() > 0 &&
				recent.GetMaxLag().AsDuration() > time.Second && q.GetDead() > 0 {
				return nil
			}
		}
		return fmt.Errorf("not in %v", r.GetQueues())
	})

	// The second node takes over, and lists what the first one ran, by name too.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := a.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	top(fermatav1.TopJobsRequest_KIND_FAILING, func(j *fermatav1.TopJob) bool {
		return strings.HasSuffix(j.GetJob().GetName(), "/failing")
	})
	// Nobody serves its queue, and no objective is broken: it is late because it waits.
	waits := &fermatav1.Job{Handler: "ok", Queue: "nobody",
		Schedule: &fermatav1.Schedule{Rule: &fermatav1.Schedule_Once{Once: timestamppb.New(time.Now())}}}
	create(t, c, "waits", waits)
	redistest.Eventually(t, redistest.Patience, "names in the metrics", func(ctx context.Context) error {
		text, err := metricsOf(ctx, b)
		if err != nil {
			return err
		}
		for _, want := range []string{
			`fermata_top_job_failures{job_id="failing",namespace="default",queue="default"}`,
			`fermata_failing_jobs{failures="2"} 1`,
			`fermata_top_job_lag_seconds{job_id="waits",namespace="default",queue="nobody"}`,
			`fermata_queue_oldest_dead_letter_seconds{namespace="default",queue="default"}`,
		} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("no %s", want)
			}
		}
		return nil
	})
}
