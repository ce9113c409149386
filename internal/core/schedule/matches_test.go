package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestMatchesTimeAgreesWithNext: a civil time matches if and only if it is the first match from it on.
func TestMatchesTimeAgreesWithNext(t *testing.T) {
	var all []fields
	for _, text := range []string{
		"* * * * *", "0 0 29 2 *", "1 1 29 2 MON#5", "*/7 3-5 L * *", "5 4 15W * *", "30 12 * 6 FRI#L", "0 0 1,15 * MON", "0 0 30 2 *",
	} {
		f, _, err := parseFields(text, false, 1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	begin, end := time.Date(1890, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	rapid.Check(t, func(t *rapid.T) {
		f := &all[rapid.IntRange(0, len(all)-1).Draw(t, "expression")]
		c := rapid.Int64Range(begin, end).Draw(t, "time")
		if rapid.Bool().Draw(t, "a match") {
			if next, ok := f.nextMatch(c); ok {
				c = next
			}
		}
		next, ok := f.nextMatch(c)
		if got := f.matchesTime(c); got != (ok && next == c) {
			t.Fatalf("%v: matches %v, the next one is %v", time.Unix(c, 0).UTC(), got, time.Unix(next, 0).UTC())
		}
	})
}
