package acceptance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// limit is a bound of the API: what is as large as most is taken, what is one
// larger is refused by field.
type limit struct {
	name  string
	most  int
	field string
	call  func(ctx context.Context, n int) error
}

// check tries the bound and what is beyond it.
func (l limit) check(t *testing.T, beyond int) {
	t.Helper()
	if err := l.call(callContext(t), l.most); err != nil {
		t.Errorf("%d is refused: %v", l.most, err)
	}
	if fields := violatedFields(t, l.call(callContext(t), beyond)); !slices.Contains(fields, l.field) {
		t.Errorf("%d: it names %q, want %q", beyond, fields, l.field)
	}
}

func textOfLength(n int) string { return strings.Repeat("x", n) }

// formatEach makes n different short texts.
func formatEach(n int, format string) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf(format, i))
	}
	return list
}

// TestRequestLimits: each bound of what clients may send, by one step on either side.
func TestRequestLimits(t *testing.T) {
	runBesideOthers(t)
	c := newCluster(t, newRedis(t).URL())
	n := c.startNode("a")
	n.createJob("there", newJob(behaviour{}))
	ids := 0
	create := func(change func(*fermatav1.Job, int)) func(context.Context, int) error {
		return func(ctx context.Context, size int) error {
			j := newJob(behaviour{})
			change(j, size)
			ids++
			_, err := n.jobs.CreateJob(ctx, &fermatav1.CreateJobRequest{Parent: namespace, JobId: fmt.Sprint("job-", ids), Job: j})
			return err
		}
	}
	seconds := func(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Second) }
	millis := func(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Millisecond) }
	day, year := 24*60*60, 366*24*60*60
	exclude := func(e *fermatav1.Exclusions) *fermatav1.Schedule {
		s := everyInterval(time.Hour, time.Now())
		s.Exclusions = e
		return s
	}
	limits := []limit{
		{"id", 128, "job_id", func(ctx context.Context, size int) error {
			_, err := n.jobs.CreateJob(ctx, &fermatav1.CreateJobRequest{Parent: namespace, JobId: textOfLength(size), Job: newJob(behaviour{})})
			return err
		}},
		{"namespace", 64, "parent", func(ctx context.Context, size int) error {
			_, err := n.jobs.CreateJob(ctx, &fermatav1.CreateJobRequest{Parent: "namespaces/" + textOfLength(size), JobId: "x", Job: newJob(behaviour{})})
			return err
		}},
		{"request id", 64, "request_id", func(ctx context.Context, size int) error {
			_, err := n.jobs.CreateJob(ctx, &fermatav1.CreateJobRequest{Parent: namespace, JobId: "by-request", RequestId: textOfLength(size), Job: newJob(behaviour{})})
			return err
		}},
		{"queue", 64, "job.queue", create(func(j *fermatav1.Job, n int) { j.Queue = textOfLength(n) })},
		{"handler", 128, "job.handler", create(func(j *fermatav1.Job, n int) { j.Handler = strings.Repeat("é", n) })},
		{"payload", 256 << 10, "job.payload", create(func(j *fermatav1.Job, n int) { j.Payload = make([]byte, n) })},
		{"priority", 9, "job.priority", create(func(j *fermatav1.Job, n int) { p := int32(n); j.Priority = &p })},
		{"labels", 32, "job.labels", create(func(j *fermatav1.Job, n int) {
			j.Labels = map[string]string{}
			for _, k := range formatEach(n, "k%d") {
				j.Labels[k] = ""
			}
		})},
		{"key of a label", 128, "job.labels", create(func(j *fermatav1.Job, n int) { j.Labels = map[string]string{textOfLength(n): "v"} })},
		{"label", 128, `job.labels["k"]`, create(func(j *fermatav1.Job, n int) { j.Labels = map[string]string{"k": textOfLength(n)} })},
		{"history", 100, "job.history_limit", create(func(j *fermatav1.Job, n int) { h := int32(n); j.HistoryLimit = &h })},
		{"timeout", day, "job.timeout", create(func(j *fermatav1.Job, n int) { j.Timeout = seconds(n) })},
		{"grace", 300, "job.timeout_grace", create(func(j *fermatav1.Job, n int) { j.TimeoutGrace = seconds(n) })},
		{"retention", year, "job.retention", create(func(j *fermatav1.Job, n int) { j.Retention = seconds(n) })},
		{"life of dead letters", year, "job.dead_letter_ttl", create(func(j *fermatav1.Job, n int) { j.DeadLetterTtl = seconds(n) })},
		{"attempts", 1000, "job.retry_policy.max_attempts", create(func(j *fermatav1.Job, n int) {
			j.RetryPolicy = &fermatav1.RetryPolicy{MaxAttempts: int32(n)}
		})},
		{"locks", 4, "job.locks", create(func(j *fermatav1.Job, n int) {
			for _, k := range formatEach(n, "lock-%d") {
				j.Locks = append(j.Locks, &fermatav1.Lock{Key: k, Limit: 1})
			}
		})},
		{"key of a lock", 128, "job.locks[0].key", create(func(j *fermatav1.Job, n int) { j.Locks = []*fermatav1.Lock{{Key: textOfLength(n), Limit: 1}} })},
		{"limit of a lock", 1000, "job.locks[0].limit", create(func(j *fermatav1.Job, n int) { j.Locks = []*fermatav1.Lock{{Key: "k", Limit: int32(n)}} })},
		{"target", 128, "job.target", create(func(j *fermatav1.Job, n int) { j.Target = textOfLength(n) })},
		{"failures before a pause", 1_000_000, "job.pause_after_failures", create(func(j *fermatav1.Job, n int) { j.PauseAfterFailures = int32(n) })},
		{"cron expressions", 16, "job.schedule.cron.expressions", create(func(j *fermatav1.Job, n int) { j.Schedule = cronSchedule("", formatEach(n, "%d 0 * * *")...) })},
		{"cron expression", 256, "job.schedule.cron.expressions[0]", create(func(j *fermatav1.Job, n int) {
			j.Schedule = cronSchedule("", "0 0 * * 1"+strings.Repeat(",1", (n-9)/2)+strings.Repeat(" ", (n-9)%2))
		})},
		{"excluded dates", 400, "job.schedule.exclusions.dates", create(func(j *fermatav1.Job, n int) {
			var dates []string
			for i := range n {
				dates = append(dates, time.Date(2030, 1, 1+i, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
			}
			j.Schedule = exclude(&fermatav1.Exclusions{Dates: dates})
		})},
		{"excluded windows", 32, "job.schedule.exclusions.windows", create(func(j *fermatav1.Job, n int) {
			j.Schedule = exclude(&fermatav1.Exclusions{Windows: formatEach(n, "01:%02d-02:00")})
		})},
		{"batch", 1000, "requests", func(ctx context.Context, size int) error {
			request := &fermatav1.BatchCreateJobsRequest{Parent: namespace}
			for _, id := range formatEach(size, "batch-%d") {
				request.Requests = append(request.Requests, &fermatav1.CreateJobRequest{JobId: id, Job: newJob(behaviour{})})
			}
			_, err := n.jobs.BatchCreateJobs(ctx, request)
			return err
		}},
		{"page", 1000, "page_size", func(ctx context.Context, size int) error {
			_, err := n.jobs.ListJobs(ctx, &fermatav1.ListJobsRequest{Parent: namespace, PageSize: int32(size)})
			return err
		}},
		{"prefix of ids", 128, "id_prefix", func(ctx context.Context, size int) error {
			_, err := n.jobs.ListJobs(ctx, &fermatav1.ListJobsRequest{Parent: namespace, IdPrefix: textOfLength(size)})
			return err
		}},
		{"labels of a filter", 64, "labels", func(ctx context.Context, size int) error {
			labels := map[string]string{}
			for _, k := range formatEach(size, "k%d") {
				labels[k] = ""
			}
			_, err := n.jobs.ListJobs(ctx, &fermatav1.ListJobsRequest{Parent: namespace, Labels: labels})
			return err
		}},
		{"note", 256, "note", func(ctx context.Context, size int) error {
			_, err := n.jobs.PauseJob(ctx, &fermatav1.PauseJobRequest{Name: jobName("there"), Note: textOfLength(size)})
			return err
		}},
		{"request id of a run", 64, "request_id", func(ctx context.Context, size int) error {
			_, err := n.jobs.RunJob(ctx, &fermatav1.RunJobRequest{Name: jobName("there"), RequestId: textOfLength(size)})
			return err
		}},
		{"names of dead letters", 1000, "names", func(ctx context.Context, size int) error {
			_, err := n.jobs.RedriveDeadLetters(ctx, &fermatav1.RedriveDeadLettersRequest{Parent: namespace, Names: formatEach(size, jobName("there")+"/deadLetters/%d")})
			if size == 1000 && status.Code(err) == codes.InvalidArgument && !slices.Contains(violatedFields(t, err), "names") {
				return err
			}
			if size == 1000 {
				return nil // some of them cannot be, which is another matter
			}
			return err
		}},
		{"concurrency of a queue", 100_000, "settings.max_concurrency", func(ctx context.Context, size int) error {
			_, err := n.jobs.UpdateQueueSettings(ctx, &fermatav1.UpdateQueueSettingsRequest{
				Settings: &fermatav1.QueueSettings{Name: namespace + "/queues/q", MaxConcurrency: int32(size)},
			})
			return err
		}},
	}
	for _, l := range limits {
		t.Run(l.name, func(t *testing.T) {
			l.check(t, l.most+1)
		})
	}
	for _, l := range []limit{ // from below
		{"interval", 1000, "job.schedule.interval.every", create(func(j *fermatav1.Job, n int) {
			j.Schedule = &fermatav1.Schedule{Rule: &fermatav1.Schedule_Interval{Interval: &fermatav1.IntervalSchedule{Every: millis(n)}}}
		})},
		{"timeout", 1, "job.timeout", create(func(j *fermatav1.Job, n int) { j.Timeout = millis(n) })},
		{"attempts", 1, "job.retry_policy.max_attempts", create(func(j *fermatav1.Job, n int) {
			j.RetryPolicy = &fermatav1.RetryPolicy{MaxAttempts: int32(n), BaseDelay: millis(1000)}
			if n == 0 {
				j.RetryPolicy.MaxAttempts = -1 // 0 is the default
			}
		})},
		{"history", 0, "job.history_limit", create(func(j *fermatav1.Job, n int) { h := int32(n); j.HistoryLimit = &h })},
		{"priority", 0, "job.priority", create(func(j *fermatav1.Job, n int) { p := int32(n); j.Priority = &p })},
		{"start", 1, "job.schedule.start_time", create(func(j *fermatav1.Job, n int) {
			j.Schedule = everyInterval(time.Hour, time.Now())
			j.Schedule.StartTime = &timestamppb.Timestamp{Nanos: int32(n) * 1_000_000}
		})},
	} {
		t.Run("least "+l.name, func(t *testing.T) {
			l.check(t, l.most-1)
		})
	}
	t.Run("hostile names", func(t *testing.T) { hostileNames(t, n) })
	t.Run("a hundred thousand labels", func(t *testing.T) {
		j := newJob(behaviour{})
		j.Labels = make(map[string]string, 100_000)
		for i := range 100_000 {
			j.Labels[fmt.Sprint(i)] = ""
		}
		_, err := n.jobs.CreateJob(callContext(t), &fermatav1.CreateJobRequest{Parent: namespace, JobId: "labelled", Job: j})
		if fields := violatedFields(t, err); !slices.Equal(fields, []string{"job.labels"}) || len(err.Error()) > 200 {
			t.Errorf("it names %q: %.300s", fields, err)
		}
	})
}

// hostileNames tries names that mean something to Redis, to Lua, to a terminal or to
// the eye, wherever the API takes a name.
func hostileNames(t *testing.T, n *schedulerNode) {
	before := len(n.listAllJobs())
	for _, name := range []string{
		"*", "a*", "?", "[a-z]", "{x}", "}x{", "{", "a}b", "a\nb", "a\r\nSET x y", "a\x00b", "a\tb", "\x1b[31m", "a b", " a", "a/b", "a//b", "../a", "a#d0", "a#",
		"%s", "%d+", "^a", "$", "a'b", `a"b`, `a\b`, "a;b", "a,b", "a|b", "a=b", "ä", "раypal", "ａ", "a\u200bb", "a\u202eb", "e\u0301", "😀", "-a", ".", "..", ".a", "_a", "~", ":",
		strings.Repeat("a", 64<<10), "\u0130", "a\u0000", "\ufeffa",
	} {
		for field, try := range map[string]func() error{
			"job_id": func() error {
				_, err := n.jobs.CreateJob(callContext(t), &fermatav1.CreateJobRequest{Parent: namespace, JobId: name, Job: newJob(behaviour{})})
				return err
			},
			"parent": func() error {
				_, err := n.jobs.CreateJob(callContext(t), &fermatav1.CreateJobRequest{Parent: "namespaces/" + name, JobId: "x", Job: newJob(behaviour{})})
				return err
			},
			"job.queue": func() error {
				j := newJob(behaviour{})
				j.Queue = name
				_, err := n.jobs.CreateJob(callContext(t), &fermatav1.CreateJobRequest{Parent: namespace, JobId: "x", Job: j})
				return err
			},
			"name": func() error {
				_, err := n.jobs.DeleteJob(callContext(t), &fermatav1.DeleteJobRequest{Name: jobName(name), AllowMissing: true})
				return err
			},
			"parent ": func() error {
				_, err := n.jobs.ListJobs(callContext(t), &fermatav1.ListJobsRequest{Parent: "namespaces/" + name})
				return err
			},
			"settings.name": func() error {
				_, err := n.jobs.UpdateQueueSettings(callContext(t), &fermatav1.UpdateQueueSettingsRequest{Settings: &fermatav1.QueueSettings{Name: namespace + "/queues/" + name}})
				return err
			},
		} {
			err := try()
			if fields := violatedFields(t, err); !slices.Contains(fields, strings.TrimSpace(field)) {
				t.Errorf("%.40q: it names %q, want %q", name, fields, field)
			}
			if s := err.Error(); len(s) > 500 || strings.ContainsAny(s, "\x00\x1b\n\u202e") {
				t.Errorf("%.40q is repeated in the answer: %.500q", name, s)
			}
		}
	}
	if after := len(n.listAllJobs()); after != before {
		t.Errorf("%d jobs are stored, there were %d", after, before)
	}
}
