package lease_test

import (
	"math"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/core/lease"
	"github.com/fermata-io/fermata/internal/core/unixtime"
	"pgregory.net/rapid"
)

func TestMint(t *testing.T) {
	const now = 1767225600000
	for _, c := range []struct {
		previous, floor uint64
		now             int64
		want            uint64
	}{
		{0, 0, 0, 1},
		{0, 0, now, now * 1000},
		{now * 1000, 0, now, now*1000 + 1},
		{now*1000 + 999, 0, now, now*1000 + 1000},
		{now*1000 + 999, 0, now + 1, (now + 1) * 1000},
		{5, now*1000 + 7, now, now*1000 + 8}, // a failover lost the previous one
		{9, 4, -1, 10},
		{4, 9, math.MinInt64, 10},
		{0, 0, math.MaxInt64, math.MaxInt64 / 1000 * 1000},
		{math.MaxUint64, 0, now, math.MaxUint64},
	} {
		if got := lease.Mint(c.previous, c.floor, unixtime.Milli(c.now)); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	if at := lease.MintedMS(lease.Mint(now*1000, 0, now)); at != now {
		t.Errorf("minted at %d, want %d", at, int64(now))
	}
}

func TestTokensStayExactInDoubles(t *testing.T) {
	end := unixtime.MilliOf(time.Date(2255, 1, 1, 0, 0, 0, 0, time.UTC))
	if got := lease.Mint(0, 0, end); got > lease.MaxToken {
		t.Errorf("%d in 2255", got)
	}
	if f := float64(lease.MaxToken); uint64(f) != lease.MaxToken || uint64(f-1) != lease.MaxToken-1 {
		t.Error("MaxToken is not exact")
	}
}

// Whatever the clock does, and whatever a failover forgets as long as a caller
// remembers it, tokens strictly grow.
func TestTokensGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var stored, seen uint64
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now := rapid.Int64Range(-10, 4_000_000_000_000).Draw(t, "now")
			token := lease.Mint(stored, seen, unixtime.Milli(now))
			if token <= seen || token <= stored {
				t.Fatalf("%d after %d (stored %d)", token, seen, stored)
			}
			stored, seen = token, token
			if rapid.Bool().Draw(t, "failover") {
				stored = rapid.Uint64Range(0, stored).Draw(t, "left")
			}
		}
	})
}
