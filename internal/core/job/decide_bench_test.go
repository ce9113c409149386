package job

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"github.com/fermata-io/fermata/internal/core/schedule"
)

// BenchmarkDecide compiles a one-time job and decides what its attempt's end means, as the
// ledger does for each.
func BenchmarkDecide(b *testing.B) {
	d := &Definition{
		Key: Key{Namespace: "default", ID: "a-0000000000000000010973"}, Revision: 1, CreatedMS: 1,
		Schedule: schedule.Spec{Kind: schedule.KindOnce, At: time.UnixMilli(1_800_000_000_000)},
		Retry:    backoff.Retry{Strategy: backoff.Fixed, Base: time.Second, MaxAttempts: 3, Jitter: backoff.DefaultJitter()},
	}
	s := State{Region: RegionLeased, Token: 77, Revision: 1, Trigger: TriggerSchedule, Nominal: 1_800_000_000_000, Due: 1_800_000_000_000}
	for _, outcome := range []Outcome{OutcomeSucceeded, OutcomeFailed} {
		b.Run(outcome.String(), func(b *testing.B) {
			ev := FinishAttempt{Token: 77, StartedMS: 1_800_000_000_100, Outcome: outcome}
			decision := Decision{}
			b.ReportAllocs()
			for b.Loop() {
				c, err := Compile(d)
				if err != nil {
					b.Fatal(err)
				}
				decision = Decision{Notices: decision.Notices[:0]}
				if DecideInto(&decision, c, &s, ev, 1_800_000_000_200); !decision.Changed {
					b.Fatal("nothing was decided")
				}
			}
		})
	}
}
