package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/schedule"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// fakeJobs answers what a test sets; anything else panics.
type fakeJobs struct {
	checkpoint *job.Checkpoint // of exported jobs
	Jobs
	present job.Definition
	batch   []job.CreateRequest
	err     error
	filter  job.Filter

	mode     job.ManualMode
	catchUp  bool
	note     string
	hint     job.Hint
	backfill job.BackfillRequest

	runPayload job.RunWithPayloadRequest

	redrive  job.RedriveRequest
	settings job.QueueSettings
	queue    job.QueueKey
	preview  job.PreviewRequest
	backups  []job.Backup
	existing job.Existing

	change job.QueueChange

	desired []job.DesiredJob
	wished  []job.ApplyResult
	force   bool
}

func (f *fakeJobs) Create(_ context.Context, d job.Definition, _ string) (job.Record, error) {
	return job.Record{Definition: &d}, f.err
}

func (f *fakeJobs) CreateBatch(_ context.Context, requests []job.CreateRequest) []job.CreateAnswer {
	f.batch = requests
	answers := make([]job.CreateAnswer, len(requests))
	for i, q := range requests {
		answers[i].Record.Definition = &q.Definition
		if q.Definition.ID == "taken" {
			answers[i].Err = &job.ExistsError{Key: q.Definition.Key}
		}
	}
	return answers
}

func (f *fakeJobs) Update(_ context.Context, u job.UpdateRequest) (job.Record, error) {
	d, err := u.Merge(f.present)
	return job.Record{Definition: &d}, err
}

func (f *fakeJobs) List(_ context.Context, filter job.Filter, _ int, _ string) (job.Page, error) {
	f.filter = filter
	return job.Page{Records: []job.Record{{Definition: &f.present}}, Next: "more"}, f.err
}

func (f *fakeJobs) Delete(context.Context, job.Key, string) error { return f.err }

type fakeCluster struct{ Cluster }

func (fakeCluster) Nodes(context.Context) ([]Node, error) {
	return []Node{{Name: "a", GRPCAddress: "a:1", ShardsHeld: 3, Durability: "local", Started: time.Unix(5, 0)}}, nil
}

func (fakeCluster) LostNodes() []LostNode {
	return []LostNode{{Name: "b", GRPCAddress: "b:1", PeerAddress: "b:2", Version: "1", LostAt: time.Unix(7, 0)}}
}

func (fakeCluster) Namespaces(_ context.Context, scope job.QueueScope, whole func(string) bool) ([]Namespace, error) {
	var list []Namespace
	for _, name := range []string{"team-a", "team-b"} {
		if scope == nil || scope(job.QueueKey{Namespace: name, Queue: "mail"}) {
			list = append(list, Namespace{Name: name, Jobs: 3, Failing: 2, Whole: whole(name), JobsQuota: &QuotaUse{Limit: 5}})
		}
	}
	return list, nil
}

func (fakeCluster) Queues(_ context.Context, namespace string, covers func(string) bool) ([]Queue, error) {
	queues := []Queue{{Namespace: namespace, Queue: "mail", Backlog: 7, OldestOverdue: time.Second}, {Namespace: namespace, Queue: "web"}}
	return slices.DeleteFunc(queues, func(q Queue) bool { return covers != nil && !covers(q.Queue) }), nil
}

type bench struct {
	jobs  *fakeJobs
	conn  *grpc.ClientConn
	mu    sync.Mutex
	calls []string
	log   strings.Builder
}

func (b *bench) observed() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

func serve(t *testing.T, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{jobs: &fakeJobs{}}
	options := Options{
		Jobs: b.jobs, Cluster: fakeCluster{}, MaxRecvMsgSize: 1 << 20,
		Logger: slog.New(slog.NewTextHandler(&b.log, nil)),
		ObserveCall: func(method string, code codes.Code, _ time.Duration) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.calls = append(b.calls, method[strings.LastIndexByte(method, '/')+1:]+" "+code.String())
		},
	}
	for _, c := range change {
		c(&options)
	}
	server, _, err := NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	listener := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	b.conn, err = grpc.NewClient("passthrough:///bench", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.conn.Close() })
	return b
}

// key is the name of the job that fakeJobs has.
var key = job.Key{Namespace: "default", ID: "ping"}

// stored is that job.
func stored() job.Definition {
	d := job.WithDefaults(job.Definition{
		Key: key, Handler: "http", Payload: []byte("p"), Labels: map[string]string{"a": "b"},
		Schedule: schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute},
	})
	d.Priority, d.HistoryLimit = 7, 3
	return d
}

func TestUpdateMask(t *testing.T) {
	request := &fermatav1.Job{
		Name: convert.JobName(key), Handler: "exec", Queue: "mail", Timeout: durationpb.New(time.Minute),
		RetryPolicy: &fermatav1.RetryPolicy{MaxAttempts: 9, Multiplier: 3},
		Schedule:    &fermatav1.Schedule{Rule: &fermatav1.Schedule_Cron{Cron: &fermatav1.CronSchedule{Expressions: []string{"@daily"}}}},
	}
	tests := []struct {
		paths []string
		want  func(*job.Definition)
	}{
		{[]string{"handler"}, func(d *job.Definition) { d.Handler = "exec" }},
		{[]string{"queue", "timeout"}, func(d *job.Definition) { d.Queue, d.Timeout = "mail", time.Minute }},
		{[]string{"labels", "payload"}, func(d *job.Definition) { d.Labels, d.Payload = nil, nil }},
		{[]string{"priority", "history_limit"}, func(d *job.Definition) { d.Priority, d.HistoryLimit = 5, 10 }},
		{[]string{"retry_policy.max_attempts"}, func(d *job.Definition) { d.Retry.MaxAttempts = 9 }},
		{[]string{"retry_policy"}, func(d *job.Definition) {
			d.Retry = backoff.DefaultRetry()
			d.Retry.MaxAttempts, d.Retry.Multiplier = 9, 3
		}},
		{[]string{"schedule"}, func(d *job.Definition) { d.Schedule = schedule.Spec{Kind: schedule.KindCron, Cron: []string{"@daily"}} }},
		{[]string{"*"}, func(d *job.Definition) {
			*d = job.WithDefaults(job.Definition{Key: key, Handler: "exec", Queue: "mail", Timeout: time.Minute,
				Schedule: schedule.Spec{Kind: schedule.KindCron, Cron: []string{"@daily"}}})
			d.Retry = backoff.DefaultRetry()
			d.Retry.MaxAttempts, d.Retry.Multiplier = 9, 3
			d.Priority, d.HistoryLimit = 5, 10
		}},
	}
	b := serve(t)
	jobs := fermatav1.NewJobServiceClient(b.conn)
	for _, tt := range tests {
		b.jobs.present = stored()
		got, err := jobs.UpdateJob(t.Context(), &fermatav1.UpdateJobRequest{Job: request, UpdateMask: &fieldmaskpb.FieldMask{Paths: tt.paths}})
		if err != nil {
			t.Errorf("%v: %v", tt.paths, err)
			continue
		}
		want := stored()
		tt.want(&want)
		var r convert.Reader
		if d := r.Definition(key, got); !d.Equal(&want) {
			t.Errorf("%v:\ngot  %+v\nwant %+v", tt.paths, d, want)
		}
	}
	for _, paths := range [][]string{nil, {"speed"}, {"name"}, {"etag"}, {"status.state"}, {"labels.a"}, {"schedule.nope"}, {"*", "queue"}, {""}} {
		_, err := jobs.UpdateJob(t.Context(), &fermatav1.UpdateJobRequest{Job: request, UpdateMask: &fieldmaskpb.FieldMask{Paths: paths}})
		if f := fields(err); !slices.Contains(f, "update_mask") {
			t.Errorf("%v: %v", paths, err)
		}
	}
}

// TestReportedFaultsAreLimited: the answer to a request full of faults is bounded, and so
// is what it costs.
func TestReportedFaultsAreLimited(t *testing.T) {
	b := serve(t)
	jobs := fermatav1.NewJobServiceClient(b.conn)
	b.jobs.present = stored()
	name, many := convert.JobName(key), 200_000
	request := func(change func(*fermatav1.Job)) *fermatav1.UpdateJobRequest {
		j := &fermatav1.Job{Name: name, Handler: "h"}
		change(j)
		return &fermatav1.UpdateJobRequest{Job: j, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"*"}}}
	}
	masked := request(func(*fermatav1.Job) {})
	masked.UpdateMask.Paths = make([]string, many)
	for what, r := range map[string]*fermatav1.UpdateJobRequest{
		"update_mask": masked,
		"job.schedule.exclusions.periods": request(func(j *fermatav1.Job) {
			j.Schedule = &fermatav1.Schedule{Exclusions: &fermatav1.Exclusions{}}
			for range many {
				j.Schedule.Exclusions.Periods = append(j.Schedule.Exclusions.Periods, &fermatav1.Exclusions_Period{})
			}
		}),
	} {
		_, err := jobs.UpdateJob(t.Context(), r)
		told := fields(err)
		if len(told) == 0 || len(told) > job.MaxViolations+1 {
			t.Errorf("%s: %d violations: %.200v", what, len(told), err)
		}
		if !slices.Contains(told, what) {
			t.Errorf("%s: told of %.200v", what, told)
		}
	}
}

func fields(err error) []string {
	st, _ := status.FromError(err)
	if st.Code() != codes.InvalidArgument {
		return nil
	}
	var out []string
	for _, d := range st.Details() {
		if bad, ok := d.(interface{ String() string }); ok {
			for part := range strings.SplitSeq(bad.String(), "field:\"") {
				name, _, _ := strings.Cut(part, "\"")
				out = append(out, name)
			}
		}
	}
	return out
}

func TestBatch(t *testing.T) {
	b := serve(t)
	jobs := fermatav1.NewJobServiceClient(b.conn)
	item := func(id, parent string) *fermatav1.CreateJobRequest {
		return &fermatav1.CreateJobRequest{Parent: parent, JobId: id, Job: &fermatav1.Job{Handler: "http"}}
	}
	response, err := jobs.BatchCreateJobs(t.Context(), &fermatav1.BatchCreateJobsRequest{
		Parent: "namespaces/default",
		Requests: []*fermatav1.CreateJobRequest{
			item("a", ""), item("b", "namespaces/other"), item("taken", "namespaces/default"), item("d", ""), nil,
			{JobId: "e", Job: &fermatav1.Job{Timeout: &durationpb.Duration{Seconds: 1, Nanos: -1}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range response.GetResults() {
		got = append(got, fmt.Sprint(codes.Code(r.GetCode()), " ", r.GetJob().GetName(), " ", len(r.GetDetails())))
	}
	want := []string{
		"OK namespaces/default/jobs/a 0", "InvalidArgument  1", "AlreadyExists  1",
		"OK namespaces/default/jobs/d 0", "OK namespaces/default/jobs/ 0", "InvalidArgument  1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	response, err = jobs.BatchCreateJobs(t.Context(), &fermatav1.BatchCreateJobsRequest{
		Parent: "namespaces/default", Requests: []*fermatav1.CreateJobRequest{item("f", ""), item("taken", "")}, NamesOnly: true,
	})
	if err != nil || len(response.GetResults()) != 2 {
		t.Fatalf("names only: %v, %v", response, err)
	}
	named, refused := response.GetResults()[0], response.GetResults()[1]
	if only := (&fermatav1.Job{Name: "namespaces/default/jobs/f", Etag: named.GetJob().GetEtag()}); only.Etag == "" || !proto.Equal(named.GetJob(), only) {
		t.Errorf("names only: %v", named)
	}
	if codes.Code(refused.GetCode()) != codes.AlreadyExists || refused.GetJob() != nil {
		t.Errorf("names only, a taken id: %v", refused)
	}
	_, err = jobs.BatchCreateJobs(t.Context(), &fermatav1.BatchCreateJobsRequest{
		Parent: "namespaces/default", Requests: make([]*fermatav1.CreateJobRequest, 1001),
	})
	if !slices.Contains(fields(err), "requests") {
		t.Errorf("1,001 requests: %v", err)
	}
}

func TestErrorsPanicsAndObservers(t *testing.T) {
	b := serve(t)
	jobs := fermatav1.NewJobServiceClient(b.conn)
	ctx := t.Context()
	b.jobs.err = errors.New("secret detail")
	_, err := jobs.ListJobs(ctx, &fermatav1.ListJobsRequest{Parent: "namespaces/default"})
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
		t.Errorf("unknown error: %v", err)
	}
	if _, err = jobs.GetJob(ctx, &fermatav1.GetJobRequest{Name: convert.JobName(key)}); status.Code(err) != codes.Internal {
		t.Errorf("panic: %v", err)
	}
	b.jobs.err = &job.MissingError{Key: key}
	if _, err = jobs.DeleteJob(ctx, &fermatav1.DeleteJobRequest{Name: convert.JobName(key)}); status.Code(err) != codes.NotFound {
		t.Errorf("delete: %v", err)
	}
	if _, err = jobs.DeleteJob(ctx, &fermatav1.DeleteJobRequest{Name: convert.JobName(key), AllowMissing: true}); err != nil {
		t.Errorf("delete what may be missing: %v", err)
	}
	want := []string{"ListJobs Internal", "GetJob Internal", "DeleteJob NotFound", "DeleteJob OK"}
	if got := b.observed(); !slices.Equal(got, want) {
		t.Errorf("observed %q", got)
	}
	for _, text := range []string{"secret detail", "panic: runtime error", "job_service.go"} {
		if !strings.Contains(b.log.String(), text) {
			t.Errorf("the log lacks %q", text)
		}
	}
}

func TestReflectionIsOffUnlessAskedFor(t *testing.T) {
	for on, b := range map[bool]*bench{false: serve(t), true: serve(t, func(o *Options) { o.Reflection = true })} {
		stream, err := grpc_reflection_v1.NewServerReflectionClient(b.conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// A refusal shows when the answer is read.
		_ = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
		})
		answer, err := stream.Recv()
		if on && !strings.Contains(answer.String(), "fermata.v1.JobService") || !on && status.Code(err) != codes.Unimplemented {
			t.Errorf("asked for: %v: %v %v", on, answer, err)
		}
	}
}

func TestServices(t *testing.T) {
	b := serve(t)
	ctx := t.Context()
	check, err := grpc_health_v1.NewHealthClient(b.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "fermata.v1.JobService"})
	if err != nil || check.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v %v", check, err)
	}
	cluster := fermatav1.NewClusterServiceClient(b.conn)
	nodes, err := cluster.ListNodes(ctx, &fermatav1.ListNodesRequest{})
	if err != nil || nodes.GetNodes()[0].GetName() != "a" || nodes.GetNodes()[0].GetShardsHeld() != 3 {
		t.Errorf("nodes: %v %v", nodes, err)
	}
	queues, err := cluster.ListQueues(ctx, &fermatav1.ListQueuesRequest{Parent: "namespaces/n"})
	if err != nil || queues.GetQueues()[0].GetNamespace() != "n" || queues.GetQueues()[0].GetOldestOverdue().AsDuration() != time.Second {
		t.Errorf("queues: %v %v", queues, err)
	}
	if _, err := cluster.ListQueues(ctx, &fermatav1.ListQueuesRequest{Parent: "n"}); !slices.Contains(fields(err), "parent") {
		t.Errorf("bad parent: %v", err)
	}
	big := &fermatav1.CreateJobRequest{Parent: "namespaces/n", Job: &fermatav1.Job{Payload: make([]byte, 1<<20)}}
	if _, err := fermatav1.NewJobServiceClient(b.conn).CreateJob(ctx, big); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message over the limit: %v", err)
	}
}

func TestListFilterIsTranslated(t *testing.T) {
	b := serve(t)
	b.jobs.present = stored()
	response, err := fermatav1.NewJobServiceClient(b.conn).ListJobs(t.Context(), &fermatav1.ListJobsRequest{
		Parent: "namespaces/n", Queue: "q", State: fermatav1.JobStatus_STATE_PAUSED, IdPrefix: "x",
		Labels: map[string]string{"a": "b"}, MinConsecutiveFailures: 2,
	})
	if err != nil || response.GetNextPageToken() != "more" || response.GetJobs()[0].GetName() != convert.JobName(key) {
		t.Fatalf("%v %v", response, err)
	}
	f := b.jobs.filter
	if f.Namespace != "n" || f.Queue != "q" || f.Status != job.StatusPaused || f.IDPrefix != "x" || f.Labels["a"] != "b" || f.MinFailures != 2 {
		t.Errorf("filter %+v", f)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, _, err := NewServer(Options{}); err == nil {
		t.Error("no error")
	}
}
