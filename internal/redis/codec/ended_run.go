package codec

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// EncodeEndedRun encodes an entry of the index of unsuccessful runs. The index has its namespace, queue and end.
func EncodeEndedRun(r *job.EndedRun) ([]byte, error) {
	text, err := deterministic.Marshal(&storagev1.EndedRun{
		JobId: r.Key.ID, RunId: r.ID, Outcome: uint32(r.Outcome), LastAttempt: uint32(r.LastAttempt),
		Trigger: uint32(r.Trigger), Attempts: r.Attempts, Losses: r.Losses, Error: r.Error,
		NominalBeforeMs: beforeEnd(r, r.NominalMS), DueBeforeMs: beforeEnd(r, r.DueMS),
		StartedBeforeMs: beforeEnd(r, r.StartedMS),
	})
	if err != nil {
		return nil, fmt.Errorf("ended run %q: %w", r.ID, err)
	}
	return text, nil
}

// beforeEnd returns how long before the end of a run an instant is; nil if the instant is unknown.
func beforeEnd(r *job.EndedRun, at unixtime.Milli) *int64 {
	if at == 0 {
		return nil
	}
	return proto.Int64(int64(r.FinishedMS - at))
}

// DecodeEndedRun undoes [EncodeEndedRun] for an entry of a queue with this end.
func DecodeEndedRun(text string, queue job.QueueKey, end unixtime.Milli) (*job.EndedRun, error) {
	var m storagev1.EndedRun
	err := proto.Unmarshal([]byte(text), &m)
	key := job.Key{Namespace: queue.Namespace, ID: m.GetJobId()}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: ended run: %w", ErrCorrupt, err)
	case len(job.ValidateKey(key)) > 0 || m.GetRunId() == "":
		return nil, fmt.Errorf("%w: ended run: it names no run", ErrCorrupt)
	}
	at := func(before *int64) unixtime.Milli {
		if before == nil {
			return 0
		}
		return end - unixtime.Milli(*before)
	}
	return &job.EndedRun{
		Key: key, Queue: queue.Queue, LastAttempt: outcomeOf(m.GetLastAttempt()),
		Run: job.Run{
			ID: m.GetRunId(), Trigger: job.Trigger(min(m.GetTrigger(), uint32(job.TriggerBackfill))),
			NominalMS: at(m.NominalBeforeMs), DueMS: at(m.DueBeforeMs), StartedMS: at(m.StartedBeforeMs),
			FinishedMS: end, Attempts: m.GetAttempts(), Losses: m.GetLosses(), Outcome: outcomeOf(m.GetOutcome()),
			Error: m.GetError(),
		},
	}, nil
}

func outcomeOf(stored uint32) job.Outcome {
	return job.Outcome(min(stored, uint32(job.OutcomeCancelled)))
}
