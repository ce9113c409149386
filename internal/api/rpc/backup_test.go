package rpc

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fermata-io/fermata/internal/core/job"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func (f *fakeJobs) Backups(_ context.Context, filter job.Filter, _ int, _ string) (job.BackupPage, error) {
	f.filter = filter
	return job.BackupPage{Backups: []job.Backup{{Definition: f.present, Checkpoint: fullCheckpoint()}}, Next: "more"}, f.err
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

const at = int64(1_800_000_000_000)

// fullCheckpoint has every field set that a checkpoint can have.
func fullCheckpoint() *job.Checkpoint {
	run := job.State{
		Region: job.RegionDue, Generation: 3, Trigger: job.TriggerSchedule, Nominal: at, Due: at + 5, Source: job.DelayHeld,
		Attempt: 2, FirstMS: at + 1, Losses: 1, Unacked: 2, Recovery: true, Paced: true,
		Held: job.Hold{Reason: job.HeldLock, Key: "k", By: "j", SinceMS: at + 2},
	}
	state := run
	state.Region = job.RegionPaused
	state.Paused, state.PausedMS, state.PauseNote = true, at+3, "because"
	state.Pending, state.PendingMode, state.Waiting = "req", job.ManualKeep, 5
	state.Hint = job.Hint{Source: job.HintOperator, AtMS: at + 4, IntervalMS: 7000, UntilMS: at + 9, Reason: "no\nreason"}
	state.Backfills = []job.Backfill{{ID: "b", NextMS: at - 9, ToMS: at - 1, Concurrency: 2, Slots: 1 << 6}}
	state.LastNominal, state.BufferedUntil, state.Fired = at-1, at-2, 8
	state.Failures, state.LastOutcome, state.LastError, state.LastStarted, state.LastFinished = 4, job.OutcomeTimedOut, "slow", at-3, at-2
	state.Runs, state.Succeeded, state.Dead, state.Lost, state.TimedOut, state.Skipped = 1<<40, 1<<39, 3, 6, 5, 2
	state.Recent = []string{"a", "req"}
	manual, backfill := run, run
	manual.Trigger, manual.ManualID, manual.Mode = job.TriggerManual, "req", job.ManualKeep
	backfill.Trigger, backfill.ManualID, backfill.Started = job.TriggerBackfill, "b", 1<<6
	return &job.Checkpoint{
		Generation: 3, Revision: 9, AnchorMS: at - 50, CreatedMS: at - 100, UpdatedMS: at - 60,
		CreateRequestID: "c", UpdateRequestIDs: job.RequestIDs{"t", "u"}, State: state, ExpireMS: job.NeverMS,
		Children: []job.Child{{Slot: 4, State: manual}, {Slot: 6, State: backfill}},
		Letters: []job.KeptLetter{
			{Slot: 1, ExpireMS: at + 1000, Run: job.Run{
				ID: fmt.Sprint("2-", at-500), Trigger: job.TriggerSchedule, NominalMS: at - 500, DueMS: at - 400, StartedMS: at - 300,
				FinishedMS: at - 200, Attempts: 3, Losses: 1, Outcome: job.OutcomeQuarantined, Error: "poison", Output: []byte{0, 255}, Worker: "w",
			}},
			{Slot: 2, ExpireMS: job.NeverMS, Run: job.Run{ID: "m-x", Trigger: job.TriggerManual, NominalMS: at, DueMS: at, Outcome: job.OutcomeDead}},
		},
	}
}

// A checkpoint comes back as it was, through JSON.
func TestCheckpointRoundTrip(t *testing.T) {
	key := job.Key{Namespace: "ns", ID: "j"}
	checkpoints := map[string]*job.Checkpoint{
		"full": fullCheckpoint(),
		"dead": {Generation: 1, Revision: 1, State: job.State{Region: job.RegionDead, Dead: 1, Runs: 1}, ExpireMS: at, Letters: []job.KeptLetter{
			{Slot: job.LetterOfJob, ExpireMS: job.NeverMS, Run: job.Run{ID: fmt.Sprint("1-", at), NominalMS: at, DueMS: at, Outcome: job.OutcomeDead}},
		}},
		"done":            {Generation: 1, Revision: 1, State: job.State{Region: job.RegionDone}, ExpireMS: job.NeverMS},
		"done and paused": {Generation: 1, Revision: 1, State: job.State{Region: job.RegionDone, Paused: true, PausedMS: at}, ExpireMS: at},
		"manual though paused": {Generation: 1, Revision: 1, ExpireMS: job.NeverMS, State: job.State{
			Region: job.RegionDue, Paused: true, PausedMS: at, Trigger: job.TriggerManual, ManualID: "m", Nominal: at, Due: at, Generation: 1,
		}},
	}
	for name, want := range checkpoints {
		text, err := protojson.Marshal(checkpointToPB(key, want))
		if err != nil {
			t.Fatal(err)
		}
		var p fermatav1.Checkpoint
		if err := protojson.Unmarshal(text, &p); err != nil {
			t.Fatal(err)
		}
		var r reader
		got := r.checkpoint("checkpoint", &p)
		for i := range got.Children {
			got.Children[i].State.Region = job.RegionDue
		}
		if err := r.err(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got, want)
		}
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
