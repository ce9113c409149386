package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestListsShowNothingOfHiddenJobs: what a viewer of one queue gets from each list, page by page, is the same, to the
// byte, with and without jobs of other queues and namespaces.
func TestListsShowNothingOfHiddenJobs(t *testing.T) {
	x := newTenants(t, "  - {subjects: [\"token:scaler-a\"], role: viewer, namespaces: [a], queues: [mail]}\n")
	c, cluster := fermatav1.NewJobServiceClient(x.conn), fermatav1.NewClusterServiceClient(x.conn)
	create := func(namespace, id, queue string) {
		t.Helper()
		j := intervalJob(time.Hour, "h")
		j.Queue = queue
		q := &fermatav1.CreateJobRequest{Parent: "namespaces/" + namespace, JobId: id, Job: j}
		if _, err := c.CreateJob(x.as("editor-"+namespace), q); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		create("a", fmt.Sprintf("open-%d", i), "mail")
	}
	ctx := x.as("scaler-a")
	before := listsOf(ctx, t, c, cluster)
	for i := range 20 {
		create("a", fmt.Sprintf("nope-%d", i), "web")
		create("b", fmt.Sprintf("open-%d", i), "mail")
	}
	after := listsOf(ctx, t, c, cluster)
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s: with hidden jobs\n%s\nwithout\n%s", name, after[name], text)
		}
	}
	if !strings.Contains(before["id of all"], "namespaces/a/jobs/open-4") {
		t.Errorf("the list of all: %s", before["id of all"])
	}
	for _, parent := range []string{"namespaces/b", "namespaces/*"} {
		_, err := c.ListUpcomingJobs(ctx, &fermatav1.ListUpcomingJobsRequest{Parent: parent})
		if code := status.Code(err); code != codes.PermissionDenied && code != codes.InvalidArgument {
			t.Errorf("%s: %v", parent, err)
		}
	}
}

// listsOf are the answers of all lists, by pages of two.
func listsOf(ctx context.Context, t *testing.T, c fermatav1.JobServiceClient,
	cluster fermatav1.ClusterServiceClient) map[string]string {
	t.Helper()
	answers := map[string]string{}
	for name, q := range map[string]*fermatav1.ListJobsRequest{
		"no order of all": {Parent: "namespaces/-"}, "no order": {Parent: "namespaces/a"},
		"id of all": {Parent: "namespaces/-", OrderBy: "id"}, "id": {Parent: "namespaces/a", OrderBy: "id"},
		"due of all":      {Parent: "namespaces/-", OrderBy: "next_due_time"},
		"due":             {Parent: "namespaces/a", OrderBy: "next_due_time"},
		"last run":        {Parent: "namespaces/-", OrderBy: "last_run_time desc"},
		"failures":        {Parent: "namespaces/-", OrderBy: "consecutive_failures desc"},
		"hidden id":       {Parent: "namespaces/-", OrderBy: "id", Filter: "id = nope-*"},
		"hidden queue":    {Parent: "namespaces/-", OrderBy: "next_due_time", Filter: "queue = web"},
		"other namespace": {Parent: "namespaces/-", OrderBy: "next_due_time", Filter: "namespace = b"},
	} {
		q.PageSize = 2
		for pages := 0; pages == 0 || q.PageToken != ""; pages++ {
			r, err := c.ListJobs(ctx, q)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, j := range r.GetJobs() {
				answers[name] += j.GetName() + " "
			}
			q.PageToken = r.GetNextPageToken()
			answers[name] += q.PageToken + "\n"
		}
	}
	upcoming := &fermatav1.ListUpcomingJobsRequest{Parent: "namespaces/-", PageSize: 2}
	for pages := 0; pages == 0 || upcoming.PageToken != ""; pages++ {
		r, err := c.ListUpcomingJobs(ctx, upcoming)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range r.GetRuns() {
			answers["upcoming"] += run.GetName() + " "
		}
		upcoming.PageToken = r.GetNextPageToken()
		answers["upcoming"] += upcoming.PageToken + "\n"
	}
	r, err := cluster.ListNamespaces(ctx, &fermatav1.ListNamespacesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range r.GetNamespaces() {
		answers["namespaces"] += fmt.Sprint(n.GetName(), n.GetJobs(), n.GetQueues(), n.Failing != nil, n.GetJobsQuota() != nil)
	}
	return answers
}
