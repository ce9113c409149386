// Package retryafter parses the header Retry-After of HTTP responses.
//
// A value is a number of seconds, also with a fraction, or a date in one of the three formats
// of HTTP. A date is relative to the response's own Date, so that the clocks of the two sides may
// differ. Of several values the longest delay counts, in separate headers or in one with
// commas. Invalid values, negative numbers and past dates mean no delay.
//
// Invariant: a delay is never negative and does not overflow: it is at most the longest
// duration. Callers limit it by their own policies.
package retryafter

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Read returns the delay in the headers of a response; 0: none. now is the time at which the response arrived.
func Read(h http.Header, now time.Time) time.Duration {
	if sent, err := http.ParseTime(strings.TrimSpace(h.Get("Date"))); err == nil {
		now = sent
	}
	var longest time.Duration
	for _, value := range h.Values("Retry-After") {
		longest = max(longest, delayUntilDate(value, now))
		for part := range strings.SplitSeq(value, ",") {
			longest = max(longest, parseSeconds(part))
		}
	}
	return longest
}

func delayUntilDate(text string, now time.Time) time.Duration {
	at, err := http.ParseTime(strings.TrimSpace(text))
	if err != nil {
		return 0
	}
	return at.Sub(now)
}

// parseSeconds parses digits, with a fraction or without one.
func parseSeconds(text string) time.Duration {
	text = strings.TrimSpace(text)
	if text == "" || strings.Trim(text, "0123456789.") != "" {
		return 0
	}
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case math.IsInf(n, 1), err == nil && n >= math.MaxInt64/float64(time.Second):
		return math.MaxInt64
	case err != nil:
		return 0
	}
	return time.Duration(math.Ceil(n*1e3)) * time.Millisecond
}
