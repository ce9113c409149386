package convert

import (
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	fermatav1 "github.com/fermata-io/fermata/proto/fermata/v1"
)

func checkpointToPB(k job.Key, cp *job.Checkpoint) *fermatav1.Checkpoint {
	s := &cp.State
	p := &fermatav1.Checkpoint{
		Generation: int64(cp.Generation), Revision: int64(cp.Revision),
		AnchorTime: MillisToPB(cp.AnchorMS), CreateTime: MillisToPB(cp.CreatedMS), UpdateTime: MillisToPB(cp.UpdatedMS),
		CreateRequestId: cp.CreateRequestID,
		State:           JobStates.ToPB(s.Status()), ExpireTime: MillisToPB(cp.ExpireMS),
		PauseTime: MillisToPB(s.PausedMS), PauseNote: s.PauseNote, Hint: hintToPB(s.Hint),
		LastNominalTime: MillisToPB(s.LastNominal), BufferedUntilTime: MillisToPB(s.BufferedUntil),
		ScheduledRuns: int64(s.Fired), WaitingRequestId: s.Pending,
		ConsecutiveFailures: int64(s.Failures), LastOutcome: outcomes.ToPB(s.LastOutcome), LastError: s.LastError,
		LastStartTime: MillisToPB(s.LastStarted), LastFinishTime: MillisToPB(s.LastFinished),
		RunsTotal: int64(s.Runs), SucceededTotal: int64(s.Succeeded), DeadTotal: int64(s.Dead), LostTotal: int64(s.Lost),
		TimeoutTotal: int64(s.TimedOut), SkippedTotal: int64(s.Skipped),
		RecentRequestIds: s.Recent,
		Backfills:        Map(s.Backfills, keptBackfillToPB),
	}
	p.EarlierUpdateRequestIds, p.UpdateRequestId = cp.UpdateRequestIDs.Split()
	if s.HasRun() {
		p.Run = keptRunToPB(s)
	}
	for _, child := range cp.Children {
		run := keptRunToPB(&child.State)
		run.Slot, run.Started = int32(child.Slot), child.State.Started != 0
		run.OwnPayload = runPayloadToPB(child.State.OwnPayload, child.Own)
		p.ConcurrentRuns = append(p.ConcurrentRuns, run)
	}
	for _, l := range cp.DeadLetters {
		record := k.Record()
		if l.Slot != job.LetterOfJob {
			record = record.Letter(l.Slot)
		}
		l.Run.DeadLetter = true
		letter := DeadLetterToPB(job.DeadLetter{Record: record, Run: l.Run, Queue: l.Queue, ExpireMS: l.ExpireMS})
		letter.Run.OwnPayload = runPayloadToPB(l.Run.OwnPayload, l.Own)
		if l.Binding != nil && letter.Run.OwnPayload != nil {
			letter.Run.OwnPayload.Binding = bindingToPB(l.Binding)
		}
		p.DeadLetters = append(p.DeadLetters, letter)
	}
	return p
}

func keptRunToPB(s *job.State) *fermatav1.CheckpointRun {
	return &fermatav1.CheckpointRun{
		Trigger: triggers.ToPB(s.Trigger), RequestId: s.ManualID, Backoff: BackoffModes.ToPB(s.Mode),
		Generation:  int64(s.Generation),
		NominalTime: MillisToPB(s.Nominal), DueTime: MillisToPB(s.Due), DelaySource: delaySources.ToPB(s.Source),
		Attempts: int32(min(s.Attempt, math.MaxInt32)), FirstStartTime: MillisToPB(s.FirstMS), Hold: holdToPB(s.Held),
		Recovery: s.Recovery, Paced: s.Paced, LostAttempts: int32(s.Losses), Undelivered: int32(s.Unacked),
		IgnoreExclusions: s.IgnoresExclusions(),
	}
}

func keptBackfillToPB(b job.Backfill) *fermatav1.CheckpointBackfill {
	p := &fermatav1.CheckpointBackfill{
		Id: b.ID, NextTime: MillisToPB(b.NextMS), EndTime: MillisToPB(b.ToMS), Concurrency: int32(b.Concurrency),
	}
	for _, slot := range (job.State{Children: b.Slots}).ChildSlots() {
		p.Slots = append(p.Slots, int32(slot))
	}
	return p
}

// readCheckpoint reads a checkpoint. What is out of bounds is left to [job.Restore].
func (r *Reader) readCheckpoint(field string, p *fermatav1.Checkpoint) *job.Checkpoint {
	cp := &job.Checkpoint{
		Generation:       r.uint32Counter(field+".generation", p.GetGeneration()),
		Revision:         r.uint32Counter(field+".revision", p.GetRevision()),
		AnchorMS:         r.Millis(field+".anchor_time", p.GetAnchorTime()),
		CreatedMS:        r.Millis(field+".create_time", p.GetCreateTime()),
		UpdatedMS:        r.Millis(field+".update_time", p.GetUpdateTime()),
		CreateRequestID:  p.GetCreateRequestId(),
		UpdateRequestIDs: job.JoinRequestIDs(p.GetEarlierUpdateRequestIds(), p.GetUpdateRequestId()),
		ExpireMS:         job.NeverMS,
	}
	if p.GetExpireTime() != nil {
		cp.ExpireMS = r.Millis(field+".expire_time", p.GetExpireTime())
	}
	for i, run := range p.GetConcurrentRuns() {
		child := job.Child{Slot: int(run.GetSlot()), Own: r.readRunPayload(run.GetOwnPayload())}
		r.keptRun(field+".concurrent_runs["+strconv.Itoa(i)+"]", &child.State, run)
		if run.GetStarted() && child.Slot >= 0 && child.Slot < job.MaxConcurrentRuns {
			child.State.Started = 1 << child.Slot
		}
		cp.Children = append(cp.Children, child)
	}
	r.keptState(field, cp, p)
	for i, l := range p.GetDeadLetters() {
		cp.DeadLetters = append(cp.DeadLetters, r.keptLetter(field+".dead_letters["+strconv.Itoa(i)+"]", l))
	}
	return cp
}

func (r *Reader) keptState(field string, cp *job.Checkpoint, p *fermatav1.Checkpoint) {
	s := &cp.State
	s.PausedMS = r.Millis(field+".pause_time", p.GetPauseTime())
	s.PauseNote, s.Paused = p.GetPauseNote(), p.GetPauseTime() != nil
	if p.GetHint() != nil {
		s.Hint = r.Hint(field+".hint", p.GetHint())
	}
	s.LastNominal = r.Millis(field+".last_nominal_time", p.GetLastNominalTime())
	s.BufferedUntil = r.Millis(field+".buffered_until_time", p.GetBufferedUntilTime())
	s.Fired = r.uint32Counter(field+".scheduled_runs", p.GetScheduledRuns())
	s.Failures = r.uint32Counter(field+".consecutive_failures", p.GetConsecutiveFailures())
	s.LastOutcome, s.LastError = outcomes.FromPB(p.GetLastOutcome()), p.GetLastError()
	s.LastStarted = r.Millis(field+".last_start_time", p.GetLastStartTime())
	s.LastFinished = r.Millis(field+".last_finish_time", p.GetLastFinishTime())
	s.Runs = r.uint64Counter(field+".runs_total", p.GetRunsTotal())
	s.Succeeded = r.uint64Counter(field+".succeeded_total", p.GetSucceededTotal())
	s.Dead = r.uint64Counter(field+".dead_total", p.GetDeadTotal())
	s.Lost = r.uint64Counter(field+".lost_total", p.GetLostTotal())
	s.TimedOut = r.uint64Counter(field+".timeout_total", p.GetTimeoutTotal())
	s.Skipped = r.uint64Counter(field+".skipped_total", p.GetSkippedTotal())
	s.Recent = p.GetRecentRequestIds()
	for i, b := range p.GetBackfills() {
		s.Backfills = append(s.Backfills, r.keptBackfill(field+".backfills["+strconv.Itoa(i)+"]", b))
	}
	s.Pending = p.GetWaitingRequestId()
	for _, child := range cp.Children {
		if s.Pending != "" && child.State.ManualID == s.Pending && child.State.Trigger == job.TriggerManual &&
			child.Slot >= 0 && child.Slot < job.MaxConcurrentRuns {
			s.Waiting, s.PendingMode = uint8(child.Slot)+1, child.State.Mode
		}
	}
	r.keptRegion(field, s, p)
}

// keptRegion reads the run. Without a run the stated state of the job decides where the job belongs.
func (r *Reader) keptRegion(field string, s *job.State, p *fermatav1.Checkpoint) {
	status := JobStates.FromPB(p.GetState())
	planned := status == job.StatusScheduled || status == job.StatusPaused
	switch {
	case p.GetRun() != nil:
		r.keptRun(field+".run", s, p.GetRun())
		s.Region = job.RegionDue
		if s.Paused && s.Trigger != job.TriggerManual {
			s.Region = job.RegionPaused
		}
		if !planned {
			r.Reject(field+".state", "does not fit a job that has a run: want STATE_SCHEDULED or STATE_PAUSED")
		}
	case status == job.StatusDead:
		s.Region = job.RegionDead
	default:
		s.Region = job.RegionDone
		if status != job.StatusDone && !(status == job.StatusPaused && s.Paused) {
			r.Reject(field+".state",
				"does not fit a job that has no run: want STATE_DEAD, STATE_DONE, or STATE_PAUSED with pause_time")
		}
	}
}

func (r *Reader) keptRun(field string, s *job.State, p *fermatav1.CheckpointRun) {
	s.Trigger, s.ManualID, s.Mode = triggers.FromPB(p.GetTrigger()), p.GetRequestId(), BackoffModes.FromPB(p.GetBackoff())
	s.Generation = r.uint32Counter(field+".generation", p.GetGeneration())
	s.Nominal, s.Due = r.Millis(field+".nominal_time", p.GetNominalTime()), r.Millis(field+".due_time", p.GetDueTime())
	s.Source = delaySources.FromPB(p.GetDelaySource())
	s.Attempt = r.uint32Counter(field+".attempts", int64(p.GetAttempts()))
	s.FirstMS = r.Millis(field+".first_start_time", p.GetFirstStartTime())
	if h := p.GetHold(); h != nil {
		s.Held = job.Hold{
			Reason: holdReasons.FromPB(h.GetReason()), Key: h.GetKey(), By: h.GetBlockedBy(),
			SinceMS: r.Millis(field+".hold.since_time", h.GetSinceTime()),
			DueMS:   r.Millis(field+".hold.due_time", h.GetDueTime()),
		}
	}
	s.Recovery, s.Paced = p.GetRecovery(), p.GetPaced()
	s.Losses = r.uint32Counter(field+".losses", int64(p.GetLostAttempts()))
	s.Unacked = r.uint32Counter(field+".undelivered", int64(p.GetUndelivered()))
	if p.GetIgnoreExclusions() {
		s.Exempt = []string{s.RunID()}
	}
}

func (r *Reader) keptBackfill(field string, p *fermatav1.CheckpointBackfill) job.Backfill {
	b := job.Backfill{
		ID: p.GetId(), NextMS: r.Millis(field+".next_time", p.GetNextTime()),
		ToMS:        r.Millis(field+".end_time", p.GetEndTime()),
		Concurrency: uint8(max(0, min(p.GetConcurrency(), 255))),
	}
	for _, slot := range p.GetSlots() {
		if slot < 0 || slot >= job.MaxConcurrentRuns {
			r.Reject(field+".slots", "has entries that are not from 0 to 63")
			break
		}
		b.Slots |= 1 << slot
	}
	return b
}

// keptLetter reads a dead letter. Of the names only the last parts count: the job
// may have come from another namespace.
func (r *Reader) keptLetter(field string, p *fermatav1.DeadLetter) job.CheckpointDeadLetter {
	run := p.GetRun()
	l := job.CheckpointDeadLetter{
		Slot: job.LetterOfJob, ExpireMS: job.NeverMS, Own: r.readRunPayload(run.GetOwnPayload()),
		Run: job.Run{
			ID: LastSegment(run.GetName()), Trigger: triggers.FromPB(run.GetTrigger()),
			NominalMS:  r.Millis(field+".run.nominal_time", run.GetNominalTime()),
			DueMS:      r.Millis(field+".run.due_time", run.GetDueTime()),
			StartedMS:  r.Millis(field+".run.start_time", run.GetStartTime()),
			FinishedMS: r.Millis(field+".run.finish_time", run.GetFinishTime()),
			Attempts:   r.uint32Counter(field+".run.attempts", int64(run.GetAttempts())),
			Losses:     r.uint32Counter(field+".run.losses", int64(run.GetLostAttempts())),
			Outcome:    outcomes.FromPB(run.GetOutcome()), Error: run.GetError(),
			Output: run.GetOutput(), Worker: run.GetWorker(),
			AttemptLog: r.attempts(field+".run.attempt_log", run.GetAttemptLog()),
		},
	}
	if p.GetExpireTime() != nil {
		l.ExpireMS = r.Millis(field+".expire_time", p.GetExpireTime())
	}
	l.Queue, l.Binding = p.GetQueue(), bindingFromPB(run.GetOwnPayload().GetBinding())
	if slot := LastSegment(p.GetName()); slot != letterOfJob {
		n, err := strconv.Atoi(slot)
		if err != nil || n < 0 {
			n = job.DeadLettersPerJob // out of bounds all the same
		}
		l.Slot = n
	}
	return l
}

func LastSegment(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

// Millis reads an instant as Unix milliseconds, 0 where it is unset.
func (r *Reader) Millis(field string, t *timestamppb.Timestamp) unixtime.Milli {
	at := r.End(field, "", t)
	if at.IsZero() {
		return 0
	}
	return unixtime.MilliOf(at)
}

// Counters of a backup end at half of what is stored or shown, so that none overflows where it counts on.
const (
	maxUint32Counter = math.MaxInt32
	maxUint64Counter = math.MaxInt64 / 2
)

// uint32Counter reads a number that is stored in 32 bits.
func (r *Reader) uint32Counter(field string, n int64) uint32 {
	if n < 0 || n > maxUint32Counter {
		r.Reject(field, "is out of range")
		return 0
	}
	return uint32(n)
}

// uint64Counter reads a number that only grows.
func (r *Reader) uint64Counter(field string, n int64) uint64 {
	if n < 0 || n > maxUint64Counter {
		r.Reject(field, "is out of range")
		return 0
	}
	return uint64(n)
}

func BackupToPB(b job.Backup) *fermatav1.JobBackup {
	p := &fermatav1.JobBackup{Job: DefinitionToPB(&b.Definition), Warnings: b.Warnings}
	if b.Checkpoint != nil {
		p.Checkpoint = checkpointToPB(b.Definition.Key, b.Checkpoint)
	}
	if b.Definition.Revision > 1 {
		p.Revisions = exportedRevisions(&b)
	}
	return p
}

var ExistingPolicies = Enum[fermatav1.RestoreJobsRequest_Existing, job.Existing]{
	{fermatav1.RestoreJobsRequest_EXISTING_UNSPECIFIED, job.ExistingFail},
	{fermatav1.RestoreJobsRequest_EXISTING_FAIL, job.ExistingFail},
	{fermatav1.RestoreJobsRequest_EXISTING_SKIP, job.ExistingSkip},
	{fermatav1.RestoreJobsRequest_EXISTING_REPLACE, job.ExistingReplace},
}

var RestoreOutcomes = Enum[fermatav1.RestoreJobsResponse_Result_Outcome, job.RestoreOutcome]{
	{fermatav1.RestoreJobsResponse_Result_OUTCOME_CREATED, job.RestoreCreated},
	{fermatav1.RestoreJobsResponse_Result_OUTCOME_UNCHANGED, job.RestoreUnchanged},
	{fermatav1.RestoreJobsResponse_Result_OUTCOME_SKIPPED, job.RestoreSkipped},
	{fermatav1.RestoreJobsResponse_Result_OUTCOME_REPLACED, job.RestoreReplaced},
}

// BackupFromPB reads a job with its checkpoint into a namespace. defaults may be nil.
func BackupFromPB(defaults *backoff.Defaults, namespace string, p *fermatav1.JobBackup) (job.Backup, error) {
	name := p.GetJob().GetName()
	key := job.Key{Namespace: namespace, ID: LastSegment(name)}
	if key.ID == "" {
		return job.Backup{}, job.Invalid("job.name", "is empty")
	}
	r := Reader{Defaults: defaults}
	b := job.Backup{Definition: r.Definition(key, p.GetJob())}
	b.Definition.PayloadKey = p.GetJob().GetPayloadKeyId()
	if p.GetJob().GetPayloadSealed() && b.Definition.PayloadKey == "" {
		r.Reject("job.payload_key_id", "is missing: the payload is sealed")
	}
	if p.GetCheckpoint() != nil {
		b.Checkpoint = r.readCheckpoint("checkpoint", p.GetCheckpoint())
	}
	r.readRevisions(&b, p.GetRevisions())
	return b, r.Err()
}
