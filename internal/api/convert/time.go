package convert

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// TimeToPB writes an instant, zero as unset.
func TimeToPB(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// MillisToPB writes Unix milliseconds, zero and never as unset.
func MillisToPB(ms unixtime.Milli) *timestamppb.Timestamp {
	if ms == 0 || ms >= job.NeverMS {
		return nil
	}
	return timestamppb.New(ms.Time())
}

// nonZeroDurationToPB writes a duration, zero as unset.
func nonZeroDurationToPB(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// DurationsToPB writes a list of durations.
func DurationsToPB(list []time.Duration) []*durationpb.Duration { return Map(list, durationpb.New) }

func msToDuration(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
