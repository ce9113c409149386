package codec

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// EncodeQueueSettings encodes the settings of a queue; the zero value has no bytes.
func EncodeQueueSettings(q job.QueueSettings) ([]byte, error) {
	if q.MaxConcurrency < 0 || q.MaxConcurrency > math.MaxInt32 || q.Burst < 0 || q.Burst > math.MaxInt32 ||
		!isValidRate(q.Rate) || !isValidRate(q.RecoveryRate) || q.PauseUntilMS < 0 {
		return nil, fmt.Errorf("queue settings %+v: a number is out of range", q)
	}
	b, err := deterministic.Marshal(&storagev1.QueueSettings{
		MaxConcurrency: uint32(q.MaxConcurrency), Rate: q.Rate, Burst: uint32(q.Burst), RecoveryRate: q.RecoveryRate,
		Paused: q.Paused, PauseUntilMs: int64(q.PauseUntilMS),
	})
	if err != nil {
		return nil, fmt.Errorf("queue settings: %w", err)
	}
	return b, nil
}

// DecodeQueueSettings undoes [EncodeQueueSettings].
func DecodeQueueSettings(text string) (job.QueueSettings, error) {
	var m storagev1.QueueSettings
	if err := proto.Unmarshal([]byte(text), &m); err != nil {
		return job.QueueSettings{}, fmt.Errorf("%w: queue settings: %w", ErrCorrupt, err)
	}
	if !isValidRate(m.Rate) || !isValidRate(m.RecoveryRate) || max(m.MaxConcurrency, m.Burst) > math.MaxInt32 ||
		m.PauseUntilMs < 0 {
		return job.QueueSettings{}, fmt.Errorf("%w: queue settings: a number is out of range", ErrCorrupt)
	}
	return job.QueueSettings{
		MaxConcurrency: int(m.MaxConcurrency), Rate: m.Rate, Burst: int(m.Burst), RecoveryRate: m.RecoveryRate,
		Paused: m.Paused, PauseUntilMS: unixtime.Milli(m.PauseUntilMs),
	}, nil
}

// isValidRate refuses NaN as well.
func isValidRate(r float64) bool { return r >= 0 && !math.IsInf(r, 1) }
