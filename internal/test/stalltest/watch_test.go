package stalltest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowTurnsAreSpans: two that are asked stand still, one of them inside of the
// other's time, and one is out of reach for a while. The watch's own beat goes on.
func TestSlowTurnsAreSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, began := Start(t), time.Now()
		at := func(after, length time.Duration) func(context.Context) error {
			var done atomic.Bool
			return func(context.Context) error {
				if time.Since(began) >= after && done.CompareAndSwap(false, true) {
					time.Sleep(length)
				}
				return nil
			}
		}
		w.Ask(Beat, at(time.Second, 3*time.Second))
		w.Ask(Beat, at(2*time.Second, time.Second))
		w.Ask(10*Beat, func(context.Context) error {
			if since := time.Since(began); since > 10*time.Second && since < 12*time.Second+10*Beat {
				return errors.New("out of reach")
			}
			return nil
		})
		time.Sleep(20 * time.Second)
		slack := func(d, want time.Duration) bool { return d >= want && d <= want+10*Beat+Tolerance }
		if n := len(w.Seen()); n != 3 {
			t.Errorf("%d spans, want 3: %v", n, w.Seen())
		}
		for from, want := range map[time.Duration]time.Duration{0: 5 * time.Second, 2 * time.Second: 4 * time.Second, 6 * time.Second: 2 * time.Second, 15 * time.Second: 0} {
			if got := w.Since(began.Add(from)); want == 0 && got != 0 || want != 0 && !slack(got, want) {
				t.Errorf("%v since %v, want about %v", got, from, want)
			}
		}
		if longest := w.Longest(began.Add(6 * time.Second)); !slack(longest, 2*time.Second) {
			t.Errorf("the longest since 6 s is %v", longest)
		}
	})
}
