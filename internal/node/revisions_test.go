package node_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/fermata-io/fermata/internal/test/redistest"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

// TestRevisionsNameTheirCallers, belong to one namespace, and are named by audit records.
func TestRevisionsNameTheirCallers(t *testing.T) {
	x := newTenants(t, "")
	c := fermatav1.NewJobServiceClient(x.conn)
	const name = "namespaces/a/jobs/j"
	for _, namespace := range []string{"a", "b"} { // the same id in both
		if _, err := c.CreateJob(x.as("editor-"+namespace), &fermatav1.CreateJobRequest{Parent: "namespaces/" + namespace, JobId: "j",
			Job: intervalJob(time.Hour, "h")}); err != nil {
			t.Fatal(err)
		}
	}
	edited, err := c.UpdateJob(x.as("editor-a"), &fermatav1.UpdateJobRequest{Job: &fermatav1.Job{Name: name, Timeout: durationpb.New(time.Minute)},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"timeout"}}})
	if err != nil {
		t.Fatal(err)
	}
	back := &fermatav1.RestoreJobRevisionRequest{Name: name + "/revisions/1", Etag: edited.GetEtag(), RequestId: "back"}
	for range 2 { // the second one is a repetition
		restored, err := c.RestoreJobRevision(x.as("root"), back)
		if err != nil || restored.GetTimeout().AsDuration() == time.Minute {
			t.Fatal(restored, err)
		}
	}
	r, err := c.ListJobRevisions(x.as("viewer-a"), &fermatav1.ListJobRevisionsRequest{Parent: name})
	if err != nil || len(r.GetRevisions()) != 3 {
		t.Fatal(r, err)
	}
	for i, want := range []*fermatav1.JobRevision{
		{Revision: 3, Current: true, Identity: "token:root", Method: "RestoreJobRevision", Fields: []string{"timeout"}},
		{Revision: 2, Identity: "token:editor-a", Method: "UpdateJob", Fields: []string{"timeout"}},
		{Revision: 1},
	} {
		got := r.GetRevisions()[i]
		if got.GetName() != fmt.Sprintf("%s/revisions/%d", name, want.GetRevision()) || got.GetRevision() != want.GetRevision() ||
			got.GetCurrent() != want.GetCurrent() || got.GetIdentity() != want.GetIdentity() || got.GetMethod() != want.GetMethod() ||
			!slices.Equal(got.GetFields(), want.GetFields()) || got.GetCreateTime() == nil || got.GetJob() != nil {
			t.Errorf("revision %v, want %v", got, want)
		}
	}
	refused := func(what string, err error) {
		t.Helper()
		if code := status.Code(err); code != codes.PermissionDenied && code != codes.NotFound {
			t.Errorf("%s of another namespace: %v", what, err)
		}
	}
	_, err = c.ListJobRevisions(x.as("admin-b"), &fermatav1.ListJobRevisionsRequest{Parent: name})
	refused("list", err)
	_, err = c.GetJobRevision(x.as("admin-b"), &fermatav1.GetJobRevisionRequest{Name: name + "/revisions/1"})
	refused("get", err)
	_, err = c.DiffJobRevisions(x.as("admin-b"), &fermatav1.DiffJobRevisionsRequest{Name: name})
	refused("diff", err)
	_, err = c.RestoreJobRevision(x.as("admin-b"), &fermatav1.RestoreJobRevisionRequest{Name: name + "/revisions/1"})
	refused("restore", err)
	_, err = c.RestoreJobRevision(x.as("viewer-a"), &fermatav1.RestoreJobRevisionRequest{Name: name + "/revisions/1"})
	refused("restore by a viewer, or", err)
	other, err := c.ListJobRevisions(x.as("viewer-b"), &fermatav1.ListJobRevisionsRequest{Parent: "namespaces/b/jobs/j"})
	if err != nil || len(other.GetRevisions()) != 1 {
		t.Error(other, err)
	}
	redistest.Eventually(t, redistest.Patience, "the audit record of the restore", func(context.Context) error {
		r, err := fermatav1.NewClusterServiceClient(x.conn).ListAuditRecords(x.as("admin-a"), &fermatav1.ListAuditRecordsRequest{Resource: name})
		if err != nil {
			return err
		}
		for _, record := range r.GetRecords() {
			if record.GetMethod() == "fermata.v1.JobService/RestoreJobRevision" && slices.Equal(record.GetNames(), []string{name + "/revisions/3"}) &&
				slices.Equal(record.GetChangedFields(), []string{"from=1"}) && len(record.GetBeforeDigest()) > 0 {
				return nil
			}
		}
		return errors.New("there is none")
	})
}
