package job

import (
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/schedule"
	"github.com/fermata-io/fermata/internal/core/unixtime"
)

// TestCountingThePastCompilesOnce: the grid of an interval before its creation is made once for all
// times of a backfill, as to make it costs far more than to ask it.
func TestCountingThePastCompilesOnce(t *testing.T) {
	d := WithDefaults(Definition{Key: Key{Namespace: "n", ID: "j"}, Handler: "h", Generation: 1, AnchorMS: 1_800_000_000_123})
	d.Schedule = schedule.Spec{Kind: schedule.KindInterval, Every: time.Minute, Exclude: schedule.Exclusions{Cron: []string{"* 0-5 * * *", "1 1 29 2 *"}, Dates: []string{"12-25"}}}
	c, err := Compile(&d)
	if err != nil {
		t.Fatal(err)
	}
	count := func(n int) (allocations float64) {
		to := int64(d.AnchorMS - unixtime.Milli(time.Hour.Milliseconds()))
		return testing.AllocsPerRun(5, func() {
			if got, ok := c.PastTimes(unixtime.Milli(to)-unixtime.Milli(int64(n)*time.Minute.Milliseconds()), unixtime.Milli(to), 10_000); !ok || got == 0 {
				t.Fatalf("%d of %d, %v", got, n, ok)
			}
		})
	}
	if few, many := count(600), count(6000); many > 2*few+10 {
		t.Errorf("%v allocations for 600 minutes and %v for 6,000", few, many)
	}
	// The grid goes on as it is after the creation.
	before, _ := c.PastTimes(d.AnchorMS-600_000, d.AnchorMS+600_000, 100)
	first, _ := c.PastTimes(d.AnchorMS-600_000, d.AnchorMS, 100)
	second, _ := c.PastTimes(d.AnchorMS, d.AnchorMS+600_000, 100)
	if before != first+second || before < 19 {
		t.Errorf("%d times around the creation, %d before and %d after it", before, first, second)
	}
}
