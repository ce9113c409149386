package backoff_test

import (
	"math"
	"math/bits"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/backoff"
)

// These numbers may never change: stored due times were computed from them.
func TestSeedGolden(t *testing.T) {
	for _, c := range []struct {
		job          string
		run, attempt int64
		want         uint64
	}{
		{"", 0, 0, 0xcfcc8ada17dfc77},
		{"default/report", 1, 1, 0xf08dbed7e6e11003},
		{"default/report", 1, 2, 0x9a8dde58210d7d35},
		{"default/report", 1767225600000, 1, 0x1267c05c2e1cbab8},
		{"default/réport", -1, 1, 0xc12a42038786e1c7},
		{"default/report", math.MaxInt64, math.MinInt64, 0x1b11e591e7add459},
	} {
		if got := backoff.Seed(c.job, c.run, c.attempt); got != c.want {
			t.Errorf("Seed(%q, %d, %d) = %#x, want %#x", c.job, c.run, c.attempt, got, c.want)
		}
	}
}

func TestDelayGolden(t *testing.T) {
	seed := backoff.Seed("default/report", 1767225600000, 3)
	retry, recurring := backoff.DefaultRetry(), backoff.DefaultRecurring()
	walk := backoff.Retry{Strategy: backoff.Decorrelated, Base: time.Second, MaxDelay: time.Minute}
	odd := backoff.Retry{Strategy: backoff.Exponential, Base: time.Second, Multiplier: 1.7, Jitter: backoff.DefaultJitter()}
	for name, c := range map[string]struct{ got, want time.Duration }{
		"retry":        {retry.Delay(3, seed), 3867490472},
		"recurring":    {recurring.Delay(time.Minute, 3, 0, 0, seed), 464098856645},
		"decorrelated": {walk.Delay(3, seed), 4566957517},
		"1.7":          {odd.Delay(20, seed), 23115259178515},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", name, c.got, c.want)
		}
	}
}

// Changing any one argument a little changes about half of the bits.
func TestSeedAvalanche(t *testing.T) {
	flipped, pairs := 0, 0
	count := func(a, b uint64) {
		if a == b {
			t.Fatal("equal seeds of different arguments")
		}
		flipped += bits.OnesCount64(a ^ b)
		pairs++
	}
	for i := range int64(2000) {
		seed := backoff.Seed("default/report", i, 1)
		count(seed, backoff.Seed("default/report", i+1, 1))
		count(seed, backoff.Seed("default/report", i, 2))
		count(seed, backoff.Seed("default/reporu", i, 1))
	}
	if mean := float64(flipped) / float64(pairs); mean < 31.5 || mean > 32.5 {
		t.Errorf("%.2f of 64 bits change", mean)
	}
}

// Run and attempt are not interchangeable, nor is their sum what counts.
func TestSeedDistinguishesRunAndAttempt(t *testing.T) {
	seen := map[uint64]bool{}
	for run := range int64(200) {
		for attempt := range int64(200) {
			seen[backoff.Seed("j", run, attempt)] = true
		}
	}
	if len(seen) != 200*200 {
		t.Errorf("%d seeds of %d", len(seen), 200*200)
	}
}

// A name may come in parts, wherever it is cut.
func TestSeedOfParts(t *testing.T) {
	const name = "ns/job@1-1800000000000"
	want := backoff.Seed(name, 3, 2)
	for i := range len(name) {
		if got := backoff.SeedOf(3, 2, name[:i], "", name[i:]); got != want {
			t.Errorf("cut at %d: %x, want %x", i, got, want)
		}
	}
}
