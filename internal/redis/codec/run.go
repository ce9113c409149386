package codec

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// MaxHistory is the greatest number of ended runs that a record keeps.
const MaxHistory = 100

// EncodeRun encodes an ended run for the history.
func EncodeRun(r *job.Run) ([]byte, error) { return AppendRun(nil, r) }

// AppendRun appends what [EncodeRun] returns to b.
func AppendRun(b []byte, r *job.Run) ([]byte, error) { return appendRun(b, new(storagev1.Run), r) }

// appendRun is [AppendRun] by way of a message that may have been used before.
func appendRun(b []byte, m *storagev1.Run, r *job.Run) ([]byte, error) {
	m.Id, m.Trigger, m.Outcome = r.ID, uint32(r.Trigger), uint32(r.Outcome)
	m.NominalMs, m.DueMs = int64(r.NominalMS), int64(r.DueMS)
	m.StartedMs, m.FinishedMs = int64(r.StartedMS), int64(r.FinishedMS)
	m.Attempts, m.Losses, m.Error, m.Output, m.Worker = r.Attempts, r.Losses, r.Error, r.Output, r.Worker
	m.CallerTrace, m.OwnPayload = encodeTraceID(r.Caller), payloadInfoToMessage(r.OwnPayload)
	m.AttemptLog = attemptLogToMessage(0, r.AttemptLog)
	encoded, err := deterministic.MarshalAppend(b, m)
	if err != nil {
		return b, fmt.Errorf("run %q: %w", r.ID, err)
	}
	return encoded, nil
}

// DecodeRun undoes [EncodeRun].
func DecodeRun(text string) (job.Run, error) {
	var m storagev1.Run
	if err := proto.Unmarshal([]byte(text), &m); err != nil {
		return job.Run{}, fmt.Errorf("%w: run: %w", ErrCorrupt, err)
	}
	return job.Run{
		ID:         m.Id,
		Trigger:    job.Trigger(min(m.Trigger, uint32(job.TriggerBackfill))),
		NominalMS:  unixtime.Milli(m.NominalMs),
		DueMS:      unixtime.Milli(m.DueMs),
		StartedMS:  unixtime.Milli(m.StartedMs),
		FinishedMS: unixtime.Milli(m.FinishedMs),
		Attempts:   m.Attempts,
		Losses:     m.Losses,
		Outcome:    job.Outcome(min(m.Outcome, uint32(job.OutcomeCancelled))),
		Error:      m.Error,
		Output:     m.Output,
		Worker:     m.Worker,
		Caller:     decodeTraceID(m.CallerTrace),
		OwnPayload: payloadInfoOfMessage(m.OwnPayload),
		AttemptLog: decodeAttemptLog(m.AttemptLog),
	}, nil
}
