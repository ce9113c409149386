package codec

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/job"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// MaxHistory is the greatest number of ended runs that a record keeps.
const MaxHistory = 100

// EncodeRun encodes an ended run for the history.
func EncodeRun(r *job.Run) ([]byte, error) { return AppendRun(nil, r) }

// AppendRun appends what [EncodeRun] returns to b.
func AppendRun(b []byte, r *job.Run) ([]byte, error) {
	encoded, err := deterministic.MarshalAppend(b, &storagev1.Run{
		Id: r.ID, Trigger: uint32(r.Trigger), NominalMs: r.NominalMS, DueMs: r.DueMS, StartedMs: r.StartedMS, FinishedMs: r.FinishedMS,
		Attempts: r.Attempts, Losses: r.Losses, Outcome: uint32(r.Outcome), Error: r.Error, Output: r.Output, Worker: r.Worker,
		CallerTrace: encodeTraceID(r.Caller),
	})
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
		NominalMS:  m.NominalMs,
		DueMS:      m.DueMs,
		StartedMS:  m.StartedMs,
		FinishedMS: m.FinishedMs,
		Attempts:   m.Attempts,
		Losses:     m.Losses,
		Outcome:    job.Outcome(min(m.Outcome, uint32(job.OutcomeCancelled))),
		Error:      m.Error,
		Output:     m.Output,
		Worker:     m.Worker,
		Caller:     decodeTraceID(m.CallerTrace),
	}, nil
}
