package codec

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/protofield"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// MaxHistory is the greatest number of ended runs that a record keeps.
const MaxHistory = 100

// EncodeRun writes an ended run for the history, as protobuf would write it. There is
// one for each run, so that it is written by hand.
func EncodeRun(r *job.Run) ([]byte, error) {
	return AppendRun(make([]byte, 0, 64+len(r.ID)+len(r.Error)+len(r.Output)+len(r.Worker)), r)
}

// AppendRun is encodeRun at the end of b.
func AppendRun(b []byte, r *job.Run) ([]byte, error) {
	if !utf8.ValidString(r.ID) || !utf8.ValidString(r.Error) || !utf8.ValidString(r.Worker) {
		return b, fmt.Errorf("run %q: text is not UTF-8", r.ID)
	}
	b = protofield.AppendText(b, fieldRunID, r.ID)
	b = protofield.AppendInt(b, fieldRunTrigger, int64(r.Trigger))
	b = protofield.AppendInt(b, fieldRunNominalMS, r.NominalMS)
	b = protofield.AppendInt(b, fieldRunDueMS, r.DueMS)
	b = protofield.AppendInt(b, fieldRunStartedMS, r.StartedMS)
	b = protofield.AppendInt(b, fieldRunFinishedMS, r.FinishedMS)
	b = protofield.AppendInt(b, fieldRunAttempts, int64(r.Attempts))
	b = protofield.AppendInt(b, fieldRunLosses, int64(r.Losses))
	b = protofield.AppendInt(b, fieldRunOutcome, int64(r.Outcome))
	b = protofield.AppendText(b, fieldRunError, r.Error)
	b = protofield.AppendText(b, fieldRunOutput, r.Output)
	b = protofield.AppendText(b, fieldRunWorker, r.Worker)
	return protofield.AppendText(b, fieldRunCallerTrace, encodeTraceID(r.Caller)), nil
}

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
