package codec

import (
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	storagev1 "github.com/fermata-io/fermata/proto/fermata/storage/v1"
)

// unixMS encodes an instant; 0 means unset.
func unixMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func timeOfMS(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// durationOfMS converts stored milliseconds to a duration. Values that do not fit, which are never
// written, become the longest or shortest duration.
func durationOfMS(ms int64) time.Duration {
	const longest = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(max(-longest, min(ms, longest))) * time.Millisecond
}

// durationOfSeconds is durationOfMS for stored seconds.
func durationOfSeconds(s int64) time.Duration {
	const longest = int64(1<<63-1) / int64(time.Second)
	return time.Duration(max(-longest, min(s, longest))) * time.Second
}

func encodeJitter(j backoff.Jitter) *storagev1.Jitter {
	if j == (backoff.Jitter{}) {
		return nil
	}
	return &storagev1.Jitter{Kind: uint32(j.Kind), Fraction: j.Fraction}
}

func decodeJitter(m *storagev1.Jitter) backoff.Jitter {
	return backoff.Jitter{Kind: backoff.JitterKind(min(m.GetKind(), 255)), Fraction: m.GetFraction()}
}
