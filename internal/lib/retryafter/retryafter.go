// Package retryafter reads the header Retry-After of HTTP answers.
//
// A value is a number of seconds, also with a fraction, or a date in one of the three formats of
// HTTP. A date counts from the answer's own Date, so that the clocks of the two sides may differ.
// Of several values the longest delay counts, whether they have a header each or stand in one
// behind commas. What is neither a number nor a date asks for nothing, and neither does a
// negative number, or a date in the past.
//
// Invariant: a delay is never negative, and never wraps around: what is too long for a duration
// is the longest duration. Callers bound it by their own policies.
package retryafter

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Read returns the delay that an answer's headers ask for; 0 if they ask for none. now is the time at which
// the answer came.
func Read(h http.Header, now time.Time) time.Duration {
	if sent, err := http.ParseTime(strings.TrimSpace(h.Get("Date"))); err == nil {
		now = sent
	}
	var longest time.Duration
	for _, value := range h.Values("Retry-After") {
		longest = max(longest, untilDate(value, now))
		for part := range strings.SplitSeq(value, ",") {
			longest = max(longest, seconds(part))
		}
	}
	return longest
}

func untilDate(text string, now time.Time) time.Duration {
	at, err := http.ParseTime(strings.TrimSpace(text))
	if err != nil {
		return 0
	}
	return at.Sub(now)
}

// seconds reads digits, with a fraction or without one.
func seconds(text string) time.Duration {
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
