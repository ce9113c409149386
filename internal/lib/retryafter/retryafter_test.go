package retryafter

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestRead is the table of all forms.
func TestRead(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later := now.Add(time.Hour)
	const century = 100 * 366 * 24 * time.Hour
	for name, test := range map[string]struct {
		values []string
		date   string
		want   time.Duration
	}{
		"none":                     {},
		"empty":                    {values: []string{""}},
		"seconds":                  {values: []string{"120"}, want: 2 * time.Minute},
		"zero":                     {values: []string{"0"}},
		"leading zeros":            {values: []string{"0007"}, want: 7 * time.Second},
		"spaces around":            {values: []string{"  120\t"}, want: 2 * time.Minute},
		"longer than a duration":   {values: []string{"9999999999"}, want: math.MaxInt64},
		"longer than an int64":     {values: []string{strings.Repeat("9", 30)}, want: math.MaxInt64},
		"longer than a float":      {values: []string{strings.Repeat("9", 400)}, want: math.MaxInt64},
		"the longest duration":     {values: []string{"9223372036"}, want: 9223372036 * time.Second},
		"one more":                 {values: []string{"9223372037"}, want: math.MaxInt64},
		"negative":                 {values: []string{"-5"}},
		"negative, long":           {values: []string{"-9999999999"}},
		"fraction":                 {values: []string{"1.5"}, want: 1500 * time.Millisecond},
		"fraction, rounded up":     {values: []string{"0.0001"}, want: time.Millisecond},
		"two points":               {values: []string{"1.2.3"}},
		"a point":                  {values: []string{"."}},
		"plus":                     {values: []string{"+5"}},
		"exponent":                 {values: []string{"1e3"}},
		"hexadecimal":              {values: []string{"0x10"}},
		"infinity":                 {values: []string{"Inf"}},
		"unit":                     {values: []string{"1h"}},
		"other digits":             {values: []string{"１２"}},
		"words":                    {values: []string{"soon"}},
		"IMF-fixdate":              {values: []string{later.Format(http.TimeFormat)}, want: time.Hour},
		"RFC 850":                  {values: []string{"Friday, 02-Jan-26 04:04:05 GMT"}, want: time.Hour},
		"asctime":                  {values: []string{"Fri Jan  2 04:04:05 2026"}, want: time.Hour},
		"IMF-fixdate, past":        {values: []string{now.Add(-time.Hour).Format(http.TimeFormat)}},
		"RFC 850, past":            {values: []string{"Sunday, 06-Nov-94 08:49:37 GMT"}},
		"asctime, past":            {values: []string{"Sun Nov  6 08:49:37 1994"}},
		"the present":              {values: []string{now.Format(http.TimeFormat)}},
		"a date far off":           {values: []string{"Fri, 31 Dec 9999 23:59:59 GMT"}, want: math.MaxInt64},
		"a date that there is not": {values: []string{"Fri, 31 Feb 2026 00:00:00 GMT"}},
		"ISO 8601":                 {values: []string{"2026-01-02T04:04:05Z"}},
		"from the answer's date": {values: []string{later.Format(http.TimeFormat)},
			date: later.Add(-time.Minute).Format(http.TimeFormat), want: time.Minute},
		"the date says: past": {values: []string{later.Format(http.TimeFormat)},
			date: later.Add(time.Minute).Format(http.TimeFormat)},
		"a date of garbage": {values: []string{later.Format(http.TimeFormat)}, date: "yesterday",
			want: time.Hour},
		"seconds, whatever the day": {values: []string{"5"}, date: later.Format(http.TimeFormat),
			want: 5 * time.Second},
		"several, the longest": {values: []string{"5", "120", "7"}, want: 2 * time.Minute},
		"several, in one":      {values: []string{"5, 120"}, want: 2 * time.Minute},
		"garbage and seconds":  {values: []string{"soon", "5"}, want: 5 * time.Second},
		"seconds and a date":   {values: []string{"5", later.Format(http.TimeFormat)}, want: time.Hour},
		"a past date and seconds": {values: []string{now.Add(-century).Format(http.TimeFormat), "5"},
			want: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{"Retry-After": test.values}
			if test.date != "" {
				h.Set("Date", test.date)
			}
			if got := Read(h, now); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
