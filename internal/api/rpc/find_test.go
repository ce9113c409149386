package rpc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fermata-io/fermata/internal/core/authz"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestCallersOfOneNamespaceListNoOther lists all namespaces with a role in one of them: what is selected is limited to
// what the role covers.
func TestCallersOfOneNamespaceListNoOther(t *testing.T) {
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Viewer, "team-a", "ann"),
		allow(authz.Viewer, "*", "all"), allow(authz.Worker, "team-a", "worker"))})
	jobs := fermatav1.NewJobServiceClient(b.dial(t))
	everywhere := &fermatav1.ListJobsRequest{Parent: "namespaces/-"}
	if _, err := jobs.ListJobs(as(t.Context(), "ann"), everywhere); err != nil {
		t.Fatal(err)
	}
	f := b.jobs.filter
	if !f.AllNamespaces || f.Namespace != "" || f.Scope == nil {
		t.Fatalf("selected are %+v", f)
	}
	for q, want := range map[job.QueueKey]bool{
		{Namespace: "team-a", Queue: "mail"}: true, {Namespace: "team-b", Queue: "mail"}: false, {Namespace: "-"}: false,
	} {
		if f.Scope(q) != want {
			t.Errorf("%v is listed: %v", q, !want)
		}
	}
	if _, err := jobs.ListJobs(as(t.Context(), "all"), everywhere); err != nil || b.jobs.filter.Scope != nil {
		t.Errorf("a viewer of all: %v", err)
	}
	if _, err := jobs.ListJobs(as(t.Context(), "worker"), everywhere); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a worker: %v", err)
	}
}

// TestFilterOfListJobs: a filter gets to the engine with the time of the call; a fault names its place.
func TestFilterOfListJobs(t *testing.T) {
	b := serve(t)
	jobs := fermatav1.NewJobServiceClient(b.conn)
	q := &fermatav1.ListJobsRequest{Parent: "namespaces/n", Filter: "last_run_time < -1h"}
	if _, err := jobs.ListJobs(t.Context(), q); err != nil || b.jobs.filter.Condition == nil || b.jobs.filter.NowMS == 0 {
		t.Errorf("%+v, %v", b.jobs.filter, err)
	}
	q.Filter = "queue = x colour = red"
	_, err := jobs.ListJobs(t.Context(), q)
	if f := fields(err); status.Code(err) != codes.InvalidArgument || !slices.Contains(f, "filter") {
		t.Errorf("%v names %v", err, f)
	}
}

// TestNamespacesOfTheCaller: a caller sees the namespaces of its roles, and the numbers of whole namespaces only with a
// role for all queues.
func TestNamespacesOfTheCaller(t *testing.T) {
	some := allow(authz.Viewer, "team-a", "some")
	some.Queues = []string{"mail"}
	b := serveGated(t, Options{Authority: newAuthority(t, authz.Limits{}, allow(authz.Viewer, "team-a", "ann"),
		allow(authz.Viewer, "*", "all"), some, allow(authz.Scaler, "*", "scaler"))})
	cluster := fermatav1.NewClusterServiceClient(b.dial(t))
	for token, want := range map[string]string{
		"ann": "namespaces/team-a:true", "some": "namespaces/team-a:false",
		"all": "namespaces/team-a:true namespaces/team-b:true",
	} {
		r, err := cluster.ListNamespaces(as(t.Context(), token), &fermatav1.ListNamespacesRequest{})
		var got []string
		for _, n := range r.GetNamespaces() {
			got = append(got, fmt.Sprintf("%s:%v", n.GetName(), n.Failing != nil))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s: %v", token, got, want, err)
		}
	}
	_, err := cluster.ListNamespaces(as(t.Context(), "scaler"), &fermatav1.ListNamespacesRequest{})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("an autoscaler: %v", err)
	}
}

// TestOrderOfListJobs: an order that there is not is refused with those that there are.
func TestOrderOfListJobs(t *testing.T) {
	b := serve(t)
	jobs := fermatav1.NewJobServiceClient(b.conn)
	for text, want := range map[string]job.Order{
		"": job.OrderNone, "id": job.OrderID, " consecutive_failures   desc": job.OrderFailures,
		"next_due_time": job.OrderNextDue, "last_run_time desc": job.OrderLastRun,
	} {
		q := &fermatav1.ListJobsRequest{Parent: "namespaces/n", OrderBy: text}
		if _, err := jobs.ListJobs(t.Context(), q); err != nil || b.jobs.filter.Order != want {
			t.Errorf("%q: %v, %v", text, b.jobs.filter.Order, err)
		}
	}
	for _, text := range []string{"id desc", "name", "next_due_time desc", "id, queue", "last_run_time"} {
		_, err := jobs.ListJobs(t.Context(), &fermatav1.ListJobsRequest{Parent: "namespaces/n", OrderBy: text})
		if f := fields(err); !slices.Contains(f, "order_by") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
