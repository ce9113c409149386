package limits

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/fermata-io/fermata/internal/core/job"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"github.com/fermata-io/fermata/internal/redis/codec"
	"github.com/fermata-io/fermata/internal/redis/runner"
)

// Bounds of a RateRequest.
const (
	maxRateN        = 1_000_000
	maxRateBurst    = 1_000_000
	maxRateInterval = 24 * time.Hour
)

// TakeRate takes starts of rate limits, by the generic cell rate algorithm in the
// microsecond clock of the limit's home shard. After a rest Burst starts (at least
// 1) may happen at once, and one every Interval (1 ns to 24 h) in the long run.
//
// It grants what may start now, up to N (at most a million either way); AtMS is when
// one more may. With Reserve it takes all N, however far ahead, and AtMS is when the
// first may start; what would be more than 100 days ahead gets that instant. A
// negative N gives starts back, never more than a full burst. With 0 it only looks.
//
// Asks of one name may differ in Interval and Burst, as they do while settings
// change; what is taken ahead is then rescaled to the new interval.
//
// An idle limit takes no memory. Rate limits are not confirmed to the durability
// class: a failover may forget some starts. A repeat of a call whose answer was lost
// is recognised unless eight others came in between; it then counts twice.
func (s *Store) TakeRate(ctx context.Context, asks []job.RateRequest) []job.RateGrant {
	items := make([]limitItem, len(asks))
	id := rand.Text()[:8]
	for i, a := range asks {
		items[i] = limitItem{
			name: a.Name,
			argv: []any{id + codec.FixedWidth(uint64(i%10_000), 4), a.N, a.Interval.Nanoseconds(), max(1, a.Burst),
				runner.FlagText(a.Reserve)},
			err: validateRateAsk(a),
		}
	}
	grants := make([]job.RateGrant, len(asks))
	for i, a := range s.runLimitItems(ctx, s.scripts.rate, items, "rate:") {
		grants[i].Err = a.err
		if a.complete() {
			grants[i] = job.RateGrant{N: int(a.IntAt(0)), AtMS: unixtime.Milli(a.IntAt(1)), NowMS: unixtime.Milli(a.nowMS)}
		}
	}
	return grants
}

func validateRateAsk(a job.RateRequest) error {
	if err := validateLimitNames(a.Name); err != nil {
		return err
	}
	if a.N < -maxRateN || a.N > maxRateN || a.Burst > maxRateBurst || a.Interval < 1 || a.Interval > maxRateInterval {
		return fmt.Errorf("rate limit %.64q: %d starts, one in %v, burst %d: out of range",
			a.Name, a.N, a.Interval, a.Burst)
	}
	return nil
}
