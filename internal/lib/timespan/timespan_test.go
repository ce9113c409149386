package timespan_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fermata-io/fermata/internal/lib/timespan"
)

func TestDurationsHaveWeeksAndDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1d": 24 * time.Hour, "7d": 168 * time.Hour, "6d23h": 167 * time.Hour, "1.5d": 36 * time.Hour, "-1d": -24 * time.Hour,
		"-1d12h": -36 * time.Hour, "+1d": 24 * time.Hour, "2w": 336 * time.Hour, "1w2d": 216 * time.Hour, "1w2d3h4m": 219*time.Hour + 4*time.Minute,
		"0.5w": 84 * time.Hour, "-1w": -168 * time.Hour, "1w12h": 180 * time.Hour, "0w": 0, "1d.5h": 24*time.Hour + 30*time.Minute, "1h30m": 90 * time.Minute, "0": 0, "250ms": 250 * time.Millisecond, "0d": 0,
	} {
		if got, err := timespan.Parse(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "1", "1dd", "1d1", "1d-1h", "+-1d", "1e3d", "Infd", "NaNd", "200000d", "1h1d", "0x1d", "1_0d", "w", "1d1w", "1w1w", "1w-1d", "1h1w", "1ww", "2 w", "1w ", ".w", "--1w", "1y", "1W", "7D", "1d+1h", "1d1"} {
		if got, err := timespan.Parse(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestDurationsThatAreTooLong: their error differs from that of an invalid duration.
func TestDurationsThatAreTooLong(t *testing.T) {
	for text, want := range map[string]string{
		"2562048h": "longer than 292 years", "200000d": "longer than 292 years", "20000w": "longer than 292 years", "15000w99999d": "longer than 292 years", "99999999999999999999s": "longer than 292 years",
		"-2562049h": "longer than 292 years", "1d99999999h": "longer than 292 years", "soon": "want a duration", "5": "want a duration", "h": "want a duration", "1h5": "want a duration",
	} {
		if got, err := timespan.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}
