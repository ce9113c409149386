package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
	"pgregory.net/rapid"
)

var kinds = []backoff.JitterKind{
	backoff.JitterDown, backoff.JitterNone, backoff.JitterProportional,
	backoff.JitterSpread, backoff.JitterFull, backoff.JitterEqual,
}

func drawJitter() *rapid.Generator[backoff.Jitter] {
	return rapid.Custom(func(t *rapid.T) backoff.Jitter {
		return backoff.Jitter{
			Kind:     rapid.SampledFrom(kinds).Draw(t, "kind"),
			Fraction: rapid.Float64Range(0, 1).Draw(t, "fraction"),
		}
	})
}

// drawDuration favours the ends: around zero and around the largest.
func drawDuration() *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		small := rapid.Int64Range(0, int64(48*time.Hour)).Draw(t, "small")
		switch rapid.IntRange(0, 3).Draw(t, "range") {
		case 0:
			return math.MaxInt64 - time.Duration(small)
		case 1:
			return time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "any"))
		default:
			return time.Duration(small)
		}
	})
}

// bounds of a kind, computed in floating point, with its error.
func bounds(j backoff.Jitter, d time.Duration) (low, high float64) {
	f, p := float64(d), j.Fraction
	switch j.Kind {
	case backoff.JitterDown:
		low, high = f*(1-p), f
	case backoff.JitterProportional:
		low, high = f*(1-p), f*(1+p)
	case backoff.JitterSpread:
		low, high = f*0.5, f*1.5
	case backoff.JitterFull:
		low, high = 0, f
	case backoff.JitterEqual:
		low, high = f/2, f
	default:
		low, high = f, f
	}
	const slack = 1e-12
	return low*(1-slack) - 1 - f*slack, high*(1+slack) + 1
}

func TestJitterStaysInItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := drawJitter().Draw(t, "jitter")
		d, limit := drawDuration().Draw(t, "d"), drawDuration().Draw(t, "cap")
		seed := rapid.Uint64().Draw(t, "seed")
		got := j.Apply(d, limit, seed)
		if again := j.Apply(d, limit, seed); again != got {
			t.Fatalf("%v, then %v", got, again)
		}
		if got < 0 {
			t.Fatalf("negative: %v", got)
		}
		capped := d
		if limit > 0 {
			capped = min(d, limit)
			if j.Kind != backoff.JitterProportional && got > limit {
				t.Fatalf("%v is above the cap %v", got, limit)
			}
		}
		if low, high := bounds(j, capped); float64(got) < low || float64(got) > high {
			t.Fatalf("%v is outside [%v, %v]", got, time.Duration(low), time.Duration(high))
		}
	})
}

// Each kind is even over its range: ten bins of equal width hold a tenth each,
// for waits below the cap and for waits on it.
func TestJitterIsEven(t *testing.T) {
	const draws, d = 50_000, time.Hour
	for _, kind := range kinds {
		if kind == backoff.JitterNone {
			continue
		}
		j := backoff.Jitter{Kind: kind, Fraction: 0.1}
		low, high := map[backoff.JitterKind]float64{
			backoff.JitterDown: 0.9, backoff.JitterProportional: 0.9, backoff.JitterSpread: 0.5, backoff.JitterEqual: 0.5,
		}[kind], 1.0
		switch kind {
		case backoff.JitterProportional:
			high = 1.1
		case backoff.JitterSpread:
			high = 1.5
		}
		var bins [10]int
		for i := range int64(draws) {
			x := float64(j.Apply(d, 0, backoff.Seed("ns/job", i/3, i%3))) / float64(d)
			bins[min(int((x-low)/(high-low)*10), 9)]++
		}
		for i, n := range bins {
			if n < draws/10*94/100 || n > draws/10*106/100 {
				t.Errorf("%v: bin %d holds %d of %d: %v", kind, i, n, draws, bins)
			}
		}
	}
}

// The default jitter neither passes the cap nor piles up on it, however far the
// curve has passed it.
func TestDefaultJitterSpreadsCappedWaits(t *testing.T) {
	const draws, limit = 50_000, time.Hour
	on := map[time.Duration]int{}
	top := 0
	for i := range int64(draws) {
		d := backoff.DefaultJitter().Apply(100*limit, limit, backoff.Seed("job", i, 9))
		if d > limit {
			t.Fatalf("%v is above the cap", d)
		}
		if d > limit-limit/1000 { // a hundredth of the range of 10 %
			top++
		}
		on[d]++
	}
	for d, n := range on {
		if n > 2 {
			t.Errorf("%d waits of %v", n, d)
		}
	}
	if top < draws/100*80/100 || top > draws/100*120/100 {
		t.Errorf("%d of %d in the last hundredth below the cap", top, draws)
	}
}

func TestJitterEdges(t *testing.T) {
	for _, kind := range kinds {
		j := backoff.Jitter{Kind: kind, Fraction: 0.5}
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			if got := j.Apply(d, time.Second, 1); got != 0 {
				t.Errorf("%v of %v is %v", kind, d, got)
			}
		}
	}
	if got := (backoff.Jitter{}).Apply(time.Minute, 0, 12345); got != time.Minute {
		t.Errorf("zero value: %v", got)
	}
	for _, fraction := range []float64{-1, math.NaN(), math.Inf(-1)} {
		j := backoff.Jitter{Kind: backoff.JitterDown, Fraction: fraction}
		if got := j.Apply(time.Minute, 0, 12345); got != time.Minute {
			t.Errorf("fraction %v: %v", fraction, got)
		}
	}
	for _, fraction := range []float64{1, 2, math.Inf(1)} {
		j := backoff.Jitter{Kind: backoff.JitterDown, Fraction: fraction}
		if got := j.Apply(time.Minute, 0, 12345); got < 0 || got > time.Minute {
			t.Errorf("fraction %v: %v", fraction, got)
		}
	}
	if got := (backoff.Jitter{Kind: 200}).Apply(time.Minute, 0, 1); got != time.Minute {
		t.Errorf("unknown kind: %v", got)
	}
}

func TestNames(t *testing.T) {
	for _, kind := range kinds {
		if got, ok := backoff.ParseJitterKind(kind.String()); !ok || got != kind {
			t.Errorf("%v reads as %v", kind, got)
		}
	}
	for _, s := range []backoff.Strategy{backoff.Fixed, backoff.Linear, backoff.Exponential, backoff.Decorrelated} {
		if got, ok := backoff.ParseStrategy(s.String()); !ok || got != s {
			t.Errorf("%v reads as %v", s, got)
		}
	}
	if _, ok := backoff.ParseStrategy("polynomial"); ok {
		t.Error("unknown strategy was read")
	}
	if _, ok := backoff.ParseJitterKind(""); ok {
		t.Error("empty kind was read")
	}
	if got := backoff.Strategy(9).String() + backoff.JitterKind(9).String(); got != "unknownunknown" {
		t.Error(got)
	}
}
