package rpc

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/api/guard"
	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (f *fakeJobs) ExportJobs(_ context.Context, filter job.Filter, _ int, _ string) (job.BackupPage, error) {
	f.filter = filter
	c := f.checkpoint
	if c == nil {
		c = &job.Checkpoint{Generation: 1, Revision: 1, State: job.State{Region: job.RegionDone}, ExpireMS: job.NeverMS}
	}
	return job.BackupPage{Backups: []job.Backup{{Definition: f.present, Checkpoint: c}}, Next: "more"}, f.err
}

func (f *fakeJobs) Restore(_ context.Context, backups []job.Backup, existing job.Existing) []job.RestoreAnswer {
	f.backups, f.existing = backups, existing
	answers := make([]job.RestoreAnswer, len(backups))
	for i, b := range backups {
		answers[i].Outcome = job.RestoreReplaced
		if b.Definition.ID == "taken" {
			answers[i].Err = &job.ExistsError{Key: b.Definition.Key}
		}
	}
	return answers
}

// TestTheLargestJobFitsInAMessage: a client receives the backup of a job with as many and as large payloads as it may have,
// and texts of a usual size.
func TestTheLargestJobFitsInAMessage(t *testing.T) {
	text, own := strings.Repeat("x", job.MaxError), &job.RunPayload{Payload: make([]byte, job.MaxRunPayload)}
	run := job.Run{Error: text, Output: make([]byte, job.MaxOutput), OwnPayload: own.Describe()}
	c := job.Checkpoint{State: job.State{Region: job.RegionDue, LastError: text}}
	for slot := range job.MaxRunPayloads / job.MaxRunPayload {
		state := job.State{Region: job.RegionDue, LastError: text, OwnPayload: own.Describe()}
		c.Children = append(c.Children, job.Child{Slot: slot, State: state, Own: own})
	}
	for slot := range job.DeadLettersPerJob {
		c.DeadLetters = append(c.DeadLetters, job.CheckpointDeadLetter{Slot: slot, Run: run, Own: own})
	}
	b := serve(t)
	b.jobs.present = job.WithDefaults(job.Definition{Key: job.Key{Namespace: "ns", ID: "j"}, Handler: "h",
		Payload: make([]byte, MaxPayload), Labels: map[string]string{}})
	for i := range 32 {
		b.jobs.present.Labels[fmt.Sprintf("%0128d", i)] = strings.Repeat("v", 128)
	}
	b.jobs.checkpoint = &c
	answer, err := fermatav1.NewBackupServiceClient(b.conn).ExportJobs(t.Context(),
		&fermatav1.ExportJobsRequest{Parent: "namespaces/ns"}, grpc.MaxCallRecvMsgSize(16<<20))
	if err != nil || len(answer.GetJobs()) != 1 {
		t.Fatalf("%d jobs, %v", len(answer.GetJobs()), err)
	}
	if size := proto.Size(answer); size < MaxPayload+job.MaxOwnPayloads || size > guard.MaxRequestBytes-(512<<10) {
		t.Errorf("the backup has %d bytes: half a MiB is to be left for revisions and histories", size)
	}
}

func TestBackupService(t *testing.T) {
	b := serve(t)
	b.jobs.present = job.WithDefaults(job.Definition{Key: job.Key{Namespace: "ns", ID: "j"}, Handler: "h"})
	client := fermatav1.NewBackupServiceClient(b.conn)
	exported, err := client.ExportJobs(t.Context(), &fermatav1.ExportJobsRequest{Parent: "namespaces/ns", Queue: "q"})
	if err != nil || exported.GetNextPageToken() != "more" || b.jobs.filter.Queue != "q" || exported.GetJobs()[0].GetJob().GetStatus() != nil {
		t.Fatalf("%v %v", exported, err)
	}
	taken := &fermatav1.JobBackup{Job: &fermatav1.Job{Name: "taken"}}
	bad := &fermatav1.JobBackup{Job: &fermatav1.Job{Name: "x"}, Checkpoint: &fermatav1.Checkpoint{Generation: -1}}
	answer, err := client.RestoreJobs(t.Context(), &fermatav1.RestoreJobsRequest{
		Parent: "namespaces/other", Existing: fermatav1.RestoreJobsRequest_EXISTING_REPLACE,
		Jobs: []*fermatav1.JobBackup{bad, exported.GetJobs()[0], {}, taken},
	})
	if err != nil || b.jobs.existing != job.ExistingReplace || len(b.jobs.backups) != 2 || b.jobs.backups[0].Definition.Key != (job.Key{Namespace: "other", ID: "j"}) {
		t.Fatalf("%v %v", b.jobs.backups, err)
	}
	for i, want := range []struct {
		code codes.Code
		text string
	}{{codes.InvalidArgument, "checkpoint.generation"}, {codes.OK, ""}, {codes.InvalidArgument, "job.name"}, {codes.AlreadyExists, "exists"}} {
		if r := answer.GetResults()[i]; codes.Code(r.GetCode()) != want.code || !strings.Contains(r.GetMessage(), want.text) {
			t.Errorf("%d: %v", i, r)
		}
	}
	if got := answer.GetResults()[1].GetOutcome(); got != fermatav1.RestoreJobsResponse_Result_OUTCOME_REPLACED {
		t.Errorf("outcome %v", got)
	}
	for _, q := range []*fermatav1.RestoreJobsRequest{
		{Parent: "x"}, {Parent: "namespaces/ns", Existing: 9}, {Parent: "namespaces/ns", Jobs: make([]*fermatav1.JobBackup, maxBatch+1)},
	} {
		if _, err := client.RestoreJobs(t.Context(), q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", q.GetParent(), err)
		}
	}
	b.jobs.err = job.ErrUnavailable
	if _, err := client.ExportJobs(t.Context(), &fermatav1.ExportJobsRequest{Parent: "namespaces/ns"}); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}
