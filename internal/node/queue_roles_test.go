package node_test

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestAnEditorOfOneQueueCannotTakeAJob of another queue, delete it or learn its etag, however
// often a call names it.
func TestAnEditorOfOneQueueCannotTakeAJob(t *testing.T) {
	x := newTenants(t, "  - {subjects: [\"token:scaler-a\"], role: editor, namespaces: [a], queues: [mail]}\n")
	c := fermatav1.NewJobServiceClient(x.conn)
	secret := every(time.Hour, "h")
	secret.Queue, secret.Payload = "web", []byte("secret")
	victim, err := c.CreateJob(x.as("editor-a"), &fermatav1.CreateJobRequest{Parent: "namespaces/a", JobId: "victim", Job: secret})
	if err != nil {
		t.Fatal(err)
	}
	taken := every(time.Hour, "h")
	taken.Queue, taken.PayloadSealed = "mail", true
	for _, etag := range []string{"", "x", victim.GetEtag()} {
		take := &fermatav1.JobWish{JobId: "victim", Etag: etag, Job: taken}
		remove := &fermatav1.JobWish{JobId: "victim", Etag: etag, Delete: true}
		for _, wishes := range [][]*fermatav1.JobWish{{take}, {take, take}, {remove}, {remove, remove}, {take, remove}, {remove, take}} {
			applied, err := c.ApplyJobs(x.as("scaler-a"), &fermatav1.ApplyJobsRequest{Parent: "namespaces/a", Force: true, Wishes: wishes})
			if err != nil {
				t.Fatal(err)
			}
			for i, change := range applied.GetChanges() {
				want := codes.PermissionDenied
				if i > 0 {
					want = codes.InvalidArgument
				}
				if codes.Code(change.GetCode()) != want || change.GetBefore() != nil || change.GetAfter() != nil {
					t.Errorf("etag %q, wish %d of %d: %v", etag, i, len(wishes), change)
				}
			}
			planned, err := c.PlanJobs(x.as("scaler-a"), &fermatav1.PlanJobsRequest{Parent: "namespaces/a", Force: true, Wishes: wishes})
			if err != nil {
				t.Fatal(err)
			}
			for i, change := range planned.GetChanges() {
				if change.GetCode() == 0 || change.GetBefore() != nil || change.GetAfter() != nil {
					t.Errorf("etag %q, wish %d of %d is planned: %v", etag, i, len(wishes), change)
				}
			}
		}
	}
	now, err := c.GetJob(x.as("editor-a"), &fermatav1.GetJobRequest{Name: "namespaces/a/jobs/victim"})
	if err != nil || now.GetQueue() != "web" || now.GetEtag() != victim.GetEtag() {
		t.Errorf("the job is %v, %v", now, err)
	}
}
