// Package timespan parses durations as people write them: those of Go, with weeks and days before them.
//
// A day has 24 hours and a week 168, whatever the calendar and the clock of a time zone do: 7d is 168h. Calendar days
// belong to schedules.
package timespan

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	// Day is 24 hours.
	Day = 24 * time.Hour
	// Week is 168 hours.
	Week = 7 * Day
)

// Example names values in messages about invalid ones.
const Example = "250ms, 30s, 1h30m, 7d or 2w"

var (
	// ErrInvalid is the error of a text that is no duration.
	ErrInvalid = errors.New("want a duration such as " + Example)
	errTooLong = errors.New("is longer than 292 years")
)

// Parse parses durations like [time.ParseDuration], with weeks and days before the other units: 2w, 7d, 1w2d, 1d12h.
func Parse(text string) (time.Duration, error) {
	rest := strings.TrimLeft(text, "+-")
	if !strings.ContainsAny(rest, "wd") {
		return parseHours(text)
	}
	if len(text)-len(rest) > 1 {
		return 0, ErrInvalid
	}
	total := 0.0
	for _, unit := range []struct {
		letter string
		size   time.Duration
	}{{"w", Week}, {"d", Day}} {
		number, after, found := strings.Cut(rest, unit.letter)
		if !found {
			continue
		}
		n, err := parseNumber(number)
		if err != nil {
			return 0, err
		}
		total += n * float64(unit.size)
		rest = after
	}
	hours := time.Duration(0)
	if rest != "" {
		if !isDigit(rest[0]) {
			return 0, ErrInvalid
		}
		var err error
		hours, err = parseHours(rest)
		if err != nil {
			return 0, err
		}
	}
	if total+float64(hours) >= math.MaxInt64 {
		return 0, errTooLong
	}
	d := time.Duration(total) + hours
	if strings.HasPrefix(text, "-") {
		d = -d
	}
	return d, nil
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' || c == '.' }

// parseNumber parses digits with at most one point.
func parseNumber(text string) (float64, error) {
	if text == "" || strings.Trim(text, "0123456789.") != "" {
		return 0, ErrInvalid
	}
	n, err := strconv.ParseFloat(text, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errTooLong
	}
	if err != nil {
		return 0, ErrInvalid
	}
	return n, nil
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
	return 0, ErrInvalid
}
