package manifest

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
)

var (
	errDuration = errors.New("want a duration such as 250ms, 30s, 1h30m or 7d")
	errTooLong  = errors.New("is longer than 292 years")
)

// ParseDuration parses durations like time.ParseDuration, with days of 24 hours before them: 7d, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	unsigned := strings.TrimLeft(text, "+-")
	days, rest, found := strings.Cut(unsigned, "d")
	if !found {
		return parseHours(text)
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil || n < 0 || len(text)-len(unsigned) > 1 || strings.ContainsAny(days, "eExXpPiInN_+-") ||
		strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "+") {
		return 0, errDuration
	}
	d := time.Duration(0)
	if rest != "" {
		d, err = parseHours(rest)
		if err != nil {
			return 0, err
		}
	}
	if n*float64(24*time.Hour)+float64(d) >= math.MaxInt64 {
		return 0, errTooLong
	}
	d += time.Duration(n * float64(24*time.Hour))
	if strings.HasPrefix(text, "-") {
		d = -d
	}
	return d, nil
}

// parseHours distinguishes a duration that is too long from an invalid one.
func parseHours(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err == nil {
		return d, nil
	}
	number := strings.TrimRight(strings.TrimLeft(text, "+-"), "hmsuµn")
	if _, err := strconv.ParseFloat(number, 64); err == nil && number != strings.TrimLeft(text, "+-") &&
		!strings.ContainsAny(number, "eExXpPiI_") {
		return 0, errTooLong
	}
	return 0, errDuration
}

// longDuration turns "5m" into "300s".
func longDuration(text string) (string, error) {
	d, err := ParseDuration(text)
	if err != nil {
		return "", err
	}
	long, err := protojson.Marshal(durationpb.New(d))
	return strings.Trim(string(long), `"`), err
}
