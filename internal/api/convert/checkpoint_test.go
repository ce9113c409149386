package convert

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

const at = unixtime.Milli(1_800_000_000_000)

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
		DeadLetters: []job.CheckpointDeadLetter{
			{Slot: 1, ExpireMS: at + 1000, Queue: "q", Run: job.Run{
				ID: fmt.Sprint("2-", at-500), Trigger: job.TriggerSchedule, NominalMS: at - 500, DueMS: at - 400, StartedMS: at - 300,
				FinishedMS: at - 200, Attempts: 3, Losses: 1, Outcome: job.OutcomeQuarantined, Error: "poison", Output: []byte{0, 255}, Worker: "w",
				AttemptLog: []job.Attempt{
					{Number: 1, Outcome: job.OutcomeFailed, Source: job.DelayHeld, DueMS: at - 500, StartedMS: at - 499, FinishedMS: at - 450, Worker: "v"},
					{Number: 2, Outcome: job.OutcomeLost, Source: job.DelayRetry, DueMS: at - 400, StartedMS: at - 300, FinishedMS: at - 200},
				},
			}},
			{Slot: 2, ExpireMS: job.NeverMS, Run: job.Run{ID: "m-x", Trigger: job.TriggerManual, NominalMS: at, DueMS: at, Outcome: job.OutcomeDead},
				Queue: "p", Own: &job.RunPayload{Payload: []byte{2, 9}, Key: "k"},
				Binding: &job.Binding{Queue: "p", Handler: "h", Timeout: time.Minute, MaxAttempts: 3, Labels: map[string]string{"a": "b"}}},
		},
	}
}

// A checkpoint comes back as it was, through JSON.
func TestCheckpointRoundTrip(t *testing.T) {
	key := job.Key{Namespace: "ns", ID: "j"}
	checkpoints := map[string]*job.Checkpoint{
		"full": fullCheckpoint(),
		"dead": {Generation: 1, Revision: 1, State: job.State{Region: job.RegionDead, Dead: 1, Runs: 1}, ExpireMS: at, DeadLetters: []job.CheckpointDeadLetter{
			{Slot: job.LetterOfJob, ExpireMS: job.NeverMS, Run: job.Run{ID: fmt.Sprint("1-", at), NominalMS: at, DueMS: at, Outcome: job.OutcomeDead}},
		}},
		"done":            {Generation: 1, Revision: 1, State: job.State{Region: job.RegionDone}, ExpireMS: job.NeverMS},
		"done and paused": {Generation: 1, Revision: 1, State: job.State{Region: job.RegionDone, Paused: true, PausedMS: at}, ExpireMS: at},
		"manual though paused": {Generation: 1, Revision: 1, ExpireMS: job.NeverMS, State: job.State{
			Region: job.RegionDue, Paused: true, PausedMS: at, Trigger: job.TriggerManual, ManualID: "m", Nominal: at, Due: at, Generation: 1,
		}},
	}
	for name, want := range checkpoints {
		for i := range want.DeadLetters {
			if l := &want.DeadLetters[i]; l.Own != nil {
				l.Run.OwnPayload = l.Own.Describe()
			}
		}
		text, err := protojson.Marshal(checkpointToPB(key, want))
		for i := range want.DeadLetters {
			want.DeadLetters[i].Run.OwnPayload = nil // is described when it is restored
		}
		if err != nil {
			t.Fatal(err)
		}
		var p fermatav1.Checkpoint
		if err := protojson.Unmarshal(text, &p); err != nil {
			t.Fatal(err)
		}
		var r Reader
		got := r.readCheckpoint("checkpoint", &p)
		for i := range got.Children {
			got.Children[i].State.Region = job.RegionDue
		}
		if err := r.Err(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\ngot  %+v\nwant %+v", name, err, got, want)
		}
	}
}
