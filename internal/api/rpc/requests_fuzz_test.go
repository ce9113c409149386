package rpc

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/api/convert"
	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/forecast"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// anyJobs answers whatever it is asked, with what was asked about where it can.
type anyJobs struct{ present job.Definition }

func (a anyJobs) record(key job.Key) job.Record {
	d := a.present
	d.Key = key
	return job.Record{Definition: &d}
}

// view is a run of a name that a client made up.
func (a anyJobs) view(id string) job.RunView { return job.RunView{Run: job.Run{ID: id}} }

func (a anyJobs) Create(_ context.Context, d job.Definition, _ string) (job.Record, error) {
	d.AnchorMS = 1_800_000_000_000
	if v := job.Validate(&d, job.DefaultLimits()); len(v) > 0 {
		return job.Record{}, &job.InvalidError{Violations: v}
	}
	return job.Record{Definition: &d}, nil
}

func (a anyJobs) CreateBatch(ctx context.Context, requests []job.CreateRequest) []job.CreateAnswer {
	answers := make([]job.CreateAnswer, len(requests))
	for i, q := range requests {
		answers[i].Record, answers[i].Err = a.Create(ctx, q.Definition, q.RequestID)
	}
	return answers
}
func (a anyJobs) ListUpcoming(context.Context, job.UpcomingQuery) (job.UpcomingPage, error) {
	return job.UpcomingPage{}, nil
}
func (a anyJobs) TopJobs(context.Context, job.TopQuery) (job.TopList, error) {
	return job.TopList{Jobs: []job.TopJob{{Record: a.record(key), Lag: time.Minute, Waiting: true}}}, nil
}
func (a anyJobs) Get(_ context.Context, key job.Key) (job.Record, error) { return a.record(key), nil }
func (a anyJobs) List(context.Context, job.Filter, int, string) (job.Page, error) {
	return job.Page{Records: []job.Record{a.record(key)}, Next: "more"}, nil
}
func (a anyJobs) Update(ctx context.Context, u job.UpdateRequest) (job.Record, error) {
	d, err := u.Merge(a.present)
	if err != nil {
		return job.Record{}, err
	}
	return a.Create(ctx, d, "")
}
func (a anyJobs) Delete(context.Context, job.Key, string) error { return nil }
func (a anyJobs) Pause(_ context.Context, key job.Key, _ string) (job.Record, error) {
	return a.record(key), nil
}
func (a anyJobs) Resume(_ context.Context, key job.Key, _ bool) (job.Record, error) {
	return a.record(key), nil
}
func (a anyJobs) RunJob(_ context.Context, _ job.Key, q job.RequestManualRun) (job.RunView, bool, error) {
	return a.view(q.RequestID), true, nil
}
func (a anyJobs) RunJobWithPayload(_ context.Context, _ job.Key, q job.RunWithPayloadRequest) (job.RunView, error) {
	v := a.view(q.RequestID)
	v.Payload = &job.RunPayload{Payload: q.Payload}
	v.OwnPayload = v.Payload.Describe()
	return v, nil
}
func (a anyJobs) Revisions(context.Context, job.Key) (job.JobRevisions, error) {
	return job.JobRevisions{{Definition: &a.present, Before: &a.present}, {Definition: &a.present}}, nil
}
func (a anyJobs) DiffRevisions(context.Context, job.Key, uint32, uint32) (job.RevisionDiff, error) {
	return job.RevisionDiff{From: &a.present, To: &a.present}, nil
}
func (a anyJobs) RestoreRevision(_ context.Context, key job.Key, _ uint32, _, _ string) (job.Record, error) {
	return a.record(key), nil
}
func (a anyJobs) Rename(_ context.Context, q job.RenameRequest) (job.Record, error) {
	return a.record(q.NewKey()), nil
}
func (a anyJobs) ListEndedRuns(context.Context, job.EndedRunsQuery) (job.EndedRunsPage, error) {
	return job.EndedRunsPage{Runs: []job.EndedRun{{Key: key, Run: job.Run{ID: "r"}}}, Next: "more"}, nil
}

func (a anyJobs) RecentRuns(_ context.Context, records []job.Record, _ int) ([][]job.Run, error) {
	return make([][]job.Run, len(records)), nil
}

func (a anyJobs) ListRuns(context.Context, job.Key) ([]job.RunView, error) {
	return []job.RunView{a.view("r")}, nil
}
func (a anyJobs) GetRun(_ context.Context, _ job.Key, id string) (job.RunView, error) {
	return a.view(id), nil
}
func (a anyJobs) CancelRun(_ context.Context, _ job.Key, id string) (job.RunView, error) {
	return a.view(id), nil
}

func (a anyJobs) Preview(_ context.Context, p job.PreviewRequest) (job.Preview, error) {
	if v := job.ValidateSchedule("schedule", p.Schedule, time.UnixMilli(1_800_000_000_000), job.DefaultLimits()); len(v) > 0 {
		return job.Preview{}, &job.InvalidError{Violations: v}
	}
	return job.Preview{Times: []job.PreviewTime{{}}}, nil
}
func (a anyJobs) Hint(_ context.Context, key job.Key, _ job.Hint) (job.Record, error) {
	return a.record(key), nil
}
func (a anyJobs) Explain(_ context.Context, key job.Key) (job.ExplainedJob, error) {
	return job.ExplainedJob{Record: a.record(key), Runs: []job.RunView{a.view("r")}}, nil
}
func (a anyJobs) Backfill(_ context.Context, key job.Key, _ job.BackfillRequest) (job.Record, error) {
	return a.record(key), nil
}
func (a anyJobs) CancelBackfill(_ context.Context, key job.Key, _ string) (job.Record, error) {
	return a.record(key), nil
}
func (a anyJobs) ListDeadLetters(context.Context, job.Filter, int, string) (job.DeadLetterPage, error) {
	return job.DeadLetterPage{DeadLetters: []job.DeadLetter{{Record: "ns/a#0"}, {Record: "ns/a"}}}, nil
}
func (a anyJobs) RedriveDeadLetters(_ context.Context, q job.RedriveRequest) (job.Bulk, error) {
	return job.Bulk{Done: len(q.Records)}, nil
}
func (a anyJobs) ChangeMatching(context.Context, job.BulkRequest) (job.BulkPage, error) {
	return job.BulkPage{Refusals: []job.BulkRefusal{{Reason: "x", Count: 1, Names: []job.BulkTarget{{Record: "ns/a"}}}}}, nil
}
func (a anyJobs) PauseAll(context.Context, job.Filter, string, string) (job.Bulk, error) {
	return job.Bulk{}, nil
}
func (a anyJobs) ResumeAll(context.Context, job.Filter, string, bool, string) (job.Bulk, error) {
	return job.Bulk{}, nil
}
func (a anyJobs) QueueSettings(context.Context, job.QueueKey) (job.QueueSettings, error) {
	return job.QueueSettings{}, nil
}

func (a anyJobs) SetQueueSettings(_ context.Context, _ job.QueueKey, c job.QueueChange) (job.QueueSettings, error) {
	if v := job.ValidateQueueSettings(c.Settings); len(v) > 0 {
		return job.QueueSettings{}, &job.InvalidError{Violations: v}
	}
	return c.Settings, nil
}
func (a anyJobs) ExportJobs(context.Context, job.Filter, int, string) (job.BackupPage, error) {
	return job.BackupPage{Backups: []job.Backup{{Definition: a.present}}}, nil
}

func (a anyJobs) PlanJobs(_ context.Context, desired []job.DesiredJob, _ bool) []job.ApplyResult {
	answers := make([]job.ApplyResult, len(desired))
	for i, w := range desired {
		before, d := a.record(w.Definition.Key), w.Definition
		answers[i] = job.ApplyResult{Action: job.ApplyUpdate, Before: &before, After: &job.Record{Definition: &d}, PauseChanges: true, Err: w.Err}
		d.AnchorMS = 1_800_000_000_000
		if v := job.Validate(&d, job.DefaultLimits()); len(v) > 0 {
			answers[i].Err = &job.InvalidError{Violations: v}
		}
	}
	return answers
}

func (a anyJobs) ApplyJobs(ctx context.Context, desired []job.DesiredJob, force bool) []job.ApplyResult {
	return a.PlanJobs(ctx, desired, force)
}

func (a anyJobs) Restore(_ context.Context, backups []job.Backup, _ job.Existing) []job.RestoreAnswer {
	answers := make([]job.RestoreAnswer, len(backups))
	for i, b := range backups {
		b.Definition.AnchorMS = 1_800_000_000_000
		if v := job.Validate(&b.Definition, job.DefaultLimits()); len(v) > 0 {
			answers[i].Err = &job.InvalidError{Violations: v}
		}
	}
	return answers
}

// anyCluster is a cluster of nobody.
type anyCluster struct{}

func (anyCluster) Namespaces(context.Context, job.QueueScope, func(string) bool) ([]Namespace, error) {
	return nil, nil
}

func (anyCluster) Nodes(context.Context) ([]Node, error)   { return nil, nil }
func (anyCluster) LostNodes() []LostNode                   { return nil }
func (anyCluster) Shards(context.Context) ([]Shard, error) { return nil, nil }
func (anyCluster) Queues(context.Context, string, func(string) bool) ([]Queue, error) {
	return nil, nil
}
func (anyCluster) Workers(context.Context) ([]Worker, error) { return nil, nil }
func (anyCluster) ForecastLoad(context.Context, forecast.Query, func(string) bool) (forecast.Gathered, error) {
	return forecast.Gathered{Answer: forecast.Answer{Load: forecast.NewLoad()}}, nil
}
func (anyCluster) CheckShard(context.Context, int, bool) (job.ConsistencyReport, error) {
	return job.ConsistencyReport{}, nil
}

// unary is a method as gRPC calls it.
type unary struct {
	service any
	desc    grpc.MethodDesc
}

func unaries() []unary {
	present := stored()
	jobs := anyJobs{present}
	var all []unary
	for _, s := range []struct {
		desc    grpc.ServiceDesc
		service any
	}{
		{fermatav1.JobService_ServiceDesc, newJobService(jobs, func() time.Time { return time.Unix(1_800_000_000, 0) }, nil)},
		{fermatav1.BackupService_ServiceDesc, &backupService{jobs: jobs}},
		{fermatav1.ClusterService_ServiceDesc, &clusterService{cluster: anyCluster{}, now: time.Now}},
	} {
		for _, m := range s.desc.Methods {
			all = append(all, unary{s.service, m})
		}
	}
	return all
}

var errNotThis = errors.New("not a message of this kind")

// FuzzRequests: any bytes that are a request of a method are answered or refused;
// no method panics, and none says that the fault is the server's.
func FuzzRequests(f *testing.F) {
	all := unaries()
	add := func(m proto.Message) {
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		for i := range all {
			f.Add(uint8(i), wire)
		}
	}
	d := stored()
	hostile := "namespaces/{x}*/jobs/a\nb[?]"
	add(&fermatav1.CreateJobRequest{Parent: "namespaces/n", JobId: "j", Job: convert.DefinitionToPB(&d)})
	add(&fermatav1.GetJobRequest{Name: convert.JobName(key)})
	add(&fermatav1.GetJobRequest{Name: hostile})
	add(&fermatav1.ListJobsRequest{Parent: "namespaces/*", PageSize: -1, PageToken: "\x00", Labels: map[string]string{"": ""}})
	add(&fermatav1.GetRunRequest{Name: convert.RunName(key, "r")})
	add(&fermatav1.RestoreJobsRequest{Parent: "namespaces/n", Existing: 77, Jobs: []*fermatav1.JobBackup{{Job: convert.DefinitionToPB(&d), Checkpoint: &fermatav1.Checkpoint{}}, {}}})
	add(&fermatav1.UpdateQueueSettingsRequest{Settings: &fermatav1.QueueSettings{Name: "namespaces/n/queues/q", Rate: -1, Burst: 1 << 30}})
	g := guard.NewReporter(slog.New(slog.DiscardHandler), nil)
	f.Fuzz(func(t *testing.T, method uint8, wire []byte) {
		m := all[int(method)%len(all)]
		_, err := m.desc.Handler(m.service, t.Context(), func(q any) error {
			if proto.Unmarshal(wire, q.(proto.Message)) != nil {
				return errNotThis
			}
			return nil
		}, func(ctx context.Context, q any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			answer, err := g.UnaryInterceptor(ctx, q, &grpc.UnaryServerInfo{FullMethod: m.desc.MethodName}, next)
			if p, ok := answer.(proto.Message); ok && err == nil {
				if _, err := proto.Marshal(p); err != nil {
					t.Fatalf("%s: answer cannot be sent: %v", m.desc.MethodName, err)
				}
			}
			return answer, err
		})
		switch status.Code(err) {
		case codes.Internal, codes.Unknown:
			if !errors.Is(err, errNotThis) {
				t.Fatalf("%s: %v", m.desc.MethodName, err)
			}
		case codes.InvalidArgument:
			if len(status.Convert(err).Details()) == 0 {
				t.Fatalf("%s: %v names no field", m.desc.MethodName, err)
			}
		}
	})
}
