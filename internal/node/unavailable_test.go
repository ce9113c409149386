package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/fermata-io/fermata/internal/node"
	"github.com/fermata-io/fermata/internal/test/faultproxy"
	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// needRedis are methods that cannot do without Redis. Others may refuse the request, or
// answer from memory.
var needRedis = strings.Fields(`GetJob ListJobs CreateJob DeleteJob PauseJob ResumeJob RunJob RunJobWithPayload ListRuns TopJobs ListUpcomingJobs ListNamespaces ExplainJob
	PauseJobs ResumeJobs ListJobRevisions GetJobRevision DiffJobRevisions RestoreJobRevision RenameJob ListDeadLetters ListShards CheckShard ListAuditRecords ReadAuditRecords ListAuditExports ExportJobs`)

// TestCallsAreUnavailableWithoutRedis: while Redis does not answer, every call that needs it
// says so with a code that clients repeat, and none is INTERNAL.
func TestCallsAreUnavailableWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	proxy := faultproxy.New(t, redis.Addr())
	n := startWith(t, strings.Replace(redis.URL(), redis.Addr(), proxy.Addr(), 1), "solo", func(c *node.Config) {
		c.Redis.DialTimeout, c.Redis.ReadTimeout, c.Redis.PoolTimeout = time.Second, time.Second, time.Second
	})
	t.Cleanup(proxy.Pass) // before the node stops
	conn := connect(t, n)
	for name, fault := range map[string]func(){
		"no answers":     func() { proxy.Blackhole(faultproxy.ToClient) },
		"no connections": func() { proxy.Refuse(true); proxy.CloseAll() },
	} {
		fault()
		var all sync.WaitGroup
		for _, service := range []string{"JobService", "ClusterService", "BackupService", "EventService"} {
			d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("fermata.v1." + service))
			if err != nil {
				t.Fatal(err)
			}
			methods := d.(protoreflect.ServiceDescriptor).Methods()
			for i := range methods.Len() {
				all.Go(func() { callWithoutRedis(t, name, conn, methods.Get(i)) })
			}
		}
		all.Wait()
		proxy.Pass()
	}
}

func callWithoutRedis(t *testing.T, fault string, conn *grpc.ClientConn, m protoreflect.MethodDescriptor) {
	if m.IsStreamingServer() || m.IsStreamingClient() {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answer, err := messageOf(m.Output())
	if err != nil {
		t.Error(err)
		return
	}
	err = conn.Invoke(ctx, "/"+string(m.Parent().FullName())+"/"+string(m.Name()), requestOf(t, m), answer)
	code := status.Code(err)
	if code == codes.Internal || code == codes.Unknown || code != codes.Unavailable &&
		slices.Contains(needRedis, string(m.Name())) {
		t.Errorf("%s, %s: %v", fault, m.Name(), err)
	}
}

func messageOf(d protoreflect.MessageDescriptor) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		return nil, err
	}
	return kind.New().Interface(), nil
}

// requestOf is a request that is valid enough to reach Redis.
func requestOf(t *testing.T, m protoreflect.MethodDescriptor) proto.Message {
	const namespace = "namespaces/default"
	const name = namespace + "/jobs/a"
	switch m.Name() {
	case "CreateJob":
		return &fermatav1.CreateJobRequest{Parent: namespace, JobId: "a", Job: intervalJob(time.Hour, "h")}
	case "TopJobs":
		return &fermatav1.TopJobsRequest{Parent: namespace, Kind: fermatav1.TopJobsRequest_KIND_LATE}
	}
	q, err := messageOf(m.Input())
	if err != nil {
		t.Error(err)
		return nil
	}
	set := func(field, value string) {
		if f := m.Input().Fields().ByName(protoreflect.Name(field)); f != nil &&
			f.Kind() == protoreflect.StringKind && !f.IsList() {
			q.ProtoReflect().Set(f, protoreflect.ValueOfString(value))
		}
	}
	set("parent", namespace)
	set("name", name)
	switch m.Name() {
	case "GetRun", "CancelRun":
		set("name", name+"/runs/1-0")
	case "GetJobRevision", "RestoreJobRevision":
		set("name", name+"/revisions/1")
	case "RenameJob":
		set("new_id", "b")
	case "GetQueueSettings":
		set("name", namespace+"/queues/default")
	case "ListRuns", "ListJobRevisions":
		set("parent", name)
	}
	return q
}

// TestALostKeyspaceTakesNoChanges: what would be stored in a keyspace that is gone is refused
// as soon as the node knows, with what its operator has to do, and taken again when the keyspace is back.
func TestALostKeyspaceTakesNoChanges(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	n := start(t, redis.URL(), "solo")
	jobs := fermatav1.NewJobServiceClient(connect(t, n))
	create := func(id string) error {
		_, err := jobs.CreateJob(t.Context(), &fermatav1.CreateJobRequest{Parent: "namespaces/default", JobId: id,
			Job: intervalJob(time.Hour, "h")})
		return err
	}
	if err := create("before"); err != nil {
		t.Fatal(err)
	}
	const key = "fermata:{meta}"
	kept, err := redis.Client().Dump(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	// The node finds out by itself, with the small look that it takes every five seconds.
	redistest.Eventually(t, redistest.Patience, "changes are refused", func(context.Context) error {
		if err := create("after"); status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), "the keyspace is gone") {
			return fmt.Errorf("a job is created: %v", err)
		}
		return nil
	})
	_, err = jobs.PauseJob(t.Context(), &fermatav1.PauseJobRequest{Name: "namespaces/default/jobs/before"})
	var reason string
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			reason = info.GetReason()
		}
	}
	if status.Code(err) != codes.FailedPrecondition || reason != "KEYSPACE_GONE" {
		t.Errorf("pausing a job: %v", err)
	}
	if _, err := jobs.ListJobs(t.Context(), &fermatav1.ListJobsRequest{Parent: "namespaces/default"}); err != nil {
		t.Errorf("reading: %v", err)
	}
	if err := redis.Client().Restore(t.Context(), key, 0, kept).Err(); err != nil {
		t.Fatal(err)
	}
	if missing := n.Missing(t.Context()); len(missing) != 0 {
		t.Fatalf("the keyspace is back and the node misses %v", missing)
	}
	if err := create("back"); err != nil {
		t.Errorf("the keyspace is back: %v", err)
	}
}
