package lease_test

import (
	"math"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"pgregory.net/rapid"
)

func TestWindow(t *testing.T) {
	start := time.Unix(1_767_225_600, 0)
	const s = time.Second
	for _, c := range []struct {
		ttl, margin, after, want time.Duration
	}{
		{10 * s, s, 0, 9 * s},
		{10 * s, s, 4 * s, 5 * s},
		{10 * s, s, 9*s - 1, 1},
		{10 * s, s, 9 * s, 0},
		{10 * s, s, time.Hour, 0},
		{10 * s, s, -time.Hour, 9 * s}, // never more than the whole
		{10 * s, 0, 10*s - 1, 1},
		{10 * s, 11 * s, 0, 0},
		{10 * s, -s, 0, 10 * s},
		{-10 * s, s, 0, 0},
		{math.MaxInt64, s, time.Hour, math.MaxInt64 - time.Hour - s},
	} {
		w, now := lease.NewWindow(start, c.ttl, c.margin), start.Add(c.after)
		if got := w.Remaining(now); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
		if got := w.Valid(now); got != (c.want > 0) {
			t.Errorf("%+v: valid is %v", c, got)
		}
	}
	if (lease.Window{}).Valid(start) {
		t.Error("the zero window is valid")
	}
}

func TestWindowOnlyShrinks(t *testing.T) {
	start := time.Unix(0, 0)
	rapid.Check(t, func(t *rapid.T) {
		d := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, name))
		}
		ttl, margin, at, later := d("ttl"), d("margin"), d("at"), d("later")
		w := lease.NewWindow(start, ttl, margin)
		first, second := w.Remaining(start.Add(at)), w.Remaining(start.Add(at+later))
		if want := max(0, ttl-margin-at); first != want {
			t.Fatalf("%v, want %v", first, want)
		}
		if second > first || (second > 0 && first-second != later) {
			t.Fatalf("%v, then %v after %v", first, second, later)
		}
	})
}

func TestDeadline(t *testing.T) {
	for _, c := range []struct {
		now      unixtime.Milli
		ttl      time.Duration
		hardStop unixtime.Milli
		want     unixtime.Milli
	}{
		{1000, 10 * time.Second, 0, 11_000},
		{1000, 10 * time.Second, 20_000, 11_000},
		{1000, 10 * time.Second, 5_000, 5_000},
		{1000, 10 * time.Second, 500, 500},
		{1000, 1999 * time.Microsecond, 0, 1001},
		{1000, -time.Second, 0, 1000},
		{math.MaxInt64 - 5, time.Second, 0, math.MaxInt64},
	} {
		if got := lease.Deadline(c.now, c.ttl, c.hardStop); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestLossBounds(t *testing.T) {
	if lease.PoisonLosses != 3 || lease.UndeliveredBound != 6 {
		t.Error("the bounds are part of what users are told")
	}
}
