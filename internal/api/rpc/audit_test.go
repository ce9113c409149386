package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/api/apierror"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestEveryMethodIsJudged: each method of the services that clients call either
// has a row in changes or is listed as one that only reads.
func TestEveryMethodIsJudged(t *testing.T) {
	seen := 0
	for _, name := range []protoreflect.FullName{"fermata.v1.JobService", "fermata.v1.BackupService", "fermata.v1.ClusterService", "fermata.v1.EventService", "fermata.v1.AccessService"} {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			method := "/" + string(name) + "/" + string(methods.Get(i).Name())
			_, writes := auditRules[method]
			if writes == slices.Contains(readOnlyMethods, method) {
				t.Errorf("%s: a method either changes something or only reads", method)
			}
			seen++
		}
	}
	if seen != len(auditRules)+len(readOnlyMethods) {
		t.Errorf("%d methods, but %d are judged", seen, len(auditRules)+len(readOnlyMethods))
	}
}

// trailOf gathers records.
type trailOf struct {
	AuditTrail // whose other methods are not called
	records    []job.TrailRecord
	places     int   // that calls have
	full       error // there is no place
}

func (t *trailOf) Record(r job.TrailRecord, place job.TrailPlace) {
	t.records = append(t.records, r)
	t.Release(place)
}

func (t *trailOf) Reserve(context.Context, string) (job.TrailPlace, error) {
	if t.full != nil {
		return job.TrailPlace{}, t.full
	}
	t.places++
	return job.TrailPlace{Held: true}, nil
}

func (t *trailOf) Release(place job.TrailPlace) {
	if place.Held {
		t.places--
	}
}

func (t *trailOf) List(context.Context, job.TrailFilter, int, string) (job.TrailPage, error) {
	return job.TrailPage{Records: t.records}, nil
}

// sampleCalls are a request and an answer of each method that changes something.
var sampleCalls = map[string]struct {
	q, a     proto.Message
	resource string
}{
	"CreateJob": {&fermatav1.CreateJobRequest{Parent: "namespaces/n", RequestId: "r"}, sampleJob(), "namespaces/n/jobs/j"},
	"ApplyJobs": {&fermatav1.ApplyJobsRequest{Parent: "namespaces/n", DesiredJobs: []*fermatav1.DesiredJob{{JobId: "j"}, {JobId: "k"}}, Force: true},
		&fermatav1.ApplyJobsResponse{Changes: []*fermatav1.JobChange{{Action: fermatav1.JobChange_ACTION_UPDATE, After: sampleJob()}, {Code: 6}}}, "namespaces/n"},
	"BatchCreateJobs":        {&fermatav1.BatchCreateJobsRequest{Parent: "namespaces/n"}, &fermatav1.BatchCreateJobsResponse{Results: []*fermatav1.BatchCreateJobsResponse_Result{{Job: sampleJob()}, {Code: 6}}}, "namespaces/n"},
	"UpdateJob":              {&fermatav1.UpdateJobRequest{Job: sampleJob(), UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"queue"}}}, sampleJob(), "namespaces/n/jobs/j"},
	"RestoreJobRevision":     {&fermatav1.RestoreJobRevisionRequest{Name: "namespaces/n/jobs/j/revisions/3"}, sampleJob(), "namespaces/n/jobs/j"},
	"RenameJob":              {&fermatav1.RenameJobRequest{Name: "namespaces/n/jobs/j", NewId: "k"}, sampleJob(), "namespaces/n/jobs/j"},
	"DeleteJob":              {&fermatav1.DeleteJobRequest{Name: "namespaces/n/jobs/j"}, &fermatav1.Job{}, "namespaces/n/jobs/j"},
	"PauseJob":               {&fermatav1.PauseJobRequest{Name: "namespaces/n/jobs/j"}, sampleJob(), "namespaces/n/jobs/j"},
	"ResumeJob":              {&fermatav1.ResumeJobRequest{Name: "namespaces/n/jobs/j"}, sampleJob(), "namespaces/n/jobs/j"},
	"HintJob":                {&fermatav1.HintJobRequest{Name: "namespaces/n/jobs/j"}, sampleJob(), "namespaces/n/jobs/j"},
	"BackfillJob":            {&fermatav1.BackfillJobRequest{Name: "namespaces/n/jobs/j"}, sampleJob(), "namespaces/n/jobs/j"},
	"CancelBackfill":         {&fermatav1.CancelBackfillRequest{Name: "namespaces/n/jobs/j"}, sampleJob(), "namespaces/n/jobs/j"},
	"RunJob":                 {&fermatav1.RunJobRequest{Name: "namespaces/n/jobs/j"}, &fermatav1.RunJobResponse{Run: &fermatav1.Run{Name: "r"}}, "namespaces/n/jobs/j"},
	"RunJobWithPayload":      {&fermatav1.RunJobWithPayloadRequest{Name: "namespaces/n/jobs/j", Payload: []byte("secret")}, &fermatav1.Run{Name: "r", OwnPayload: &fermatav1.RunPayload{Size: 6, Sha256: []byte{1, 2}}}, "namespaces/n/jobs/j"},
	"CancelRun":              {&fermatav1.CancelRunRequest{Name: "namespaces/n/jobs/j/runs/r"}, &fermatav1.Run{}, "namespaces/n/jobs/j/runs/r"},
	"PauseJobs":              {&fermatav1.PauseJobsRequest{Parent: "namespaces/n"}, &fermatav1.PauseJobsResponse{Paused: 2}, "namespaces/n"},
	"ResumeJobs":             {&fermatav1.ResumeJobsRequest{Parent: "namespaces/n"}, &fermatav1.ResumeJobsResponse{Resumed: 2}, "namespaces/n"},
	"RedriveDeadLetters":     {&fermatav1.RedriveDeadLettersRequest{Parent: "namespaces/n"}, &fermatav1.RedriveDeadLettersResponse{Redriven: 1}, "namespaces/n"},
	"DiscardDeadLetter":      {&fermatav1.DiscardDeadLetterRequest{Name: "namespaces/n/jobs/j/deadLetters/1", RunId: "1-5"}, &emptypb.Empty{}, "namespaces/n/jobs/j/deadLetters/1"},
	"PauseQueue":             {&fermatav1.PauseQueueRequest{Name: "namespaces/n/queues/q"}, &fermatav1.QueueSettings{}, "namespaces/n/queues/q"},
	"ProbeTarget":            {&fermatav1.ProbeTargetRequest{Parent: "namespaces/n", Target: "api"}, &fermatav1.ProbeTargetResponse{Job: "namespaces/n/jobs/j"}, "namespaces/n/targets/api"},
	"ResetTarget":            {&fermatav1.ResetTargetRequest{Parent: "namespaces/n", Target: "api"}, &fermatav1.ResetTargetResponse{Released: 2}, "namespaces/n/targets/api"},
	"UpdateQueueSettings":    {&fermatav1.UpdateQueueSettingsRequest{Settings: &fermatav1.QueueSettings{Name: "namespaces/n/queues/q"}}, &fermatav1.QueueSettings{}, "namespaces/n/queues/q"},
	"BulkPauseJobs":          {&fermatav1.BulkPauseJobsRequest{Parent: "namespaces/n", Filter: "id:*", RequestId: "op"}, &fermatav1.BulkChangeResponse{Changed: 2}, "namespaces/n"},
	"BulkResumeJobs":         {&fermatav1.BulkResumeJobsRequest{Parent: "namespaces/n", Filter: "id:*", RequestId: "op"}, &fermatav1.BulkChangeResponse{Changed: 2}, "namespaces/n"},
	"BulkRunJobs":            {&fermatav1.BulkRunJobsRequest{Parent: "namespaces/n", Filter: "id:*", RequestId: "op"}, &fermatav1.BulkChangeResponse{Changed: 2}, "namespaces/n"},
	"BulkCancelRuns":         {&fermatav1.BulkCancelRunsRequest{Parent: "namespaces/n", Filter: "id:*", RequestId: "op"}, &fermatav1.BulkChangeResponse{Changed: 2}, "namespaces/n"},
	"BulkDeleteJobs":         {&fermatav1.BulkDeleteJobsRequest{Parent: "namespaces/n", Filter: "id:*", RequestId: "op"}, &fermatav1.BulkChangeResponse{Changed: 2}, "namespaces/n"},
	"BulkRedriveDeadLetters": {&fermatav1.BulkRedriveDeadLettersRequest{Parent: "namespaces/n", Filter: "id:*", RequestId: "op"}, &fermatav1.BulkChangeResponse{Changed: 2}, "namespaces/n"},
	"BulkDiscardDeadLetters": {&fermatav1.BulkDiscardDeadLettersRequest{Parent: "namespaces/n", Filter: "id:*", RequestId: "op"}, &fermatav1.BulkChangeResponse{Changed: 2}, "namespaces/n"},
	"RestoreJobs": {&fermatav1.RestoreJobsRequest{Parent: "namespaces/n", Jobs: []*fermatav1.JobBackup{{Job: sampleJob()}}},
		&fermatav1.RestoreJobsResponse{Results: []*fermatav1.RestoreJobsResponse_Result{{Outcome: fermatav1.RestoreJobsResponse_Result_OUTCOME_CREATED}}}, "namespaces/n"},
	"RedeliverEvents":         {&fermatav1.RedeliverEventsRequest{Webhook: "ops"}, &fermatav1.RedeliverEventsResponse{Delivered: 1}, "webhooks/ops"},
	"AcknowledgeAuditRecords": {&fermatav1.AcknowledgeAuditRecordsRequest{Export: "siem"}, &fermatav1.AuditExport{}, "audit-exports/siem"},
	"DeleteAuditExport":       {&fermatav1.DeleteAuditExportRequest{Name: "siem"}, &fermatav1.DeleteAuditExportResponse{}, "audit-exports/siem"},
	"CheckShard":              {&fermatav1.CheckShardRequest{Shard: 3, Repair: true}, &fermatav1.CheckShardResponse{}, "shards/3"},
}

// TestAuditTellsWhoPausedAQueue from who changed its limits.
func TestAuditTellsWhoPausedAQueue(t *testing.T) {
	settings := func(paused *bool) *fermatav1.QueueSettings {
		return &fermatav1.QueueSettings{Name: "namespaces/n/queues/q", Rate: 1, Paused: paused}
	}
	for _, c := range []struct {
		settings, expected *fermatav1.QueueSettings
		want               string
	}{
		{settings(nil), nil, ""},
		{settings(nil), settings(new(true)), ""},
		{settings(new(true)), nil, "paused=true"},
		{settings(new(true)), settings(new(false)), "paused=true"},
		{settings(new(true)), settings(new(true)), ""},
		{settings(new(false)), settings(new(true)), "paused=false"},
	} {
		q := &fermatav1.UpdateQueueSettingsRequest{Settings: c.settings, Expected: c.expected}
		if got := strings.Join(pauseChange(q), ","); got != c.want {
			t.Errorf("%v: %q, want %q", q, got, c.want)
		}
	}
}

// TestAuditOfARunWithPayloadHasItsDigest and its size, and not the payload.
func TestAuditOfARunWithPayloadHasItsDigest(t *testing.T) {
	sample := sampleCalls["RunJobWithPayload"]
	var r job.TrailRecord
	auditRules[fermatav1.JobService_RunJobWithPayload_FullMethodName].fill(&r, sample.q, sample.a)
	if got := strings.Join(r.Fields, ","); got != "payload_size=6,payload_sha256=0102" {
		t.Errorf("fields %q", got)
	}
	if strings.Contains(fmt.Sprintf("%+v", r), "secret") {
		t.Errorf("the payload is in the record: %+v", r)
	}
}

func sampleJob() *fermatav1.Job {
	return &fermatav1.Job{Name: "namespaces/n/jobs/j", Queue: "q", Status: &fermatav1.JobStatus{RunsTotal: 1}}
}

// presentJobs answers every Get with one job.
type presentJobs struct{ Jobs }

func (presentJobs) Get(context.Context, job.Key) (job.Record, error) {
	d := stored()
	return job.Record{Definition: &d}, nil
}

// TestEveryChangeLeavesARecord drives each method of the table: one record for a call
// that succeeded or may have taken effect, a log line alone for one that was refused or
// failed before it began to write.
func TestEveryChangeLeavesARecord(t *testing.T) {
	for method := range auditRules {
		name := method[strings.LastIndexByte(method, '/')+1:]
		sample, ok := sampleCalls[name]
		if !ok {
			t.Errorf("%s: no sample", name)
			continue
		}
		for _, end := range []struct {
			err     error
			begun   bool
			records int
		}{
			{nil, false, 1}, {nil, true, 1}, {job.ErrUnavailable, true, 1}, {errors.New("odd"), true, 1}, {context.DeadlineExceeded, true, 1},
			{job.ErrUnavailable, false, 0}, {errors.New("odd"), false, 0}, {context.DeadlineExceeded, false, 0}, {context.Canceled, false, 0},
			{&job.MissingError{}, false, 0}, {&job.MissingError{}, true, 0}, {status.Error(codes.PermissionDenied, "no"), false, 0},
		} {
			trail := &trailOf{}
			var log strings.Builder
			a := &auditInterceptor{trail: trail, jobs: presentJobs{}, node: "node", logger: textLogger(&log), subject: func(context.Context) string { return "alice" }}
			ctx := t.Context()
			var inside context.Context
			answer, err := a.interceptUnary(ctx, sample.q, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
				if inside = ctx; end.begun && !BeginWrite(ctx) {
					t.Errorf("%s may not write", name)
				}
				if end.err != nil {
					return nil, end.err
				}
				return sample.a, nil
			})
			if err != end.err || (answer != any(sample.a)) != (end.err != nil) {
				t.Errorf("%s: the answer is another one: %v, %v", name, answer, err)
			}
			if BeginWrite(inside) != end.begun {
				t.Errorf("%s: after a call that wrote (%v) a write may begin (%v)", name, end.begun, !end.begun)
			}
			if trail.places != 0 {
				t.Errorf("%s after %v: %d places are kept", name, end.err, trail.places)
			}
			if strings.Count(log.String(), "msg=audit") != 1 || len(trail.records) != end.records {
				t.Errorf("%s after %v: %d records, log %q", name, end.err, len(trail.records), log.String())
				continue
			}
			for _, r := range trail.records {
				known, _ := apierror.ToStatus(end.err)
				if r.Resource != sample.resource && name != "CreateJob" || r.Identity != "alice" || r.Node != "node" ||
					"/"+r.Method != method || r.Code != int(known.Code()) {
					t.Errorf("%s: %+v", name, r)
				}
			}
		}
	}
}

// TestChangesNeedAPlaceForTheirRecord: a call without one changes nothing, and a call that panics keeps none.
func TestChangesNeedAPlaceForTheirRecord(t *testing.T) {
	for method := range auditRules {
		name := method[strings.LastIndexByte(method, '/')+1:]
		trail := &trailOf{full: job.ErrAuditQueueFull}
		var log strings.Builder
		a := &auditInterceptor{trail: trail, jobs: presentJobs{}, logger: textLogger(&log), subject: callerSubject}
		info := &grpc.UnaryServerInfo{FullMethod: method}
		_, err := a.interceptUnary(t.Context(), sampleCalls[name].q, info, func(context.Context, any) (any, error) {
			t.Errorf("%s began without a place", name)
			return sampleCalls[name].a, nil
		})
		if st, _ := apierror.ToStatus(err); st.Code() != codes.ResourceExhausted || len(trail.records) != 0 || strings.Count(log.String(), "msg=audit") != 1 {
			t.Errorf("%s: %v, %d records, log %q", name, err, len(trail.records), log.String())
		}
		trail.full = nil
		func() {
			defer func() { _ = recover() }()
			_, _ = a.interceptUnary(t.Context(), sampleCalls[name].q, info, func(context.Context, any) (any, error) { panic("odd") })
		}()
		if trail.places != 0 {
			t.Errorf("%s: %d places are kept after a panic", name, trail.places)
		}
	}
}

// TestHostsShareThePlacesForRecords where callers are not authenticated.
func TestHostsShareThePlacesForRecords(t *testing.T) {
	for peer, want := range map[string]string{
		"10.1.2.3:51234": "10.1.2.3", "[::1]:7": "::1", "": anonymous, "bufconn": anonymous,
	} {
		if got := (&auditNote{subject: anonymous, peer: peer}).holder(); got != want {
			t.Errorf("%q: %q, want %q", peer, got, want)
		}
		if got := (&auditNote{subject: "alice", peer: peer}).holder(); got != "alice" {
			t.Errorf("%q: %q, want alice", peer, got)
		}
	}
}

// TestBatchesOfRefusalsLeaveNoRecord: a call that succeeds with each of its items refused has
// changed nothing either.
func TestBatchesOfRefusalsLeaveNoRecord(t *testing.T) {
	refused := &fermatav1.BatchCreateJobsResponse{Results: []*fermatav1.BatchCreateJobsResponse_Result{{Code: int32(codes.InvalidArgument)}}}
	for _, begun := range []bool{false, true} {
		trail := &trailOf{}
		var log strings.Builder
		a := &auditInterceptor{trail: trail, jobs: presentJobs{}, logger: textLogger(&log), subject: callerSubject}
		info := &grpc.UnaryServerInfo{FullMethod: fermatav1.JobService_BatchCreateJobs_FullMethodName}
		if _, err := a.interceptUnary(t.Context(), &fermatav1.BatchCreateJobsRequest{Parent: nsA}, info, func(ctx context.Context, _ any) (any, error) {
			if begun {
				BeginWrite(ctx)
			}
			return refused, nil
		}); err != nil {
			t.Fatal(err)
		}
		if (len(trail.records) == 1) != begun || strings.Count(log.String(), "msg=audit") != 1 {
			t.Errorf("begun %v: %d records, log %q", begun, len(trail.records), log.String())
		}
	}
}

// TestFailedCallsThatStoredLeaveARecord: a call that has done a part of its work is recorded with what it did, also if
// its error is usually that of a call that changed nothing.
func TestFailedCallsThatStoredLeaveARecord(t *testing.T) {
	method := fermatav1.JobService_RedriveDeadLetters_FullMethodName
	q := &fermatav1.RedriveDeadLettersRequest{Parent: nsA, Names: []string{nsA + "/jobs/j/deadLetters/1"}}
	letter := job.BulkTarget{Record: job.Key{Namespace: "team-a", ID: "j"}.Record().Letter(1)}
	for _, err := range []error{job.ErrTooMuchWork, job.ErrNoMemory, job.ErrConflict, job.ErrUnavailable, &job.MissingError{}, &job.PreconditionError{}} {
		for name, noted := range map[string][]int{"nothing": nil, "some": {16, 3}, "an unknown number": {0}} {
			trail := &trailOf{}
			var log strings.Builder
			a := &auditInterceptor{trail: trail, logger: textLogger(&log), subject: callerSubject}
			_, got := a.interceptUnary(t.Context(), q, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
				BeginWrite(ctx)
				for _, n := range noted {
					NoteChanged(ctx, slices.Repeat([]job.BulkTarget{letter}, n))
				}
				return nil, err
			})
			if got != err {
				t.Fatalf("%v: the call ended with %v", err, got)
			}
			want := 0
			if len(noted) > 0 || err == job.ErrUnavailable { // it may have taken effect
				want = 1
			}
			if len(trail.records) != want {
				t.Errorf("%v after %s was stored: %d records, want %d", err, name, len(trail.records), want)
				continue
			}
			code, _ := apierror.ToStatus(err)
			for _, r := range trail.records {
				if changed := map[string]int64{"some": 19}[name]; r.Code != int(code.Code()) || r.Changed != changed || r.Names[0] != q.GetNames()[0] {
					t.Errorf("%v after %s was stored: %+v", err, name, r)
				}
			}
		}
	}
}

// failingHooks delivers some events and fails then.
type failingHooks struct {
	Webhooks
	done job.Redelivery
}

func (h failingHooks) Redeliver(context.Context, string, string, bool) (job.Redelivery, error) {
	return h.done, job.ErrNoMemory
}

// failingCheck repairs something and fails then.
type failingCheck struct {
	Cluster
	report job.ConsistencyReport
}

func (c failingCheck) CheckShard(context.Context, int, bool) (job.ConsistencyReport, error) {
	return c.report, job.ErrNoMemory
}

// TestFailedRedeliveriesAndRepairsLeaveARecord if they have done a part of their work.
func TestFailedRedeliveriesAndRepairsLeaveARecord(t *testing.T) {
	redeliver := func(done job.Redelivery) grpc.UnaryHandler {
		return func(ctx context.Context, q any) (any, error) {
			return (&eventService{hooks: failingHooks{done: done}}).RedeliverEvents(ctx, q.(*fermatav1.RedeliverEventsRequest))
		}
	}
	check := func(found ...job.Finding) grpc.UnaryHandler {
		return func(ctx context.Context, q any) (any, error) {
			s := &clusterService{cluster: failingCheck{report: job.ConsistencyReport{Findings: found}}}
			return s.CheckShard(ctx, q.(*fermatav1.CheckShardRequest))
		}
	}
	for name, c := range map[string]struct {
		method  string
		handler grpc.UnaryHandler
		records int
	}{
		"RedeliverEvents, one delivered": {fermatav1.EventService_RedeliverEvents_FullMethodName, redeliver(job.Redelivery{Delivered: 1}), 1},
		"RedeliverEvents, one refused":   {fermatav1.EventService_RedeliverEvents_FullMethodName, redeliver(job.Redelivery{Refused: 1}), 1},
		"RedeliverEvents, none":          {fermatav1.EventService_RedeliverEvents_FullMethodName, redeliver(job.Redelivery{}), 0},
		"CheckShard, one repaired":       {fermatav1.ClusterService_CheckShard_FullMethodName, check(job.Finding{}, job.Finding{Repaired: true}), 1},
		"CheckShard, none repaired":      {fermatav1.ClusterService_CheckShard_FullMethodName, check(job.Finding{}), 0},
	} {
		trail := &trailOf{}
		a := &auditInterceptor{trail: trail, logger: textLogger(new(strings.Builder)), subject: callerSubject}
		q := sampleCalls[c.method[strings.LastIndexByte(c.method, '/')+1:]].q
		if _, err := a.interceptUnary(t.Context(), q, &grpc.UnaryServerInfo{FullMethod: c.method}, c.handler); !errors.Is(err, job.ErrNoMemory) {
			t.Errorf("%s: %v", name, err)
		}
		if len(trail.records) != c.records {
			t.Errorf("%s: %d records, want %d", name, len(trail.records), c.records)
		}
	}
}

// TestRecordsHaveTheOptionsOfCalls: two calls of a method that change different things leave different records, whichever
// field of the request says so.
func TestRecordsHaveTheOptionsOfCalls(t *testing.T) {
	everywhere := []string{ // say how a call is made, or are in the record without its rule
		"request_id", "page_token", "etag", "dry_run", "confirmation",
	}
	exempt := map[string][]string{
		"CreateJob":               {"job"},                               // by the digest of the answer
		"BatchCreateJobs":         {"requests", "names_only", "compact"}, // by the answer
		"ApplyJobs":               {"desired_jobs"},                      // by the answer
		"RestoreJobs":             {"jobs"},                              // by the answer
		"UpdateJob":               {"update_mask"},                       // by the fields that changed
		"DeleteJob":               {"allow_missing"},
		"RunJobWithPayload":       {"payload", "payload_json"}, // by the digest in the answer
		"UpdateQueueSettings":     {"expected"},
		"CheckShard":              {"repair"},
		"AcknowledgeAuditRecords": {"record_id", "sequence", "previous_record_id"}, // by the fields that the service notes
	}
	for method, row := range auditRules {
		name := method[strings.LastIndexByte(method, '/')+1:]
		sample := sampleCalls[name]
		fields := sample.q.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			field := fields.Get(i)
			if slices.Contains(append(everywhere, exempt[name]...), string(field.Name())) {
				continue
			}
			record := func(set bool) string {
				q := proto.Clone(sample.q).ProtoReflect()
				q.Clear(field)
				if set {
					setSomething(q, field)
				}
				var r job.TrailRecord
				row.fill(&r, q.Interface(), nil)
				return fmt.Sprintf("%s %q %q", r.Resource, r.Names, append(r.Fields, auditOptions(q.Interface(), row.options)...))
			}
			if record(true) == record(false) {
				t.Errorf("%s: the record does not show %s: %s", name, field.Name(), record(true))
			}
		}
	}
	for _, limit := range limitOptions {
		settings := &fermatav1.QueueSettings{Name: "namespaces/n/queues/q"}
		setSomething(settings.ProtoReflect(), settings.ProtoReflect().Descriptor().Fields().ByName(limit))
		var r job.TrailRecord
		auditRules[fermatav1.JobService_UpdateQueueSettings_FullMethodName].fill(&r, &fermatav1.UpdateQueueSettingsRequest{Settings: settings}, nil)
		if len(r.Fields) != 1 || !strings.HasPrefix(r.Fields[0], string(limit)+"=") {
			t.Errorf("%s: fields %q", limit, r.Fields)
		}
	}
}

// setSomething sets a field to a value that is not its default.
func setSomething(m protoreflect.Message, field protoreflect.FieldDescriptor) {
	var scalar protoreflect.Value
	switch field.Kind() {
	case protoreflect.StringKind:
		scalar = protoreflect.ValueOfString("other")
	case protoreflect.BytesKind:
		scalar = protoreflect.ValueOfBytes([]byte("other"))
	case protoreflect.BoolKind:
		scalar = protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		scalar = protoreflect.ValueOfEnum(1)
	case protoreflect.Int32Kind:
		scalar = protoreflect.ValueOfInt32(7)
	case protoreflect.Int64Kind:
		scalar = protoreflect.ValueOfInt64(7)
	case protoreflect.DoubleKind:
		scalar = protoreflect.ValueOfFloat64(7)
	}
	switch {
	case field.IsMap():
		m.Mutable(field).Map().Set(protoreflect.ValueOfString("other").MapKey(), protoreflect.ValueOfString("other"))
	case field.IsList() && scalar.IsValid():
		m.Mutable(field).List().Append(scalar)
	case scalar.IsValid():
		m.Set(field, scalar)
	case field.Message() != nil && !field.IsList():
		inner := m.Mutable(field).Message()
		setSomething(inner, inner.Descriptor().Fields().Get(0))
	}
}

// TestOptionsInRecords shows their form.
func TestOptionsInRecords(t *testing.T) {
	until := timestamppb.New(time.Date(2027, 1, 2, 3, 4, 5, 6e6, time.UTC))
	for _, c := range []struct {
		q       proto.Message
		options []protoreflect.Name
		want    []string
	}{
		{&fermatav1.PauseJobsRequest{Queue: "mail", IdPrefix: "re", Labels: map[string]string{"b": "2", "a": "1"}},
			[]protoreflect.Name{"note", "queue", "id_prefix", "labels"},
			[]string{"queue=mail", "id_prefix=re", "labels.a=1", "labels.b=2"}},
		{&fermatav1.BackfillJobRequest{StartTime: until, OverlapPolicy: fermatav1.OverlapPolicy_OVERLAP_POLICY_SKIP},
			[]protoreflect.Name{"start_time", "end_time", "overlap_policy"},
			[]string{"start_time=2027-01-02T03:04:05.006Z", "overlap_policy=OVERLAP_POLICY_SKIP"}},
		{&fermatav1.RunJobRequest{Backoff: 77, IgnoreExclusions: true},
			[]protoreflect.Name{"backoff", "ignore_exclusions"}, []string{"backoff=77", "ignore_exclusions=true"}},
		{&fermatav1.HintJobRequest{Hint: &fermatav1.Hint{Source: fermatav1.Hint_SOURCE_OPERATOR, Reason: "a reason"}},
			[]protoreflect.Name{"hint"}, []string{`hint={"source":"SOURCE_OPERATOR","reason":"a reason"}`}},
		{&fermatav1.QueueSettings{Rate: 0.5, Burst: 3}, limitOptions, []string{"rate=0.5", "burst=3"}},
	} {
		if got := auditOptions(c.q, c.options); !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	many := map[string]string{}
	for i := range job.MaxTrailFields + 1 {
		many[fmt.Sprint(i)] = "v"
	}
	if got := auditOptions(&fermatav1.PauseJobsRequest{Labels: many}, []protoreflect.Name{"labels"}); !slices.Equal(got, []string{"labels=33 entries"}) {
		t.Errorf("%q", got)
	}
}

// TestLongRequestsAreCutAtOnce: a filter or a mask that is too long, and so refused, takes no time.
func TestLongRequestsAreCutAtOnce(t *testing.T) {
	long := auditFilter(strings.Repeat("x", 15<<20))
	if len(long) != 1 || len(long[0]) > job.MaxTrailText || !strings.HasPrefix(long[0], "filter=xx") {
		t.Errorf("%d fields, %.300q", len(long), long)
	}
	mask := &fieldmaskpb.FieldMask{}
	for i := range 2 * maxRecordedPaths {
		mask.Paths = append(mask.Paths, fmt.Sprint("path", i))
	}
	if got := len(sortedPaths(mask)); got != maxRecordedPaths {
		t.Errorf("%d paths", got)
	}
}

// TestRecordsNameWhatChanged: the record of a call about many names what was changed, and not what was selected; also
// where the call failed.
func TestRecordsNameWhatChanged(t *testing.T) {
	target := job.BulkTarget{Record: job.Key{Namespace: "n", ID: "j"}.Record().Letter(2), RunID: "r"}
	const theJob, theLetter, theRun = "namespaces/n/jobs/j", "namespaces/n/jobs/j/deadLetters/2", "namespaces/n/jobs/j/runs/r"
	names := map[string]string{
		"PauseJobs": theJob, "ResumeJobs": theJob, "RedriveDeadLetters": theLetter,
		"BulkPauseJobs": theJob, "BulkResumeJobs": theJob, "BulkRunJobs": theJob, "BulkDeleteJobs": theJob,
		"BulkCancelRuns": theRun, "BulkRedriveDeadLetters": theLetter, "BulkDiscardDeadLetters": theLetter,
	}
	for method, row := range auditRules {
		name := method[strings.LastIndexByte(method, '/')+1:]
		if (row.changedName != nil) != (names[name] != "") {
			t.Errorf("%s: names of what changed: %v", name, row.changedName != nil)
		}
		if row.changedName == nil {
			continue
		}
		for _, end := range []error{nil, job.ErrUnavailable, job.ErrTooMuchWork} {
			trail := &trailOf{}
			a := &auditInterceptor{trail: trail, logger: slog.New(slog.DiscardHandler), subject: callerSubject}
			_, err := a.interceptUnary(t.Context(), sampleCalls[name].q, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
				BeginWrite(ctx)
				NoteChanged(ctx, []job.BulkTarget{target})
				NoteChanged(ctx, nil)
				return sampleCalls[name].a, end
			})
			if err != end || len(trail.records) != 1 {
				t.Fatalf("%s: %v, %d records", name, err, len(trail.records))
			}
			want := []string{names[name]}
			if answered := int(trail.records[0].Changed); answered > 1 { // by the sample
				want = append(want, "+1 more")
			}
			if got := trail.records[0].Names; !slices.Equal(got, want) {
				t.Errorf("%s after %v: names %q, want %q", name, end, got, want)
			}
		}
	}
}

// TestRecordsSayHowManyNamesAreLeftOut: of every call about many.
func TestRecordsSayHowManyNamesAreLeftOut(t *testing.T) {
	batch, plan := &fermatav1.BatchCreateJobsResponse{}, &fermatav1.ApplyJobsResponse{}
	desired, backup, restored := &fermatav1.ApplyJobsRequest{}, &fermatav1.RestoreJobsRequest{}, &fermatav1.RestoreJobsResponse{}
	shard := &fermatav1.CheckShardResponse{}
	var targets []job.BulkTarget
	for i := range 25 {
		j := &fermatav1.Job{Name: fmt.Sprintf("jobs/%d", i)}
		batch.Results = append(batch.Results, &fermatav1.BatchCreateJobsResponse_Result{Job: j})
		plan.Changes = append(plan.Changes, &fermatav1.JobChange{Action: fermatav1.JobChange_ACTION_CREATE})
		desired.DesiredJobs = append(desired.DesiredJobs, &fermatav1.DesiredJob{JobId: fmt.Sprint(i)})
		backup.Jobs = append(backup.Jobs, &fermatav1.JobBackup{Job: j})
		restored.Results = append(restored.Results, &fermatav1.RestoreJobsResponse_Result{Outcome: fermatav1.RestoreJobsResponse_Result_OUTCOME_CREATED})
		shard.Findings = append(shard.Findings, &fermatav1.Finding{Repaired: true, Record: j.GetName()})
		targets = append(targets, job.BulkTarget{Record: job.Key{Namespace: "n", ID: fmt.Sprint(i)}.Record()})
	}
	for method, c := range map[string]struct{ q, a proto.Message }{
		fermatav1.JobService_BatchCreateJobs_FullMethodName: {&fermatav1.BatchCreateJobsRequest{}, batch},
		fermatav1.JobService_ApplyJobs_FullMethodName:       {desired, plan},
		fermatav1.BackupService_RestoreJobs_FullMethodName:  {backup, restored},
		fermatav1.ClusterService_CheckShard_FullMethodName:  {&fermatav1.CheckShardRequest{Repair: true}, shard},
		fermatav1.JobService_PauseJobs_FullMethodName:       {&fermatav1.PauseJobsRequest{}, &fermatav1.PauseJobsResponse{Paused: 25}},
		fermatav1.JobService_BulkPauseJobs_FullMethodName:   {&fermatav1.BulkPauseJobsRequest{}, &fermatav1.BulkChangeResponse{Changed: 25}},
	} {
		trail := &trailOf{}
		a := &auditInterceptor{trail: trail, logger: slog.New(slog.DiscardHandler), subject: callerSubject}
		_, err := a.interceptUnary(t.Context(), c.q, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
			BeginWrite(ctx)
			NoteChanged(ctx, targets[:16])
			NoteChanged(ctx, targets[16:])
			return c.a, nil
		})
		if err != nil || len(trail.records) != 1 {
			t.Fatalf("%s: %v, %d records", method, err, len(trail.records))
		}
		if names := trail.records[0].Names; len(names) != job.MaxTrailNames || names[job.MaxTrailNames-1] != "+6 more" {
			t.Errorf("%s: names %q", method, names)
		}
	}
}

// TestChangesThatChangeNothing: a dry run and a check without repair leave nothing.
func TestChangesThatChangeNothing(t *testing.T) {
	for method, q := range map[string]proto.Message{
		fermatav1.JobService_RedriveDeadLetters_FullMethodName:     &fermatav1.RedriveDeadLettersRequest{DryRun: true},
		fermatav1.ClusterService_CheckShard_FullMethodName:         &fermatav1.CheckShardRequest{},
		fermatav1.JobService_BulkPauseJobs_FullMethodName:          &fermatav1.BulkPauseJobsRequest{DryRun: true},
		fermatav1.JobService_BulkResumeJobs_FullMethodName:         &fermatav1.BulkResumeJobsRequest{DryRun: true},
		fermatav1.JobService_BulkRunJobs_FullMethodName:            &fermatav1.BulkRunJobsRequest{DryRun: true},
		fermatav1.JobService_BulkCancelRuns_FullMethodName:         &fermatav1.BulkCancelRunsRequest{DryRun: true},
		fermatav1.JobService_BulkDeleteJobs_FullMethodName:         &fermatav1.BulkDeleteJobsRequest{DryRun: true},
		fermatav1.JobService_BulkRedriveDeadLetters_FullMethodName: &fermatav1.BulkRedriveDeadLettersRequest{DryRun: true},
		fermatav1.JobService_BulkDiscardDeadLetters_FullMethodName: &fermatav1.BulkDiscardDeadLettersRequest{DryRun: true},

		fermatav1.JobService_GetJob_FullMethodName: &fermatav1.GetJobRequest{},
	} {
		trail := &trailOf{}
		var log strings.Builder
		a := &auditInterceptor{trail: trail, logger: textLogger(&log), subject: callerSubject}
		if _, err := a.interceptUnary(t.Context(), q, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		if len(trail.records) != 0 || log.Len() != 0 {
			t.Errorf("%s: %+v %s", method, trail.records, log.String())
		}
	}
}

// exportTrail is a trail with one answer to acknowledgements.
type exportTrail struct {
	trailOf
	notes []string
	err   error
}

func (t *exportTrail) Acknowledge(context.Context, job.TrailAcknowledgement) (job.TrailExport, []string, error) {
	return job.TrailExport{}, t.notes, t.err
}

// TestAcknowledgementsAreLogged, and leave a record if they did more than to go on with an export.
func TestAcknowledgementsAreLogged(t *testing.T) {
	for _, c := range []struct {
		notes   []string
		err     error
		records int
	}{
		{nil, nil, 0},
		{[]string{"created=true"}, nil, 1},
		{[]string{"created=true"}, job.ErrUnavailable, 1}, // it may be stored
		{nil, job.ErrUnavailable, 0},
		{nil, job.ErrTrailExportChanged, 0},
		{nil, job.ErrNoTrailExport, 0},
	} {
		trail := &exportTrail{notes: c.notes, err: c.err}
		var log strings.Builder
		a := &auditInterceptor{trail: trail, logger: textLogger(&log), subject: callerSubject}
		info := &grpc.UnaryServerInfo{FullMethod: fermatav1.ClusterService_AcknowledgeAuditRecords_FullMethodName}
		s := &clusterService{trail: trail}
		_, err := a.interceptUnary(t.Context(), &fermatav1.AcknowledgeAuditRecordsRequest{Export: "siem", RecordId: "1-1"}, info,
			func(ctx context.Context, q any) (any, error) {
				return s.AcknowledgeAuditRecords(ctx, q.(*fermatav1.AcknowledgeAuditRecordsRequest))
			})
		if !errors.Is(err, c.err) || len(trail.records) != c.records || trail.places != 0 || !strings.Contains(log.String(), "audit-exports/siem") {
			t.Errorf("%+v: %v, %+v, %s", c, err, trail.records, log.String())
		}
		if c.records > 0 && !slices.Equal(trail.records[0].Fields, c.notes) {
			t.Errorf("fields %q", trail.records[0].Fields)
		}
	}
}

// TestARepeatedPageLeavesNoRecord: it was answered with the stored result of an earlier call.
func TestARepeatedPageLeavesNoRecord(t *testing.T) {
	for _, finished := range []bool{false, true} {
		trail := &trailOf{}
		var log strings.Builder
		a := &auditInterceptor{trail: trail, jobs: presentJobs{}, logger: textLogger(&log), subject: callerSubject}
		info := &grpc.UnaryServerInfo{FullMethod: fermatav1.JobService_BulkDeleteJobs_FullMethodName}
		q := &fermatav1.BulkDeleteJobsRequest{Parent: nsA, Filter: strings.Repeat("x", 300), RequestId: "op"}
		answer := &fermatav1.BulkChangeResponse{Changed: 2, TotalChanged: 7, Refusals: []*fermatav1.BulkChangeResponse_Refusal{{Count: 3}, {Count: 1}}}
		if _, err := a.interceptUnary(t.Context(), q, info, func(ctx context.Context, _ any) (any, error) {
			noteRepetition(ctx, finished)
			return answer, nil
		}); err != nil {
			t.Fatal(err)
		}
		if (len(trail.records) == 0) != finished || !strings.Contains(log.String(), "msg=audit") {
			t.Errorf("finished %v: %d records, log %q", finished, len(trail.records), log.String())
		}
		if finished {
			continue
		}
		r := trail.records[0]
		want := []string{"filter=" + strings.Repeat("x", 249), "filter+=" + strings.Repeat("x", 51), "total_changed=7", "total_refused=0"}
		if r.Changed != 2 || r.Refused != 4 || r.RequestID != "op" || !slices.Equal(r.Fields, want) {
			t.Errorf("%+v", r)
		}
	}
}

// missingJobs are jobs that are missing when they are to be deleted.
type missingJobs struct {
	JobDefinitions
	stored bool // a part of the deletion was
}

func (j missingJobs) Delete(ctx context.Context, key job.Key, _ string) error {
	BeginWrite(ctx)
	if j.stored {
		NoteStored(ctx, 1)
	}
	return &job.MissingError{Key: key}
}

// TestDeletionsOfMissingJobsLeaveNoRecord: nobody can push records out by deletions of jobs that never were.
func TestDeletionsOfMissingJobsLeaveNoRecord(t *testing.T) {
	for _, stored := range []bool{false, true} {
		trail := &trailOf{}
		var log strings.Builder
		a := &auditInterceptor{trail: trail, jobs: presentJobs{}, logger: textLogger(&log), subject: callerSubject}
		s := &jobService{definitions: missingJobs{stored: stored}}
		q := &fermatav1.DeleteJobRequest{Name: nsA + "/jobs/none", AllowMissing: true}
		info := &grpc.UnaryServerInfo{FullMethod: fermatav1.JobService_DeleteJob_FullMethodName}
		_, err := a.interceptUnary(t.Context(), q, info,
			func(ctx context.Context, _ any) (any, error) { return s.DeleteJob(ctx, q) })
		if err != nil {
			t.Fatal(err)
		}
		if (len(trail.records) == 1) != stored || !strings.Contains(log.String(), "msg=audit") || trail.places != 0 {
			t.Errorf("stored %v: %d records, %d places, log %q", stored, len(trail.records), trail.places, log.String())
		}
	}
}

func textLogger(w *strings.Builder) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
