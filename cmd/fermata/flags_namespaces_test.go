package main

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// partial is a cluster that lets its caller see team-a and team-b. In team-b there is no queue that the
// caller may see.
type partial struct {
	fermatav1.UnimplementedJobServiceServer
	fermatav1.UnimplementedClusterServiceServer
	fermatav1.UnimplementedAccessServiceServer
}

var errDenied = status.Error(codes.PermissionDenied, "the permission to read jobs is missing")

func (partial) WhoAmI(context.Context, *fermatav1.WhoAmIRequest) (*fermatav1.WhoAmIResponse, error) {
	return &fermatav1.WhoAmIResponse{Grants: []*fermatav1.RoleGrant{
		{Role: "operator", Namespaces: []string{"team-b", "team-a"}}, {Role: "viewer", Namespaces: []string{"team-a", "stage-*"}}, {Role: "worker", Namespaces: []string{"secret"}},
	}}, nil
}

func seen(parent string) (namespace string, err error) {
	namespace = strings.TrimPrefix(parent, "namespaces/")
	if namespace != "team-a" && namespace != "team-b" {
		return "", errDenied
	}
	return namespace, nil
}

func (partial) ListQueues(_ context.Context, q *fermatav1.ListQueuesRequest) (*fermatav1.ListQueuesResponse, error) {
	namespace, err := seen(q.GetParent())
	if err != nil || namespace == "team-b" {
		return &fermatav1.ListQueuesResponse{}, err
	}
	return &fermatav1.ListQueuesResponse{Queues: []*fermatav1.Queue{{Namespace: namespace, Queue: "mail"}}}, nil
}

func (partial) ListJobs(_ context.Context, q *fermatav1.ListJobsRequest) (*fermatav1.ListJobsResponse, error) {
	namespace, err := seen(q.GetParent())
	if err != nil {
		return nil, err
	}
	return &fermatav1.ListJobsResponse{Jobs: []*fermatav1.Job{{Name: "namespaces/" + namespace + "/jobs/ping"}}}, nil
}

func (partial) TopJobs(_ context.Context, q *fermatav1.TopJobsRequest) (*fermatav1.TopJobsResponse, error) {
	namespace, err := seen(q.GetParent())
	if err != nil {
		return nil, err
	}
	failures := map[string]int64{"team-a": 2, "team-b": 7}[namespace]
	return &fermatav1.TopJobsResponse{Jobs: []*fermatav1.TopJob{{Job: &fermatav1.Job{
		Name: "namespaces/" + namespace + "/jobs/flaky", Status: &fermatav1.JobStatus{ConsecutiveFailures: failures},
	}}}}, nil
}

func (partial) ListNodes(context.Context, *fermatav1.ListNodesRequest) (*fermatav1.ListNodesResponse, error) {
	return nil, errDenied
}

func (partial) ListWorkers(context.Context, *fermatav1.ListWorkersRequest) (*fermatav1.ListWorkersResponse, error) {
	return nil, errDenied
}

func (partial) ListShards(context.Context, *fermatav1.ListShardsRequest) (*fermatav1.ListShardsResponse, error) {
	return nil, errDenied
}

// TestRolesOfSomeNamespaces: who may not see all namespaces sees those of its roles.
func TestRolesOfSomeNamespaces(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	fermatav1.RegisterJobServiceServer(server, partial{})
	fermatav1.RegisterClusterServiceServer(server, partial{})
	fermatav1.RegisterAccessServiceServer(server, partial{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	c := &cluster{t: t, address: listener.Addr().String()}
	for line, want := range map[string]string{
		"jobs list -A -o name":                    "namespaces/team-a/jobs/ping\nnamespaces/team-b/jobs/ping\n",
		"--namespace team-b jobs list -A -o name": "namespaces/team-a/jobs/ping\nping\n",
		"failing -A -o name":                      "namespaces/team-b/jobs/flaky\nnamespaces/team-a/jobs/flaky\n",
		"failing -A --limit 1 -o name":            "namespaces/team-b/jobs/flaky\n",
		"queues list -A -o name":                  "mail\n",
	} {
		code, out, errs := c.run(strings.Fields(line)...)
		if code != exitOK || out != want || !strings.Contains(errs, "by a pattern (stage-*)") {
			t.Errorf("%s: exit %d, %q, want %q\n%s", line, code, out, want, errs)
		}
	}
	for line, want := range map[string][]string{
		"top":                    {"team-a/mail", "team-a/flaky", "team-b/flaky", "Not allowed to see nodes, shards, workers.", "Shown: team-a, team-b."},
		"--namespace team-b top": {"no queues", "team-b/flaky", "Shown: team-b."},
	} {
		out := c.must(strings.Fields(line)...)
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%s has no %q:\n%s", line, text, out)
			}
		}
	}
	if code, _, errs := c.run("--namespace", "secret", "jobs", "list"); code != exitFailed || !strings.Contains(errs, "is missing") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
