package rpc

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/fermata-io/fermata/internal/api/workerstream"
	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/test/sessiontest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// servedMethods are the full names of all methods of a node's two servers, by their
// descriptors.
func servedMethods(t *testing.T) []string {
	t.Helper()
	server, _, err := NewServer(Options{Jobs: &fakeJobs{}, Cluster: fakeCluster{}, Worker: workerstream.NewServer(nil, nil), Sizes: newFakeSizes(), Reflection: true})
	if err != nil {
		t.Fatal(err)
	}
	fermatav1.RegisterPeerServiceServer(server, fermatav1.UnimplementedPeerServiceServer{})
	var methods []string
	for name, service := range server.GetServiceInfo() {
		for _, m := range service.Methods {
			methods = append(methods, "/"+name+"/"+m.Name)
		}
	}
	slices.Sort(methods)
	return methods
}

// expected is which roles may call what, written down a second time: by the verbs of
// the methods, not by permissions.
func expected(role authz.Role, method string) bool {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	name = strings.TrimPrefix(name, "Bulk")
	people := role == authz.Viewer || role == authz.Operator || role == authz.Editor || role == authz.Admin
	has := func(verbs ...string) bool {
		return slices.ContainsFunc(verbs, func(v string) bool { return strings.HasPrefix(name, v) })
	}
	switch {
	case strings.HasPrefix(service, "grpc.health"):
		return true
	case strings.HasPrefix(service, "grpc.reflection"), service == "fermata.v1.BackupService", has("CheckShard", "ListAuditRecords", "ReadAuditRecords", "AcknowledgeAuditRecords", "ListAuditExports", "DeleteAuditExport", "UpdateQueueSettings", "PauseQueue", "ListUndelivered", "Redeliver"):
		return role == authz.Admin
	case service == "fermata.v1.PeerService":
		return role == authz.Node
	case service == "fermata.v1.WorkerService":
		return role == authz.Worker
	case service == "externalscaler.ExternalScaler":
		return people || role == authz.Scaler
	case has("PreviewSchedule", "ListPresets", "WhoAmI"):
		return true
	case has("Get", "List", "Diff", "Forecast", "Explain", "Plan", "Top", "WatchEvents"):
		return people
	case has("Create", "BatchCreate", "Update", "Delete", "Apply", "RestoreJobRevision", "RenameJob", "Discard", "RunJobWithPayload"):
		return role == authz.Editor || role == authz.Admin
	case has("Pause", "Resume", "Run", "Cancel", "Hint", "Backfill", "Redrive", "ProbeTarget", "ResetTarget"):
		return people && role != authz.Viewer
	}
	panic("no expectation for " + method)
}

// clusterWide tells whether a method is about all namespaces.
func clusterWide(method string) bool {
	return strings.Contains(method, "ListNodes") || strings.Contains(method, "ListShards") || strings.Contains(method, "ListWorkers") ||
		strings.Contains(method, "CheckShard") || strings.Contains(method, "Webhooks") || strings.Contains(method, "deliver") || strings.Contains(method, "ReadAudit") || strings.Contains(method, "Acknowledge") || strings.Contains(method, "AuditExport") || strings.Contains(method, "reflection") || strings.Contains(method, "PeerService")
}

// spansNamespaces reports whether a method takes the namespace "-" for all that its caller may see.
func spansNamespaces(method string) bool {
	return strings.HasSuffix(method, "/ListJobs") || strings.HasSuffix(method, "/ListUpcomingJobs") ||
		strings.HasSuffix(method, "/ListTargets") || strings.HasSuffix(method, "/ListLocks")
}

func forEverybody(method string) bool {
	return strings.Contains(method, "Health") || strings.Contains(method, "PreviewSchedule") || strings.Contains(method, "ListPresets") || strings.Contains(method, "WhoAmI")
}

// requestFor fills whatever names a place in a method's request.
func requestFor(t *testing.T, method, namespace string) proto.Message {
	t.Helper()
	name := protoreflect.FullName(strings.ReplaceAll(method[1:], "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		t.Fatal(err)
	}
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.(protoreflect.MethodDescriptor).Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	m := kind.New()
	place(m, method, "namespaces/"+namespace)
	return m.Interface()
}

func place(m protoreflect.Message, method, namespace string) {
	fields := m.Descriptor().Fields()
	if f := fields.ByName("scaledObjectRef"); f != nil {
		place(m.Mutable(f).Message(), method, namespace)
	}
	if f := fields.ByName("scalerMetadata"); f != nil {
		texts := m.Mutable(f).Map()
		for key, text := range map[string]string{"namespace": strings.TrimPrefix(namespace, "namespaces/"), "queue": "mail", "targetBacklog": "5"} {
			texts.Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(text))
		}
		return
	}
	if f := fields.ByName("parent"); f != nil {
		parent := namespace
		if strings.HasSuffix(method, "/ListRuns") || strings.HasSuffix(method, "/ListJobRevisions") {
			parent += "/jobs/x"
		}
		m.Set(f, protoreflect.ValueOfString(parent))
	}
	if f := fields.ByName("resource"); f != nil {
		m.Set(f, protoreflect.ValueOfString(namespace+"/jobs/x"))
	}
	if f := fields.ByName("name"); f != nil {
		path := "/jobs/x"
		switch {
		case strings.HasSuffix(method, "GetRun"), strings.HasSuffix(method, "CancelRun"):
			path = "/jobs/x/runs/1-1"
		case strings.HasSuffix(method, "JobRevision"):
			path = "/jobs/x/revisions/1"
		case strings.HasSuffix(method, "DiscardDeadLetter"):
			path = "/jobs/x/deadLetters/1"
		case strings.HasSuffix(method, "QueueSettings"), strings.HasSuffix(method, "PauseQueue"):
			path = "/queues/q"
		}
		m.Set(f, protoreflect.ValueOfString(namespace+path))
	}
	for _, inner := range []protoreflect.Name{"job", "settings"} {
		if f := fields.ByName(inner); f != nil && f.Message() != nil && strings.HasPrefix(method[strings.LastIndexByte(method, '/'):], "/Update") {
			place(m.Mutable(f).Message(), method, namespace)
		}
	}
}

// TestMatrix calls every method with every role, in a namespace that the role is for,
// in another one, and with the role for all of them.
// TestParentOfRunsIsNamed: what is refused before the handler is asked is named as it is
// in the request.
func TestParentOfRunsIsNamed(t *testing.T) {
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Viewer, "*", "viewer"))})
	ctx := as(t.Context(), "viewer")
	_, err := fermatav1.NewJobServiceClient(b.dial(t)).ListRuns(ctx, &fermatav1.ListRunsRequest{Parent: "x"})
	if f := fields(err); !slices.Contains(f, "parent") {
		t.Errorf("%v names %v", err, f)
	}
}

// roleless reports whether a method asks for a role that a token has not: no rule gives the
// role of nodes in one namespace.
func roleless(method, token string) bool {
	return strings.Contains(method, "PreviewSchedule") && (token == string(authz.Node) || token == "stranger")
}

func TestMatrix(t *testing.T) {
	var rules []authz.Rule
	for _, role := range authz.Roles() {
		if role != authz.Node {
			rules = append(rules, allow(role, "team-a", string(role)))
		}
		rules = append(rules, allow(role, "*", string(role)+"-of-all"))
	}
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, rules...)})
	conn := b.dial(t)
	calls := 0
	for _, method := range servedMethods(t) {
		if strings.Contains(method, "PeerService") {
			continue // on another server: TestPeerGuard
		}
		for _, role := range authz.Roles() {
			for _, c := range []struct {
				token, namespace string
				covered          bool
			}{
				{string(role), "team-a", role != authz.Node && !clusterWide(method)},
				{string(role), "team-b", false},
				{string(role), "team-abc", false},
				{string(role) + "-of-all", "team-a", true},
				{string(role) + "-of-all", "team-b", true},
			} {
				if strings.HasSuffix(method, "/ListNamespaces") {
					c.covered = role != authz.Node // a role in any namespace will do
				}
				want := forEverybody(method) && !roleless(method, c.token) || c.covered && expected(role, method)
				code := knock(t, conn, method, c.token, c.namespace)
				if in := code != codes.PermissionDenied && code != codes.Unauthenticated; in != want {
					t.Errorf("%s as %s in %s: %s, want let in: %v", method, c.token, c.namespace, code, want)
				}
				calls++
			}
		}
		for _, token := range []string{"", "bad", "stranger"} {
			code := knock(t, conn, method, token, "team-a")
			want := codes.Unauthenticated
			if token == "stranger" {
				want = codes.PermissionDenied
			}
			if open := strings.Contains(method, "Health"); !open && code != want && !(token == "stranger" && forEverybody(method)) {
				t.Errorf("%s with the token %q: %s", method, token, code)
			}
			calls++
		}
	}
	t.Logf("%d calls", calls)
}

// TestAuditOfANamespace: an administrator of a namespace sees what was done in it, and
// nothing that a request could let in beside.
func TestAuditOfANamespace(t *testing.T) {
	some := allow(authz.Admin, "team-a", "some")
	some.Queues = []string{"mail"}
	b := serveGated(t, Options{AuditTrail: &trailOf{}, Authority: newAuthority(t, authz.Limits{},
		allow(authz.Admin, "team-a", "admin"), allow(authz.Editor, "team-a", "editor"), allow(authz.Admin, "*", "root"), some)})
	c := fermatav1.NewClusterServiceClient(b.dial(t))
	for _, row := range []struct {
		token, resource string
		want            codes.Code
	}{
		{"admin", "namespaces/team-a/", codes.OK}, {"admin", "namespaces/team-a", codes.OK}, {"admin", "namespaces/team-a/jobs/x", codes.OK},
		{"admin", "", codes.PermissionDenied}, {"admin", "namespaces/", codes.PermissionDenied}, {"admin", "namespaces", codes.PermissionDenied},
		{"admin", "namespaces/team-b/", codes.PermissionDenied}, {"admin", "namespaces/team-abc/", codes.PermissionDenied}, {"admin", "namespaces/*/", codes.PermissionDenied},
		{"admin", "shards/1", codes.PermissionDenied}, {"admin", "webhooks/", codes.PermissionDenied}, {"admin", "/namespaces/team-a/", codes.PermissionDenied},
		{"editor", "namespaces/team-a/", codes.PermissionDenied}, {"some", "namespaces/team-a/", codes.PermissionDenied},
		{"root", "", codes.OK}, {"root", "namespaces/team-b/", codes.OK}, {"root", "shards/1", codes.OK},
	} {
		_, err := c.ListAuditRecords(as(t.Context(), row.token), &fermatav1.ListAuditRecordsRequest{Resource: row.resource})
		if status.Code(err) != row.want {
			t.Errorf("%s asks about %q: %v", row.token, row.resource, err)
		}
	}
}

// knock makes one call and tells its code.
func knock(t *testing.T, conn *grpc.ClientConn, method, token, namespace string) codes.Code {
	t.Helper()
	ctx := t.Context()
	if token != "" {
		ctx = as(ctx, token)
	}
	if strings.HasSuffix(method, "/Work") {
		return knockWork(t, conn, token, namespace, "mail")
	}
	if strings.Contains(method, "ServerReflection") || strings.HasSuffix(method, "/Watch") {
		s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
		if err != nil {
			t.Fatal(err)
		}
		// The end of the request ends a stream that was let in.
		_ = s.SendMsg(&fermatav1.ListNodesRequest{})
		_ = s.CloseSend()
		if strings.HasSuffix(method, "/Watch") {
			err = s.RecvMsg(&fermatav1.ListNodesResponse{})
		} else {
			for err = error(nil); err == nil; {
				err = s.RecvMsg(&fermatav1.ListNodesResponse{})
			}
		}
		return status.Code(err)
	}
	q := requestFor(t, method, namespace)
	if strings.HasSuffix(method, "/StreamIsActive") {
		return knockStream(t, ctx, conn, method, q)
	}
	return status.Code(conn.Invoke(ctx, method, q, &fermatav1.ListNodesResponse{}))
}

// knockStream opens a stream of answers and tells how it begins: with a header, while
// there is nothing to say, or with its end.
func knockStream(t *testing.T, ctx context.Context, conn *grpc.ClientConn, method string, q proto.Message) codes.Code {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.SendMsg(q)
	_ = s.CloseSend()
	if header, err := s.Header(); err == nil && header != nil {
		return codes.OK
	}
	return status.Code(s.RecvMsg(&fermatav1.ListNodesResponse{}))
}

// knockWork opens the stream of a worker and tells how that ends, or OK for a
// welcome.
func knockWork(t *testing.T, conn *grpc.ClientConn, token, namespace string, queues ...string) codes.Code {
	t.Helper()
	ctx := t.Context()
	if token != "" {
		ctx = as(ctx, token)
	}
	s, err := fermatav1.NewWorkerServiceClient(conn).Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	h := sessiontest.GoodHello()
	h.Namespace, h.Queues, h.LiveLeaseIds = namespace, queues, nil
	_ = s.Send(&fermatav1.WorkRequest{Message: &fermatav1.WorkRequest_Hello{Hello: h}})
	m, err := s.Recv()
	_ = s.CloseSend()
	if err == nil && m.GetWelcome() == nil {
		t.Errorf("a stream begins with %v", m)
	}
	return status.Code(err)
}

func TestWorkersServeTheirQueuesOnly(t *testing.T) {
	rule := allow(authz.Worker, "team-a", "w")
	rule.Queues = []string{"mail", "bulk-*"}
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, rule)})
	conn := b.dial(t)
	for _, c := range []struct {
		queues []string
		want   codes.Code
	}{
		{[]string{"mail"}, codes.OK}, {[]string{"mail", "bulk-1"}, codes.OK}, {[]string{"web"}, codes.PermissionDenied},
		{[]string{"mail", "web"}, codes.PermissionDenied}, {[]string{"bulk"}, codes.PermissionDenied}, {[]string{"mailx"}, codes.PermissionDenied},
	} {
		if got := knockWork(t, conn, "w", "team-a", c.queues...); got != c.want {
			t.Errorf("%v: %s", c.queues, got)
		}
	}
	if got := knockWork(t, conn, "w", "team-b", "mail"); got != codes.PermissionDenied {
		t.Errorf("another namespace: %s", got)
	}
}
