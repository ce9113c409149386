package codec

import (
	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/job"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

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
		Base:         durationOfMS(m.GetBaseMs()),
		Multiplier:   m.GetMultiplier(),
		Offset:       int(m.GetOffset()),
		MaxDoublings: int(m.GetMaxDoublings()),
		MaxDelay:     durationOfMS(m.GetMaxDelayMs()),
		MaxAttempts:  int(m.GetMaxAttempts()),
		MaxElapsed:   durationOfMS(m.GetMaxElapsedMs()),
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
		MaxDelay:    durationOfMS(m.GetMaxDelayMs()),
		MaxRatio:    m.GetMaxRatio(),
		Jitter:      decodeJitter(m.GetJitter()),
		StaleAfter:  durationOfMS(m.GetStaleAfterMs()),
		StaleHalve:  m.GetStaleHalve(),
		WithinSlot:  m.GetWithinSlot(),
	}
}

func encodeMisfire(m job.Misfire) *storagev1.Misfire {
	if m == (job.Misfire{}) {
		return nil
	}
	return &storagev1.Misfire{Policy: uint32(m.Policy), WindowMs: m.Window.Milliseconds(),
		MaxCatchUp: uint32(m.MaxCatchUp)}
}

func decodeMisfire(m *storagev1.Misfire) job.Misfire {
	return job.Misfire{
		Policy: job.MisfirePolicy(min(m.GetPolicy(), 255)), Window: durationOfMS(m.GetWindowMs()),
		MaxCatchUp: int(m.GetMaxCatchUp()),
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
