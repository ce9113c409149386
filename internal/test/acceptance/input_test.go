package acceptance

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/test/historycheck"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// violatedFields lists the fields that an INVALID_ARGUMENT names.
func violatedFields(t *testing.T, err error) []string {
	t.Helper()
	if status.Code(err) != codes.InvalidArgument {
		t.Fatalf("got %v, want INVALID_ARGUMENT", err)
	}
	var fields []string
	for _, d := range status.Convert(err).Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				fields = append(fields, v.GetField())
				if v.GetDescription() == "" {
					t.Errorf("%s: no description", v.GetField())
				}
			}
		}
	}
	return fields
}

func cronSchedule(zone string, expressions ...string) *fermatav1.Schedule {
	return &fermatav1.Schedule{Rule: &fermatav1.Schedule_Cron{Cron: &fermatav1.CronSchedule{Expressions: expressions, TimeZone: zone}}}
}

func TestBadInputIsRefusedByField(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL(), "--max-payload", "1000")
	n := c.startNode("a")
	n.createJob("good", newJob(behaviour{}))

	create := func(id string, change func(*fermatav1.Job)) func() error {
		return func() error {
			j := newJob(behaviour{})
			change(j)
			_, err := n.jobs.CreateJob(callContext(t), &fermatav1.CreateJobRequest{Parent: namespace, JobId: id, Job: j})
			return err
		}
	}
	update := func(change func(*fermatav1.Job), paths ...string) func() error {
		return func() error {
			j := newJob(behaviour{})
			j.Name = jobName("good")
			change(j)
			_, err := n.jobs.UpdateJob(callContext(t), &fermatav1.UpdateJobRequest{Job: j, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
			return err
		}
	}
	keep := func(*fermatav1.Job) {}
	tests := []struct {
		name  string
		call  func() error
		field string
	}{
		{"id too long", create(strings.Repeat("x", 129), keep), "job_id"},
		{"id with a slash", create("a/b", keep), "job_id"},
		{"id of spaces", create("  ", keep), "job_id"},
		{"no parent", func() error {
			_, err := n.jobs.CreateJob(callContext(t), &fermatav1.CreateJobRequest{JobId: "x", Job: newJob(behaviour{})})
			return err
		}, "parent"},
		{"no job", func() error {
			_, err := n.jobs.CreateJob(callContext(t), &fermatav1.CreateJobRequest{Parent: namespace, JobId: "x"})
			return err
		}, "job.handler"},
		{"no handler", create("x", func(j *fermatav1.Job) { j.Handler = "" }), "job.handler"},
		{"unknown time zone", create("x", func(j *fermatav1.Job) { j.Schedule = cronSchedule("Europe/Atlantis", "0 5 * * *") }),
			"job.schedule.cron.time_zone"},
		{"cron that never comes", create("x", func(j *fermatav1.Job) { j.Schedule = cronSchedule("", "0 0 30 2 *") }),
			"job.schedule.cron.expressions[0]"},
		{"cron that is none", create("x", func(j *fermatav1.Job) { j.Schedule = cronSchedule("", "0 5 * * *", "every morning") }),
			"job.schedule.cron.expressions[1]"},
		{"cron with step zero", create("x", func(j *fermatav1.Job) { j.Schedule = cronSchedule("", "*/0 * * * *") }),
			"job.schedule.cron.expressions[0]"},
		{"cron with a zone inside", create("x", func(j *fermatav1.Job) { j.Schedule = cronSchedule("", "CRON_TZ=2025") }),
			"job.schedule.cron.expressions[0]"},
		{"cron of no expression", create("x", func(j *fermatav1.Job) { j.Schedule = cronSchedule("UTC") }),
			"job.schedule.cron.expressions"},
		{"interval too short", create("x", func(j *fermatav1.Job) { j.Schedule = everyInterval(999*time.Millisecond, time.Now()) }),
			"job.schedule.interval.every"},
		{"negative interval", create("x", func(j *fermatav1.Job) { j.Schedule = everyInterval(-time.Minute, time.Now()) }),
			"job.schedule.interval.every"},
		{"negative retry delay", create("x", func(j *fermatav1.Job) {
			j.RetryPolicy = &fermatav1.RetryPolicy{BaseDelay: durationpb.New(-time.Second)}
		}), "job.retry_policy.base_delay"},
		{"negative backoff", create("x", func(j *fermatav1.Job) {
			j.BackoffPolicy = &fermatav1.BackoffPolicy{MaxDelay: durationpb.New(-time.Second)}
		}), "job.backoff_policy.max_delay"},
		{"negative timeout", create("x", func(j *fermatav1.Job) { j.Timeout = durationpb.New(-1) }), "job.timeout"},
		{"payload over the limit", create("x", func(j *fermatav1.Job) { j.Payload = make([]byte, 1001) }), "job.payload"},
		{"queue with a slash", create("x", func(j *fermatav1.Job) { j.Queue = "a/b" }), "job.queue"},
		{"label too long", create("x", func(j *fermatav1.Job) { j.Labels = map[string]string{"k": strings.Repeat("v", 129)} }), `job.labels["k"]`},
		{"1,001 in a batch", func() error {
			request := &fermatav1.BatchCreateJobsRequest{Parent: namespace}
			for range 1001 {
				request.Requests = append(request.Requests, &fermatav1.CreateJobRequest{JobId: "x", Job: newJob(behaviour{})})
			}
			_, err := n.jobs.BatchCreateJobs(callContext(t), request)
			return err
		}, "requests"},
		{"get without an id", func() error {
			_, err := n.jobs.GetJob(callContext(t), &fermatav1.GetJobRequest{Name: jobName("")})
			return err
		}, "name"},
		{"unknown field mask", update(keep, "colour"), "update_mask"},
		{"field mask of what only the server sets", update(keep, "create_time"), "update_mask"},
		{"empty field mask", update(keep), "update_mask"},
		{"update to a bad value", update(func(j *fermatav1.Job) { j.Queue = "?" }, "queue"), "job.queue"},
		{"page size", func() error {
			_, err := n.jobs.ListJobs(callContext(t), &fermatav1.ListJobsRequest{Parent: namespace, PageSize: -1})
			return err
		}, "page_size"},
		{"page token", func() error {
			_, err := n.jobs.ListJobs(callContext(t), &fermatav1.ListJobsRequest{Parent: namespace, PageToken: "nonsense"})
			return err
		}, "page_token"},
		{"preview of nothing to come", func() error {
			_, err := n.jobs.PreviewSchedule(callContext(t), &fermatav1.PreviewScheduleRequest{Schedule: cronSchedule("", "0 0 31 4 *")})
			return err
		}, "schedule.cron.expressions[0]"},
	}
	before := dumpKeyspace(t, server)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if fields := violatedFields(t, tt.call()); !slices.Contains(fields, tt.field) {
				t.Errorf("it names %q, want %q", fields, tt.field)
			}
		})
	}
	t.Run("one bad job in a batch", func(t *testing.T) {
		bad := newJob(behaviour{})
		bad.Handler = ""
		response, err := n.jobs.BatchCreateJobs(callContext(t), &fermatav1.BatchCreateJobsRequest{Parent: namespace, Requests: []*fermatav1.CreateJobRequest{
			{JobId: "bad", Job: bad}, {JobId: "good", Job: newJob(behaviour{Fail: true})},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := response.GetResults()[0]; got.GetCode() != int32(codes.InvalidArgument) || len(got.GetDetails()) == 0 {
			t.Errorf("the bad one: %v", got)
		}
		if got := response.GetResults()[1]; got.GetCode() != int32(codes.AlreadyExists) {
			t.Errorf("the one whose id is taken: %v", got)
		}
	})
	if after := dumpKeyspace(t, server); !slices.Equal(before, after) {
		t.Errorf("something was stored:\nbefore %q\nafter  %q", before, after)
	}
}

// dumpKeyspace lists everything that is stored of jobs: fields of states, definitions
// and history, and members of lanes.
func dumpKeyspace(t *testing.T, server *redistest.Server) []string {
	t.Helper()
	ctx := callContext(t)
	client := server.Client()
	keys, err := client.Keys(ctx, "fermata:{*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	add := func(key string, fields []string, err error) {
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			all = append(all, key+" "+f)
		}
	}
	for _, key := range keys {
		switch _, part, _ := strings.Cut(key, "}:"); {
		case part == "st" || part == "def" || part == "hist":
			pairs, err := client.HGetAll(ctx, key).Result()
			for field, value := range pairs {
				add(key, []string{field + "=" + value}, err)
			}
			add(key, nil, err)
		case strings.HasPrefix(part, "l:"):
			members, err := client.ZRange(ctx, key, 0, -1).Result()
			add(key, members, err)
		}
	}
	slices.Sort(all)
	return all
}

// TestRedisAtMaxmemory: what exists goes on, nothing new is taken in, and that
// ends with the shortage.
func TestRedisAtMaxmemory(t *testing.T) {
	runBesideOthers(t)
	server := newRedis(t)
	c := newCluster(t, server.URL())
	c.pulse.pingServers(server.Client())
	n := c.startNode("a")
	c.awaitSettled()
	c.startWorker("w1", 50, n.grpc)
	l := newLoad(50, time.Now().Add(500*time.Millisecond), "default")
	n.registerLoad(l)
	c.awaitEvent(patience, "the first run", isStartOf("load-0000", ""))

	// One byte more than nothing: whatever a write needs is not there.
	limit := func(bytes string) {
		if err := server.Client().ConfigSet(callContext(t), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	full := time.Now()
	_, err := n.jobs.CreateJob(callContext(t), &fermatav1.CreateJobRequest{Parent: namespace, JobId: "new", Job: newJob(behaviour{})})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("create at maxmemory: %v, want RESOURCE_EXHAUSTED", err)
	}
	response, err := n.jobs.BatchCreateJobs(callContext(t), &fermatav1.BatchCreateJobsRequest{Parent: namespace, Requests: []*fermatav1.CreateJobRequest{
		{JobId: "new-1", Job: newJob(behaviour{})}, {JobId: "new-2", Job: newJob(behaviour{})},
	}})
	switch {
	case err != nil && status.Code(err) != codes.ResourceExhausted:
		t.Errorf("batch at maxmemory: %v, want RESOURCE_EXHAUSTED", err)
	case err == nil:
		for _, r := range response.GetResults() {
			if codes.Code(r.GetCode()) != codes.ResourceExhausted {
				t.Errorf("batch at maxmemory: %v, want RESOURCE_EXHAUSTED", r)
			}
		}
	}
	// Jobs of every interval go on, through more than one life of lock and lease.
	for _, id := range []string{"load-0000", "load-0011", "load-0022", "load-0033", "load-0044"} {
		c.awaitEvent(patience, id+" runs long after", func(e historycheck.Event) bool {
			return isStartOf(id, "")(e) && e.AtNS > full.Add(2*leaseTTL).UnixNano()
		})
	}
	if _, err := n.jobs.PauseJob(callContext(t), &fermatav1.PauseJobRequest{Name: jobName("load-0000")}); err != nil {
		t.Errorf("pause at maxmemory: %v", err)
	}
	if _, err := n.jobs.ResumeJob(callContext(t), &fermatav1.ResumeJobRequest{Name: jobName("load-0000")}); err != nil {
		t.Errorf("resume at maxmemory: %v", err)
	}
	limit("0")
	if jobs := n.listAllJobs(); len(jobs) != 50 {
		t.Errorf("%d jobs are stored, want the 50 from before", len(jobs))
	}
	n.createJob("new", newJob(behaviour{}))
	l.promises = slices.DeleteFunc(l.promises, func(p historycheck.ExpectedSchedule) bool { return p.Job == "load-0000" })
	l.promises = append(l.promises, historycheck.ExpectedSchedule{Job: "load-0000"})
	r := c.judgeHistory(historycheck.History{ExpectedSchedules: l.promises, Bounds: calmBounds(), Stored: storedJobs(n.listAllJobs())})
	atLeast(t, "nominal times", r.Targets, 60)
}
