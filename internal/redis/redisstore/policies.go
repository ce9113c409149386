package redisstore

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/lib/protofield"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// maxHistory bounds the history slots of a record.
const maxHistory = 100

func encodeRetry(r backoff.Retry) *storagev1.Retry {
	return &storagev1.Retry{
		Strategy:     uint32(r.Strategy),
		BaseMs:       r.Base.Milliseconds(),
		Multiplier:   r.Multiplier,
		Offset:       uint32(r.Offset),
		MaxDoublings: uint32(r.MaxDoublings),
		MaxDelayMs:   r.MaxDelay.Milliseconds(),
		MaxAttempts:  uint32(r.MaxAttempts),
		MaxElapsedMs: r.MaxElapsed.Milliseconds(),
		Jitter:       encodeJitter(r.Jitter),
	}
}

func decodeRetry(m *storagev1.Retry) backoff.Retry {
	return backoff.Retry{
		Strategy:     backoff.Strategy(min(m.GetStrategy(), 255)),
		Base:         duration(m.GetBaseMs()),
		Multiplier:   m.GetMultiplier(),
		Offset:       int(m.GetOffset()),
		MaxDoublings: int(m.GetMaxDoublings()),
		MaxDelay:     duration(m.GetMaxDelayMs()),
		MaxAttempts:  int(m.GetMaxAttempts()),
		MaxElapsed:   duration(m.GetMaxElapsedMs()),
		Jitter:       decodeJitter(m.GetJitter()),
	}
}

func encodeRecurring(r backoff.Recurring) *storagev1.Recurring {
	return &storagev1.Recurring{
		Disabled:     r.Disabled,
		Multiplier:   r.Multiplier,
		MaxExponent:  uint32(r.MaxExponent),
		MaxDelayMs:   r.MaxDelay.Milliseconds(),
		MaxRatio:     r.MaxRatio,
		Jitter:       encodeJitter(r.Jitter),
		StaleAfterMs: r.StaleAfter.Milliseconds(),
		StaleHalve:   r.StaleHalve,
		WithinSlot:   r.WithinSlot,
	}
}

func decodeRecurring(m *storagev1.Recurring) backoff.Recurring {
	return backoff.Recurring{
		Disabled:    m.GetDisabled(),
		Multiplier:  m.GetMultiplier(),
		MaxExponent: int(m.GetMaxExponent()),
		MaxDelay:    duration(m.GetMaxDelayMs()),
		MaxRatio:    m.GetMaxRatio(),
		Jitter:      decodeJitter(m.GetJitter()),
		StaleAfter:  duration(m.GetStaleAfterMs()),
		StaleHalve:  m.GetStaleHalve(),
		WithinSlot:  m.GetWithinSlot(),
	}
}

func encodeMisfire(m job.Misfire) *storagev1.Misfire {
	if m == (job.Misfire{}) {
		return nil
	}
	return &storagev1.Misfire{Policy: uint32(m.Policy), WindowMs: m.Window.Milliseconds(), MaxCatchUp: uint32(m.MaxCatchUp)}
}

func decodeMisfire(m *storagev1.Misfire) job.Misfire {
	return job.Misfire{
		Policy: job.MisfirePolicy(min(m.GetPolicy(), 255)), Window: duration(m.GetWindowMs()), MaxCatchUp: int(m.GetMaxCatchUp()),
	}
}

func encodeLocks(locks []job.Lock) []*storagev1.Lock {
	var out []*storagev1.Lock
	for _, l := range locks {
		out = append(out, &storagev1.Lock{Key: l.Key, Limit: uint32(l.Limit)})
	}
	return out
}

func decodeLocks(locks []*storagev1.Lock) []job.Lock {
	var out []job.Lock
	for _, l := range locks {
		out = append(out, job.Lock{Key: l.GetKey(), Limit: int(l.GetLimit())})
	}
	return out
}

// encodeRun writes an ended run for the history, as protobuf would write it. There is
// one for each run, so that it is written by hand.
func encodeRun(r *job.Run) ([]byte, error) {
	return appendRun(make([]byte, 0, 64+len(r.ID)+len(r.Error)+len(r.Output)+len(r.Worker)), r)
}

// appendRun is encodeRun at the end of b.
func appendRun(b []byte, r *job.Run) ([]byte, error) {
	if !utf8.ValidString(r.ID) || !utf8.ValidString(r.Error) || !utf8.ValidString(r.Worker) {
		return b, fmt.Errorf("run %q: text is not UTF-8", r.ID)
	}
	b = protofield.AppendText(b, 1, r.ID)
	b = protofield.AppendInt(b, 2, int64(r.Trigger))
	b = protofield.AppendInt(b, 3, r.NominalMS)
	b = protofield.AppendInt(b, 4, r.DueMS)
	b = protofield.AppendInt(b, 5, r.StartedMS)
	b = protofield.AppendInt(b, 6, r.FinishedMS)
	b = protofield.AppendInt(b, 7, int64(r.Attempts))
	b = protofield.AppendInt(b, 8, int64(r.Losses))
	b = protofield.AppendInt(b, 9, int64(r.Outcome))
	b = protofield.AppendText(b, 10, r.Error)
	b = protofield.AppendText(b, 11, r.Output)
	b = protofield.AppendText(b, 12, r.Worker)
	return protofield.AppendText(b, 60, encodeTraceID(r.Caller)), nil
}

func decodeRun(text string) (job.Run, error) {
	var m storagev1.Run
	if err := proto.Unmarshal([]byte(text), &m); err != nil {
		return job.Run{}, fmt.Errorf("%w: run: %w", errCorrupt, err)
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
