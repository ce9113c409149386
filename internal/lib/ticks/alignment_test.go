package ticks

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTurnsAreWholePeriodsSinceTheOrigin(t *testing.T) {
	origin := time.Now()
	for _, c := range []struct{ at, period, want time.Duration }{
		{0, time.Second, time.Second},
		{300 * time.Millisecond, time.Second, 700 * time.Millisecond},
		{time.Second, time.Second, time.Second},
		{2*time.Second + 1, time.Second, time.Second - 1},
		{7400 * time.Millisecond, 5 * time.Second, 2600 * time.Millisecond},
	} {
		if got := Since(origin).UntilNext(origin.Add(c.at), c.period); got != c.want {
			t.Errorf("%v after the origin the next turn of a period of %v is in %v, want %v", c.at, c.period, got,
				c.want)
		}
	}
	if got := (Alignment{}).UntilNext(origin, time.Second); got != time.Second {
		t.Errorf("without an origin the next turn is in %v", got)
	}
}

// Whenever they are asked, works whose periods divide one another have turns together: each
// turn of the longer period is one of the shorter.
func TestWorkFallsTogether(t *testing.T) {
	origin := time.Now()
	rapid.Check(t, func(t *rapid.T) {
		period := time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "period"))
		times := time.Duration(rapid.Int64Range(1, 60).Draw(t, "times"))
		now := origin.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "now")))
		c := Since(origin)
		long := c.UntilNext(now, times*period)
		if long <= 0 || long > times*period {
			t.Fatalf("the next turn is in %v", long)
		}
		before := now.Add(long - 1) // the shorter period's next turn is the same instant
		if short := c.UntilNext(before, period); short != 1 {
			t.Fatalf("just before it the shorter one's is in %v", short)
		}
	})
}
